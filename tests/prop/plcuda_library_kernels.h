/* tests/prop/plcuda_library_kernels.h - the arguments of the kernels of plcuda_library.c. */
#ifndef PLCUDA_LIBRARY_KERNELS_H
#define PLCUDA_LIBRARY_KERNELS_H

#include <stdint.h>

/* What each function returns to a thread for the values of one type. */
#define LIBRARY_ANSWERS(letters, type) \
    typedef struct library_##letters { \
        type value; \
        type warp_sum, warp_min, warp_max, block_sum, block_min, block_max; \
        type warp_inclusive, warp_exclusive, block_inclusive, block_exclusive, total; \
    } library_##letters
LIBRARY_ANSWERS(i32, int32_t);
LIBRARY_ANSWERS(u32, uint32_t);
LIBRARY_ANSWERS(i64, int64_t);
LIBRARY_ANSWERS(u64, uint64_t);
LIBRARY_ANSWERS(f32, float);
LIBRARY_ANSWERS(f64, double);
#undef LIBRARY_ANSWERS

typedef struct library_answers {
    library_i32 i32;
    library_u32 u32;
    library_i64 i64;
    library_u64 u64;
    library_f32 f32;
    library_f64 f64;
    uint32_t warp_odd, block_odd; /* how many values are odd */
} library_answers;

typedef struct library_reduce_params {
    uint64_t values;  /* an int32_t for each thread */
    uint64_t answers; /* library_answers */
} library_reduce_params;

typedef struct library_sort_params {
    uint64_t pairs; /* plcuda_pair */
    uint64_t to;
    uint64_t count;
    uint32_t slices, k;
} library_sort_params;

#endif
