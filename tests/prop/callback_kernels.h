/* What callback_calls.c and its kernels have in common. */
#ifndef PROP_CALLBACK_KERNELS_H
#define PROP_CALLBACK_KERNELS_H

#include <gvmem/callback_view.h>
#include <gvmem/region_view.h>

/* Functions of the host, and how kernels call them. */
enum {
    CALL_MIX,     /* with parameters: gives back mixed words */
    CALL_NOTE,    /* with parameters, and not waited for: is summed up */
    CALL_COLLECT, /* collective: joined or signalled */
    CALL_FUNCTIONS,
};

/* Sums over all groups of threads. */
enum { OUT_CALLS, OUT_NOTES, OUT_NOTED, OUT_REQUESTS, OUT_WRONG, OUT_FIRST_WRONG, OUT_WORDS };

/* What CALL_MIX makes of word i. */
#define CALL_MIXED(word, i) (((word) ^ 0x5555555555555555ull) * 0x9e3779b97f4a7c15ull + (i))

typedef struct callback_params {
    gvm_callback_view server;
    uint64_t out; /* uint64_t: OUT_... */
    uint64_t seed;
    uint32_t rounds;
    uint32_t by; /* GVM_REGION_BY_... */
} callback_params;

typedef struct create_params {
    gvm_region_view regions;
    uint64_t owners; /* uint32_t for each region: how often it was created */
    uint64_t out;    /* uint64_t: regions that were created */
    uint32_t by;     /* GVM_REGION_BY_WARP or _BLOCK */
    uint32_t reserved;
} create_params;

#endif
