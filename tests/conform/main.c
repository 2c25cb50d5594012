/* gvmem-conform: runs the table of conformance cases against a CUDA driver.
 *
 *     gvmem-conform [--driver PATH] [--image FILE] [--json FILE] [--list] [--case NAME]...
 *
 * Prints TAP: the plan, then one line a case, "ok N - name", "not ok N - name" or "ok N - name #
 * SKIP why", with comments below it that tell what failed and what the case saw, and at the end a
 * line of counts. --json FILE writes the same as data. Exit status: 0 none failed, 1 some failed, 2
 * could not run.
 */
#define _GNU_SOURCE
#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/conform/conform.h"
#include "tests/conform/report.h"
#include "tests/conform/wire.h"
#include "tests/lib/tap.h"

struct conform_options options = {.driver = "libcuda.so.1"};

static struct conform_report *reports; /* one for each case */
static bool *selected;

/* ---- workers */

int conform_start(child *process, const char *role)
{
    const char *more[] = {"--driver", options.driver, options.image ? "--image" : NULL,
                          options.image, NULL};

    return child_start(process, role, more);
}

static void worker_died(child *worker, struct conform_report *report)
{
    char text[64];
    const int status = child_end(worker);
    if (WIFSIGNALED(status))
        snprintf(text, sizeof text, "the process died by signal %d", WTERMSIG(status));
    else
        snprintf(text, sizeof text, "the process ended with status %d", WEXITSTATUS(status));
    conform_report_failure(report, text);
}

/* Takes one message. False: the case is over. */
static bool worker_message(child *worker, struct conform_report *report, bool *leave)
{
    struct conform_message message;
    ssize_t length = recv(worker->control, &message, sizeof message, 0);
    if (length < 2) {
        worker_died(worker, report);
        return false;
    }
    message.text[sizeof message.text - 1] = '\0';
    switch (message.kind) {
    case WIRE_DEVICE: conform_report_device(message.text); return true;
    case WIRE_VERSION: conform_report_version(message.text); return true;
    case WIRE_FAILURE: conform_report_failure(report, message.text); return true;
    case WIRE_OBSERVED: conform_report_observed(report, message.text); return true;
    case WIRE_SKIPPED: conform_report_skipped(report, message.text); return true;
    default: *leave = message.text[0] != '\0'; return false;
    }
}

/* Runs one case in the worker, which is started if need be and is gone afterwards if it cannot be
 * used again. */
static void run_case(child *worker, unsigned number, struct conform_report *report)
{
    uint64_t start = now_ms(), end = start + CONFORM_TIMEOUT_S * 1000;
    uint32_t request = number;
    bool leave = (conform_cases[number].flags & (ALONE | BARE | RAW)) != 0;
    int error;
    if (!worker->pid) {
        error = conform_start(worker, CONFORM_WORKER);
        if (error) {
            conform_report_failure(report, strerror(error));
            return;
        }
    }
    if (!child_post(worker, &request, sizeof request, -1))
        worker_died(worker, report);
    while (worker->pid) {
        struct pollfd wait = {worker->control, POLLIN, 0};
        uint64_t now = now_ms();
        bool failed_leave = false;
        if (now >= end || poll(&wait, 1, (int)(end - now)) == 0) {
            conform_report_failure(report, "timed out");
            child_kill(worker);
        } else if (!worker_message(worker, report, &failed_leave)) {
            leave = leave || failed_leave;
            break;
        }
    }
    if (leave)
        (void)child_end(worker);
    report->ms = now_ms() - start;
}

/* ---- the table */

static int run_selected(const char *json)
{
    child shared = {0}, alone = {0};
    unsigned failed, planned = 0;
    for (unsigned i = 0; i < conform_case_count; i++)
        planned += selected[i];
    tap_plan(planned);
    for (unsigned i = 0; i < conform_case_count; i++) {
        bool by_itself = (conform_cases[i].flags & (ALONE | BARE | RAW)) != 0;
        if (!selected[i])
            continue;
        run_case(by_itself ? &alone : &shared, i, &reports[i]);
        reports[i].ran = true;
        conform_report_print(conform_cases[i].name, &reports[i]);
    }
    (void)child_end(&shared);
    failed = conform_report_end(reports);
    if (json && !conform_report_json(json, reports)) {
        perror(json);
        return 2;
    }
    return failed ? 1 : 0;
}

/* ---- the command line */

static bool select_case(const char *name)
{
    for (unsigned i = 0; i < conform_case_count; i++)
        if (!strcmp(conform_cases[i].name, name)) {
            selected[i] = true;
            return true;
        }
    fprintf(stderr, "gvmem-conform: no case %s\n", name);
    return false;
}

static int list_cases(void)
{
    for (unsigned i = 0; i < conform_case_count; i++)
        puts(conform_cases[i].name);
    return 0;
}

static int usage(void)
{
    fputs("usage: gvmem-conform [--driver PATH] [--image FILE] [--json FILE] [--list] "
          "[--case NAME]...\n",
          stderr);
    return 2;
}

int main(int argc, char **argv)
{
    static const struct option names[] = {
        {"driver", required_argument, NULL, 'd'}, {"image", required_argument, NULL, 'i'},
        {"json", required_argument, NULL, 'j'},   {"case", required_argument, NULL, 'c'},
        {"list", no_argument, NULL, 'l'},         {"worker", no_argument, NULL, 'w'},
        {"peer", no_argument, NULL, 'p'},         {NULL, 0, NULL, 0},
    };
    static char self[4096];
    const char *json = NULL;
    bool any = false;
    int option, role = 0;
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0)
        return 2;
    options.self = self;
    reports = calloc(conform_case_count, sizeof *reports);
    selected = calloc(conform_case_count, sizeof *selected);
    if (!reports || !selected)
        return 2;
    while ((option = getopt_long(argc, argv, "", names, NULL)) != -1) {
        switch (option) {
        case 'd': options.driver = optarg; break;
        case 'i': options.image = optarg; break;
        case 'j': json = optarg; break;
        case 'c':
            any = true;
            if (!select_case(optarg))
                return 2;
            break;
        case 'l': return list_cases();
        case 'w':
        case 'p': role = option; break;
        default: return usage();
        }
    }
    if (optind < argc)
        return usage();
    if (child_is(argc, argv, CONFORM_WORKER) || child_is(argc, argv, CONFORM_PEER))
        return role == 'w' ? conform_worker() : conform_peer();
    for (unsigned i = 0; i < conform_case_count && !any; i++)
        selected[i] = true;
    fixture_machine_default("devices=2,memory=8GiB,sms=4");
    return run_selected(json);
}
