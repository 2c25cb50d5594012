/* gvmem share: the same device memory summed by several processes.
 *
 * The exporter fills a buffer with numbers, exports it, and sends it to helper processes; each
 * imports it, sums it with the same kernel, releases it, and sends its sum. Nothing is copied
 * between processes (but once, on the device, for a CUDA IPC handle). Helpers report over their
 * sockets and the exporter alone prints.
 */
#include <getopt.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "tools/peer.h"
#include "tools/tool.h"

static const char usage[] =
    "usage: gvmem share [OPTION...]\n"
    "\n"
    "Fills a buffer with numbers, lets other processes import it, and sums it in each with a kernel.\n"
    "Exits with 0 only if all sums agree.\n"
    "\n"
    "  -d, --device N      the device (0)\n"
    "  -n, --processes N   how many processes import (2)\n"
    "  -l, --length SIZE   how much memory, rounded up to whole doubles (256MiB)\n"
    "  -c, --chunk SIZE    size of the buffer's chunks, a power of two from 2MiB to 1GiB (chosen)\n"
    "  -r, --read-only     import read-only\n"
    "  -i, --ipc           share a copy by a 64-byte CUDA IPC handle instead of file descriptors\n"
    "  -t, --timeout S     give up on a process after so many seconds (120)\n"
    "  -v, --verbose       tell sizes and times\n"
    "  -h, --help          this text\n";

#define PROCESSES_MAX 512
#define SEED 20191121u /* of the numbers */

/* Two sums of one array by one kernel on one device: blocks add up the same numbers in the same
 * order, so their sums are the same to the last bit; only the order in which at most some thousand
 * blocks are added differs. Each of those additions errs by at most 2^-53 of a sum of positive
 * numbers, on either side: 2 * 4096 * 2^-53 < 1e-12. */
#define SUM_TOLERANCE 1e-12

typedef struct share_options {
    int device, processes, timeout_s;
    uint64_t len_bytes, chunk_bytes;
    bool read_only, ipc, verbose;
} share_options;

/* What a helper sends back. */
typedef struct share_answer {
    gvm_status status;
    double sum;
    double import_us, sum_us;
    gvm_access access; /* what the process may do with the memory */
    char text[400];    /* of a failure */
} share_answer;

static int timeout_ms(const share_options *o)
{
    return o->timeout_s * 1000;
}

/* Sums, after the kernel was loaded: the time is that of the launch and the memory alone. */
static gvm_status timed_sum(gvm_device *device, const void *address, uint64_t count, double *sum,
                            double *us)
{
    gvm_status status = gvm_kernel_sum_f64(device, address, 0, NULL, sum);
    double start_us = tool_now_us();

    if (status == GVM_OK)
        status = gvm_kernel_sum_f64(device, address, count, NULL, sum);
    *us = tool_now_us() - start_us;
    return status;
}

/* ---- a helper */

static gvm_status import_by_fd(int socket, const share_options *o, gvm_device *device,
                               share_answer *answer)
{
    const gvm_import_options options = {.struct_size = sizeof options,
                                        .flags = o->read_only ? GVM_IMPORT_READONLY : 0};
    gvm_buffer_info info = {.struct_size = sizeof info};
    double start_us;
    gvm_share *share;
    gvm_buffer *buffer = NULL;
    gvm_status status = gvm_share_receive(socket, timeout_ms(o), &share);

    if (status != GVM_OK)
        return status;
    start_us = tool_now_us();
    status = gvm_share_import(device, share, &options, &buffer);
    answer->import_us = tool_now_us() - start_us;
    gvm_share_destroy(share);
    if (status == GVM_OK)
        status = gvm_buffer_get_info(buffer, &info);
    answer->access = info.access;
    if (status == GVM_OK)
        status = timed_sum(device, info.address, o->len_bytes / 8, &answer->sum, &answer->sum_us);
    if (status != GVM_OK)
        tool_failure_text(answer->text, sizeof answer->text);
    gvm_buffer_destroy(buffer);
    return status;
}

static gvm_status import_by_handle(int socket, const share_options *o, gvm_device *device,
                                   share_answer *answer)
{
    gvm_ipc_handle handle;
    double start_us;
    void *address;
    gvm_status status;

    if (peer_receive(socket, &handle, sizeof handle, timeout_ms(o)) != PEER_OK)
        return GVM_E_PEER;
    start_us = tool_now_us();
    status = gvm_ipc_open(device, &handle, &address);
    answer->import_us = tool_now_us() - start_us;
    if (status != GVM_OK)
        return status;
    answer->access = GVM_ACCESS_READWRITE;
    status = timed_sum(device, address, o->len_bytes / 8, &answer->sum, &answer->sum_us);
    if (status != GVM_OK)
        tool_failure_text(answer->text, sizeof answer->text);
    gvm_ipc_close(device, address);
    return status;
}

static int run_helper(int socket, const void *arg)
{
    const share_options *o = arg;
    share_answer answer;
    gvm_device *device = NULL;

    memset(&answer, 0, sizeof answer);
    answer.status = gvm_device_open(o->device, &device);
    if (answer.status == GVM_OK)
        answer.status = o->ipc ? import_by_handle(socket, o, device, &answer)
                               : import_by_fd(socket, o, device, &answer);
    if (answer.status != GVM_OK && answer.text[0] == '\0')
        tool_failure_text(answer.text, sizeof answer.text);
    gvm_device_close(device);
    if (peer_send(socket, &answer, sizeof answer))
        peer_linger(socket);
    return answer.status == GVM_OK ? TOOL_DONE : TOOL_FAILED;
}

/* ---- the exporter */

typedef struct exporter {
    const share_options *options;
    peer *peers;
    gvm_device *device;
    gvm_buffer *buffer;
    double sum;
} exporter;

static void print_sum_rate(double us, uint64_t bytes)
{
    printf("  sum            %10.1f us  %8.1f GB/s\n", us, (double)bytes / us / 1e3);
}

/* The sum of n numbers uniform in [0, 1) is n/2 with a deviation of sqrt(n/12). Ten deviations away
 * it is no such sum, and processes that agree on it agree on garbage. */
static bool is_plausible(double sum, uint64_t count)
{
    return fabs(sum - (double)count / 2) <= 10 * sqrt((double)count / 12);
}

static int fill_buffer(exporter *m)
{
    const share_options *o = m->options;
    const gvm_buffer_options options = {.struct_size = sizeof options, .chunk_bytes = o->chunk_bytes};
    const uint64_t count = o->len_bytes / 8;
    void *address;
    double sum_us;

    if (gvm_device_open(o->device, &m->device) != GVM_OK)
        return tool_fail("cannot open device %d", o->device);
    if (gvm_buffer_create(m->device, o->len_bytes, &options, &m->buffer) != GVM_OK)
        return tool_fail("cannot make the buffer");
    if (gvm_buffer_commit(m->buffer, 0, o->len_bytes) != GVM_OK)
        return tool_fail("cannot put memory behind the buffer");
    address = gvm_buffer_address(m->buffer);
    if (gvm_kernel_fill_random_f64(m->device, address, count, 0, SEED, NULL) != GVM_OK ||
        gvm_device_synchronize(m->device) != GVM_OK)
        return tool_fail("cannot fill the buffer");
    if (timed_sum(m->device, address, count, &m->sum, &sum_us) != GVM_OK)
        return tool_fail("cannot sum the buffer");
    printf("sum of the exporter: %.6f\n", m->sum);
    if (o->verbose)
        print_sum_rate(sum_us, o->len_bytes);
    if (!is_plausible(m->sum, count))
        return tool_error(
            "the sum of %llu random numbers cannot be %.6f: the kernels do not work on this device",
            (unsigned long long)count, m->sum);
    return TOOL_DONE;
}

static int send_by_fd(exporter *m)
{
    const share_options *o = m->options;
    gvm_share_info info = {.struct_size = sizeof info};
    double start_us = tool_now_us();
    gvm_share *share;
    gvm_status status = GVM_OK;
    char chunk[32];

    if (gvm_share_export(m->buffer, 0, o->len_bytes, &share) != GVM_OK)
        return tool_fail("cannot export the buffer");
    if (o->verbose && gvm_share_get_info(share, &info) == GVM_OK)
        printf("  %-14s %10.1f us  %u chunks of %s\n", "export", tool_now_us() - start_us,
               info.chunk_count, gvmi_size_text(info.chunk_bytes, chunk));
    for (int i = 0; i < o->processes && status == GVM_OK; i++) {
        status = gvm_share_send(share, m->peers[i].socket, timeout_ms(o));
        if (status == GVM_E_PEER) /* it has ended; collect_helpers() says why */
            status = GVM_OK;
    }
    if (status != GVM_OK)
        tool_fail("cannot send the buffer");
    gvm_share_destroy(share);
    return status == GVM_OK ? TOOL_DONE : TOOL_FAILED;
}

static int send_by_handle(exporter *m, gvm_ipc **ipc)
{
    const share_options *o = m->options;
    double start_us = tool_now_us();
    gvm_ipc_info info = {.struct_size = sizeof info};

    if (gvm_ipc_export(m->buffer, 0, o->len_bytes, ipc) != GVM_OK ||
        gvm_ipc_get_info(*ipc, &info) != GVM_OK)
        return tool_fail("cannot make a CUDA IPC handle");
    if (o->verbose)
        printf("  %-14s %10.1f us  with a copy on the device\n", "export", tool_now_us() - start_us);
    for (int i = 0; i < o->processes; i++)
        peer_send(m->peers[i].socket, &info.handle,
                  sizeof info.handle); /* if it has ended, collect_helpers() says why */
    return TOOL_DONE;
}

static bool check_answer(const exporter *m, const peer *p, const share_answer *answer)
{
    if (answer->status != GVM_OK) {
        tool_error("process %d: %.*s", (int)p->pid, (int)sizeof answer->text, answer->text);
        return false;
    }
    printf("sum of process %d: %.6f\n", (int)p->pid, answer->sum);
    if (m->options->verbose) {
        printf("  %-14s %10.1f us  %s\n", "import", answer->import_us,
               answer->access == GVM_ACCESS_READ ? "read-only" : "read-write");
        print_sum_rate(answer->sum_us, m->options->len_bytes);
    }
    if (fabs(answer->sum - m->sum) <= SUM_TOLERANCE * m->sum)
        return true;
    tool_error("process %d has another sum than the exporter", (int)p->pid);
    return false;
}

/* Takes every helper's answer and waits for its end. All are gone afterwards. */
static int collect_helpers(exporter *m, bool expected)
{
    const share_options *o = m->options;
    int code = TOOL_DONE;
    char how[80];

    for (int i = 0; i < o->processes; i++) {
        peer *p = &m->peers[i];
        int pid = (int)p->pid;
        share_answer answer;
        peer_answer got = expected ? peer_receive(p->socket, &answer, sizeof answer, timeout_ms(o))
                                   : PEER_CLOSED;
        bool good = got == PEER_OK && check_answer(m, p, &answer);
        bool ended_well = peer_finish(p, got == PEER_OK ? timeout_ms(o) : 2000, how, sizeof how);

        if (expected && got == PEER_SILENT)
            tool_error("process %d did not answer within %d seconds and was ended", pid, o->timeout_s);
        else if (expected && got == PEER_CLOSED)
            tool_error("process %d gave no answer: it %s", pid, how);
        else if (good && !ended_well)
            tool_error("process %d gave its sum and then %s", pid, how);
        if (!good || !ended_well)
            code = TOOL_FAILED;
    }
    return code;
}

static int run_exporter(const share_options *o, peer *peers)
{
    exporter m = {.options = o, .peers = peers};
    gvm_ipc *ipc = NULL;
    int code = fill_buffer(&m), collected;

    if (code == TOOL_DONE)
        code = o->ipc ? send_by_handle(&m, &ipc) : send_by_fd(&m);
    collected = collect_helpers(&m, code == TOOL_DONE);
    if (code == TOOL_DONE)
        code = collected;
    gvm_ipc_destroy(ipc); /* after the helpers have closed it */
    gvm_buffer_destroy(m.buffer);
    gvm_device_close(m.device);
    return code;
}

/* ---- options */

static bool set_share_option(share_options *o, int option)
{
    switch (option) {
    case 'd': return tool_parse_number("share", "--device", optarg, 0, 1000, &o->device);
    case 'n':
        return tool_parse_number("share", "--processes", optarg, 1, PROCESSES_MAX, &o->processes);
    case 'l': return tool_parse_size("share", "--length", optarg, 8, &o->len_bytes);
    case 'c':
        return tool_parse_size("share", "--chunk", optarg, GVM_CHUNK_BYTES_MIN, &o->chunk_bytes);
    case 't': return tool_parse_number("share", "--timeout", optarg, 1, 86400, &o->timeout_s);
    case 'r': o->read_only = true; return true;
    case 'i': o->ipc = true; return true;
    case 'v': o->verbose = true; return true;
    default: return false;
    }
}

static int check_options(share_options *o)
{
    if (o->read_only && o->ipc)
        return tool_usage(
            "share",
            "--read-only and --ipc exclude each other: CUDA IPC handles are always read-write");
    if (o->chunk_bytes != 0 && (!gvmi_is_pow2(o->chunk_bytes) || o->chunk_bytes > GVM_CHUNK_BYTES_MAX))
        return tool_usage("share", "--chunk takes a power of two from 2MiB to 1GiB");
    if (o->len_bytes > GVMI_TIB * 1024)
        return tool_usage("share", "--length is more than any device has");
    o->len_bytes = gvmi_round_up(o->len_bytes, 8);
    return TOOL_DONE;
}

int tool_share(int argc, char **argv)
{
    static const struct option longs[] = {
        {"device", required_argument, NULL, 'd'},  {"processes", required_argument, NULL, 'n'},
        {"length", required_argument, NULL, 'l'},  {"chunk", required_argument, NULL, 'c'},
        {"timeout", required_argument, NULL, 't'}, {"read-only", no_argument, NULL, 'r'},
        {"ipc", no_argument, NULL, 'i'},           {"verbose", no_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},          {0}};
    share_options o = {.processes = 2, .timeout_s = 120, .len_bytes = 256 * GVMI_MIB};
    peer peers[PROCESSES_MAX];
    int option, code;

    while ((option = getopt_long(argc, argv, ":d:n:l:c:t:rivh", longs, NULL)) != -1) {
        if (option == 'h')
            return tool_help(usage);
        if (option == '?' || option == ':')
            return tool_bad_option("share", option, argv);
        if (!set_share_option(&o, option))
            return TOOL_USAGE;
    }
    if (optind < argc)
        return tool_usage("share", "\"%s\" is one argument too many", argv[optind]);
    if (check_options(&o) != TOOL_DONE)
        return TOOL_USAGE;
    tool_raise_descriptor_limit();
    if (!peer_start(peers, o.processes, run_helper, &o))
        return TOOL_FAILED;
    code = run_exporter(&o, peers);
    return tool_flush(stdout, "standard output") ? code : TOOL_FAILED;
}
