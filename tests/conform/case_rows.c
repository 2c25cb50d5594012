/* Cases: memory whose rows lie a pitch apart, and copies and memsets of such rows.
 *
 * Goal: the bytes of the rows arrive, those between them stay.
 */
#include <string.h>

#include "tests/conform/execution.h"

enum { WIDTH = 100, HEIGHT = 7, HOST_PITCH = 128, ROOM = 4096 };

static CUdeviceptr take_pitched(size_t width, size_t height, size_t *pitch)
{
    CUdeviceptr at = 0;
    REQUIRE_OK(cu->cuMemAllocPitch(&at, pitch, width, height, 4));
    own(OWN_ALLOC, at, *pitch * height);
    return at;
}

static CUDA_MEMCPY2D to_device(CUdeviceptr at, size_t pitch, const void *from, size_t from_pitch)
{
    return (CUDA_MEMCPY2D){
        .srcMemoryType = CU_MEMORYTYPE_HOST,
        .srcHost = from,
        .srcPitch = from_pitch,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = at,
        .dstPitch = pitch,
        .WidthInBytes = WIDTH,
        .Height = HEIGHT,
    };
}

static CUDA_MEMCPY2D to_host(void *to, size_t to_pitch, CUdeviceptr at, size_t pitch)
{
    return (CUDA_MEMCPY2D){
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = at,
        .srcPitch = pitch,
        .dstMemoryType = CU_MEMORYTYPE_HOST,
        .dstHost = to,
        .dstPitch = to_pitch,
        .WidthInBytes = WIDTH,
        .Height = HEIGHT,
    };
}

/* Do the rows hold those of a pattern with its own pitch, and the bytes between them the value? */
static bool rows_hold(const unsigned char *at, size_t pitch, const unsigned char *pattern,
                      size_t pattern_pitch, unsigned char between)
{
    for (size_t i = 0; i < HEIGHT; i++)
        if (memcmp(at + i * pitch, pattern + i * pattern_pitch, WIDTH) != 0 ||
            (i + 1 < HEIGHT && !bytes_are(at + i * pitch + WIDTH, pitch - WIDTH, between)))
            return false;
    return true;
}

/* ---- memory */

CASE(pitch_is_a_multiple_of_512_and_holds_the_row)
{
    static const size_t widths[] = {1, 4, 511, 512, 513, 4096, 5000, 100001};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (unsigned element = 4; element <= 16; element *= 2) {
            CUdeviceptr at = 0;
            size_t pitch = 0;
            REQUIRE_OK(cu->cuMemAllocPitch(&at, &pitch, widths[i], 3, element));
            EXPECT_TRUE(pitch >= widths[i] && pitch < widths[i] + 1024);
            EXPECT_U64(pitch % 512, 0);
            EXPECT_U64(at % 512, 0);
            EXPECT_OK(cu->cuMemsetD8(at, 1, 3 * pitch));
            EXPECT_OK(cu->cuMemFree(at));
        }
}

/* gvm_alloc_pitch() takes its pitch from this attribute. */
CASE(pitch_is_what_the_alignment_of_textures_says)
{
    size_t pitch = 0;
    int alignment = 0;
    (void)take_pitched(1, 2, &pitch);
    REQUIRE_OK(cu->cuDeviceGetAttribute(&alignment, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT,
                                        machine.device));
    EXPECT_TRUE(alignment > 0);
    EXPECT_U64(pitch % (size_t)alignment, 0);
}

CASE(pitch_for_elements_of_other_sizes_is_refused)
{
    static const unsigned elements[] = {0, 1, 2, 3, 5, 12, 32};
    CUdeviceptr at = 0;
    size_t pitch = 0;
    for (size_t i = 0; i < sizeof elements / sizeof *elements; i++)
        EXPECT_INVALID(cu->cuMemAllocPitch(&at, &pitch, 64, 4, elements[i]));
    EXPECT_U64(at, 0);
    EXPECT_U64(pitch, 0);
}

CASE(pitch_of_nothing_is_refused)
{
    CUdeviceptr at = 0;
    size_t pitch = 0;
    EXPECT_INVALID(cu->cuMemAllocPitch(&at, &pitch, 0, 4, 4));
    EXPECT_INVALID(cu->cuMemAllocPitch(&at, &pitch, 64, 0, 4));
    EXPECT_INVALID(cu->cuMemAllocPitch(NULL, &pitch, 64, 4, 4));
    EXPECT_INVALID(cu->cuMemAllocPitch(&at, NULL, 64, 4, 4));
}

/* By NVIDIA's manual the largest pitch limits copies, but a single row is copied. Of two no device was asked. */
CASE(pitch_beyond_the_largest_is_given)
{
    static unsigned char here[2];
    CUDA_MEMCPY2D copy;
    CUdeviceptr at = 0;
    size_t pitch = 0;
    int largest = 0;
    REQUIRE_OK(cu->cuDeviceGetAttribute(&largest, CU_DEVICE_ATTRIBUTE_MAX_PITCH, machine.device));
    REQUIRE_TRUE(largest > 0);
    if (free_bytes() / 2 - MIB <= (unsigned long long)largest)
        skip("too little device memory for rows of that size");
    REQUIRE_OK(cu->cuMemAllocPitch(&at, &pitch, (size_t)largest + 1, 2, 4));
    own(OWN_ALLOC, at, 2 * pitch);
    EXPECT_TRUE(pitch > (size_t)largest);
    copy = to_device(at, pitch, here, 1);
    copy.WidthInBytes = 1;
    copy.Height = 1;
    EXPECT_OK(cu->cuMemcpy2D(&copy));
    copy.Height = 2;
    EXPECT_ANY(cu->cuMemcpy2D(&copy), CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS);
}

CASE(pitch_of_more_than_the_device_is_out_of_memory)
{
    CUdeviceptr at = 0;
    size_t pitch = 0;
    EXPECT(cu->cuMemAllocPitch(&at, &pitch, MIB, machine.total_bytes / MIB + 1, 4),
           CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cu->cuMemAllocPitch(&at, &pitch, MIB, SIZE_MAX / MIB, 4), CUDA_ERROR_OUT_OF_MEMORY);
}

CASE(pitch_without_a_context_is_refused)
{
    CUdeviceptr at = 0;
    size_t pitch = 0;
    EXPECT(cu->cuMemAllocPitch(&at, &pitch, 64, 4, 4), CUDA_ERROR_INVALID_CONTEXT);
}

CASE(pitch_memory_is_one_allocation)
{
    size_t pitch = 0, size = 0;
    CUdeviceptr at = take_pitched(WIDTH, HEIGHT, &pitch), base = 0;
    EXPECT_OK(cu->cuMemGetAddressRange(&base, &size, at + pitch * (HEIGHT - 1)));
    EXPECT_U64(base, at);
    EXPECT_TRUE(size >= pitch * (HEIGHT - 1) + WIDTH);
}

/* ---- copies */

CASE(rows_are_copied_there_and_back)
{
    static unsigned char out[HOST_PITCH * HEIGHT], in[HOST_PITCH * HEIGHT], all[ROOM];
    size_t pitch = 0;
    CUdeviceptr at = take_pitched(WIDTH, HEIGHT, &pitch);
    CUDA_MEMCPY2D there = to_device(at, pitch, out, HOST_PITCH),
                  back = to_host(in, HOST_PITCH, at, pitch);
    REQUIRE_TRUE(pitch * HEIGHT <= sizeof all);
    pattern_write(out, sizeof out, 1);
    memset(in, 0xee, sizeof in);
    REQUIRE_OK(cu->cuMemsetD8(at, 0xdd, pitch * HEIGHT));
    EXPECT_OK(cu->cuMemcpy2D(&there));
    EXPECT_OK(cu->cuMemcpy2D(&back));
    EXPECT_TRUE(rows_hold(in, HOST_PITCH, out, HOST_PITCH, 0xee));
    REQUIRE_OK(cu->cuMemcpyDtoH(all, at, pitch * HEIGHT));
    EXPECT_TRUE(rows_hold(all, pitch, out, HOST_PITCH, 0xdd));
}

CASE(rows_are_copied_from_an_offset_to_an_offset)
{
    static unsigned char out[HOST_PITCH * HEIGHT], in[HOST_PITCH * HEIGHT];
    size_t pitch = 0;
    CUdeviceptr at = take_pitched(256, HEIGHT + 3, &pitch);
    CUDA_MEMCPY2D there = to_device(at, pitch, out, HOST_PITCH),
                  back = to_host(in, HOST_PITCH, at, pitch);
    pattern_write(out, sizeof out, 2);
    there.srcXInBytes = 9;
    there.srcY = 2;
    there.dstXInBytes = 33;
    there.dstY = 3;
    there.Height = back.Height = HEIGHT - 2;
    back.srcXInBytes = 33;
    back.srcY = 3;
    EXPECT_OK(cu->cuMemcpy2D(&there));
    EXPECT_OK(cu->cuMemcpy2D(&back));
    for (size_t i = 0; i < HEIGHT - 2; i++)
        EXPECT_TRUE(memcmp(in + i * HOST_PITCH, out + (i + 2) * HOST_PITCH + 9, WIDTH) == 0);
}

CASE(rows_are_copied_within_the_device)
{
    static unsigned char out[HOST_PITCH * HEIGHT], in[HOST_PITCH * HEIGHT];
    size_t first_pitch = 0, second_pitch = 0;
    CUdeviceptr first = take_pitched(WIDTH, HEIGHT, &first_pitch),
                second = take_pitched(3000, HEIGHT, &second_pitch);
    CUDA_MEMCPY2D there = to_device(first, first_pitch, out, HOST_PITCH);
    CUDA_MEMCPY2D back = to_host(in, HOST_PITCH, second, second_pitch), across = there;
    pattern_write(out, sizeof out, 3);
    across.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    across.srcDevice = first;
    across.srcPitch = first_pitch;
    across.dstDevice = second;
    across.dstPitch = second_pitch;
    EXPECT_OK(cu->cuMemcpy2D(&there));
    EXPECT_OK(cu->cuMemcpy2D(&across));
    memset(in, 0xee, sizeof in);
    EXPECT_OK(cu->cuMemcpy2D(&back));
    EXPECT_TRUE(rows_hold(in, HOST_PITCH, out, HOST_PITCH, 0xee));
}

CASE(rows_are_found_by_their_address)
{
    static unsigned char out[HOST_PITCH * HEIGHT], in[HOST_PITCH * HEIGHT];
    size_t pitch = 0;
    CUdeviceptr at = take_pitched(WIDTH, HEIGHT, &pitch);
    CUDA_MEMCPY2D there = to_device(at, pitch, NULL, HOST_PITCH),
                  back = to_host(NULL, HOST_PITCH, at, pitch);
    pattern_write(out, sizeof out, 4);
    there.srcMemoryType = there.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    there.srcDevice = (CUdeviceptr)(uintptr_t)out;
    back.srcMemoryType = back.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    back.dstDevice = (CUdeviceptr)(uintptr_t)in;
    memset(in, 0xee, sizeof in);
    EXPECT_OK(cu->cuMemcpy2D(&there));
    EXPECT_OK(cu->cuMemcpy2D(&back));
    EXPECT_TRUE(rows_hold(in, HOST_PITCH, out, HOST_PITCH, 0xee));
}

CASE(rows_of_any_pitch_are_copied_unaligned)
{
    static unsigned char out[HOST_PITCH * HEIGHT], in[HOST_PITCH * HEIGHT];
    CUdeviceptr at = take_alloc(ROOM);
    CUDA_MEMCPY2D there = to_device(at + 3, WIDTH + 1, out, HOST_PITCH);
    CUDA_MEMCPY2D back = to_host(in, HOST_PITCH, at + 3, WIDTH + 1);
    pattern_write(out, sizeof out, 5);
    memset(in, 0xee, sizeof in);
    EXPECT_OK(cu->cuMemcpy2DUnaligned(&there));
    EXPECT_OK(cu->cuMemcpy2DUnaligned(&back));
    EXPECT_TRUE(rows_hold(in, HOST_PITCH, out, HOST_PITCH, 0xee));
}

CASE(rows_are_copied_in_stream_order)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    unsigned char *out = take_host(HOST_PITCH * HEIGHT), *in = take_host(HOST_PITCH * HEIGHT);
    size_t pitch = 0;
    CUdeviceptr at = take_pitched(WIDTH, HEIGHT, &pitch);
    CUDA_MEMCPY2D there = to_device(at, pitch, out, HOST_PITCH),
                  back = to_host(in, HOST_PITCH, at, pitch);
    conform_slow slow = {scratch_word(0), 20000000};
    pattern_write(out, HOST_PITCH * HEIGHT, 6);
    memset(in, 0xee, HOST_PITCH * HEIGHT);
    launch("slow", 1, &slow, stream);
    EXPECT_OK(cu->cuMemcpy2DAsync(&there, stream));
    EXPECT_OK(cu->cuMemcpy2DAsync(&back, stream));
    EXPECT(cu->cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_TRUE(rows_hold(in, HOST_PITCH, out, HOST_PITCH, 0xee));
}

CASE(rows_of_pageable_memory_may_change_at_once)
{
    static unsigned char out[HOST_PITCH * HEIGHT], same[HOST_PITCH * HEIGHT], in[HOST_PITCH * HEIGHT];
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    size_t pitch = 0;
    CUdeviceptr at = take_pitched(WIDTH, HEIGHT, &pitch);
    CUDA_MEMCPY2D there = to_device(at, pitch, out, HOST_PITCH),
                  back = to_host(in, HOST_PITCH, at, pitch);
    conform_slow slow = {scratch_word(0), 5000000};
    pattern_write(out, sizeof out, 7);
    memcpy(same, out, sizeof out);
    memset(in, 0xee, sizeof in);
    launch("slow", 1, &slow, stream);
    EXPECT_OK(cu->cuMemcpy2DAsync(&there, stream));
    memset(out, 0, sizeof out);
    REQUIRE_OK(cu->cuStreamSynchronize(stream));
    EXPECT_OK(cu->cuMemcpy2D(&back));
    EXPECT_TRUE(rows_hold(in, HOST_PITCH, same, HOST_PITCH, 0xee));
}

CASE(rows_without_bytes_are_no_work)
{
    size_t pitch = 0;
    unsigned char here[HOST_PITCH];
    CUdeviceptr at = take_pitched(WIDTH, HEIGHT, &pitch);
    CUDA_MEMCPY2D copy = to_device(at, pitch, here, HOST_PITCH);
    copy.Height = 0;
    EXPECT_OK(cu->cuMemcpy2D(&copy));
    copy.Height = 1;
    copy.WidthInBytes = 0;
    EXPECT_OK(cu->cuMemcpy2D(&copy));
}

CASE(rows_wider_than_their_pitch_are_refused)
{
    static unsigned char here[HOST_PITCH * HEIGHT];
    size_t pitch = 0;
    CUdeviceptr at = take_pitched(WIDTH, HEIGHT, &pitch);
    CUDA_MEMCPY2D copy = to_device(at, pitch, here, WIDTH - 1);
    EXPECT_INVALID(cu->cuMemcpy2D(&copy));
    copy = to_device(at, pitch, here, HOST_PITCH);
    copy.srcXInBytes = HOST_PITCH - WIDTH + 1;
    EXPECT_INVALID(cu->cuMemcpy2D(&copy));
    copy = to_device(at, WIDTH - 1, here, HOST_PITCH);
    EXPECT_INVALID(cu->cuMemcpy2D(&copy));
}

/* It stands for rows without a gap, which the manual does not say. */
CASE(rows_with_a_pitch_of_zero_succeed)
{
    static unsigned char here[WIDTH * HEIGHT], back[WIDTH * HEIGHT];
    size_t pitch = 0;
    CUdeviceptr at = take_pitched(WIDTH, HEIGHT, &pitch);
    CUDA_MEMCPY2D copy = to_device(at, pitch, here, 0);
    pattern_write(here, sizeof here, 9);
    EXPECT_OK(cu->cuMemcpy2D(&copy));
    copy = to_host(back, WIDTH, at, pitch);
    EXPECT_OK(cu->cuMemcpy2D(&copy));
    EXPECT_TRUE(memcmp(back, here, sizeof here) == 0);
}

CASE(rows_beyond_the_allocation_are_refused)
{
    static unsigned char here[HOST_PITCH];
    size_t pitch = 0, size = 0;
    CUdeviceptr at = take_pitched(WIDTH, HEIGHT, &pitch);
    CUDA_MEMCPY2D copy = to_device(at, pitch, here, HOST_PITCH);
    REQUIRE_OK(cu->cuMemGetAddressRange(NULL, &size, at));
    copy.dstY = size / pitch;
    copy.Height = 1;
    EXPECT_INVALID(cu->cuMemcpy2D(&copy));
}

CASE(rows_of_an_unknown_kind_of_memory_are_refused)
{
    static unsigned char here[HOST_PITCH * HEIGHT];
    size_t pitch = 0;
    CUdeviceptr at = take_pitched(WIDTH, HEIGHT, &pitch);
    CUDA_MEMCPY2D copy = to_device(at, pitch, here, HOST_PITCH);
    copy.srcMemoryType = 77;
    EXPECT_INVALID(cu->cuMemcpy2D(&copy));
}

CASE(rows_cross_adjacent_mappings)
{
    static unsigned char out[HOST_PITCH * HEIGHT], in[HOST_PITCH * HEIGHT];
    CUdeviceptr at = take_range(2 * machine.granule), start;
    CUDA_MEMCPY2D there, back;
    take_mapping(at, machine.granule, take_handle(machine.granule));
    take_mapping(at + machine.granule, machine.granule, take_handle(machine.granule));
    give_access(at, 2 * machine.granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    start = at + machine.granule - 3 * 512;
    there = to_device(start, 512, out, HOST_PITCH);
    back = to_host(in, HOST_PITCH, start, 512);
    pattern_write(out, sizeof out, 8);
    memset(in, 0xee, sizeof in);
    EXPECT_OK(cu->cuMemcpy2D(&there));
    EXPECT_OK(cu->cuMemcpy2D(&back));
    EXPECT_TRUE(rows_hold(in, HOST_PITCH, out, HOST_PITCH, 0xee));
}

CASE(rows_of_read_only_memory_are_not_written)
{
    static unsigned char here[HOST_PITCH * HEIGHT];
    CUdeviceptr at = take_memory(machine.granule);
    CUDA_MEMCPY2D there = to_device(at, 512, here, HOST_PITCH),
                  back = to_host(here, HOST_PITCH, at, 512);
    give_access(at, machine.granule, CU_MEM_ACCESS_FLAGS_PROT_READ);
    EXPECT_INVALID(cu->cuMemcpy2D(&there));
    EXPECT_INVALID(cu->cuMemsetD2D8(at, 512, 1, WIDTH, HEIGHT));
    EXPECT_OK(cu->cuMemcpy2D(&back));
}

/* ---- memsets */

/* Units of the width hold the value, little end first, and what lies between the rows 0xdd. */
static bool units_are(const unsigned char *at, size_t pitch, size_t units, unsigned width, uint32_t value)
{
    for (size_t y = 0; y < HEIGHT; y++)
        for (size_t x = 0; x < pitch; x++) {
            unsigned char want = x < units * width ? (unsigned char)(value >> (8 * (x % width))) : 0xdd;
            if (at[y * pitch + x] != want)
                return false;
        }
    return true;
}

CASE(rows_are_set_in_units_of_each_width)
{
    static unsigned char all[ROOM];
    size_t pitch = 0, bytes;
    CUdeviceptr at = take_pitched(WIDTH, HEIGHT, &pitch);
    bytes = pitch * HEIGHT;
    REQUIRE_TRUE(bytes <= sizeof all);
    REQUIRE_OK(cu->cuMemsetD8(at, 0xdd, bytes));
    EXPECT_OK(cu->cuMemsetD2D8(at, pitch, 0x12, 33, HEIGHT));
    REQUIRE_OK(cu->cuMemcpyDtoH(all, at, bytes));
    EXPECT_TRUE(units_are(all, pitch, 33, 1, 0x12));
    REQUIRE_OK(cu->cuMemsetD8(at, 0xdd, bytes));
    EXPECT_OK(cu->cuMemsetD2D16(at, pitch, 0x1234, 33, HEIGHT));
    REQUIRE_OK(cu->cuMemcpyDtoH(all, at, bytes));
    EXPECT_TRUE(units_are(all, pitch, 33, 2, 0x1234));
    REQUIRE_OK(cu->cuMemsetD8(at, 0xdd, bytes));
    EXPECT_OK(cu->cuMemsetD2D32(at, pitch, 0x12345678, 25, HEIGHT));
    REQUIRE_OK(cu->cuMemcpyDtoH(all, at, bytes));
    EXPECT_TRUE(units_are(all, pitch, 25, 4, 0x12345678));
}

CASE(rows_are_set_in_stream_order)
{
    static unsigned char all[ROOM];
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    size_t pitch = 0, bytes;
    CUdeviceptr at = take_pitched(WIDTH, HEIGHT, &pitch);
    bytes = pitch * HEIGHT;
    REQUIRE_TRUE(bytes <= sizeof all);
    EXPECT_OK(cu->cuMemsetD8Async(at, 0xdd, bytes, stream));
    EXPECT_OK(cu->cuMemsetD2D32Async(at, pitch, 7, 25, HEIGHT, stream));
    EXPECT_OK(cu->cuMemsetD2D16Async(at, pitch, 0x1234, 33, HEIGHT, stream));
    EXPECT_OK(cu->cuMemsetD2D8Async(at, pitch, 0x55, 100, HEIGHT, stream));
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    REQUIRE_OK(cu->cuMemcpyDtoH(all, at, bytes));
    EXPECT_TRUE(units_are(all, pitch, 100, 1, 0x55));
}

CASE(rows_at_unaligned_addresses_are_not_set)
{
    size_t pitch = 0;
    CUdeviceptr at = take_pitched(WIDTH, HEIGHT, &pitch);
    EXPECT_INVALID(cu->cuMemsetD2D16(at + 1, pitch, 1, 4, HEIGHT));
    EXPECT_INVALID(cu->cuMemsetD2D32(at + 2, pitch, 1, 4, HEIGHT));
    EXPECT_INVALID(cu->cuMemsetD2D32(at, pitch - 2, 1, 4, HEIGHT));
}

CASE(set_of_wider_units_needs_no_stream)
{
    static uint32_t words[64];
    static uint16_t halves[64];
    CUdeviceptr at = take_alloc(4096);
    REQUIRE_OK(cu->cuMemsetD8(at, 0, 4096));
    EXPECT_OK(cu->cuMemsetD32(at, 0xabcdef01, 63));
    REQUIRE_OK(cu->cuMemcpyDtoH(words, at, sizeof words));
    EXPECT_TRUE(words[0] == 0xabcdef01 && words[62] == 0xabcdef01 && words[63] == 0);
    EXPECT_OK(cu->cuMemsetD16(at, 0x1234, 63));
    REQUIRE_OK(cu->cuMemcpyDtoH(halves, at, sizeof halves));
    EXPECT_TRUE(halves[0] == 0x1234 && halves[62] == 0x1234 && halves[63] == 0xabcd);
    EXPECT_INVALID(cu->cuMemsetD32(at + 2, 1, 4));
    EXPECT_INVALID(cu->cuMemsetD16(at + 1, 1, 4));
}
