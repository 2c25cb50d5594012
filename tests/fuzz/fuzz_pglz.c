/* postgres/plcuda/device/pglz.h under libFuzzer: what two bytes of the input give as the value's length, and the rest as its stream,
 * is decompressed as by PostgreSQL, by a thread and by a warp of one lane.
 *
 * clang -fsanitize=fuzzer,address,undefined.
 */
#include <stdlib.h>
#include <string.h>

#include "bench/pglz.h"
#include "postgres/plcuda/device/pglz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const char *source, int32_t length, int32_t raw_bytes, int warp)
{
    char *padded = calloc(1, (size_t)length + 2); /* PostgreSQL reads 2 bytes more */
    char *wanted = calloc(1, (size_t)raw_bytes + 1), *got = malloc((size_t)raw_bytes);
    int32_t wanted_result, result;

    if (padded == NULL || wanted == NULL || (got == NULL && raw_bytes > 0))
        abort();
    memcpy(padded, source, (size_t)length);
    wanted_result = postgres_pglz_decompress(padded, length, wanted, raw_bytes);
    result = warp ? pglz_decompress_warp(source, length, got, raw_bytes)
                  : pglz_decompress(source, length, got, raw_bytes);
    if (result != wanted_result || (result > 0 && memcmp(wanted, got, (size_t)result) != 0))
        abort();
    free(padded);
    free(wanted);
    free(got);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > 1 << 20)
        return 0;
    for (int warp = 0; warp < 2; warp++)
        check((const char *)data + 2, (int32_t)(size - 2), data[0] | data[1] << 8, warp);
    return 0;
}
