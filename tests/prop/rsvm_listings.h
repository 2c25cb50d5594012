/* What rsvm_listings.c and its kernels have in common. */
#ifndef PROP_RSVM_LISTINGS_H
#define PROP_RSVM_LISTINGS_H

#include <gvmem/rsvm_view.h>

/* mmKernel */
typedef struct listing_params {
    rgn_coll_id rc_C;
    rgn_id r_A;
    rgn_coll_id rc_B;
    uint32_t A_rows, B_rows, width, reserved;
} listing_params;

/* map_number */
typedef struct number_params {
    rgn_id id;
    uint64_t found; /* uint32_t: MAP_... */
} number_params;

enum { MAP_FAILED = 1, MAP_WAITED = 2 };

#endif
