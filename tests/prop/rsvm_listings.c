/* The program of the RSVM slides, C = A * B, by their listings 11 to 13; its kernel, with 14 and 15, is in rsvm_listings_kernels.c.
 *
 *     rsvm_listings
 *
 * The listings stand between lines that say so. They differ from the slides in this: the loop is C, in place of
 * `for(i: 0 to blockDim.y)`, and its body uses what it maps; blockDim.y, which the slides leave out with all other sizes, is the number of strips;
 * the launch is a function, as C has no <<<>>>.
 *
 * Goal: programs written by the slides compute what the CPU computes, with data that does not fit and with data that
 * does; numbers that are wrong are refused, on both sides, and not given to another region.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gvmem/gvmem.h>
#include <gvmem/rsvm.h>

#include "driver/driver.h"
#include "tests/lib/device.h"
#include "tests/lib/fixture.h"
#include "tests/lib/tap.h"
#include "tests/lib/units.h"
#include "tests/prop/rsvm_listings.h"

extern const unsigned char gvmi_image_soft_rsvm_listings[];
extern const unsigned char *const gvmi_image_cuda_rsvm_listings;

typedef struct dimensions {
    uint32_t x, y;
} dimensions;

static gvm_device *device;
static gvm_device_info info = {.struct_size = sizeof info};
static CUmodule module;

#define WRONG(...) (printf("# " __VA_ARGS__), puts(""), false)

static bool good(gvm_status status, const char *call)
{
    gvm_error error;

    if (status == GVM_OK)
        return true;
    gvm_error_last(&error);
    return WRONG("%s: %s: %s", call, gvm_status_name(status), error.text);
}
#define GOOD(call) good(call, #call)

static bool launch(const char *name, dimensions blocks, uint32_t threads, void *params)
{
    void *arguments[] = {params};
    CUfunction function;
    CUresult result = gvmi_cu->cuModuleGetFunction(&function, module, name);

    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuLaunchKernel(function, blocks.x, blocks.y, 1, threads, 1, 1, 0, NULL,
                                         arguments, NULL);
    return result == CUDA_SUCCESS || WRONG("%s: CUresult %d", name, (int)result);
}

/* ---- the matrices: 192 * 256 times 256 * 4096, 192 KiB, 4 MiB and 3 MiB; their sums are exact */

enum {
    A_rows = 192,
    B_rows = 256,
    C_rows = A_rows,
    B_row_length = 4096,
    C_row_length = B_row_length
};

static const dimensions threadBlock = {1, 16};
static const dimensions blockDim = {1, B_row_length / 16};

static float a_at(uint32_t row, uint32_t k)
{
    return (float)((row * 31 + k * 17) % 11);
}

static float b_at(uint32_t k, uint32_t column)
{
    return (float)((k * 13 + column * 7 + k * column) % 9);
}

static void fill_A(float *A)
{
    for (uint32_t row = 0; row < A_rows; row++)
        for (uint32_t k = 0; k < B_rows; k++)
            A[row * B_rows + k] = a_at(row, k);
}

static void fill_B(float *pB, uint64_t pitch, uint32_t first)
{
    for (uint32_t k = 0; k < B_rows; k++)
        for (uint32_t x = 0; x < threadBlock.y; x++)
            ((float *)((char *)pB + k * pitch))[x] = b_at(k, first + x);
}

/* A row of the product. */
static void multiply_row(uint32_t row, float *sums)
{
    memset(sums, 0, C_row_length * sizeof *sums);
    for (uint32_t k = 0; k < B_rows; k++)
        for (uint32_t column = 0; column < C_row_length; column++)
            sums[column] += a_at(row, k) * b_at(k, column);
}

static bool check_C(rgn_coll_id rc_C)
{
    static float sums[C_row_length];
    rgn_coll_meta meta_C = rgn_coll_get_meta_cpu(rc_C);
    const char *pC[B_row_length / 16];
    bool fine = true;

    for (uint32_t i = 0; i < blockDim.y; i++) {
        pC[i] = rgn_map_cpu(meta_C->rgns[i], rgn_op_readonly, NULL, NULL);
        if (pC[i] == NULL)
            return WRONG("strip %u of C cannot be mapped", i);
    }
    for (uint32_t row = 0; row < C_rows && fine; row++) {
        multiply_row(row, sums);
        for (uint32_t i = 0; i < blockDim.y && fine; i++)
            fine = memcmp(pC[i] + row * rgn_pitch_cpu(meta_C->rgns[i]), &sums[i * threadBlock.y],
                          threadBlock.y * sizeof *sums) == 0 ||
                   WRONG("row %u of strip %u of C is wrong", row, i);
    }
    for (uint32_t i = 0; i < blockDim.y; i++)
        fine = GOOD(rgn_unmap_cpu(meta_C->rgns[i])) && fine;
    return fine;
}

static bool launch_mmKernel(dimensions NB, uint32_t NT, rgn_coll_id rc_C, rgn_id r_A, rgn_coll_id rc_B)
{
    listing_params params = {rc_C, r_A, rc_B, A_rows, B_rows, threadBlock.y, 0};

    return launch("mmKernel", NB, NT, &params);
}

/* ---- the listings */

typedef struct displaced {
    uint64_t evicted, remote;
} displaced;

static displaced displaced_of(rgn_coll_id id)
{
    gvm_collection_info of = {.struct_size = sizeof of};

    if (gvm_collection_get_info(rsvm_the_space.members[RSVM_COLLECTION(id)].collection, &of) != GVM_OK)
        return (displaced){0, 0};
    return (displaced){of.evicted, of.remote};
}

/* Where not all strips fit some are evicted, or find no frame: on a GPU that runs all blocks at the same time no strip is idle
 * before all are mapped. Where all fit, none is evicted. */
static bool check_displaced(rgn_coll_id id, bool evicts)
{
    const displaced of = displaced_of(id);

    return (evicts ? of.evicted + of.remote > 0 : of.evicted == 0) ||
           WRONG("%llu strips were evicted, %llu found no frame", (unsigned long long)of.evicted,
                 (unsigned long long)of.remote);
}

static bool multiply(bool evicts)
{
    const uint64_t size_A = A_rows * B_rows * sizeof(float);
    const uint64_t size_B = (uint64_t)B_rows * B_row_length * sizeof(float);
    const uint64_t size_C = (uint64_t)C_rows * C_row_length * sizeof(float);
    const uint32_t num_rgns_in_B = blockDim.y, num_rgns_in_C = blockDim.y;
    const dimensions NB = blockDim;
    const uint32_t NT = (uint32_t)info.block_threads_max < 128 ? (uint32_t)info.block_threads_max : 128;
    uint32_t i;

    /* clang-format off */
    /* slide 11 */
    rgn_id r_A = rgn_create_cpu
        (size_A);
    rgn_coll_id rc_B = rgn_coll_create
        (size_B, num_rgns_in_B,
        B_row_length, //stride
        threadBlock.y, //width
        B_rows);
        //height
    rgn_coll_id rc_C = rgn_coll_create
        (size_C, num_rgns_in_C,
        C_row_length,
        threadBlock.y,
        C_rows);
    /* end */
    if (r_A == RGN_NONE || rc_B == RGN_NONE || rc_C == RGN_NONE)
        return GOOD(gvm_error_last(NULL));

    /* slide 12 */
    float *A = rgn_map_cpu (r_A,
        rgn_op_writeonly, NULL,
        NULL);
    rgn_coll_meta meta_B =
        rgn_coll_get_meta_cpu
        (rc_B);
    for(i = 0; i < blockDim.y; i++) {
        float *pB = rgn_map_cpu
            (meta_B->rgns[i],
            rgn_op_writeonly, NULL,
            NULL);
        fill_B(pB, rgn_pitch_cpu(meta_B->rgns[i]), i * threadBlock.y);
        if (!GOOD(rgn_unmap_cpu(meta_B->rgns[i])))
            return false;
    }
    /* end */
    /* clang-format on */
    fill_A(A);
    if (!GOOD(rgn_unmap_cpu(r_A)))
        return false;

    /* slide 13 */
    if (!GOOD(rsvm_sync()))
        return false;
    if (!launch_mmKernel(NB, NT, rc_C, r_A, rc_B))
        return false;
    /* end */

    return GOOD(rsvm_sync()) && check_C(rc_C) && check_displaced(rc_B, evicts) &&
           check_displaced(rc_C, evicts) && GOOD(rgn_coll_delete(rc_C)) &&
           GOOD(rgn_coll_delete(rc_B)) && GOOD(rgn_delete(r_A));
}

static bool start(uint64_t budget_bytes)
{
    gvm_space_options options = gvm_space_options_init();

    options.budget_bytes = budget_bytes;
    return GOOD(rsvm_start(device, &options)) &&
           rsvm_sync() == GVM_E_INVALID && /* as long as kernels find no region */
           GOOD(rsvm_bind(module));
}

static bool multiply_within(uint64_t budget_bytes, bool evicts)
{
    const bool fine = start(budget_bytes) && multiply(evicts) && multiply(evicts);

    rsvm_stop();
    return fine;
}

/* ---- numbers that are wrong */

static bool says(const char *text)
{
    gvm_error error;

    gvm_error_last(&error);
    return error.status == GVM_E_INVALID && strstr(error.text, text) != NULL
               ? true
               : WRONG("the error is \"%s\", not \"%s\"", error.text, text);
}

static bool refuses_shapes(void)
{
    return rgn_create_cpu(0) == RGN_NONE && rgn_coll_create(4096, 4, 32, 8, 31) == RGN_NONE &&
           says("4096 bytes are not 31 rows") && rgn_coll_create(4096, 5, 32, 8, 32) == RGN_NONE &&
           says("5 regions 8 wide") && rgn_coll_create(4096, 0, 32, 8, 32) == RGN_NONE &&
           says("0 regions") && rgn_coll_create(4096, 16, 32, 2, 32) == RGN_NONE &&
           says("multiples of 16");
}

static bool refuses_on_the_cpu(rgn_id one, rgn_coll_id many, rgn_id gone)
{
    return rgn_map_cpu(gone, rgn_op_readonly, NULL, NULL) == NULL && says("no region or collection") &&
           rgn_map_cpu(RGN_NONE, rgn_op_readonly, NULL, NULL) == NULL &&
           rgn_map_cpu(many + 4, rgn_op_readonly, NULL, NULL) == NULL &&
           says("there is no region 4") && rgn_unmap_cpu(one) == GVM_E_INVALID &&
           says("has not mapped") && rgn_delete(many + 4) == GVM_E_INVALID &&
           rgn_delete(one + 1) == GVM_E_INVALID && says("there is no region 1") &&
           rgn_delete(rsvm_find_member(many)->meta) == GVM_E_INVALID && says("with its collection") &&
           rgn_coll_delete(rsvm_find_member(many)->meta) == GVM_E_INVALID &&
           says("no collection") && rgn_coll_delete(one) == GVM_E_INVALID && says("no collection") &&
           rgn_coll_delete(many + 1) == GVM_E_INVALID && rgn_coll_get_meta_cpu(gone) == NULL;
}

/* A kernel maps an id. It finds what is expected, MAP_..., and if that fails the next sync says why. */
static bool kernel_finds(rgn_id id, uint32_t expected, gvm_buffer *memory, const char *text)
{
    number_params params = {id, (uintptr_t)gvm_buffer_address(memory)};
    uint32_t found = UINT32_MAX;
    gvm_status status;

    if (!launch("map_number", (dimensions){1, 1}, (uint32_t)info.warp_size, &params))
        return false;
    status = rsvm_sync();
    if (!((expected & MAP_FAILED) != 0 ? status == GVM_E_INVALID && says(text) : GOOD(status)))
        return false;
    return GOOD(gvm_buffer_copy_out(&found, memory, 0, sizeof found)) && GOOD(rsvm_sync()) &&
           (found == expected ||
            WRONG("number 0x%llx: %u, not %u", (unsigned long long)id, found, expected));
}

/* However many regions it lists: kernels need not keep it mapped. */
static bool metadata_has_a_frame(rgn_coll_id id)
{
    gvm_collection_info of = {.struct_size = sizeof of};
    const rgn_id meta = id != RGN_NONE ? rsvm_find_member(id)->meta : RGN_NONE;

    return meta != RGN_NONE &&
           GOOD(gvm_collection_get_info(rsvm_the_space.members[RSVM_COLLECTION(meta)].collection, &of)) &&
           (of.frame_count == 1 || WRONG("%llu frames", (unsigned long long)of.frame_count));
}

static bool refuses_wrong_numbers(void)
{
    gvm_buffer *memory;
    rgn_id one, again, gone;
    rgn_coll_id many;
    bool fine;

    if (!start(16 * MIB) || !GOOD(gvm_buffer_create(device, 4096, NULL, &memory)) ||
        !GOOD(gvm_buffer_commit(memory, 0, 4096)))
        return false;
    gone = rgn_create_cpu(64);
    fine = gone != RGN_NONE && GOOD(rgn_delete(gone));
    one = rgn_create_cpu(64);
    many = rgn_coll_create(64, 4, 16, 4, 1);
    fine = fine && one != RGN_NONE && many != RGN_NONE && one != gone && refuses_shapes() &&
           refuses_on_the_cpu(one, many, gone) &&
           kernel_finds(gone, MAP_FAILED, memory, "which no region has") &&
           kernel_finds(RGN_NONE, MAP_FAILED, memory, "which no region has") &&
           kernel_finds(one, MAP_WAITED, memory, "") && kernel_finds(one, 0, memory, "") &&
           kernel_finds(many + 3, MAP_WAITED, memory, "") &&
           kernel_finds(many + 4, MAP_FAILED, memory, "does not exist") && GOOD(rgn_delete(many + 1)) &&
           rgn_map_cpu(many + 1, rgn_op_readonly, NULL, NULL) == NULL && GOOD(rsvm_sync()) &&
           kernel_finds(many + 1, MAP_WAITED | MAP_FAILED, memory, "does not exist") &&
           kernel_finds(many + 2, MAP_WAITED, memory, "");
    again = rgn_coll_get_meta_cpu(many)->rgns[3];
    fine = fine && (again == many + 3 || WRONG("the metadata is wrong")) &&
           metadata_has_a_frame(many) && metadata_has_a_frame(rgn_coll_create(48, 3, 12, 4, 1));
    gvm_buffer_destroy(memory);
    rsvm_stop();
    return fine;
}

static bool open_device(void)
{
    return device_open_with_kernels(gvmi_image_soft_rsvm_listings, gvmi_image_cuda_rsvm_listings,
                                    &device, &info, &module);
}

int main(void)
{
    fixture_machine_default("memory=256MiB,sms=4");
    if (!open_device())
        tap_bail_out("there is no device");
    if (module == NULL)
        return tap_skip_all("this build has no kernels for real GPUs");
    tap_result(multiply_within(10 * MIB, true), "listings_multiply_what_does_not_fit");
    tap_result(multiply_within(64 * MIB, false), "listings_multiply_what_fits");
    tap_result(refuses_wrong_numbers(), "number_that_no_region_has_is_refused");
    gvm_device_close(device);
    return tap_finish();
}
