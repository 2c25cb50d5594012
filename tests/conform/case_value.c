/* Cases: stream memory operations. Goal: a stream that waits for a word goes on when the host,
 * another stream or a kernel writes it, and not before. Each wait is released before the case ends.
 */
#include "tests/conform/execution.h"

CASE(value_write_32_and_64_exact)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    EXPECT_OK(cu->cuStreamWriteValue32(stream, scratch_word(1), 0x11223344,
                                       CU_STREAM_WRITE_VALUE_DEFAULT));
    EXPECT_OK(cu->cuStreamWriteValue64(stream, scratch_word(4), 0x5566778899aabbcc,
                                       CU_STREAM_WRITE_VALUE_DEFAULT));
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_U64(read_word(scratch_word(0)), 0);
    EXPECT_U64(read_word(scratch_word(1)), 0x11223344);
    EXPECT_U64(read_word(scratch_word(2)), 0);
    EXPECT_U64(read_word(scratch_word(4)), 0x99aabbcc);
    EXPECT_U64(read_word(scratch_word(5)), 0x55667788);
    EXPECT_U64(read_word(scratch_word(6)), 0);
}

CASE(value_write_follows_its_stream)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    conform_range peek = {scratch_word(0), scratch_word(1), 1};
    serve_start(stream);
    EXPECT_OK(cu->cuStreamWriteValue32(stream, scratch_word(0), 5, 0));
    launch("peek", 1, &peek, stream);
    EXPECT_TRUE(stays_busy(stream));
    EXPECT_U64(serve_read(scratch_word(0)), 0);
    serve_stop();
    EXPECT_U64(read_word(scratch_word(1)), 5);
}

CASE(value_write_to_pinned_memory_is_seen_by_the_host)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    uint64_t *word = take_host(64);
    CUdeviceptr at = 0;
    REQUIRE_OK(cu->cuMemHostGetDevicePointer(&at, word, 0));
    *word = 0;
    EXPECT_OK(cu->cuStreamWriteValue64(stream, at, 0x0102030405060708, 0));
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_U64(__atomic_load_n(word, __ATOMIC_ACQUIRE), 0x0102030405060708);
}

CASE(value_write_to_virtual_memory)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr at = take_memory(machine.granule);
    EXPECT_OK(cu->cuStreamWriteValue32(stream, at + machine.granule - 4, 99, 0));
    EXPECT_OK(cu->cuStreamWaitValue32(stream, at + machine.granule - 4, 99, CU_STREAM_WAIT_VALUE_EQ));
    EXPECT_TRUE(ends_soon(stream));
    EXPECT_U64(read_word(at + machine.granule - 4), 99);
}

/* ---- conditions */

struct condition {
    unsigned flags;
    uint64_t wanted, not_yet, enough;
};

/* For words of a width whose largest value is all. GEQ compares cyclically. */
#define CONDITIONS(all) \
    { \
        {CU_STREAM_WAIT_VALUE_GEQ, 5, 4, 5}, {CU_STREAM_WAIT_VALUE_GEQ, 5, 0, 6}, \
            {CU_STREAM_WAIT_VALUE_GEQ, (all), (all)-1, 1}, {CU_STREAM_WAIT_VALUE_EQ, 7, 8, 7}, \
            {CU_STREAM_WAIT_VALUE_AND, 8, 7, 12}, {CU_STREAM_WAIT_VALUE_NOR, (all)-15, 15, 7}, \
    }

/* A stream waits for the condition on a pinned word that the host then fulfils. */
static void check_condition(const struct condition *condition, bool wide, uint64_t *word)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr at = 0;
    bool held;
    REQUIRE_OK(cu->cuMemHostGetDevicePointer(&at, word, 0));
    REQUIRE_OK(cu->cuMemsetD8(scratch(), 0, 4));
    REQUIRE_OK(cu->cuCtxSynchronize());
    __atomic_store_n(word, condition->not_yet, __ATOMIC_RELEASE);
    if (wide)
        REQUIRE_OK(cu->cuStreamWaitValue64(stream, at, condition->wanted, condition->flags));
    else
        REQUIRE_OK(cu->cuStreamWaitValue32(stream, at, (uint32_t)condition->wanted, condition->flags));
    EXPECT_OK(cu->cuStreamWriteValue32(stream, scratch(), 1, 0));
    held = stays_busy(stream);
    __atomic_store_n(word, condition->enough, __ATOMIC_RELEASE);
    EXPECT_TRUE(held);
    EXPECT_TRUE(ends_soon(stream));
    EXPECT_U64(read_word(scratch()), 1);
    drop(OWN_STREAM, (uintptr_t)stream);
}

CASE(value_wait_32_conditions)
{
    static const struct condition conditions[] = CONDITIONS(0xffffffffull);
    uint64_t *word = take_host(64);
    for (size_t i = 0; i < sizeof conditions / sizeof *conditions; i++)
        check_condition(&conditions[i], false, word);
}

CASE(value_wait_64_conditions)
{
    static const struct condition conditions[] = CONDITIONS(0xffffffffffffffffull);
    static const struct condition high[] = {{CU_STREAM_WAIT_VALUE_EQ, 1ull << 40, 1, 1ull << 40},
                                            {CU_STREAM_WAIT_VALUE_AND, 1ull << 40, 1, 3ull << 40}};
    uint64_t *word = take_host(64);
    for (size_t i = 0; i < sizeof conditions / sizeof *conditions; i++)
        check_condition(&conditions[i], true, word);
    for (size_t i = 0; i < sizeof high / sizeof *high; i++)
        check_condition(&high[i], true, word);
}

CASE(value_wait_fulfilled_passes)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    EXPECT_OK(cu->cuStreamWaitValue32(stream, scratch(), 0, CU_STREAM_WAIT_VALUE_EQ));
    EXPECT_OK(cu->cuStreamWaitValue64(stream, scratch() + 8, 0, CU_STREAM_WAIT_VALUE_GEQ));
    EXPECT_TRUE(ends_soon(stream));
}

/* ---- who releases a wait */

CASE(value_wait_released_by_another_stream)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING), other = take_stream(CU_STREAM_NON_BLOCKING);
    conform_touch touch = {scratch_word(2), 3, 0};
    bool held;
    REQUIRE_OK(cu->cuStreamWaitValue32(stream, scratch(), 1, CU_STREAM_WAIT_VALUE_GEQ));
    EXPECT_OK(try_launch("touch", 1, &touch, stream));
    held = stays_busy(stream);
    EXPECT_OK(cu->cuStreamWriteValue32(other, scratch(), 1, 0));
    EXPECT_TRUE(held);
    EXPECT_TRUE(ends_soon(stream));
    EXPECT_U64(read_word(scratch_word(2)), 3);
}

CASE(value_wait_released_by_a_kernel)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    bool held;
    serve_start(take_stream(CU_STREAM_NON_BLOCKING));
    REQUIRE_OK(cu->cuStreamWaitValue32(stream, scratch(), 2, CU_STREAM_WAIT_VALUE_EQ));
    held = stays_busy(stream);
    serve_write(scratch(), 2);
    EXPECT_TRUE(held);
    EXPECT_TRUE(ends_soon(stream));
    EXPECT_TRUE(serve_runs());
}

CASE(value_wait_released_by_a_copy)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    bool held;
    REQUIRE_OK(cu->cuStreamWaitValue32(stream, scratch(), 4, CU_STREAM_WAIT_VALUE_EQ));
    held = stays_busy(stream);
    write_word(scratch(), 4);
    EXPECT_TRUE(held);
    EXPECT_TRUE(ends_soon(stream));
}

CASE(value_wait_chain_passes_the_token)
{
    enum { STREAMS = 4 };
    CUstream streams[STREAMS];
    uint64_t *word = take_host(64);
    CUdeviceptr at = 0;
    REQUIRE_OK(cu->cuMemHostGetDevicePointer(&at, word, 0));
    *word = 0;
    for (unsigned i = 0; i < STREAMS; i++)
        streams[i] = take_stream(CU_STREAM_NON_BLOCKING);
    for (unsigned i = 0; i < STREAMS; i++) { /* in this order: streams may share a queue of the device */
        EXPECT_OK(cu->cuStreamWaitValue64(streams[i], at, i + 1, CU_STREAM_WAIT_VALUE_EQ));
        EXPECT_OK(cu->cuStreamWriteValue64(streams[i], at, i + 2, 0));
    }
    for (unsigned i = 0; i < STREAMS; i++)
        EXPECT(cu->cuStreamQuery(streams[i]), CUDA_ERROR_NOT_READY);
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < STREAMS; i++)
        EXPECT_TRUE(ends_soon(streams[i]));
    EXPECT_U64(__atomic_load_n(word, __ATOMIC_ACQUIRE), STREAMS + 1);
}

/* ---- bad arguments */

CASE(value_unaligned_refused)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    EXPECT_INVALID(cu->cuStreamWriteValue32(stream, scratch() + 2, 1, 0));
    EXPECT_INVALID(cu->cuStreamWriteValue64(stream, scratch() + 4, 1, 0));
    EXPECT_INVALID(cu->cuStreamWaitValue32(stream, scratch() + 1, 0, CU_STREAM_WAIT_VALUE_EQ));
    EXPECT_INVALID(cu->cuStreamWaitValue64(stream, scratch() + 4, 0, CU_STREAM_WAIT_VALUE_EQ));
    EXPECT_OK(cu->cuStreamSynchronize(stream));
    EXPECT_TRUE(words_are(scratch(), 4, 0, 0));
}

CASE(value_unknown_flags_refused)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    EXPECT_INVALID(cu->cuStreamWaitValue32(stream, scratch(), 0, 0x10));
    EXPECT_INVALID(cu->cuStreamWriteValue32(stream, scratch(), 0, 0x10));
    EXPECT_OK(cu->cuStreamSynchronize(stream));
}

CASE(value_without_memory_refused)
{
    CUstream stream = take_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr hole = take_range(machine.granule);
    EXPECT_INVALID(cu->cuStreamWriteValue32(stream, hole, 1, 0));
    EXPECT_INVALID(cu->cuStreamWriteValue32(stream, 0, 1, 0));
    EXPECT_INVALID(cu->cuStreamWaitValue32(stream, 0, 0, CU_STREAM_WAIT_VALUE_EQ));
    EXPECT_OK(cu->cuCtxSynchronize());
}
