/* From receiving a share to the first kernel on it, in another process; and the same for a CUDA IPC
 * handle.
 *
 * The importer opens the device and loads the kernels first: what is measured is what sharing adds.
 * It then does what the master orders, one order after another, until the socket closes.
 */
#include <string.h>

#include "base/address.h"
#include "base/size.h"
#include "bench/bench.h"
#include "kernels/basic.h"

#define TIMEOUT_MS 120000
#define SEED 11u

enum { ORDER_WARM_UP, ORDER_SHARE, ORDER_HANDLE };

typedef struct order {
    uint32_t kind;
    uint32_t unused;
    uint64_t bytes;
    CUipcMemHandle handle; /* ORDER_HANDLE; an ORDER_SHARE is followed by the share */
} order;

typedef struct answer {
    gvm_status status;
    double sum;
    double import_us; /* import alone, or cuIpcOpenMemHandle */
    double launch_us; /* from having the share or handle until the first kernel was launched */
    char text[400];
} answer;

/* ---- the importer */

/* Launches the sum over the range; the time is taken when the launch returns, the result waited
 * for. */
static gvm_status launch_first(gvm_device *device, uint64_t address, uint64_t bytes,
                               double start_us, answer *a)
{
    gvmi_sum_params params = {address, bytes / 8, 0};
    gvmi_result result;
    uint64_t word;
    gvm_status status = gvmi_result_begin(device, 0, device->stream, &result);

    if (status != GVM_OK)
        return status;
    params.result = result.words.device;
    status = gvmi_kernel_launch(device, GVMI_KERNEL_sum_f64, &params,
                                bytes / (GVMI_TILE_WORDS * 8) + 1, device->stream);
    a->launch_us = tool_now_us() - start_us;
    status = gvmi_result_end(device, &result, status, &word);
    if (status == GVM_OK)
        memcpy(&a->sum, &word, sizeof a->sum);
    return status;
}

static gvm_status import_share(int socket, gvm_device *device, const order *o, answer *a)
{
    double start_us;
    gvm_share *share;
    gvm_buffer *buffer = NULL;
    gvm_status status = gvm_share_receive(socket, TIMEOUT_MS, &share);

    if (status != GVM_OK)
        return status;
    start_us = tool_now_us();
    status = gvm_share_import(device, share, NULL, &buffer);
    a->import_us = tool_now_us() - start_us;
    if (status == GVM_OK)
        status = launch_first(device, gvmi_address(gvm_buffer_address(buffer)), o->bytes, start_us, a);
    if (status != GVM_OK)
        tool_failure_text(a->text, sizeof a->text);
    gvm_buffer_destroy(buffer);
    gvm_share_destroy(share);
    return status;
}

static gvm_status open_handle(gvm_device *device, const order *o, answer *a)
{
    double start_us = tool_now_us();
    CUdeviceptr address;
    CUresult result = gvmi_cu->cuIpcOpenMemHandle(&address, o->handle,
                                                  CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    gvm_status status;

    a->import_us = tool_now_us() - start_us;
    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail((int32_t)result, "cuIpcOpenMemHandle", "cannot open the handle");
    status = launch_first(device, address, o->bytes, start_us, a);
    if (status != GVM_OK)
        tool_failure_text(a->text, sizeof a->text);
    gvmi_cu->cuIpcCloseMemHandle(address);
    return status;
}

static gvm_status execute_share_order(int socket, gvm_device *device, const order *o, answer *a)
{
    switch (o->kind) {
    case ORDER_WARM_UP:
        return gvm_kernel_sum_f64(device, gvmi_pointer(8), 0, NULL, &a->sum); /* no element is read */
    case ORDER_SHARE: return import_share(socket, device, o, a);
    default: return open_handle(device, o, a);
    }
}

int bench_importer(int socket, const void *arg)
{
    gvm_device *device = NULL;
    order o;

    while (peer_receive(socket, &o, sizeof o, 24 * 3600 * 1000) == PEER_OK) {
        answer a;

        memset(&a, 0, sizeof a);
        if (device == NULL) {
            a.status = gvm_device_open(*(const int *)arg, &device);
            if (a.status == GVM_OK)
                a.status = gvmi_device_enter(device);
        }
        if (a.status == GVM_OK)
            a.status = execute_share_order(socket, device, &o, &a);
        if (a.status != GVM_OK && a.text[0] == '\0')
            tool_failure_text(a.text, sizeof a.text);
        if (!peer_send(socket, &a, sizeof a))
            break;
    }
    if (device != NULL)
        gvmi_device_leave();
    gvm_device_close(device);
    return TOOL_DONE;
}

/* ---- the master */

static bool receive_share_answer(bench *b, answer *a)
{
    peer_answer got = peer_receive(b->importer.socket, a, sizeof *a, TIMEOUT_MS);

    if (got == PEER_OK && a->status == GVM_OK)
        return true;
    if (got == PEER_OK)
        bench_note(b, "the importer failed: %.300s", a->text);
    else
        bench_note(b, "the importer %s", got == PEER_SILENT ? "did not answer" : "ended");
    b->code = TOOL_FAILED;
    return false;
}

static bool send_share_order(bench *b, const order *o, const gvm_share *share, answer *a)
{
    if (!peer_send(b->importer.socket, o, sizeof *o)) {
        bench_note(b, "the importer has ended");
        b->code = TOOL_FAILED;
        return false;
    }
    if (share != NULL && gvm_share_send(share, b->importer.socket, TIMEOUT_MS) != GVM_OK) {
        bench_failed(b, "sending a share");
        return false;
    }
    return receive_share_answer(b, a);
}

static bool measure_orders(bench *b, const order *o, const gvm_share *share, double sum,
                           bench_samples *import, bench_samples *launch)
{
    int repetitions = b->quick ? 5 : 11;
    answer a;

    for (int i = 0; i < 1 + repetitions; i++) {
        if (!send_share_order(b, o, share, &a))
            return false;
        if (a.sum - sum > 1e-9 * sum || sum - a.sum > 1e-9 * sum) {
            bench_note(b, "the importer's sum is %.6f and not %.6f", a.sum, sum);
            b->code = TOOL_FAILED;
            return false;
        }
        if (i > 0) {
            bench_add(import, a.import_us);
            bench_add(launch, a.launch_us);
        }
    }
    return true;
}

static void print_times(bench *b, const char *what, double import_us, double launch_us)
{
    fprintf(b->text, "  %-22s %10.1f %14.1f\n", what, import_us, launch_us);
}

static bool measure_share(bench *b, uint64_t bytes, uint64_t chunk_bytes)
{
    const gvm_buffer_options options = {.struct_size = sizeof options, .chunk_bytes = chunk_bytes};
    const order o = {.kind = ORDER_SHARE, .bytes = bytes};
    bench_samples import = {0}, launch = {0}, export = {0};
    gvm_buffer *buffer = NULL;
    gvm_share *share = NULL;
    double sum = 0, start_us;
    bool good = gvm_buffer_create(b->device, bytes, &options, &buffer) == GVM_OK &&
                gvm_buffer_commit(buffer, 0, bytes) == GVM_OK &&
                gvm_kernel_fill_random_f64(b->device, gvm_buffer_address(buffer), bytes / 8, 0,
                                           SEED, NULL) == GVM_OK &&
                gvm_kernel_sum_f64(b->device, gvm_buffer_address(buffer), bytes / 8, NULL, &sum) ==
                    GVM_OK;

    start_us = tool_now_us();
    good = good && gvm_share_export(buffer, 0, bytes, &share) == GVM_OK;
    if (good)
        bench_add(&export, tool_now_us() - start_us);
    else
        bench_failed(b, "exporting a buffer");
    good = good && measure_orders(b, &o, share, sum, &import, &launch);
    if (good) {
        bench_record(b, "sharing", "export", "us", bytes, chunk_bytes, &export);
        print_times(b, "buffer, by fd",
                    bench_record(b, "sharing", "import", "us", bytes, chunk_bytes, &import),
                    bench_record(b, "sharing", "share received to first kernel", "us", bytes,
                                 chunk_bytes, &launch));
    }
    gvm_share_destroy(share);
    gvm_buffer_destroy(buffer);
    bench_trim(b);
    return good;
}

static bool measure_ipc(bench *b, uint64_t bytes)
{
    order o = {.kind = ORDER_HANDLE, .bytes = bytes};
    bench_samples open = {0}, launch = {0};
    CUdeviceptr address;
    double sum = 0;
    CUresult result = gvmi_cu->cuMemAlloc(&address, bytes);
    bool good;

    if (result != CUDA_SUCCESS) {
        bench_failed_driver(b, result, "cuMemAlloc");
        return false;
    }
    good = gvm_kernel_fill_random_f64(b->device, gvmi_pointer(address), bytes / 8, 0, SEED, NULL) ==
               GVM_OK &&
           gvm_kernel_sum_f64(b->device, gvmi_pointer(address), bytes / 8, NULL, &sum) == GVM_OK;
    if (!good)
        bench_failed(b, "filling cuMemAlloc memory");
    result = gvmi_cu->cuIpcGetMemHandle(&o.handle, address);
    if (good && result != CUDA_SUCCESS) {
        bench_failed_driver(b, result, "cuIpcGetMemHandle");
        good = false;
    }
    good = good && measure_orders(b, &o, NULL, sum, &open, &launch);
    if (good)
        print_times(
            b, "cuMemAlloc, by cuIpc",
            bench_record(b, "sharing", "cuIpcOpenMemHandle", "us", bytes, 0, &open),
            bench_record(b, "sharing", "handle received to first kernel", "us", bytes, 0, &launch));
    gvmi_cu->cuMemFree(address);
    return good;
}

void bench_sharing(bench *b)
{
    const order warm_up = {.kind = ORDER_WARM_UP};
    uint64_t free_bytes = bench_free_bytes(b), bytes = b->quick ? GVMI_GIB : 8 * GVMI_GIB, chunk_bytes;
    char size[32], chunk[32];
    answer a;

    while (bytes > free_bytes / 5 * 2)
        bytes /= 2;
    if (bytes < 2 * GVMI_MIB)
        return;
    chunk_bytes = bytes < GVMI_GIB ? bytes : GVMI_GIB;
    fprintf(b->text,
            "\nsharing %s with another process, chunks of %s, us (median)\n"
            "                             import  first kernel\n",
            gvmi_size_text(bytes, size), gvmi_size_text(chunk_bytes, chunk));
    if (!b->info.share_fd) {
        bench_note(b, "the device cannot share by file descriptor");
        return;
    }
    if (send_share_order(b, &warm_up, NULL, &a) && measure_share(b, bytes, chunk_bytes))
        measure_ipc(b, bytes);
}
