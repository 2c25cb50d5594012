/* PostgreSQL's pglz, of its libpgcommon, under names beside which the device library's can be declared. */
#include <stdbool.h>

#include "bench/pglz.h"

/* Declared here: the header for them includes those of a server. */
struct PGLZ_Strategy;
extern const struct PGLZ_Strategy *const PGLZ_strategy_always;
int32_t pglz_compress(const char *source, int32_t slen, char *dest,
                      const struct PGLZ_Strategy *strategy);
int32_t pglz_decompress(const char *source, int32_t slen, char *dest, int32_t rawsize,
                        bool check_complete);

int32_t postgres_pglz_decompress(const char *source, int32_t source_bytes, char *dest, int32_t raw_bytes)
{
    return pglz_decompress(source, source_bytes, dest, raw_bytes, true);
}

int32_t postgres_pglz_compress(const char *source, int32_t raw_bytes, char *dest)
{
    return pglz_compress(source, raw_bytes, dest, PGLZ_strategy_always);
}
