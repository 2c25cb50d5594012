/* gvmem/appender.h - result buffers that grow while the kernel that fills them runs.
 *
 * A kernel that cannot know how much it will write appends to a buffer whose memory comes as it
 * writes. Rows of one size come from the front, data of any length from the back, and what lies
 * between has no memory. A thread of the library commits what kernels ask for; the device's side is
 * gvmem/device/appender.h.
 *
 *     gvm_appender_create(device, sizeof(row), 1ull << 40, NULL, &appender);
 *     gvm_appender_begin(appender, &params.append);      // params.append.struct_size is set
 *     cuLaunchKernel(..., stream, ...);
 *     gvm_appender_finish(appender, stream, &result);    // waits for the stream
 *     gvm_appender_take(appender, &buffer);              // result.rows rows at its start, no copy
 *
 * Chunks: an appender that has begun and is empty has 2 MiB of memory at either end. The chunks of its
 * buffers grow away from both ends, by a factor of four up to chunk_bytes (2, 6, 24, 96, 384 MiB, then
 * 512 each), and a begin has as much ready as the launch before it wrote, up to chunk_bytes at either end. A
 * buffer that was taken has such chunks; it is moved, copied, decommitted and shared as any other, but older
 * libraries, which know one size of chunks a buffer, refuse its share (GVM_E_VERSION).
 *
 * Budget: when as much is committed as the appender may use, or the device has no more (nor this process any
 * idle memory that can be reclaimed without waiting for a kernel), claiming fails in every thread
 * from one point on. What was claimed before it is whole: result.rows and
 * result.data_bytes end there, result.complete is 0. A kernel that keeps its position where its claim
 * failed is launched again after take() or reset() and goes on.
 *
 * Kernels: any number may append between begin and finish, at once or one after the other, on any
 * streams of the device. One that waits for memory occupies its SMs and needs nothing but the
 * library's thread: no call of the program. A kernel must write to places that it has claimed, and nowhere else
 * behind the appender's address: chunks in which nothing was claimed are reused, uncleared, in other buffers,
 * which may be shared with other processes.
 *
 * Threads: any thread may call; calls on one appender are serialised inside, but for the waiting of
 * finish. Between begin and finish the buffer is the kernels': what gvm_appender_buffer() gives must
 * then not be sealed, moved or decommitted. It may be copied: no kernel that waits for memory, of this or
 * another appender, waits for a copy. At other times it may be decommitted too: the next begin counts what is there, and
 * rows or bytes whose memory went have undefined contents, as after gvm_buffer_commit(). One that was sealed is written
 * no more: take it.
 * While it has not begun, what is committed and not written is given back when the device is full, to
 * whatever of gvmem in this process needs it; the next begin commits anew.
 * Ownership: the caller owns an appender and ends it with gvm_appender_destroy(), and owns the
 * buffers it takes. The device stays open for both.
 * Errors that any call here may return besides those listed: GVM_E_FOREIGN (the appender is unknown
 * or destroyed), GVM_E_NOMEM, GVM_E_LOST (the context is broken: the appender can only be
 * destroyed), GVM_E_DRIVER.
 */
#ifndef GVMEM_APPENDER_H
#define GVMEM_APPENDER_H

#include <gvmem/append.h>
#include <gvmem/buffer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gvm_appender gvm_appender;

enum {
    /* Nothing is written to the back: claiming bytes there answers GVM_APPEND_INVALID, and begin
     * commits nothing there. */
    GVM_APPENDER_ROWS_ONLY = 1u << 16,
};

/* Zero means default in every other member. */
typedef struct gvm_appender_options {
    size_t struct_size; /* in: sizeof(gvm_appender_options) */
    /* The buffer's. What one commit costs depends little on its size (on an H100 0.08 ms for
     * 256 MiB and 0.17 ms for 1 GiB), so the speed of growing depends on this. The chunks of both ends are
     * smaller. 0: a 64th of the reservation, between 2 and 512 MiB, and no more than a 16th of what may be
     * committed. */
    uint64_t chunk_bytes;
    /* Most that may be committed at both ends together, in multiples of chunk_bytes; 0 and GVM_BYTES_UNLIMITED: the
     * whole reservation, as far as the device has memory. */
    uint64_t budget_bytes;
    /* Most that one commit adds, or one chunk if that is more; each adds at most four times what the one
     * before did. 0: 256 MiB; GVM_BYTES_NONE: one chunk at a time. */
    uint64_t step_bytes;
    /* How far ahead of need either end is committed at most: as much as is written already, but at
     * least seven eighths of the first chunk (of chunk_bytes, where the launch before wrote that much) and at
     * most this. 0: two steps, of chunk_bytes at least; GVM_BYTES_NONE: not at all. */
    uint64_t ahead_bytes;
    /* What one claim takes from the back is a multiple of this, a power of two up to 4096. 0:
     * 16, or as much as makes the whole budget reachable: the back holds 3 * 2^30 units. */
    uint32_t align_bytes;
    uint32_t wait_ms;  /* how long a kernel waits for memory before it gives up; 0: 10 s */
    uint32_t flags;    /* GVM_BUFFER_... of the buffers, and GVM_APPENDER_... */
    uint32_t reserved; /* 0 */
    /* What the first launch is expected to write to each end (to the only one that is used): begin commits as
     * it does after a launch that wrote so much, at most chunk_bytes an end. 0: little. A launch that writes
     * gigabytes is 5 to 13 % faster with it on an H100; whatever is written, the result is the same. */
    uint64_t expected_bytes;
} gvm_appender_options;

/* gvm_appender_options_init(): all defaults. */
GVM_OPTIONS_INIT(gvm_appender_options)

typedef struct gvm_appender_result {
    size_t struct_size;  /* in: sizeof(gvm_appender_result) */
    uint64_t rows;       /* at the buffer's start */
    uint64_t data_bytes; /* at its end: [reserve_bytes - data_bytes, reserve_bytes) */
    uint64_t commits;    /* of the library's thread, by begin and since */
    uint64_t commit_us;  /* that they took together */
    uint64_t first_us;   /* from the start of begin to the first of them; 0 if there was none */
    /* If not complete: GVM_E_LIMIT when the reservation or the budget was spent, otherwise what
     * committing answered, above all GVM_E_NOSPACE. */
    gvm_status reason;
    uint8_t complete; /* 1: every claim succeeded */
    uint8_t reserved[3];
} gvm_appender_result;

typedef struct gvm_appender_info {
    size_t struct_size; /* in: sizeof(gvm_appender_info) */
    void *address;
    uint64_t reserve_bytes;
    uint64_t chunk_bytes; /* of all chunks but those of the ends */
    uint64_t row_bytes, budget_bytes;
    uint64_t rows, data_bytes;         /* as of the last finish */
    uint64_t front_bytes, back_bytes;  /* committed from either end, at this moment */
    uint64_t commits, committed_bytes; /* of the library's thread, since creation */
    uint32_t align_bytes;
    int32_t ordinal;
    uint8_t begun; /* between begin and finish */
    uint8_t torn;  /* the last finish answered GVM_E_TORN */
    uint8_t reserved[6];
} gvm_appender_info;

/* Creates an appender of rows of row_bytes each (0: rows are counted and take no memory) over
 * reserve_bytes of addresses, and commits nothing. Reserve far more than any result should get. At
 * most 3 * 2^30 rows go into one buffer. options may be NULL.
 *
 * GVM_E_INVALID  reserve_bytes or an option is out of its limits, a row is larger than the
 *                reservation, the budget is less than a chunk, or out is NULL
 * GVM_E_NOTSUP   the device has no virtual memory management
 * GVM_E_NOSPACE  no room on the device for the words that the kernels share, after the waits of gvm_buffer_commit()
 * GVM_E_LIMIT    thousands of appenders exist on the device
 * GVM_E_ADDRESS, GVM_E_SYSTEM  as for gvm_buffer_create() */
GVM_API GVM_CHECKED gvm_status gvm_appender_create(gvm_device *device, uint64_t row_bytes,
                                                   uint64_t reserve_bytes,
                                                   const gvm_appender_options *options,
                                                   gvm_appender **out);

/* Opens the appender for kernels that are launched from now on. Rows go on behind those that are
 * there. Fills in *append for the kernel.
 *
 * An end that has no memory yet gets some before this returns, so that no kernel waits for it: the
 * smallest chunk, or as many as hold what the last launch wrote there, up to chunk_bytes. More comes
 * meanwhile from the library's thread. The back gets memory besides the front where the budget is at least
 * 16 * chunk_bytes. Where both ends may have data, what is committed ahead at either leaves chunk_bytes of a
 * budget free for claims. An end for which so much is not available gets the smallest chunk, and if not even
 * that, because the budget is spent or the device is full, this succeeds all the same: a kernel's
 * first claim tries again, and fails if it is still not available.
 *
 * If the kernels of the begin before were granted nothing, because memory was spent, this begin
 * gives back memory that has not been written, and commits only what is needed: the first
 * claim is then granted if the budget allows it at all, so that a kernel that is launched
 * again always gets on.
 *
 * Blocks for a commit at each end, by the library's thread, which may be at one for another appender,
 * and a short copy; starts that thread if it
 * does not run.
 *
 * GVM_E_INVALID  it has begun already, or append is NULL or its struct_size is wrong
 * GVM_E_TORN     the last kernel left it torn: reset it first
 * GVM_E_NOSPACE  the driver has no memory for the copy
 * GVM_E_SEALED   the buffer was sealed: take it first
 * GVM_E_LIMIT    no thread could be started: the process, or its user, has as many as it may have
 * GVM_E_SYSTEM   no thread could be started, for another reason
 * GVM_E_FOREIGN  the process was made by fork() after its parent had begun one, or the appender is the parent's */
GVM_API GVM_CHECKED gvm_status gvm_appender_begin(gvm_appender *appender, gvm_append *append);

/* Waits for the stream (NULL: the legacy default stream), closes the appender and returns what
 * was written. If kernels ran on other streams too, wait for those first. result may be NULL; to
 * ask again use gvm_appender_get_info().
 *
 * GVM_E_INVALID  it has not begun, or another call has begun it meanwhile, or result's struct_size is wrong: the stream was
 *                waited for. Or the stream is being captured into a graph: finish when the graph has been launched
 * GVM_E_TIMEOUT  a kernel gave up waiting for memory. The appender is closed; what was claimed
 *                before that is complete and available through get_info and take.
 * GVM_E_TORN     a kernel ended without publishing all that it had claimed. The appender is
 *                closed; reset it.
 * GVM_E_LOST     a kernel failed: the appender is still open, and can only be destroyed
 * GVM_E_NOSPACE  the driver has no memory for the copy; the appender is still open */
GVM_API GVM_CHECKED gvm_status gvm_appender_finish(gvm_appender *appender, gvm_stream stream,
                                                   gvm_appender_result *result);

/* Gives the filled buffer to the caller, without a copy, and makes a new, empty one for what comes
 * next. Memory that was committed ahead and holds nothing is taken from its addresses first. The
 * library's thread gives it to the driver (0.3 ms a chunk of 512 MiB), so that nobody waits for that
 * here, as soon as no kernel of the process has asked for memory for 2 ms. Until then the next begin
 * reuses it (unless it may have been written: after a reset, or a launch that was not complete), and what gvmem
 * allocates in this process on a full device has it first; for other libraries and processes gvm_device_trim() gives
 * it to the driver at once.
 *
 * GVM_E_INVALID  it has begun, or out is NULL
 * GVM_E_TORN     the last kernel left it torn: nothing is known to be whole
 * GVM_E_ADDRESS, GVM_E_SYSTEM  as for gvm_buffer_create(); nothing has changed */
GVM_API GVM_CHECKED gvm_status gvm_appender_take(gvm_appender *appender, gvm_buffer **out);

/* Forgets what was written and keeps the memory, for the next begin, as long as the device is not full.
 *
 * GVM_E_INVALID  it has begun */
GVM_API GVM_CHECKED gvm_status gvm_appender_reset(gvm_appender *appender);

/* Sets the budget from the next begin on; GVM_BYTES_UNLIMITED: the whole reservation. What is committed beyond it
 * already stays.
 *
 * GVM_E_INVALID  it has begun, or the budget is less than a chunk */
GVM_API GVM_CHECKED gvm_status gvm_appender_set_budget(gvm_appender *appender, uint64_t budget_bytes);

/* The buffer that is being filled; it stays the appender's. NULL for an unknown appender. Until the next take() the
 * library assumes that the program writes anywhere in it: what is given back unused then goes to the driver, which
 * clears it, and to no other buffer. */
GVM_API gvm_buffer *gvm_appender_buffer(gvm_appender *appender);

/* A snapshot.
 *
 * GVM_E_INVALID  info is NULL or its struct_size is too small */
GVM_API GVM_CHECKED gvm_status gvm_appender_get_info(gvm_appender *appender, gvm_appender_info *info);

/* Gives back memory and addresses. Does not wait for kernels: end those that append first. NULL and
 * unknown pointers are ignored. The library's thread ends with the last device. */
GVM_API void gvm_appender_destroy(gvm_appender *appender);

#ifdef __cplusplus
}
#endif
#endif
