/* keeper/machine/probes.h - static probes (USDT) for bpftrace, perf and SystemTap: free until traced.
 *
 *     bpftrace -e 'usdt:/usr/bin/gvmem-keeper:gvmem:evict { @[arg0] = sum(arg2); }'
 *
 * lease(object, client, mode)  a lease is granted by the keeper (not those of the fast path)
 * revoke(object, state)        an object's permits are withdrawn
 * evict(object, chunk, bytes, copied)  a chunk has left the device; copied: its bytes had to be
 * promote(object, chunk, bytes)        a chunk has come to the device
 * cut(client)                  a client is cut off
 */
#ifndef GVMI_KEEPER_MACHINE_PROBES_H
#define GVMI_KEEPER_MACHINE_PROBES_H

#if defined(__has_include)
#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#define GVMI_PROBE_LEASE(object, client, mode) DTRACE_PROBE3(gvmem, lease, object, client, mode)
#define GVMI_PROBE_REVOKE(object, state) DTRACE_PROBE2(gvmem, revoke, object, state)
#define GVMI_PROBE_EVICT(object, chunk, bytes, copied) \
    DTRACE_PROBE4(gvmem, evict, object, chunk, bytes, copied)
#define GVMI_PROBE_PROMOTE(object, chunk, bytes) DTRACE_PROBE3(gvmem, promote, object, chunk, bytes)
#define GVMI_PROBE_CUT(client) DTRACE_PROBE1(gvmem, cut, client)
#endif
#endif

#ifndef GVMI_PROBE_LEASE
#define GVMI_PROBE_LEASE(object, client, mode) ((void)0)
#define GVMI_PROBE_REVOKE(object, state) ((void)0)
#define GVMI_PROBE_EVICT(object, chunk, bytes, copied) ((void)0)
#define GVMI_PROBE_PROMOTE(object, chunk, bytes) ((void)0)
#define GVMI_PROBE_CUT(client) ((void)0)
#endif

#endif
