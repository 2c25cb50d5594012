/* bench/pglz.h - the arguments of the kernels in pglz_kernel.c, and PostgreSQL's own pglz, as the benchmark and the tests of
 * postgres/plcuda/device/pglz.h see them.
 */
#ifndef BENCH_PGLZ_H
#define BENCH_PGLZ_H

#include <stdint.h>

/* A compressed value: where it is in the sources, where it goes in the destinations. */
typedef struct bench_pglz_value {
    uint64_t source_at, dest_at;
    int32_t source_bytes, raw_bytes;
} bench_pglz_value;

typedef struct bench_pglz_params {
    uint64_t sources, dests;
    uint64_t values;  /* bench_pglz_value */
    uint64_t results; /* int32_t: what the function returns */
    uint64_t count;
} bench_pglz_params;

/* PostgreSQL's, with check_complete; it may read 2 bytes behind the source. */
int32_t postgres_pglz_decompress(const char *source, int32_t source_bytes, char *dest,
                                 int32_t raw_bytes);

/* Of any length; -1: it does not become shorter. dest has room for raw_bytes + 4. */
int32_t postgres_pglz_compress(const char *source, int32_t raw_bytes, char *dest);

#endif
