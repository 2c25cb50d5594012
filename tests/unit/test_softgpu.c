/* softgpu/: what the conformance table cannot hold. Handles and addresses that are none, at which
 * NVIDIA's driver dies; the settings of the machine; and the accounts that processes share.
 *
 * Each process of these tests is a child that loads the software GPU for itself, whatever
 * GVMEM_DRIVER says. Those that are to live on while others look tell over a socket that they are
 * ready, and end when a byte comes over it, or are killed.
 */
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "base/fds.h"
#include "driver/driver.h"
#include "tests/lib/units.h"

#define CHUNK (2 * MIB)

/* Loads the software GPU as one machine or another. The child's own copies of the settings. */
static gvm_status start(const char *machine)
{
    setenv("GVMEM_DRIVER", "soft", 1);
    setenv("GVMEM_SOFTGPU", machine, 1);
    unsetenv("GVMEM_TRACE");
    unsetenv("GVMEM_FAULT");
    unsetenv("GVMEM_CHECK");
    return gvmi_driver_start();
}

/* A machine's name that no other run of the test has. */
static const char *machine_of(const char *keys, const char *name)
{
    static char machine[200];

    snprintf(machine, sizeof machine, "%s,instance=softgpu-%d-%s", keys, (int)getppid(), name);
    return machine;
}

static CUmemAllocationProp properties(CUmemLocationType where)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = where, .id = 0},
    };
}

static CUresult create(CUmemGenericAllocationHandle *out, size_t bytes, CUmemLocationType where)
{
    const CUmemAllocationProp prop = properties(where);

    return gvmi_cu->cuMemCreate(out, bytes, &prop, 0);
}

static CUresult create_on_device(CUmemGenericAllocationHandle *out, size_t bytes)
{
    return create(out, bytes, CU_MEM_LOCATION_TYPE_DEVICE);
}

static CUresult grant(CUdeviceptr address, size_t bytes)
{
    const CUmemAccessDesc desc = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };

    return gvmi_cu->cuMemSetAccess(address, bytes, &desc, 1);
}

/* ---- handles and addresses that are none */

/* Everything that takes a handle, with one that is none. */
static int refuses_handle(CUmemGenericAllocationHandle handle, CUdeviceptr reserved)
{
    CUmemAllocationProp prop;
    int fd = -2;

    CHILD_EXPECT(gvmi_cu->cuMemMap(reserved, CHUNK, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE);
    CHILD_EXPECT(gvmi_cu->cuMemGetAllocationPropertiesFromHandle(&prop, handle) ==
                 CUDA_ERROR_INVALID_VALUE);
    CHILD_EXPECT(gvmi_cu->cuMemExportToShareableHandle(&fd, handle,
                                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                                       0) == CUDA_ERROR_INVALID_VALUE);
    CHILD_EXPECT(fd == -2);
    CHILD_EXPECT(gvmi_cu->cuMemRelease(handle) == CUDA_ERROR_INVALID_VALUE);
    return 0;
}

static int use_released_handle(void *arg)
{
    CUmemGenericAllocationHandle handle, next;
    CUdeviceptr reserved;

    (void)arg;
    CHILD_EXPECT(start(machine_of("memory=16MiB", "stale")) == GVM_OK);
    CHILD_EXPECT(gvmi_cu->cuMemAddressReserve(&reserved, CHUNK, 0, 0, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(create_on_device(&handle, CHUNK) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemRelease(handle) == CUDA_SUCCESS);
    CHILD_EXPECT(refuses_handle(handle, reserved) == 0);
    for (int i = 0; i < 100; i++) { /* and it does not become the next one's */
        CHILD_EXPECT(create_on_device(&next, CHUNK) == CUDA_SUCCESS);
        CHILD_EXPECT(next != handle && refuses_handle(handle, reserved) == 0);
        CHILD_EXPECT(gvmi_cu->cuMemRelease(next) == CUDA_SUCCESS);
    }
    return 0;
}

CHILD_TEST(handle_released_is_refused_ever_after, use_released_handle)

/* The mapping keeps the memory, and gives a handle of it again; the old value stays dead. */
static int use_handle_released_under_its_mapping(void *arg)
{
    CUmemGenericAllocationHandle handle, again;
    CUdeviceptr reserved;

    (void)arg;
    CHILD_EXPECT(start(machine_of("memory=16MiB", "stale")) == GVM_OK);
    CHILD_EXPECT(gvmi_cu->cuMemAddressReserve(&reserved, 2 * CHUNK, 0, 0, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(create_on_device(&handle, CHUNK) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemMap(reserved, CHUNK, 0, handle, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemRelease(handle) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)reserved) ==
                 CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemRelease(again) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemUnmap(reserved, CHUNK) == CUDA_SUCCESS);
    CHILD_EXPECT(refuses_handle(handle, reserved) == 0 && refuses_handle(again, reserved) == 0);
    CHILD_EXPECT(gvmi_cu->cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)reserved) ==
                 CUDA_ERROR_INVALID_VALUE);
    return 0;
}

CHILD_TEST(handle_released_under_its_mapping_is_refused_after_unmapping,
           use_handle_released_under_its_mapping)

static int use_nonsense_handles(void *arg)
{
    static int something;
    const CUmemGenericAllocationHandle nonsense[] = {
        0, 1, 2, 0xdeadbeef, UINT64_MAX, UINT64_MAX - 1, 1ull << 63, (uintptr_t)&something,
    };
    CUmemGenericAllocationHandle handle;
    CUdeviceptr reserved;

    (void)arg;
    CHILD_EXPECT(start(machine_of("memory=16MiB", "stale")) == GVM_OK);
    CHILD_EXPECT(gvmi_cu->cuMemAddressReserve(&reserved, CHUNK, 0, 0, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(create_on_device(&handle, CHUNK) == CUDA_SUCCESS);
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++)
        CHILD_EXPECT(refuses_handle(nonsense[i], reserved) == 0);
    CHILD_EXPECT(refuses_handle(handle + 1, reserved) == 0 && refuses_handle(reserved, reserved) == 0);
    CHILD_EXPECT(gvmi_cu->cuMemRelease(handle) == CUDA_SUCCESS); /* none of them hit it */
    return 0;
}

CHILD_TEST(handle_that_is_nonsense_is_refused, use_nonsense_handles)

/* Everything that takes reserved addresses, with some that are not reserved. */
static int refuses_addresses(CUdeviceptr address, CUmemGenericAllocationHandle handle)
{
    CHILD_EXPECT(gvmi_cu->cuMemAddressFree(address, CHUNK) == CUDA_ERROR_INVALID_VALUE);
    CHILD_EXPECT(gvmi_cu->cuMemMap(address, CHUNK, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE);
    CHILD_EXPECT(gvmi_cu->cuMemUnmap(address, CHUNK) == CUDA_ERROR_INVALID_VALUE);
    CHILD_EXPECT(grant(address, CHUNK) == CUDA_ERROR_INVALID_VALUE);
    return 0;
}

static int use_addresses_that_are_not_reserved(void *arg)
{
    static int something;
    const CUdeviceptr nonsense[] = {
        0,
        CHUNK,
        4096,
        UINT64_MAX,
        UINT64_MAX - CHUNK + 1,
        (uintptr_t)&something,
        (uintptr_t)&something & ~(CHUNK - 1),
    };
    CUmemGenericAllocationHandle handle;
    CUdeviceptr reserved;

    (void)arg;
    CHILD_EXPECT(start(machine_of("memory=16MiB", "stale")) == GVM_OK);
    CHILD_EXPECT(create_on_device(&handle, CHUNK) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemAddressReserve(&reserved, CHUNK, 0, 0, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemAddressFree(reserved, CHUNK) == CUDA_SUCCESS);
    CHILD_EXPECT(refuses_addresses(reserved, handle) == 0);
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++)
        CHILD_EXPECT(refuses_addresses(nonsense[i], handle) == 0);
    something = 1; /* it is still there */
    CHILD_EXPECT(gvmi_cu->cuMemRelease(handle) == CUDA_SUCCESS);
    return 0;
}

CHILD_TEST(address_that_is_not_reserved_is_refused, use_addresses_that_are_not_reserved)

/* ---- the machine */

typedef struct setting {
    const char *machine;
    const char *problem; /* in the error's text */
} setting;

static int start_with_malformed(void *arg)
{
    const setting *one = arg;
    gvm_error error;

    for (int tries = 0; tries < 2; tries++) {
        CHILD_EXPECT(start(one->machine) == GVM_E_SETTING);
        gvm_error_last(&error);
        CHILD_EXPECT(error.status == GVM_E_SETTING);
        CHILD_EXPECT(strstr(error.text, "GVMEM_SOFTGPU") != NULL);
        CHILD_EXPECT(strstr(error.text, one->problem) != NULL);
    }
    return 0;
}

static void machine_malformed_is_a_bad_setting(void **state)
{
    static char long_name[] = "instance=123456789012345678901234567890123456789012345678";
    static char too_long[300];
    const setting settings[] = {
        {"devices=0", "1 to 16"},
        {"devices=17", "1 to 16"},
        {"devices=", "1 to 16"},
        {"devices=2x", "1 to 16"},
        {"devices=-1", "1 to 16"},
        {"devices=0x2", "1 to 16"},
        {"devices= 2", "1 to 16"},
        {"devices=18446744073709551617", "1 to 16"},
        {"memory=", "2MiB to 1024TiB"},
        {"memory=0", "2MiB to 1024TiB"},
        {"memory=1MiB", "2MiB to 1024TiB"},
        {"memory=2097151", "2MiB to 1024TiB"},
        {"memory=2Q", "2MiB to 1024TiB"},
        {"memory=2MiBs", "2MiB to 1024TiB"},
        {"memory=2MB", "2MiB to 1024TiB"},
        {"memory=1.5GiB", "2MiB to 1024TiB"},
        {"memory=-2MiB", "2MiB to 1024TiB"},
        {"memory=1025TiB", "2MiB to 1024TiB"},
        {"memory=18014398509481984K", "2MiB to 1024TiB"}, /* 2^64 and nothing */
        {"memory=18446744073711648768", "2MiB to 1024TiB"},
        {"peers=0", "1 to 16"},
        {"peers=17", "1 to 16"},
        {"sms=0", "1 to 256"},
        {"sms=257", "1 to 256"},
        {"warp=0", "1, 2, 4, 8, 16 or 32"},
        {"warp=3", "1, 2, 4, 8, 16 or 32"},
        {"warp=64", "1, 2, 4, 8, 16 or 32"},
        {"warp=", "1, 2, 4, 8, 16 or 32"},
        {"threads=0", "1 to 1024"},
        {"threads=1025", "1 to 1024"},
        {"threads=all", "1 to 1024"},
        {"threads=48,warp=32", "whole warps"},
        {"threads=64,warp=1", "whole warps"}, /* more of them than code has room for */
        {"threads=33", "whole warps"},
        {"switches=", "0 for none"},
        {"switches=-1", "0 for none"},
        {"switches=on", "0 for none"},
        {"host=", "0 for no limit"},
        {"host=all", "0 for no limit"},
        {"link=", "a second"},
        {"link=fast", "a second"},
        {"gap_us=", "0 to 1000000"},
        {"gap_us=1000001", "0 to 1000000"},
        {"gap_us=1ms", "0 to 1000000"},
        {"instance=", "1 to 47"},
        {"instance=a/b", "1 to 47"},
        {"instance=a:b", "1 to 47"},
        {"instance=a b", "1 to 47"},
        {long_name, "1 to 47"},
        {"device=1", "devices="},
        {"DEVICES=1", "devices="},
        {"devices", "devices="},
        {"=1", "devices="},
        {"devices=1,", "devices="},
        {"devices=1,,sms=1", "devices="},
        {"devices=2,sms=0,memory=0", "'sms=0'"}, /* the first one is reported */
        {too_long, "255"},
    };

    (void)state;
    memset(too_long, '1', sizeof too_long - 1);
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        if (run_in_child(start_with_malformed, (void *)(uintptr_t)&settings[i], false) != 0)
            fail_msg("the machine \"%s\"", settings[i].machine);
}

typedef struct machine {
    const char *keys;
    int devices, sms; /* 0: any */
    uint64_t memory_bytes;
    int warp, threads; /* likewise */
} machine;

static int attribute(CUdevice_attribute which)
{
    int value = -1;

    (void)gvmi_cu->cuDeviceGetAttribute(&value, which, 0);
    return value;
}

static int start_with(void *arg)
{
    const machine *one = arg;
    const int warp = one->warp ? one->warp : 32, threads = one->threads ? one->threads : 64;
    int devices = 0;
    size_t bytes = 0;

    CHILD_EXPECT(start(one->keys) == GVM_OK);
    CHILD_EXPECT(gvmi_cu->cuDeviceGetCount(&devices) == CUDA_SUCCESS);
    CHILD_EXPECT(one->devices == 0 ? devices > 0 : devices == one->devices);
    CHILD_EXPECT(gvmi_cu->cuDeviceTotalMem(&bytes, devices - 1) == CUDA_SUCCESS);
    CHILD_EXPECT(one->memory_bytes == 0 ? bytes >= CHUNK : bytes == one->memory_bytes);
    CHILD_EXPECT(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) == one->sms ||
                 (one->sms == 0 && attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) > 0));
    CHILD_EXPECT(attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE) == warp);
    CHILD_EXPECT(attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK) == threads);
    return 0;
}

static void machine_well_formed_is_what_it_says(void **state)
{
    const machine machines[] = {
        {"", 1, 0, 0, 0, 0},
        {"devices=16", 16, 0, 0, 0, 0},
        {"devices=002", 2, 0, 0, 0, 0},
        {"memory=2MiB", 1, 0, 2 * MIB, 0, 0},
        {"memory=2097152", 1, 0, 2 * MIB, 0, 0},
        {"memory=2M", 1, 0, 2 * MIB, 0, 0},
        {"memory=2mib", 1, 0, 2 * MIB, 0, 0},
        {"memory=5MiB", 1, 0, 4 * MIB, 0, 0}, /* whole chunks */
        {"memory=1024TiB", 1, 0, 1ull << 50, 0, 0},
        {"sms=256,host=0", 1, 256, 0, 0, 0},
        {"gap_us=0,devices=2", 2, 0, 0, 0, 0},
        {"peers=16,link=1GiB", 1, 0, 0, 0, 0},
        {"gap_us=1000000", 1, 0, 0, 0, 0},
        {"warp=32", 1, 0, 0, 0, 0},
        {"warp=1", 1, 0, 0, 1, 32}, /* no more warps than code has room for */
        {"warp=2", 1, 0, 0, 2, 64},
        {"threads=1", 1, 0, 0, 1, 1},
        {"threads=48", 1, 0, 0, 16, 48}, /* whole warps */
        {"threads=1024,switches=18446744073709551615", 1, 0, 0, 32, 1024},
        {"threads=8,warp=8,switches=0", 1, 0, 0, 8, 8},
        {"sms=3,devices=2,memory=1g,host=8GiB,instance=softgpu-A_b.9", 2, 3, 1ull << 30, 0, 0},
        {"devices=1,devices=3", 3, 0, 0, 0, 0}, /* the last one counts */
        {"instance=12345678901234567890123456789012345678901234567", 1, 0, 0, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++)
        if (run_in_child(start_with, (void *)(uintptr_t)&machines[i], false) != 0)
            fail_msg("the machine \"%s\"", machines[i].keys);
}

/* ---- peers */

static CUresult grant_to(CUdeviceptr address, int device, int flags)
{
    const CUmemAccessDesc desc = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                                  .flags = (CUmemAccess_flags)flags};

    return gvmi_cu->cuMemSetAccess(address, CHUNK, &desc, 1);
}

/* Memory of device 0, which device 1 reaches, and devices 2 and 3 do not. */
static int start_in_pairs(void *arg)
{
    const int writes = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUmemGenericAllocationHandle handle;
    CUcontext contexts[4];
    CUdeviceptr at;
    int can = -1;

    (void)arg;
    CHILD_EXPECT(start(machine_of("devices=4,memory=16MiB,peers=2", "pairs")) == GVM_OK);
    for (int d = 0; d < 4; d++) {
        CHILD_EXPECT(gvmi_cu->cuDeviceCanAccessPeer(&can, d, 0) == CUDA_SUCCESS && can == (d == 1));
        CHILD_EXPECT(gvmi_cu->cuDevicePrimaryCtxRetain(&contexts[d], d) == CUDA_SUCCESS);
    }
    CHILD_EXPECT(gvmi_cu->cuDeviceCanAccessPeer(&can, 2, 3) == CUDA_SUCCESS && can == 1);
    CHILD_EXPECT(gvmi_cu->cuCtxSetCurrent(contexts[0]) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuCtxEnablePeerAccess(contexts[1], 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuCtxEnablePeerAccess(contexts[2], 0) == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    CHILD_EXPECT(create_on_device(&handle, CHUNK) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemAddressReserve(&at, CHUNK, 0, 0, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemMap(at, CHUNK, 0, handle, 0) == CUDA_SUCCESS);
    for (int d = 0; d < 4; d++) {
        CHILD_EXPECT(grant_to(at, d, writes) == (d < 2 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE));
        CHILD_EXPECT(grant_to(at, d, CU_MEM_ACCESS_FLAGS_PROT_NONE) == CUDA_SUCCESS);
    }
    return 0;
}

static void devices_in_pairs_reach_no_other_pair(void **state)
{
    (void)state;
    assert_child_succeeds(start_in_pairs, NULL);
}

/* ---- devices that a process does not see */

/* Waits for a byte; the fd that came along, or -1. */
static int receive_fd(int socket)
{
    char byte;
    int fd = -1;
    gvmi_fds in = {.fds = &fd, .capacity = 1};

    assert_int_equal(gvmi_fds_receive(socket, &byte, 1, &in, 0), 1);
    return fd;
}

static int export_of_device_1(int socket)
{
    CUmemAllocationProp prop = properties(CU_MEM_LOCATION_TYPE_DEVICE);
    CUmemGenericAllocationHandle handle;
    int fd = -1;

    prop.location.id = 1;
    CHILD_EXPECT(start(machine_of("devices=2,memory=16MiB", "unseen")) == GVM_OK);
    CHILD_EXPECT(gvmi_cu->cuMemCreate(&handle, CHUNK, &prop, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemExportToShareableHandle(
                     &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_fds_send(socket, "", 1, &fd, 1, 0) == 1);
    close(fd);
    return 0;
}

/* As on two H200, of which a process sees one. */
static int import_of_device_1(void *arg)
{
    const int fd = *(const int *)arg;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop;
    CUdeviceptr at;

    CHILD_EXPECT(start(machine_of("devices=1,memory=16MiB", "unseen")) == GVM_OK);
    CHILD_EXPECT(gvmi_cu->cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) ==
                 CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemGetAllocationPropertiesFromHandle(&prop, handle) == CUDA_SUCCESS);
    CHILD_EXPECT(prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE && prop.location.id == -2);
    CHILD_EXPECT(gvmi_cu->cuMemAddressReserve(&at, CHUNK, 0, 0, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemMap(at, CHUNK, 0, handle, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(grant(at, CHUNK) == CUDA_SUCCESS);
    return 0;
}

static void memory_of_a_device_that_is_not_seen_is_mapped(void **state)
{
    int ends[2], fd, status;
    pid_t pid;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    pid = fork();
    if (pid == 0)
        _exit(export_of_device_1(ends[1]));
    fd = receive_fd(ends[0]);
    assert_true(fd >= 0);
    assert_child_succeeds(import_of_device_1, &fd);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close(fd);
    close(ends[0]);
    close(ends[1]);
}

/* ---- accounts */

#define MEMORY "memory=32MiB,host=8MiB"

/* What a process of a machine tries to have. */
typedef struct wish {
    const char *name; /* of the machine */
    CUmemLocationType where;
    size_t bytes;
    CUresult expected;
} wish;

static int try_wish(void *arg)
{
    const wish *one = arg;
    CUmemGenericAllocationHandle handle;

    CHILD_EXPECT(start(machine_of(MEMORY, one->name)) == GVM_OK);
    CHILD_EXPECT(create(&handle, one->bytes, one->where) == one->expected);
    CHILD_EXPECT(one->expected != CUDA_SUCCESS || gvmi_cu->cuMemRelease(handle) == CUDA_SUCCESS);
    return 0;
}

static void expect_device(const char *name, size_t bytes, CUresult expected)
{
    wish one = {name, CU_MEM_LOCATION_TYPE_DEVICE, bytes, expected};

    assert_child_succeeds(try_wish, &one);
}

static void expect_host(const char *name, size_t bytes, CUresult expected)
{
    wish one = {name, CU_MEM_LOCATION_TYPE_HOST_NUMA, bytes, expected};

    assert_child_succeeds(try_wish, &one);
}

/* A process that holds memory until it is to end, or is killed. */
typedef struct holder {
    pid_t pid;
    int socket; /* a byte ends it */
} holder;

static int hold(const wish *one, int socket)
{
    CUmemGenericAllocationHandle handle;
    int fd = -1;
    char byte;

    CHILD_EXPECT(start(machine_of(MEMORY, one->name)) == GVM_OK);
    CHILD_EXPECT(create(&handle, one->bytes, one->where) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemExportToShareableHandle(
                     &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_fds_send(socket, "", 1, &fd, 1, 0) == 1);
    close(fd);
    CHILD_EXPECT(read(socket, &byte, 1) == 1);
    CHILD_EXPECT(gvmi_cu->cuMemRelease(handle) == CUDA_SUCCESS);
    return 0;
}

/* *fd: of the memory it holds; NULL: not wanted. */
static holder start_holder(const char *name, CUmemLocationType where, size_t bytes, int *fd)
{
    const wish one = {name, where, bytes, CUDA_SUCCESS};
    holder h;
    int ends[2], got;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    h.pid = fork();
    assert_true(h.pid >= 0);
    if (h.pid == 0) {
        close(ends[0]);
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* if the test fails */
        _exit(hold(&one, ends[1]));
    }
    close(ends[1]);
    h.socket = ends[0];
    got = receive_fd(h.socket);
    assert_true(got >= 0);
    if (fd != NULL)
        *fd = got;
    else
        close(got);
    return h;
}

static void end_holder(holder *h)
{
    int status;

    assert_int_equal(write(h->socket, "", 1), 1);
    assert_int_equal(waitpid(h->pid, &status, 0), h->pid);
    assert_int_equal(status, 0);
    close(h->socket);
}

static void kill_holder(holder *h)
{
    int status;

    assert_int_equal(kill(h->pid, SIGKILL), 0);
    assert_int_equal(waitpid(h->pid, &status, 0), h->pid);
    assert_true(WIFSIGNALED(status));
    close(h->socket);
}

static void memory_is_shared_by_processes_of_one_instance_alone(void **state)
{
    holder h = start_holder("a", CU_MEM_LOCATION_TYPE_DEVICE, 24 * MIB, NULL);

    (void)state;
    expect_device("a", 10 * MIB, CUDA_ERROR_OUT_OF_MEMORY);
    expect_device("a", 8 * MIB, CUDA_SUCCESS);
    expect_device("b", 32 * MIB, CUDA_SUCCESS);
    expect_device("b", 34 * MIB, CUDA_ERROR_OUT_OF_MEMORY);
    end_holder(&h);
    expect_device("a", 32 * MIB, CUDA_SUCCESS);
}

static void memory_of_the_killed_comes_back(void **state)
{
    holder first = start_holder("a", CU_MEM_LOCATION_TYPE_DEVICE, 16 * MIB, NULL);
    holder second = start_holder("a", CU_MEM_LOCATION_TYPE_DEVICE, 8 * MIB, NULL);

    (void)state;
    expect_device("a", 10 * MIB, CUDA_ERROR_OUT_OF_MEMORY);
    kill_holder(&first);
    expect_device("a", 24 * MIB, CUDA_SUCCESS);
    expect_device("a", 26 * MIB, CUDA_ERROR_OUT_OF_MEMORY);
    kill_holder(&second);
    expect_device("a", 32 * MIB, CUDA_SUCCESS);
}

/* The fd is kept by a process that is none of the machine's. */
static void memory_exported_by_the_killed_stays_until_its_fd_is_closed(void **state)
{
    int fd;
    holder h = start_holder("a", CU_MEM_LOCATION_TYPE_DEVICE, 16 * MIB, &fd);

    (void)state;
    kill_holder(&h);
    expect_device("a", 18 * MIB, CUDA_ERROR_OUT_OF_MEMORY);
    expect_device("a", 16 * MIB, CUDA_SUCCESS);
    close(fd);
    expect_device("a", 32 * MIB, CUDA_SUCCESS);
}

/* Threads that never have more than the device together, if what they have freed counts as free. */
#define TAKERS 8
#define TAKES 2000

static void *take_and_free(void *context)
{
    CUdeviceptr at;

    if (gvmi_cu->cuCtxPushCurrent(context) != CUDA_SUCCESS)
        return (void *)1;
    for (int i = 0; i < TAKES; i++)
        if (gvmi_cu->cuMemAllocAsync(&at, CHUNK, NULL) != CUDA_SUCCESS ||
            gvmi_cu->cuMemFreeAsync(at, NULL) != CUDA_SUCCESS)
            return (void *)1;
    return NULL;
}

static int take_in_threads(void *arg)
{
    pthread_t takers[TAKERS];
    CUcontext context;
    void *failed;

    (void)arg;
    CHILD_EXPECT(start(machine_of("memory=16MiB", "takers")) == GVM_OK);
    CHILD_EXPECT(gvmi_cu->cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    for (int i = 0; i < TAKERS; i++)
        CHILD_EXPECT(pthread_create(&takers[i], NULL, take_and_free, context) == 0);
    for (int i = 0; i < TAKERS; i++)
        CHILD_EXPECT(pthread_join(takers[i], &failed) == 0 && failed == NULL);
    return 0;
}

CHILD_TEST(memory_freed_in_streams_is_there_for_every_thread, take_in_threads)

static void host_memory_has_its_own_limit(void **state)
{
    holder device = start_holder("a", CU_MEM_LOCATION_TYPE_DEVICE, 32 * MIB, NULL);
    holder host = start_holder("a", CU_MEM_LOCATION_TYPE_HOST_NUMA, 6 * MIB, NULL);

    (void)state;
    expect_host("a", 4 * MIB, CUDA_ERROR_OUT_OF_MEMORY);
    expect_host("a", 2 * MIB, CUDA_SUCCESS);
    end_holder(&device);
    expect_host("a", 4 * MIB, CUDA_ERROR_OUT_OF_MEMORY);
    kill_holder(&host);
    expect_host("a", 8 * MIB, CUDA_SUCCESS);
    expect_host("a", 10 * MIB, CUDA_ERROR_OUT_OF_MEMORY);
}

static int pin_within_limit(void *arg)
{
    CUmemGenericAllocationHandle handle;
    CUcontext context;
    void *pinned, *more;

    (void)arg;
    CHILD_EXPECT(start(machine_of(MEMORY, "pin")) == GVM_OK);
    CHILD_EXPECT(gvmi_cu->cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuCtxSetCurrent(context) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemHostAlloc(&pinned, 6 * MIB, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemHostAlloc(&more, 4 * MIB, 0) == CUDA_ERROR_OUT_OF_MEMORY);
    CHILD_EXPECT(create(&handle, 4 * MIB, CU_MEM_LOCATION_TYPE_HOST_NUMA) == CUDA_ERROR_OUT_OF_MEMORY);
    CHILD_EXPECT(create(&handle, 2 * MIB, CU_MEM_LOCATION_TYPE_HOST_NUMA) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemFreeHost(pinned) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemHostAlloc(&pinned, 6 * MIB, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemFreeHost(pinned) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemRelease(handle) == CUDA_SUCCESS);
    return 0;
}

CHILD_TEST(host_memory_pinned_counts_against_the_same_limit, pin_within_limit)

/* ---- a process without a key left for values of its threads */

#define KEYS_MAX 4096 /* more than a process can have */

static pthread_key_t keys[KEYS_MAX];
static int key_count;

static void take_all_keys(void)
{
    while (key_count < KEYS_MAX && pthread_key_create(&keys[key_count], NULL) == 0) {
        (void)pthread_setspecific(keys[key_count], &keys[key_count]);
        key_count++;
    }
}

static bool keys_are_unchanged(void)
{
    for (int i = 0; i < key_count; i++)
        if (pthread_getspecific(keys[i]) != &keys[i])
            return false;
    return key_count > 0 && key_count < KEYS_MAX;
}

static int use_context_without_keys(void *arg)
{
    CUcontext context;

    (void)arg;
    CHILD_EXPECT(start(machine_of(MEMORY, "keys")) == GVM_OK);
    take_all_keys();
    CHILD_EXPECT(gvmi_cu->cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuCtxSetCurrent(context) == CUDA_ERROR_OUT_OF_MEMORY);
    CHILD_EXPECT(keys_are_unchanged());
    return 0;
}

CHILD_TEST(context_without_a_key_is_out_of_memory, use_context_without_keys)

static int use_own_stream_without_keys(void *arg)
{
    CUcontext context;

    (void)arg;
    CHILD_EXPECT(start(machine_of(MEMORY, "keys")) == GVM_OK);
    CHILD_EXPECT(gvmi_cu->cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuCtxSetCurrent(context) == CUDA_SUCCESS);
    take_all_keys();
    CHILD_EXPECT(gvmi_cu->cuStreamSynchronize(CU_STREAM_PER_THREAD) == CUDA_ERROR_OUT_OF_MEMORY);
    CHILD_EXPECT(keys_are_unchanged());
    return 0;
}

CHILD_TEST(own_stream_without_a_key_is_out_of_memory, use_own_stream_without_keys)

/* ---- threads that are cancelled: none ends with a lock of the driver's */

static CUdeviceptr mapped;

/* The cancellation is there before the call: the first place in it that can be cancelled is where it ends. */
static void *create_cancelled(void *arg)
{
    CUmemGenericAllocationHandle handle;

    (void)arg;
    pthread_cancel(pthread_self());
    (void)create_on_device(&handle, CHUNK);
    pthread_testcancel();
    return NULL;
}

static void *change_access_cancelled(void *arg)
{
    const CUmemAccessDesc read_only = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READ,
    };

    (void)arg;
    pthread_cancel(pthread_self());
    (void)gvmi_cu->cuMemSetAccess(mapped, CHUNK, &read_only, 1);
    pthread_testcancel();
    return NULL;
}

static void *copy_cancelled(void *context)
{
    static const char bytes[64 * KIB];

    if (gvmi_cu->cuCtxSetCurrent(context) == CUDA_SUCCESS) {
        pthread_cancel(pthread_self());
        (void)gvmi_cu->cuMemcpyHtoD(mapped, bytes, sizeof bytes);
    }
    pthread_testcancel();
    return NULL;
}

static int run_cancelled(void *(*fn)(void *arg), void *arg)
{
    pthread_t thread;
    void *result;

    CHILD_EXPECT(pthread_create(&thread, NULL, fn, arg) == 0);
    CHILD_EXPECT(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    return 0;
}

static int cancel_threads(void *arg)
{
    CUmemGenericAllocationHandle handle, other;
    CUcontext context;

    (void)arg;
    end_child_after(60);
    CHILD_EXPECT(start(machine_of("memory=16MiB,gap_us=1000,link=64MiB", "cancel")) == GVM_OK);
    CHILD_EXPECT(create_on_device(&handle, CHUNK) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemAddressReserve(&mapped, CHUNK, 0, 0, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemMap(mapped, CHUNK, 0, handle, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(grant(mapped, CHUNK) == CUDA_SUCCESS);
    CHILD_EXPECT(run_cancelled(change_access_cancelled, NULL) == 0);
    CHILD_EXPECT(grant(mapped, CHUNK) == CUDA_SUCCESS);
    CHILD_EXPECT(run_cancelled(create_cancelled, NULL) == 0);
    CHILD_EXPECT(create_on_device(&other, CHUNK) == CUDA_SUCCESS);
    /* Nor with a copy that others wait for. */
    CHILD_EXPECT(gvmi_cu->cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuCtxSetCurrent(context) == CUDA_SUCCESS);
    CHILD_EXPECT(run_cancelled(copy_cancelled, context) == 0);
    CHILD_EXPECT(gvmi_cu->cuCtxSynchronize() == CUDA_SUCCESS);
    return 0;
}

CHILD_TEST(thread_cancelled_in_a_call_leaves_no_lock, cancel_threads)

/* Any user may make the file of an instance and lock it. */
static int start_beside_a_lock(void *arg)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1ll << 40, .l_len = 1};
    CUmemGenericAllocationHandle handle;
    char path[64],
        made[64]; /* under another name until it is locked, as every start looks at those of instances */
    bool is_there;
    int fd;

    (void)arg;
    end_child_after(60);
    snprintf(path, sizeof path, "/dev/shm/gvmem-softgpu-locked-%d", (int)getpid());
    snprintf(made, sizeof made, "/dev/shm/gvmem-made-%d", (int)getpid());
    fd = open(made, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHILD_EXPECT(fd >= 0 && fcntl(fd, F_OFD_SETLK, &lock) == 0 && rename(made, path) == 0);
    CHILD_EXPECT(start(machine_of("memory=16MiB", "beside")) == GVM_OK);
    CHILD_EXPECT(create_on_device(&handle, CHUNK) == CUDA_SUCCESS);
    is_there = access(path, F_OK) == 0;
    unlink(path);
    close(fd);
    CHILD_EXPECT(is_there);
    return 0;
}

CHILD_TEST(locked_file_of_another_instance_is_not_waited_for, start_beside_a_lock)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handle_released_is_refused_ever_after),
        cmocka_unit_test(handle_released_under_its_mapping_is_refused_after_unmapping),
        cmocka_unit_test(handle_that_is_nonsense_is_refused),
        cmocka_unit_test(address_that_is_not_reserved_is_refused),
        cmocka_unit_test(machine_malformed_is_a_bad_setting),
        cmocka_unit_test(machine_well_formed_is_what_it_says),
        cmocka_unit_test(devices_in_pairs_reach_no_other_pair),
        cmocka_unit_test(memory_of_a_device_that_is_not_seen_is_mapped),
        cmocka_unit_test(memory_is_shared_by_processes_of_one_instance_alone),
        cmocka_unit_test(memory_of_the_killed_comes_back),
        cmocka_unit_test(memory_exported_by_the_killed_stays_until_its_fd_is_closed),
        cmocka_unit_test(memory_freed_in_streams_is_there_for_every_thread),
        cmocka_unit_test(host_memory_has_its_own_limit),
        cmocka_unit_test(host_memory_pinned_counts_against_the_same_limit),
        cmocka_unit_test(context_without_a_key_is_out_of_memory),
        cmocka_unit_test(own_stream_without_a_key_is_out_of_memory),
        cmocka_unit_test(thread_cancelled_in_a_call_leaves_no_lock),
        cmocka_unit_test(locked_file_of_another_instance_is_not_waited_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
