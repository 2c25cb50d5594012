/* keeper/server/budget.c: what the machine has, as files show it, and what may be taken of it. */
#include "tests/lib/units.h"
#include "tests/unit/unit.h"

#include <limits.h>
#include <sys/stat.h>

#include "keeper/server/budget.h"

#define MEMINFO "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:    8388608 kB\n"

/* ---- files of a machine */

typedef struct machine {
    char root[64];
} machine;

static void make_machine(machine *m)
{
    strcpy(m->root, "/tmp/gvmem-test-budget-XXXXXX");
    assert_non_null(mkdtemp(m->root));
}

static void put(const machine *m, const char *name, const char *text)
{
    char path[PATH_MAX];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", m->root, name);
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
    file = fopen(path, "we");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static gvmi_host_memory read_and_remove(const machine *m)
{
    gvmi_host_memory memory;
    char command[128];

    gvmi_host_memory_read(m->root, &memory);
    snprintf(command, sizeof command, "rm -r %s", m->root);
    assert_int_equal(system(command), 0);
    return memory;
}

static void machine_without_groups_has_its_memory(void **state)
{
    gvmi_host_memory memory;
    machine m;

    (void)state;
    make_machine(&m);
    put(&m, "proc/meminfo", MEMINFO);
    put(&m, "proc/self/cgroup", "0::/\n");
    put(&m, "sys/fs/cgroup/memory.max", "max\n");
    memory = read_and_remove(&m);
    assert_int_equal(memory.limit_bytes, 16 * GIB);
    assert_int_equal(memory.available_bytes, 8 * GIB);
}

static void machine_without_files_is_unknown(void **state)
{
    gvmi_host_memory memory;
    machine m;

    (void)state;
    make_machine(&m);
    memory = read_and_remove(&m);
    assert_int_equal(memory.limit_bytes, 0);
    assert_int_equal(memory.available_bytes, 0);
}

static void group_with_less_limits(void **state)
{
    gvmi_host_memory memory;
    machine m;

    (void)state;
    make_machine(&m);
    put(&m, "proc/meminfo", MEMINFO);
    put(&m, "proc/self/cgroup", "0::/a.slice/b.service\n");
    put(&m, "sys/fs/cgroup/a.slice/memory.max", "4294967296\n"); /* of the group above */
    put(&m, "sys/fs/cgroup/a.slice/b.service/memory.max", "6442450944\n");
    memory = read_and_remove(&m);
    assert_int_equal(memory.limit_bytes, 4 * GIB);
    assert_int_equal(memory.available_bytes, 4 * GIB);
}

/* Its path is the host's, its files are at the mount point. */
static void group_of_a_container_limits(void **state)
{
    gvmi_host_memory memory;
    machine m;

    (void)state;
    make_machine(&m);
    put(&m, "proc/meminfo", MEMINFO);
    put(&m, "proc/self/cgroup", "0::/docker/0123\n");
    put(&m, "sys/fs/cgroup/memory.max", "2147483648\n");
    memory = read_and_remove(&m);
    assert_int_equal(memory.limit_bytes, 2 * GIB);
}

static void group_of_version_1_limits(void **state)
{
    gvmi_host_memory memory;
    machine m;

    (void)state;
    make_machine(&m);
    put(&m, "proc/meminfo", MEMINFO);
    put(&m, "proc/self/cgroup", "5:cpu,cpuacct:/x\n4:hugetlb,memory:/jobs/1\n0::/\n");
    put(&m, "sys/fs/cgroup/memory/jobs/1/memory.limit_in_bytes", "1073741824\n");
    put(&m, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    memory = read_and_remove(&m);
    assert_int_equal(memory.limit_bytes, GIB);
}

/* ---- the budget */

static void budget_by_default_is_half_of_what_is_available(void **state)
{
    const gvmi_host_memory memory = {16 * GIB, 8 * GIB};
    uint64_t budget_bytes = 0;

    (void)state;
    assert_int_equal(gvmi_host_budget(&memory, 0, 0, &budget_bytes), GVM_OK);
    assert_int_equal(budget_bytes, 4 * GIB);
}

static void budget_beyond_the_memory_is_refused(void **state)
{
    const gvmi_host_memory memory = {16 * GIB, 8 * GIB}, unknown = {0, 0};
    uint64_t budget_bytes = 0;
    gvm_error error;

    (void)state;
    assert_int_equal(gvmi_host_budget(&memory, 16 * GIB + 1, 0, &budget_bytes), GVM_E_NOSPACE);
    gvm_error_last(&error);
    assert_non_null(strstr(error.text, "16 GiB of memory that the machine"));
    assert_int_equal(budget_bytes, 0);
    assert_int_equal(gvmi_host_budget(&memory, 16 * GIB, 0, &budget_bytes), GVM_OK);
    assert_int_equal(gvmi_host_budget(&unknown, 16 * GIB, 0, &budget_bytes), GVM_OK);
    assert_int_equal(budget_bytes, 16 * GIB);
}

static void budget_less_than_what_is_made_ahead_is_refused(void **state)
{
    const gvmi_host_memory memory = {16 * GIB, 8 * GIB};
    uint64_t budget_bytes = 0;

    (void)state;
    assert_int_equal(gvmi_host_budget(&memory, GIB, GIB + 1, &budget_bytes), GVM_E_INVALID);
    assert_int_equal(gvmi_host_budget(&memory, 0, 4 * GIB + 1, &budget_bytes), GVM_E_INVALID);
    assert_int_equal(gvmi_host_budget(&memory, GIB, GIB, &budget_bytes), GVM_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(machine_without_groups_has_its_memory),
        cmocka_unit_test(machine_without_files_is_unknown),
        cmocka_unit_test(group_with_less_limits),
        cmocka_unit_test(group_of_a_container_limits),
        cmocka_unit_test(group_of_version_1_limits),
        cmocka_unit_test(budget_by_default_is_half_of_what_is_available),
        cmocka_unit_test(budget_beyond_the_memory_is_refused),
        cmocka_unit_test(budget_less_than_what_is_made_ahead_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
