/* base/options.h - every setting of the library, in one table.
 *
 * X(name, default, text). All are environment variables, read once when first asked for.
 * gvm_setting_get_info(), `gvmem info` and the manual page gvmem(7) are made from this table.
 */
#ifndef GVMI_BASE_OPTIONS_H
#define GVMI_BASE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include <gvmem/status.h>

/* clang-format off */
#define GVMI_OPTIONS(X) \
    X(GVMEM_DRIVER, "auto", "which driver: auto (a GPU if there is one, else the software GPU), cuda, soft, or the path of a library") \
    X(GVMEM_SOFTGPU, "", "the software GPU's machine, for example devices=2,memory=4GiB,sms=4,warp=32,threads=64,switches=0,host=8GiB,gap_us=200,instance=name") \
    X(GVMEM_VMM, "1", "0: pretend that the devices have no virtual memory management, so that buffers fall back to cuMemAlloc") \
    X(GVMEM_CACHE, "256MiB", "most bytes of free chunks a process keeps for reuse per device, those of device memory for a second, and as many of host memory; 0 keeps none") \
    X(GVMEM_TRACE, "", "trace every driver call with its start, arguments, result and time: stderr, or the path of a file to append to") \
    X(GVMEM_FAULT, "", "fail driver calls, to test programs: NAME:N fails the Nth call of NAME once, NAME:N+ from the Nth on; * is every name") \
    X(GVMEM_KEEPER, "", "the keeper's socket, to listen at and to connect to; empty: $XDG_RUNTIME_DIR/gvmem.sock, for root /run/gvmem/keeper.sock, without that variable /tmp/gvmem-UID.sock") \
    X(GVMEM_RANGE, "1", "0: reserve addresses for each object of a keeper, not 48 TiB for all of them: for tools that note each page of a process, such as valgrind") \
    X(GVMEM_HEAP_DECAY, "1000", "gvmem.torch.use() and other allocators of the Python package: milliseconds that free memory is kept at least, unless GVMEM_HEAP_KEEP is set or memory is short; 0: as long as requests keep asking for it") \
    X(GVMEM_HEAP_KEEP, "", "gvmem.torch.use() and other allocators of the Python package: most bytes of free memory that a heap keeps from the driver, such as 1TiB for all of it; empty: see GVMEM_HEAP_DECAY") \
    X(GVMEM_HEAP_LIMIT, "", "gvmem.torch.use() and other allocators of the Python package: most bytes that the heap of a device commits; empty: what the device has") \
    X(GVMEM_HEAP_TRACE, "", "gvmem.torch.use() and other allocators of the Python package: the path of a file to write every allocation and free to, for gvmem-bench heap --trace") \
    X(GVMEM_CHECK, "0", "1: check the library's own driver calls for contract violations and report them to stderr")
/* clang-format on */

#define GVMI_OPTION_ENUMERATOR(name, fallback, text) GVMI_OPTION_##name,
typedef enum gvmi_option { GVMI_OPTIONS(GVMI_OPTION_ENUMERATOR) GVMI_OPTION_COUNT } gvmi_option;
#undef GVMI_OPTION_ENUMERATOR

/* The value in force; never NULL, lives as long as the library. */
const char *gvmi_option_text(gvmi_option option);

/* The value as a truth ("0", "1") or as a size ("256MiB", "1GiB", "4096"). GVM_E_SETTING says which
 * variable is malformed and what is allowed. */
gvm_status gvmi_option_bool(gvmi_option option, bool *out);
gvm_status gvmi_option_size(gvmi_option option, uint64_t *out_bytes);

#endif
