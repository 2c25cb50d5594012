/* What returns at once while a kernel runs, and what waits for its end. The kernel is the one that
 * serves (kernels.h): it runs until it is told to stop, so a call that waits for it does not return
 * before.
 *
 * Calls whose waiting is what the case is about run on a thread of their own: were they on this
 * one, nobody could stop the kernel.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "tests/conform/conform.h"

#define AT_ONCE_MS 2000 /* generous: a call that waits takes the kernel's whole life */
#define READWRITE CU_MEM_ACCESS_FLAGS_PROT_READWRITE

static CUstream kernel_stream, other_stream;

static void start(void)
{
    kernel_stream = take_stream(CU_STREAM_NON_BLOCKING);
    other_stream = take_stream(CU_STREAM_NON_BLOCKING);
    serve_start(kernel_stream);
}

/* ---- a call on a thread of its own */

struct call {
    CUresult (*run)(struct call *call);
    CUdeviceptr at;
    void *host;
    CUmemGenericAllocationHandle handle;
    pthread_t thread;
    CUresult result;
    atomic_bool done;
};

static void *call_thread(void *arg)
{
    struct call *call = arg;
    CUresult result = cu->cuCtxSetCurrent(machine.context);
    call->result = result ? result : call->run(call);
    atomic_store(&call->done, true);
    return NULL;
}

/* Static: a case that ends early leaves the thread running for a while. */
static struct call call;

static bool call_returns(unsigned within_ms)
{
    uint64_t end = now_ms() + within_ms;
    while (!atomic_load(&call.done) && now_ms() < end)
        pause_ms(1);
    return atomic_load(&call.done);
}

/* Starts the call while the kernel runs; whether it comes back before the kernel ends. Then both
 * are over. */
static bool returns_while_kernel_runs(CUresult (*run)(struct call *call))
{
    bool returned;
    call.run = run;
    call.result = CUDA_ERROR_UNKNOWN;
    atomic_store(&call.done, false);
    REQUIRE_U64(pthread_create(&call.thread, NULL, call_thread, &call), 0);
    returned = call_returns(AT_ONCE_MS);
    serve_stop();
    pthread_join(call.thread, NULL);
    return returned;
}

static void expect_at_once(CUresult (*run)(struct call *call))
{
    EXPECT_TRUE(returns_while_kernel_runs(run));
    EXPECT_OK(call.result);
}

static void expect_waits(CUresult (*run)(struct call *call))
{
    EXPECT_TRUE(!returns_while_kernel_runs(run));
    EXPECT_OK(call.result);
}

/* ---- measured: returns at once */

CASE(spin_copies_on_another_stream)
{
    uint32_t *host = take_host(4 * MIB);
    CUdeviceptr at = take_alloc(4 * MIB);
    start();
    host[0] = 15;
    EXPECT_OK(cu->cuMemcpyHtoDAsync(at, host, 4 * MIB, other_stream));
    EXPECT_OK(cu->cuStreamSynchronize(other_stream));
    EXPECT_TRUE(serve_runs());
    EXPECT_U64(serve_read(at), 15);
    serve_write(at, 16);
    EXPECT_OK(cu->cuMemcpyDtoHAsync(host, at, 4, other_stream));
    EXPECT_OK(cu->cuStreamSynchronize(other_stream));
    EXPECT_U64(host[0], 16);
    EXPECT_TRUE(serve_runs());
    serve_stop();
}

static CUresult run_create(struct call *c)
{
    CUmemAllocationProp prop = device_prop();
    return cu->cuMemCreate(&c->handle, 32 * MIB, &prop, 0);
}

CASE(spin_create_returns_at_once)
{
    start();
    EXPECT_TRUE(returns_while_kernel_runs(run_create));
    REQUIRE_OK(call.result);
    own(OWN_HANDLE, call.handle, 32 * MIB);
}

static CUresult run_map(struct call *c)
{
    return cu->cuMemMap(c->at, machine.granule, 0, c->handle, 0);
}

CASE(spin_map_returns_at_once)
{
    call.at = take_range(machine.granule);
    call.handle = take_handle(machine.granule);
    start();
    EXPECT_TRUE(returns_while_kernel_runs(run_map));
    REQUIRE_OK(call.result);
    own(OWN_MAPPING, call.at, machine.granule);
}

static CUresult run_set_access(struct call *c)
{
    CUmemAccessDesc access = device_access(READWRITE);
    return cu->cuMemSetAccess(c->at, machine.granule, &access, 1);
}

CASE(spin_set_access_returns_at_once)
{
    call.at = take_range(machine.granule);
    take_mapping(call.at, machine.granule, take_handle(machine.granule));
    start();
    EXPECT_TRUE(returns_while_kernel_runs(run_set_access));
    EXPECT_OK(call.result);
}

static CUresult run_unmap(struct call *c)
{
    return cu->cuMemUnmap(c->at, machine.granule);
}

CASE(spin_unmap_returns_at_once)
{
    call.at = take_memory(machine.granule);
    start();
    EXPECT_TRUE(returns_while_kernel_runs(run_unmap));
    REQUIRE_OK(call.result);
    disown(OWN_MAPPING, call.at);
}

static CUresult run_release(struct call *c)
{
    return cu->cuMemRelease(c->handle);
}

CASE(spin_release_returns_at_once)
{
    size_t before = free_bytes();
    call.handle = take_handle(32 * MIB);
    start();
    EXPECT_TRUE(returns_while_kernel_runs(run_release));
    REQUIRE_OK(call.result);
    disown(OWN_HANDLE, call.handle);
    EXPECT_U64(free_bytes(), before);
}

static CUresult run_alloc(struct call *c)
{
    return cu->cuMemAlloc(&c->at, 32 * MIB);
}

CASE(spin_alloc_returns_at_once)
{
    start();
    EXPECT_TRUE(returns_while_kernel_runs(run_alloc));
    REQUIRE_OK(call.result);
    own(OWN_ALLOC, call.at, 32 * MIB);
}

static CUresult run_alloc_async(struct call *c)
{
    CUresult result = cu->cuMemAllocAsync(&c->at, 4 * MIB, other_stream);
    if (result == CUDA_SUCCESS)
        result = cu->cuMemFreeAsync(c->at, other_stream);
    return result ? result : cu->cuStreamSynchronize(other_stream);
}

CASE(spin_alloc_async_returns_at_once)
{
    start();
    EXPECT_TRUE(returns_while_kernel_runs(run_alloc_async));
    EXPECT_OK(call.result);
}

/* ---- measured: waits */

static CUresult run_free(struct call *c)
{
    return cu->cuMemFree(c->at);
}

CASE(spin_free_waits_for_the_kernel)
{
    call.at = take_alloc(32 * MIB);
    start();
    EXPECT_TRUE(!returns_while_kernel_runs(run_free));
    REQUIRE_OK(call.result);
    disown(OWN_ALLOC, call.at);
}

/* ---- memory that comes and goes under a running kernel */

CASE(spin_kernel_sees_memory_mapped_meanwhile)
{
    CUdeviceptr at = take_range(4 * machine.granule);
    start();
    for (uint32_t i = 0; i < 4; i++) {
        CUdeviceptr part = at + i * machine.granule;
        take_mapping(part, machine.granule, take_handle(machine.granule));
        give_access(part, machine.granule, READWRITE);
        serve_write(part, 200 + i);
        EXPECT_U64(serve_read(part), 200 + i);
    }
    EXPECT_TRUE(serve_runs());
    serve_stop();
    for (uint32_t i = 0; i < 4; i++)
        EXPECT_U64(read_word(at + i * machine.granule), 200 + i);
}

/* Puts another handle behind the range, while the kernel runs and does not touch it. */
static void swap_to(CUdeviceptr at, CUmemGenericAllocationHandle handle)
{
    drop(OWN_MAPPING, at);
    take_mapping(at, machine.granule, handle);
    give_access(at, machine.granule, READWRITE);
}

CASE(spin_kernel_sees_another_handle_at_the_same_address)
{
    CUmemGenericAllocationHandle one = take_handle(machine.granule);
    CUmemGenericAllocationHandle two = take_handle(machine.granule);
    CUdeviceptr at = take_mapped(machine.granule, one);
    start();
    serve_write(at, 1);
    swap_to(at, two);
    serve_write(at, 2);
    swap_to(at, one);
    EXPECT_U64(serve_read(at), 1);
    swap_to(at, two);
    EXPECT_U64(serve_read(at), 2);
    EXPECT_TRUE(serve_runs());
    serve_stop();
}

/* Copies the device page to the host page through a second address, swaps, and back: what the host
 * tier does. */
static void move_page(CUdeviceptr at, CUdeviceptr from, CUdeviceptr to,
                      CUmemGenericAllocationHandle handle)
{
    EXPECT_OK(cu->cuMemcpyDtoDAsync(to, from, machine.granule, other_stream));
    EXPECT_OK(cu->cuStreamSynchronize(other_stream));
    swap_to(at, handle);
}

CASE(spin_page_moves_to_the_host_and_back)
{
    CUmemGenericAllocationHandle device = take_handle(machine.granule);
    CUmemGenericAllocationHandle host = take_host_handle(machine.granule);
    CUdeviceptr device_page = take_mapped(machine.granule, device);
    CUdeviceptr host_page = take_mapped(machine.granule, host);
    CUdeviceptr at = take_mapped(machine.granule, device);
    uint64_t began;
    start();
    serve_write(at + 64, 11);
    began = now_ms();
    move_page(at, device_page, host_page, host);
    EXPECT_U64(serve_read(at + 64), 11);
    serve_write(at + 64, 12);
    move_page(at, host_page, device_page, device);
    EXPECT_U64(serve_read(at + 64), 12);
    EXPECT_TRUE(now_ms() - began < AT_ONCE_MS);
    EXPECT_TRUE(serve_runs());
    serve_stop();
}

CASE(spin_kernel_sees_imported_memory)
{
    CUmemGenericAllocationHandle handle = take_handle(machine.granule);
    CUdeviceptr one = take_mapped(machine.granule, handle), two;
    start();
    two = take_mapped(machine.granule, take_import(take_export(handle)));
    serve_write(one, 70);
    EXPECT_U64(serve_read(two), 70);
    EXPECT_TRUE(serve_runs());
    serve_stop();
}

CASE(spin_kernel_runs_beside_another)
{
    CUdeviceptr at = take_alloc(MIB);
    conform_touch touch = {at, 44, 0};
    start();
    launch("touch", 1, &touch, other_stream);
    EXPECT_OK(cu->cuStreamSynchronize(other_stream));
    EXPECT_U64(serve_read(at), 44);
    EXPECT_TRUE(serve_runs());
    serve_stop();
}

/* ---- host memory */

static CUresult run_host_alloc(struct call *c)
{
    return cu->cuMemHostAlloc(&c->host, MIB, CU_MEMHOSTALLOC_DEVICEMAP);
}

CASE(spin_host_alloc_returns_at_once)
{
    start();
    expect_at_once(run_host_alloc);
    if (call.result == CUDA_SUCCESS)
        own(OWN_HOST, (uintptr_t)call.host, MIB);
}

static CUresult run_host_free(struct call *c)
{
    return cu->cuMemFreeHost(c->host);
}

CASE(spin_host_free_waits_for_the_kernel)
{
    call.host = take_host(4 * MIB);
    start();
    expect_waits(run_host_free);
    if (call.result == CUDA_SUCCESS)
        disown(OWN_HOST, (uintptr_t)call.host);
}

static _Alignas(4096) char registered[64 * 1024];

static CUresult run_register(struct call *c)
{
    c->host = registered;
    return cu->cuMemHostRegister(registered, sizeof registered, CU_MEMHOSTREGISTER_DEVICEMAP);
}

CASE(spin_register_returns_at_once)
{
    start();
    expect_at_once(run_register);
    if (call.result == CUDA_SUCCESS)
        own(OWN_REGISTERED, (uintptr_t)registered, sizeof registered);
}

static CUresult run_unregister(struct call *c)
{
    return cu->cuMemHostUnregister(c->host);
}

CASE(spin_unregister_waits_for_the_kernel)
{
    call.host = registered;
    REQUIRE_OK(run_register(&call));
    start();
    expect_waits(run_unregister);
}

static CUresult run_create_host(struct call *c)
{
    CUmemAllocationProp prop = host_prop();
    return cu->cuMemCreate(&c->handle, machine.granule, &prop, 0);
}

CASE(spin_create_of_host_memory_returns_at_once)
{
    start();
    expect_at_once(run_create_host);
    if (call.result == CUDA_SUCCESS)
        own(OWN_HANDLE, call.handle, machine.granule);
}

static CUresult run_get_info(struct call *c)
{
    size_t free_now, total;
    (void)c;
    return cu->cuMemGetInfo(&free_now, &total);
}

CASE(spin_free_memory_is_told_at_once)
{
    start();
    EXPECT_TRUE(returns_while_kernel_runs(run_get_info));
    EXPECT_OK(call.result);
}

static CUresult run_address_free(struct call *c)
{
    CUresult result = cu->cuMemAddressReserve(&c->at, machine.granule, 0, 0, 0);
    return result ? result : cu->cuMemAddressFree(c->at, machine.granule);
}

CASE(spin_reserve_and_address_free_return_at_once)
{
    start();
    EXPECT_TRUE(returns_while_kernel_runs(run_address_free));
    EXPECT_OK(call.result);
}

static CUresult run_export_and_import(struct call *c)
{
    const CUmemAllocationHandleType as_fd = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle imported = 0;
    int fd = -1;
    CUresult result = cu->cuMemExportToShareableHandle(&fd, c->handle, as_fd, 0);
    if (result == CUDA_SUCCESS) {
        result = cu->cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd, as_fd);
        close(fd);
    }
    return result ? result : cu->cuMemRelease(imported);
}

CASE(spin_export_and_import_return_at_once)
{
    call.handle = take_handle(machine.granule);
    start();
    expect_at_once(run_export_and_import);
}
