/* Cases: copies and memsets.
 *
 * Goal: bytes arrive, exactly those asked for; calls return when they promise to; copies cross the
 * seams of buffers made of several handles, and run beside kernels. What a copy of a range that is
 * not wholly mapped answers is stated too.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/conform/execution.h"

/* ---- contents */

CASE(copy_odd_sizes_at_odd_offsets_exact)
{
    static const size_t offsets[] = {0, 1, 3, 7, 513, 4095};
    static const size_t sizes[] = {1, 2, 3, 5, 17, 4096, 65537};
    static unsigned char out[80 * KIB], in[80 * KIB];
    CUdeviceptr at = take_alloc(sizeof in);
    pattern_write(out, sizeof out, 1);
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++)
        for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++) {
            size_t start = offsets[i], end = start + sizes[j];
            REQUIRE_OK(cu->cuMemsetD8(at, 0xee, sizeof in));
            EXPECT_OK(cu->cuMemcpyHtoD(at + start, out, sizes[j]));
            REQUIRE_OK(cu->cuMemcpyDtoH(in, at, sizeof in));
            EXPECT_TRUE(bytes_are(in, start, 0xee));
            EXPECT_TRUE(pattern_holds(in + start, sizes[j], 1));
            EXPECT_TRUE(bytes_are(in + end, sizeof in - end, 0xee));
        }
}

CASE(copy_device_to_device_unaligned_exact)
{
    enum { BYTES = 100003 };
    static unsigned char bytes[BYTES + 16];
    CUdeviceptr from = take_alloc(BYTES + 16), to = take_alloc(BYTES + 16);
    pattern_write(bytes, BYTES, 2);
    REQUIRE_OK(cu->cuMemcpyHtoD(from + 5, bytes, BYTES));
    REQUIRE_OK(cu->cuMemsetD8(to, 0xee, BYTES + 16));
    EXPECT_OK(cu->cuMemcpyDtoD(to + 3, from + 5, BYTES));
    REQUIRE_OK(cu->cuMemcpyDtoH(bytes, to, BYTES + 16));
    EXPECT_TRUE(bytes_are(bytes, 3, 0xee));
    EXPECT_TRUE(pattern_holds(bytes + 3, BYTES, 2));
    EXPECT_TRUE(bytes_are(bytes + 3 + BYTES, 13, 0xee));
}

CASE(copy_within_one_allocation_moves)
{
    CUdeviceptr at = take_alloc(MIB);
    kernel_fill(at, 64 * KIB, 9);
    EXPECT_OK(cu->cuMemcpyDtoD(at + MIB / 2, at, MIB / 4));
    EXPECT_TRUE(words_are(at + MIB / 2, 64 * KIB, 9, 1));
}

CASE(copy_async_in_one_stream_keeps_order)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    unsigned char *out = take_host(MIB), *in = take_host(MIB);
    CUdeviceptr first = take_alloc(MIB), second = take_alloc(MIB);
    pattern_write(out, MIB, 3);
    memset(in, 0, MIB);
    EXPECT_OK(cu->cuMemcpyHtoDAsync(first, out, MIB, stream));
    EXPECT_OK(cu->cuMemcpyDtoDAsync(second, first, MIB, stream));
    EXPECT_OK(cu->cuMemcpyDtoHAsync(in, second, MIB, stream));
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_TRUE(pattern_holds(in, MIB, 3));
}

CASE(copy_unified_finds_the_direction)
{
    enum { BYTES = 70001 };
    static unsigned char pageable[BYTES];
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    unsigned char *pinned = take_host(BYTES), *other = take_host(BYTES);
    CUdeviceptr first = take_alloc(BYTES), second = take_alloc(BYTES);
    pattern_write(pinned, BYTES, 4);
    EXPECT_OK(cu->cuMemcpyAsync(first, (uintptr_t)pinned, BYTES, stream));
    EXPECT_OK(cu->cuMemcpyAsync(second, first, BYTES, stream));
    EXPECT_OK(cu->cuMemcpyAsync((uintptr_t)other, second, BYTES, stream));
    EXPECT_OK(cu->cuMemcpyAsync((uintptr_t)pageable, second, BYTES, stream));
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_TRUE(pattern_holds(other, BYTES, 4));
    EXPECT_TRUE(pattern_holds(pageable, BYTES, 4));
    pattern_write(pageable, BYTES, 5);
    EXPECT_OK(cu->cuMemcpyAsync(first, (uintptr_t)pageable, BYTES, stream));
    EXPECT_OK(cu->cuMemcpyAsync((uintptr_t)pinned, first, BYTES, stream));
    EXPECT_OK(cu->cuMemcpyAsync((uintptr_t)other, (uintptr_t)pinned, BYTES, stream));
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_TRUE(pattern_holds(other, BYTES, 5));
}

CASE(copy_of_nothing_does_nothing)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    unsigned char byte = 1;
    EXPECT_OK(cu->cuMemcpyHtoD(scratch(), &byte, 0));
    EXPECT_OK(cu->cuMemcpyDtoH(&byte, scratch(), 0));
    EXPECT_OK(cu->cuMemcpyDtoD(scratch(), scratch() + 64, 0));
    EXPECT_OK(cu->cuMemcpyHtoDAsync(scratch(), &byte, 0, stream));
    EXPECT_OK(cu->cuMemcpyAsync(scratch(), scratch() + 64, 0, stream));
    EXPECT_OK(cu->cuMemsetD8(scratch(), 0xff, 0));
    EXPECT_OK(cu->cuMemsetD8Async(scratch(), 0xff, 0, stream));
    EXPECT_OK(cu->cuMemsetD32Async(scratch(), 0xffffffff, 0, stream));
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_U64(byte, 1);
    EXPECT_U64(read_word(scratch()), 0);
}

CASE(copy_of_nothing_at_null_does_nothing)
{
    EXPECT_OK(cu->cuMemcpyHtoD(0, NULL, 0));
    EXPECT_OK(cu->cuMemcpyDtoD(0, 0, 0));
    EXPECT_OK(cu->cuMemsetD8(0, 0, 0));
}

CASE(copy_at_null_refused)
{
    uint32_t word = 0;
    EXPECT_INVALID(cu->cuMemcpyHtoD(0, &word, sizeof word));
    EXPECT_INVALID(cu->cuMemcpyDtoH(&word, 0, sizeof word));
    EXPECT_INVALID(cu->cuMemcpyDtoD(scratch(), 0, sizeof word));
    EXPECT_INVALID(cu->cuMemsetD8(0, 0, sizeof word));
    EXPECT_OK(cu->cuCtxSynchronize());
}

/* ---- pageable and pinned memory */

CASE(copy_pageable_source_may_change_at_once)
{
    static unsigned char bytes[2 * MIB];
    static const size_t sizes[] = {100, 32 * KIB, 2 * MIB};
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr at = take_alloc(sizeof bytes);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        pattern_write(bytes, sizes[i], (unsigned)i);
        EXPECT_OK(cu->cuMemcpyHtoDAsync(at, bytes, sizes[i], stream));
        memset(bytes, 0xdd, sizes[i]);
        EXPECT_OK(cu->cuStreamSynchronize(stream));
        REQUIRE_OK(cu->cuMemcpyDtoH(bytes, at, sizes[i]));
        EXPECT_TRUE(pattern_holds(bytes, sizes[i], (unsigned)i));
    }
}

CASE(copy_to_pageable_is_done_on_return)
{
    static uint32_t words[256 * 1024];
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr at = take_alloc(sizeof words);
    conform_fill fill = {at, sizeof words / 4, 100, 0};
    launch("fill", 16, &fill, stream);
    EXPECT_OK(cu->cuMemcpyDtoHAsync(words, at, sizeof words, stream));
    EXPECT_U64(words[0], 100);
    EXPECT_U64(words[sizeof words / 4 - 1], 100 + sizeof words / 4 - 1);
}

CASE(copy_pinned_returns_before_it_is_done)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    uint32_t *host = take_host(64 * KIB);
    CUdeviceptr at = take_alloc(64 * KIB);
    host[0] = 11;
    host[1] = 22;
    serve_start(stream);
    EXPECT_OK(cu->cuMemcpyHtoDAsync(at, host, 4, stream));
    EXPECT_OK(cu->cuMemcpyDtoHAsync(host + 1, at, 4, stream));
    EXPECT_OK(cu->cuMemsetD32Async(at, 33, 1, stream));
    EXPECT_TRUE(stays_busy(stream));
    EXPECT_U64(__atomic_load_n(&host[1], __ATOMIC_ACQUIRE), 22);
    serve_stop();
    EXPECT_U64(host[1], 11);
    EXPECT_U64(read_word(at), 33);
}

CASE(copy_without_stream_waits_for_blocking_streams)
{
    CUstream stream = take_stream(CU_STREAM_DEFAULT);
    conform_slow slow = {scratch(), 30000000};
    launch("slow", 1, &slow, stream);
    EXPECT_U64(read_word(scratch()), 1);
}

CASE(copy_without_stream_passes_non_blocking_streams)
{
    serve_start(take_stream(CU_STREAM_NON_BLOCKING));
    write_word(scratch(), 8);
    EXPECT_U64(read_word(scratch()), 8);
    EXPECT_U64(serve_read(scratch()), 8);
    EXPECT_OK(cu->cuMemcpyDtoD(scratch() + 256, scratch(), 4));
    EXPECT_OK(cu->cuMemsetD8(scratch() + 512, 7, 4));
    EXPECT_U64(read_word(scratch() + 256), 8);
    EXPECT_U64(read_word(scratch() + 512), 0x07070707);
    EXPECT_TRUE(serve_runs());
}

CASE(copy_runs_beside_a_kernel)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    unsigned char *out = take_host(MIB), *in = take_host(MIB);
    CUdeviceptr first = take_alloc(MIB), second = take_alloc(MIB);
    pattern_write(out, MIB, 6);
    serve_start(take_stream(CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cu->cuMemcpyHtoDAsync(first, out, MIB, stream));
    EXPECT_OK(cu->cuMemcpyDtoDAsync(second, first, MIB, stream));
    EXPECT_OK(cu->cuMemcpyDtoHAsync(in, second, MIB, stream));
    EXPECT_OK(cu->cuMemsetD32Async(first, 5, MIB / 4, stream));
    EXPECT_TRUE(ends_soon(stream));
    EXPECT_TRUE(serve_runs());
    EXPECT_TRUE(pattern_holds(in, MIB, 6));
    EXPECT_U64(serve_read(first + MIB - 4), 5);
}

/* ---- buffers made of several handles */

CASE(copy_crosses_adjacent_mappings)
{
    size_t size = 2 * machine.granule, words = size / 4, half = machine.granule / 2;
    CUdeviceptr at = take_range(size), plain = take_alloc(size);
    uint32_t *host = take_host(size);
    take_mapping(at, machine.granule, take_handle(machine.granule));
    take_mapping(at + machine.granule, machine.granule, take_handle(machine.granule));
    give_access(at, size, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    for (size_t i = 0; i < words; i++)
        host[i] = 3 + (uint32_t)i;
    EXPECT_OK(cu->cuMemcpyHtoD(at, host, size));
    EXPECT_U64(kernel_sum(at, words), sum_of_fill(words, 3));
    memset(host, 0, size);
    EXPECT_OK(cu->cuMemcpyDtoH(host, at + half, machine.granule));
    EXPECT_U64(host[0], 3 + half / 4);
    EXPECT_U64(host[machine.granule / 4 - 1], 3 + half / 4 + machine.granule / 4 - 1);
    EXPECT_OK(cu->cuMemcpyDtoD(plain, at, size));
    EXPECT_TRUE(words_are(plain, words, 3, 1));
    EXPECT_OK(cu->cuMemsetD8(at, 0, size));
    EXPECT_OK(cu->cuMemcpyAsync(at, plain, size, NULL));
    EXPECT_U64(kernel_sum(at, words), sum_of_fill(words, 3));
}

static size_t common_granule(void)
{
    return machine.granule > machine.host_granule ? machine.granule : machine.host_granule;
}

/* One range, its first half on the device, its second on the host. */
static CUdeviceptr take_mixed(size_t half)
{
    CUdeviceptr at = take_range(2 * half);
    take_mapping(at, half, take_handle(half));
    take_mapping(at + half, half, take_host_handle(half));
    give_access(at, 2 * half, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    return at;
}

CASE(copy_to_and_from_host_mapping)
{
    size_t size = common_granule(), words = size / 4;
    CUdeviceptr at = take_mapped(size, take_host_handle(size));
    uint32_t *host = take_host(size);
    for (size_t i = 0; i < words; i++)
        host[i] = 17 + (uint32_t)i;
    EXPECT_OK(cu->cuMemcpyHtoD(at, host, size));
    EXPECT_U64(kernel_sum(at, words), sum_of_fill(words, 17));
    memset(host, 0, size);
    EXPECT_OK(cu->cuMemcpyDtoH(host, at, size));
    EXPECT_U64(host[words - 1], 17 + words - 1);
    EXPECT_OK(cu->cuMemsetD32Async(at, 2, words, NULL));
    EXPECT_U64(kernel_sum(at, words), 2 * words);
}

CASE(copy_between_device_and_host_mappings)
{
    size_t size = common_granule(), words = size / 4;
    CUdeviceptr device = take_memory(size), host = take_mapped(size, take_host_handle(size));
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    kernel_fill(device, words, 21);
    EXPECT_OK(cu->cuMemcpyDtoDAsync(host, device, size, stream));
    EXPECT_OK(cu->cuMemsetD8Async(device, 0, size, stream));
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_U64(kernel_sum(host, words), sum_of_fill(words, 21));
    EXPECT_OK(cu->cuMemcpyAsync(device, host, size, stream));
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_TRUE(words_are(device, words, 21, 1));
}

CASE(copy_across_device_and_host_mapping_down)
{
    size_t half = common_granule(), words = half / 2;
    CUdeviceptr at = take_mixed(half);
    uint32_t *host = take_host(2 * half);
    kernel_fill(at, words, 31);
    EXPECT_OK(cu->cuMemcpyDtoH(host, at, 2 * half));
    EXPECT_U64(host[0], 31);
    EXPECT_U64(host[words / 2], 31 + words / 2);
    EXPECT_U64(host[words - 1], 31 + words - 1);
}

CASE(copy_across_device_and_host_mapping_up)
{
    size_t half = common_granule(), words = half / 2;
    CUdeviceptr at = take_mixed(half);
    uint32_t *host = take_host(2 * half);
    for (size_t i = 0; i < words; i++)
        host[i] = 41 + (uint32_t)i;
    EXPECT_OK(cu->cuMemcpyHtoD(at, host, 2 * half));
    EXPECT_U64(kernel_sum(at, words), sum_of_fill(words, 41));
}

CASE(copy_across_device_and_host_mapping_within)
{
    size_t half = common_granule(), words = half / 2;
    CUdeviceptr at = take_mixed(half), plain = take_alloc(2 * half);
    kernel_fill(plain, words, 51);
    EXPECT_OK(cu->cuMemcpyDtoD(at, plain, 2 * half));
    EXPECT_U64(kernel_sum(at, words), sum_of_fill(words, 51));
    EXPECT_OK(cu->cuMemsetD8(plain, 0, 2 * half));
    EXPECT_OK(cu->cuMemcpyAsync(plain, at, 2 * half, NULL));
    EXPECT_TRUE(words_are(plain, words, 51, 1));
}

/* ---- ranges that are not wholly there: refused at the call, and the context stays good. From the
 * device: case_fault.c.
 *
 * Undefined and not tested: a copy that finds the direction itself (cuMemcpyAsync). It takes
 * addresses without memory for the host's, and NVIDIA's driver dies of touching them. The software
 * GPU answers CUDA_ERROR_INVALID_VALUE. */

CASE(copy_to_reserved_range_refused)
{
    uint32_t word = 0;
    EXPECT_INVALID(cu->cuMemcpyHtoD(take_range(machine.granule), &word, sizeof word));
    EXPECT_OK(cu->cuCtxSynchronize());
}

CASE(copy_within_the_device_of_reserved_range_refused)
{
    EXPECT_INVALID(cu->cuMemcpyDtoD(scratch(), take_range(machine.granule), 4));
    EXPECT_OK(cu->cuCtxSynchronize());
}

CASE(copy_past_end_of_allocation_refused)
{
    static unsigned char bytes[4 * MIB];
    CUdeviceptr at = take_alloc(2 * MIB);
    EXPECT_INVALID(cu->cuMemcpyDtoH(bytes, at, 2 * MIB + 4));
    EXPECT_OK(cu->cuCtxSynchronize());
}

CASE(copy_across_hole_refused)
{
    size_t g = machine.granule;
    CUdeviceptr at = take_range(3 * g);
    void *host = malloc(3 * g);
    REQUIRE_TRUE(host != NULL);
    take_mapping(at, g, take_handle(g));
    take_mapping(at + 2 * g, g, take_handle(g));
    give_access(at, g, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    give_access(at + 2 * g, g, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    EXPECT_INVALID(cu->cuMemcpyDtoH(host, at, 3 * g));
    EXPECT_OK(cu->cuCtxSynchronize());
    free(host);
}

/* ---- batches */

enum { PIECES = 64, PIECE_BYTES = 4096 };

struct batch {
    CUdeviceptr dsts[PIECES], srcs[PIECES];
    size_t sizes[PIECES];
};

static CUresult run_batch(struct batch *batch, size_t count, CUstream stream)
{
    CUmemcpyAttributes attribute = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    size_t first = 0;
    return cu->cuMemcpyBatchAsync(batch->dsts, batch->srcs, batch->sizes, count, &attribute, &first,
                                  1, stream);
}

/* A batch of pieces from memory without gaps to every second piece of other memory. */
static void scatter(struct batch *batch, CUdeviceptr to, CUdeviceptr from)
{
    for (size_t i = 0; i < PIECES; i++) {
        batch->dsts[i] = to + 2 * i * PIECE_BYTES;
        batch->srcs[i] = from + i * PIECE_BYTES;
        batch->sizes[i] = PIECE_BYTES - i; /* odd sizes too */
    }
}

static void need_batches(void)
{
    int version = 0;
    REQUIRE_OK(cu->cuDriverGetVersion(&version));
    if (version < 13000)
        skip("no batched copies before CUDA 13");
}

CASE(batch_scatters_and_gathers)
{
    struct batch batch;
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    size_t dense = PIECES * PIECE_BYTES, sparse = 2 * dense;
    unsigned char *out = take_host(dense), *in = take_host(sparse);
    CUdeviceptr at = take_alloc(sparse);
    need_batches();
    pattern_write(out, dense, 7);
    memset(in, 0, sparse);
    REQUIRE_OK(cu->cuMemsetD8Async(at, 0xee, sparse, stream));
    scatter(&batch, at, (uintptr_t)out);
    EXPECT_OK(run_batch(&batch, PIECES, stream));
    for (size_t i = 0; i < PIECES; i++) {
        batch.srcs[i] = at + 2 * i * PIECE_BYTES;
        batch.dsts[i] = (uintptr_t)in + 2 * i * PIECE_BYTES;
        batch.sizes[i] = 2 * PIECE_BYTES;
    }
    EXPECT_OK(run_batch(&batch, PIECES, stream));
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    for (size_t i = 0; i < PIECES; i++) {
        const unsigned char *piece = in + 2 * i * PIECE_BYTES;
        size_t size = PIECE_BYTES - i;
        EXPECT_TRUE(!memcmp(piece, out + i * PIECE_BYTES, size));
        EXPECT_TRUE(bytes_are(piece + size, 2 * PIECE_BYTES - size, 0xee));
    }
}

CASE(batch_waits_for_its_stream)
{
    struct batch batch = {.sizes = {4}};
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    uint32_t *host = take_host(64);
    need_batches();
    *host = 71;
    batch.dsts[0] = scratch();
    batch.srcs[0] = (uintptr_t)host;
    serve_start(stream);
    EXPECT_OK(run_batch(&batch, 1, stream));
    EXPECT_TRUE(stays_busy(stream));
    EXPECT_U64(serve_read(scratch()), 0);
    serve_stop();
    EXPECT_U64(read_word(scratch()), 71);
}

CASE(batch_reads_pageable_source_during_the_call)
{
    struct batch batch = {.sizes = {PIECE_BYTES, PIECE_BYTES}};
    CUmemcpyAttributes attributes[2] = {{.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM},
                                        {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL}};
    size_t firsts[2] = {0, 1};
    static unsigned char pageable[PIECE_BYTES];
    unsigned char *pinned = take_host(PIECE_BYTES);
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr at = take_alloc(2 * PIECE_BYTES);
    need_batches();
    pattern_write(pinned, PIECE_BYTES, 8);
    pattern_write(pageable, PIECE_BYTES, 9);
    batch.dsts[0] = at;
    batch.srcs[0] = (uintptr_t)pinned;
    batch.dsts[1] = at + PIECE_BYTES;
    batch.srcs[1] = (uintptr_t)pageable;
    EXPECT_OK(cu->cuMemcpyBatchAsync(batch.dsts, batch.srcs, batch.sizes, 2, attributes, firsts, 2,
                                     stream));
    memset(pageable, 0, PIECE_BYTES);
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    REQUIRE_OK(cu->cuMemcpyDtoH(pageable, at + PIECE_BYTES, PIECE_BYTES));
    EXPECT_TRUE(pattern_holds(pageable, PIECE_BYTES, 9));
    REQUIRE_OK(cu->cuMemcpyDtoH(pageable, at, PIECE_BYTES));
    EXPECT_TRUE(pattern_holds(pageable, PIECE_BYTES, 8));
}

CASE(batch_crosses_tiers)
{
    struct batch batch;
    size_t size = common_granule(), dense = PIECES * PIECE_BYTES;
    CUdeviceptr device = take_memory(size), host = take_mapped(size, take_host_handle(size));
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    need_batches();
    kernel_fill(host, dense / 4, 81);
    for (size_t i = 0; i < PIECES; i++) {
        batch.dsts[i] = device + i * PIECE_BYTES;
        batch.srcs[i] = host + i * PIECE_BYTES;
        batch.sizes[i] = PIECE_BYTES;
    }
    EXPECT_OK(run_batch(&batch, PIECES, stream));
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_TRUE(words_are(device, dense / 4, 81, 1));
}

CASE(batch_bad_arguments_refused)
{
    struct batch batch = {.sizes = {4, 4}};
    CUmemcpyAttributes attribute = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    size_t first = 0, second = 1;
    CUdeviceptr from = scratch_word(4);
    need_batches();
    batch.dsts[0] = scratch();
    batch.dsts[1] = scratch_word(1);
    batch.srcs[0] = batch.srcs[1] = from;
    EXPECT_INVALID(run_batch(&batch, 2, NULL));
    EXPECT_INVALID(run_batch(&batch, 0, stream));
    EXPECT_INVALID(cu->cuMemcpyBatchAsync(batch.dsts, batch.srcs, batch.sizes, 2, &attribute,
                                          &second, 1, stream));
    EXPECT_INVALID(cu->cuMemcpyBatchAsync(batch.dsts, batch.srcs, batch.sizes, 2, &attribute,
                                          &first, 3, stream));
    EXPECT_INVALID(
        cu->cuMemcpyBatchAsync(batch.dsts, batch.srcs, batch.sizes, 2, NULL, NULL, 0, stream));
    batch.sizes[1] = 0;
    EXPECT_INVALID(run_batch(&batch, 2, stream));
    EXPECT_OK(cu->cuStreamSynchronize(stream));
}

/* ---- memsets */

CASE(set_widths_exact)
{
    static unsigned char bytes[4096];
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr at = take_alloc(sizeof bytes);
    uint16_t halves[3];
    EXPECT_OK(cu->cuMemsetD8Async(at, 0xee, sizeof bytes, stream));
    EXPECT_OK(cu->cuMemsetD8Async(at + 3, 0x11, 1001, stream));
    EXPECT_OK(cu->cuMemsetD16Async(at + 2002, 0x2233, 3, stream));
    EXPECT_OK(cu->cuMemsetD32Async(at + 3004, 0x44556677, 5, stream));
    EXPECT_OK(cu->cuMemsetD16Async(at + 3100, 0x3434, 3, stream));
    EXPECT_OK(cu->cuMemsetD32Async(at + 3200, 0, 7, stream));
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    REQUIRE_OK(cu->cuMemcpyDtoH(bytes, at, sizeof bytes));
    EXPECT_TRUE(bytes_are(bytes, 3, 0xee));
    EXPECT_TRUE(bytes_are(bytes + 3, 1001, 0x11));
    EXPECT_TRUE(bytes_are(bytes + 1004, 2002 - 1004, 0xee));
    memcpy(halves, bytes + 2002, sizeof halves);
    EXPECT_TRUE(halves[0] == 0x2233 && halves[1] == 0x2233 && halves[2] == 0x2233);
    EXPECT_TRUE(bytes_are(bytes + 2008, 3004 - 2008, 0xee));
    EXPECT_TRUE(words_are(at + 3004, 5, 0x44556677, 0));
    EXPECT_TRUE(bytes_are(bytes + 3024, 3100 - 3024, 0xee));
    EXPECT_TRUE(bytes_are(bytes + 3100, 6, 0x34));
    EXPECT_TRUE(bytes_are(bytes + 3106, 3200 - 3106, 0xee));
    EXPECT_TRUE(bytes_are(bytes + 3200, 28, 0));
    EXPECT_TRUE(bytes_are(bytes + 3228, sizeof bytes - 3228, 0xee));
}

CASE(set_unaligned_refused)
{
    EXPECT_INVALID(cu->cuMemsetD16Async(scratch() + 1, 1, 4, NULL));
    EXPECT_INVALID(cu->cuMemsetD32Async(scratch() + 1, 1, 4, NULL));
    EXPECT_INVALID(cu->cuMemsetD32Async(scratch() + 2, 1, 4, NULL));
    EXPECT_OK(cu->cuCtxSynchronize());
    EXPECT_TRUE(words_are(scratch(), 16, 0, 0));
}

CASE(set_of_reserved_range_refused)
{
    EXPECT_INVALID(cu->cuMemsetD8(take_range(machine.granule), 0, 4));
    EXPECT_OK(cu->cuCtxSynchronize());
}

CASE(set_of_pinned_memory_is_seen_by_the_host)
{
    unsigned char *host = take_host(8192);
    CUdeviceptr at = 0;
    memset(host, 0xee, 8192);
    REQUIRE_OK(cu->cuMemHostGetDevicePointer(&at, host, 0));
    EXPECT_OK(cu->cuMemsetD8(at + 1, 0x5a, 4097));
    EXPECT_OK(cu->cuCtxSynchronize());
    EXPECT_TRUE(host[0] == 0xee && host[4098] == 0xee);
    EXPECT_TRUE(bytes_are(host + 1, 4097, 0x5a));
}

CASE(set_crosses_adjacent_mappings)
{
    size_t g = machine.granule;
    CUdeviceptr at = take_range(2 * g);
    take_mapping(at, g, take_handle(g));
    take_mapping(at + g, g, take_handle(g));
    give_access(at, 2 * g, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    EXPECT_OK(cu->cuMemsetD32Async(at, 7, 2 * g / 4, NULL));
    EXPECT_U64(kernel_sum(at, 2 * g / 4), 7 * (2 * g / 4));
    EXPECT_OK(cu->cuMemsetD8(at + g - 2, 0xff, 4));
    EXPECT_U64(read_word(at + g - 4), 0xffff0007);
    EXPECT_U64(read_word(at + g), 0x0000ffff);
}

CASE(set_crosses_device_and_host_mapping)
{
    size_t half = common_granule(), words = half / 2;
    CUdeviceptr at = take_mixed(half);
    EXPECT_OK(cu->cuMemsetD32Async(at, 9, words, NULL));
    EXPECT_U64(kernel_sum(at, words), 9 * words);
}
