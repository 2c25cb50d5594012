/* The kernel of the RSVM slides, C = A * B, by their listings 14 and 15.
 *
 * These stand between lines that say so. They differ from the slides in nothing but this: declarations that the slides leave out
 * (of the kernel's arguments, blockIdx where CUDA has not declared it, one `complete` and `req` for both), and an arrow that they have lost in
 * `meta_B>rgns`. The unmaps of the listings stand behind the product, which the slides leave out, as they do C.
 */
#include <gvmem/device/rsvm.h>

#include "tests/prop/rsvm_listings.h"

/* Rows of a strip of C from those of A, and the strip of B, whose rows are pitches apart. */
GVM_DEVICE void multiply(const listing_params *p, float *pdC, uint64_t C_pitch, const float *dA,
                         const float *pdB, uint64_t B_pitch)
{
    uint32_t i, k;

    for (i = gvm_thread(); i < p->A_rows * p->width; i += gvm_block_threads()) {
        const uint32_t row = i / p->width, column = i % p->width;
        float sum = 0;

        for (k = 0; k < p->B_rows; k++)
            sum += dA[row * p->B_rows + k] * ((const float *)((const char *)pdB + k * B_pitch))[column];
        ((float *)((char *)pdC + row * C_pitch))[column] = sum;
    }
}

GVM_KERNEL(mmKernel, listing_params, p)
{
    const rgn_coll_id rc_C = p.rc_C;
    const rgn_id r_A = p.r_A;
    const rgn_coll_id rc_B = p.rc_B;
#ifndef __CUDACC__
    const struct {
        uint32_t x, y;
    } blockIdx = {gvm_block_x(), gvm_block_y()};
#endif
    rgn_coll_meta meta_C;
    float *pdC;

    /* clang-format off */
    /* slide 14 */
    int complete, req;
    float *dA = rgn_map_gpu
        (r_A, rgn_op_readonly,
        &complete, &req);
    if (!complete) dA =
        rgn_wait_map_gpu(r_A,
        req);
    /* end */

    /* slide 15 */
    rgn_coll_meta meta_B =
        rgn_coll_get_meta_gpu (rc_B);
    float *pdB = rgn_map_gpu
        (meta_B->rgns[blockIdx.y],
        rgn_op_readonly, &complete,
        &req);
    if (!complete) pdB =
        rgn_wait_map_gpu(meta_B->
        rgns[blockIdx.y], req);
    /* end */

    meta_C = rgn_coll_get_meta_gpu(rc_C);
    pdC = rgn_map_gpu(meta_C->rgns[blockIdx.y], rgn_op_writeonly, &complete, &req);
    if (!complete)
        pdC = rgn_wait_map_gpu(meta_C->rgns[blockIdx.y], req);
    gvm_block_sync(); /* all warps have C mapped, which they write together */
    multiply(&p, pdC, rgn_pitch_gpu(meta_C->rgns[blockIdx.y], pdC), dA, pdB,
             rgn_pitch_gpu(meta_B->rgns[blockIdx.y], pdB));
    gvm_block_sync();
    rgn_unmap_gpu(meta_C->rgns[blockIdx.y]);

    /* slide 15 */
    rgn_unmap_gpu(meta_B->
        rgns[blockIdx.y]);
    /* slide 14 */
    rgn_unmap_gpu(r_A);
    /* end */
    /* clang-format on */
}

/* Maps what may not exist, in two steps. */
GVM_KERNEL(map_number, number_params, p)
{
    int complete, req;
    void *address = rgn_map_gpu(p.id, rgn_op_readonly, &complete, &req);
    uint32_t found = complete ? 0 : MAP_WAITED;

    if (!complete)
        address = rgn_wait_map_gpu(p.id, req);
    if (address == (void *)0)
        found |= MAP_FAILED;
    if (gvm_thread() == 0)
        *(uint32_t *)(uintptr_t)p.found = found;
    if (address != (void *)0)
        rgn_unmap_gpu(p.id);
}
