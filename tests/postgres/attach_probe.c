/* A program that attaches tables by token, as any user's: public headers and the shared library alone. It
 * reads commands and answers a line each:
 *
 *     attach TOKEN | whole TOKEN    "ROWS COLUMNS", or the status's name
 *     open NAME                     opens a column; the status
 *     take NAME | give              a lease on a column; the status
 *     sum NAME                      checksum of a column's values, by a kernel under a lease
 *     reach NAME                    how many bytes are mapped where a column's values are
 *     all NAME                      checksum of all of them
 *     detach
 *     keeper SOCKET                 connects; the status
 *     adopt PID:FD                  the connection of another process, which has not used it; the status
 *     over TOKEN                    as attach, over that connection
 *     list                          how many objects the keeper shows
 *     spy NAME | link NAME          opens an object, or by a link; the status
 *     forge NAME                    links an object of its own, of zeros; the status
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <gvmem/gvmem.h>
#include <gvmem/table.h>

static gvm_table *table;
static gvm_device *device;
static gvm_table_data held;
static gvm_client *keeper;

static const char *attach(gvm_client *over, const char *token, uint32_t flags, char answer[64])
{
    gvm_table_info info = {.struct_size = sizeof info};
    gvm_status status = over != NULL ? gvm_table_attach_over(over, token, flags, &table)
                                     : gvm_table_attach(token, flags, &table);

    if (status == GVM_OK)
        status = gvm_table_get_info(table, &info);
    if (status == GVM_OK)
        status = gvm_device_open(info.device, &device);
    if (status != GVM_OK)
        return gvm_status_name(status);
    snprintf(answer, 64, "%" PRIu64 " %u", info.rows, (unsigned)info.columns);
    return answer;
}

static const char *sum(uint32_t index, char answer[64])
{
    gvm_table_column column = {.struct_size = sizeof column};
    gvm_table_data data;
    uint64_t checksum;
    gvm_status status = gvm_table_get_column(table, index, &column);

    if (status == GVM_OK)
        status = gvm_table_acquire(table, &index, 1, NULL, GVM_FOREVER, &data);
    if (status != GVM_OK)
        return gvm_status_name(status);
    status = gvm_kernel_checksum(device, data.values, column.values_bytes, NULL, &checksum);
    if (gvm_table_release(table, &data, 1) != GVM_OK || status != GVM_OK)
        return gvm_status_name(status);
    snprintf(answer, 64, "%016" PRIx64, checksum);
    return answer;
}

static const char *reach(uint32_t index, bool all, char answer[64])
{
    gvm_table_data data;
    uint64_t checksum = 0;
    gvm_status status = gvm_table_acquire(table, &index, 1, NULL, GVM_FOREVER, &data);

    if (status == GVM_OK && all)
        status = gvm_kernel_checksum(device, data.values, data.leases[0].size_bytes, NULL, &checksum);
    if (status != GVM_OK)
        return gvm_status_name(status);
    snprintf(answer, 64, "%" PRIu64, all ? checksum : data.leases[0].size_bytes);
    (void)gvm_table_release(table, &data, 1);
    return answer;
}

static const char *list(char answer[64])
{
    gvm_keeper_info info = {.struct_size = sizeof info};
    gvm_object_info object = {.struct_size = sizeof object};
    gvm_snapshot *all;
    gvm_status status = gvm_client_get_snapshot(keeper, &all);

    if (status != GVM_OK)
        return gvm_status_name(status);
    status = gvm_snapshot_get_keeper(all, &info);
    snprintf(answer, 64, "%u", (unsigned)info.objects);
    for (uint32_t i = 0; i < info.objects && status == GVM_OK; i++) {
        status = gvm_snapshot_get_object(all, i, &object);
        if (object.name[0] != '\0')
            snprintf(answer, 64, "%.60s", object.name);
    }
    gvm_snapshot_destroy(all);
    return status == GVM_OK ? answer : gvm_status_name(status);
}

static const char *spy(const char *name, uint32_t flags)
{
    gvm_object *object;
    const gvm_status status = gvm_object_open(keeper, name, GVM_OPEN_READONLY | flags, &object);

    if (status == GVM_OK)
        gvm_object_close(object);
    return gvm_status_name(status);
}

static const char *forge(const char *name)
{
    const uint64_t bytes = 4ull << 20;
    const gvm_object_options options = {.struct_size = sizeof options, .size_bytes = bytes};
    gvm_object *object;
    gvm_status status = gvm_object_create(keeper, NULL, bytes, &options, &object);

    if (status == GVM_OK)
        status = gvm_object_link(object, name, 0444, bytes);
    return gvm_status_name(status);
}

static const char *adopt(const char *what)
{
    int pid, fd, process, mine;

    if (sscanf(what, "%d:%d", &pid, &fd) != 2)
        return "no process and descriptor";
    process = (int)syscall(SYS_pidfd_open, pid, 0);
    mine = (int)syscall(SYS_pidfd_getfd, process, fd, 0);
    if (process < 0 || mine < 0)
        return strerror(errno);
    return gvm_status_name(gvm_client_adopt(mine, &keeper));
}

static const char *carry_out(const char *verb, const char *what, char answer[64])
{
    uint32_t index = 0;
    gvm_status status = GVM_OK;

    if (strcmp(verb, "attach") == 0)
        return attach(NULL, what, 0, answer);
    if (strcmp(verb, "over") == 0)
        return attach(keeper, what, 0, answer);
    if (strcmp(verb, "adopt") == 0)
        return adopt(what);
    if (strcmp(verb, "whole") == 0)
        return attach(NULL, what, GVM_TABLE_WHOLE, answer);
    if (strcmp(verb, "give") == 0)
        return gvm_status_name(gvm_table_release(table, &held, 1));
    if (strcmp(verb, "detach") == 0) {
        gvm_table_detach(table);
        gvm_device_close(device);
        return gvm_status_name(GVM_OK);
    }
    if (strcmp(verb, "keeper") == 0)
        return gvm_status_name(gvm_client_connect(what, &keeper));
    if (strcmp(verb, "list") == 0)
        return list(answer);
    if (strcmp(verb, "spy") == 0)
        return spy(what, 0);
    if (strcmp(verb, "link") == 0)
        return spy(what, GVM_OPEN_LINK);
    if (strcmp(verb, "forge") == 0)
        return forge(what);
    status = gvm_table_find_column(table, what, &index);
    if (status != GVM_OK)
        return gvm_status_name(status);
    if (strcmp(verb, "open") == 0)
        return gvm_status_name(gvm_table_open_columns(table, &index, 1));
    if (strcmp(verb, "take") == 0)
        return gvm_status_name(gvm_table_acquire(table, &index, 1, NULL, 20000, &held));
    if (strcmp(verb, "reach") == 0 || strcmp(verb, "all") == 0)
        return reach(index, strcmp(verb, "all") == 0, answer);
    return sum(index, answer);
}

int main(void)
{
    char line[2048], answer[64], verb[16], what[1024];

    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin) != NULL) {
        what[0] = '\0';
        if (sscanf(line, "%15s %1023[^\n]", verb, what) < 1)
            return 2;
        puts(carry_out(verb, what, answer));
    }
    return 0;
}
