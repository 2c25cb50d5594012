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

/* use_wrongly */
typedef struct wrong_params {
    rgn_id id;
    uint64_t is_null; /* uint32_t: whether the map returned NULL */
} wrong_params;

#endif
