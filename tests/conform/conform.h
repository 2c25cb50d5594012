/* tests/conform/conform.h - what the conformance cases are written with.
 *
 * gvmem-conform runs ONE table of cases (cases.h) against a CUDA driver: NVIDIA's on a real GPU, or
 * the software GPU, with the same expectations. A case is a function that makes driver calls and
 * states what they must answer.
 *
 * Processes: the runner (main.c) starts workers by executing itself again, because CUDA cannot be
 * used after a plain fork. One worker runs all ordinary cases in sequence; a case that leaves its
 * process or context broken is flagged ALONE and has one to itself. A case that shares memory
 * starts peers (peer.h). A process that dies or hangs fails the case that ran, and nothing else.
 *
 * Ownership: what a take_ function gives is owned by the case and undone, last first, when the case
 * ends in whatever way. drop() undoes it earlier and demands that this succeeds; disown() is for
 * what the case undid itself.
 *
 * Leaks: after every ordinary case the device's free memory and the number of open fds must be what
 * they were before. Drivers grow pools of their own at first use; a leak repeats. So a case after
 * which something is missing is run again, and only what is missing each of CONFORM_LEAK_RUNS times
 * is a leak. No other tolerance is allowed.
 *
 * Threads: EXPECT, REQUIRE and the take_ functions belong to the thread that runs the case.
 */
#ifndef CONFORM_H
#define CONFORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/calls.h"
#include "driver/cuda_abi.h"
#include "tests/conform/kernels.h"
#include "tests/lib/child.h"
#include "tests/lib/fixture.h"
#include "tests/lib/units.h"

#define CONFORM_LEAK_RUNS 3
#define CONFORM_TIMEOUT_S 60     /* for one case */
#define CONFORM_SERVE_LIMIT_S 20 /* for a kernel that waits for the host */
#define CONFORM_DEVICES_MAX 2    /* what the cases use */

/* ---- the driver (loader.c) */
#define CONFORM_MEMBER(name, symbol, since, need, params, args) CUresult(*name) params;
struct conform_driver {
    GVMI_CUDA_CALLS(CONFORM_MEMBER)
};
#undef CONFORM_MEMBER

extern const struct conform_driver *cu;

/* Loads the driver at path; an optional call that it lacks answers CUDA_ERROR_NOT_SUPPORTED. NULL,
 * or what is wrong with it. */
const char *conform_driver_load(const char *path);
const char *conform_result_name(int result);

/* ---- cases */
enum {
    ALONE = 1,       /* a process of its own: breaks its context, or needs a fresh one */
    BARE = 2,        /* the case starts after cuInit, without a context; implies ALONE */
    RAW = 4,         /* the case starts with nothing called, not even cuInit; implies ALONE */
    VMM = 8,         /* skipped unless the device has virtual memory management with fds */
    NUMA = 16 | VMM, /* skipped unless host memory can be a VMM handle */
    PAIR = 32,       /* skipped unless there are two devices */
};

struct conform_case {
    const char *name;
    void (*run)(void);
    unsigned flags;
};
extern const struct conform_case conform_cases[];
extern const unsigned conform_case_count;

/* Begins the definition of a case; its row stands in cases_execution.h or cases_memory.h. */
#define CASE(name) \
    void conform_case_##name(void); \
    void conform_case_##name(void)

/* ---- expectations: EXPECT records a failure and goes on, REQUIRE ends the case */
#define EXPECT(call, want) \
    conform_result(__FILE__, __LINE__, #call, (int)(call), (int)(want), false)
#define REQUIRE(call, want) \
    conform_result(__FILE__, __LINE__, #call, (int)(call), (int)(want), true)
#define EXPECT_OK(call) EXPECT(call, CUDA_SUCCESS)
#define REQUIRE_OK(call) REQUIRE(call, CUDA_SUCCESS)
#define EXPECT_INVALID(call) EXPECT(call, CUDA_ERROR_INVALID_VALUE)
/* Any of the results listed passes, and the one seen is printed. For what the software GPU cannot
 * imitate, what depends on the machine, and what no real device has been asked yet; the case says
 * which. */
#define EXPECT_ANY(call, ...) \
    conform_result_any(__FILE__, __LINE__, #call, (int)(call), (const int[]){__VA_ARGS__, -1})
#define EXPECT_U64(value, want) \
    conform_u64(__FILE__, __LINE__, #value, (uint64_t)(value), (uint64_t)(want), false)
#define REQUIRE_U64(value, want) \
    conform_u64(__FILE__, __LINE__, #value, (uint64_t)(value), (uint64_t)(want), true)
#define EXPECT_TRUE(condition) conform_true(__FILE__, __LINE__, #condition, (condition), false)
#define REQUIRE_TRUE(condition) conform_true(__FILE__, __LINE__, #condition, (condition), true)

int conform_result(const char *file, int line, const char *call, int got, int want, bool end);
int conform_result_any(const char *file, int line, const char *call, int got, const int *wants);
bool conform_u64(const char *file, int line, const char *what, uint64_t got, uint64_t want, bool end);
bool conform_true(const char *file, int line, const char *what, bool holds, bool end);
/* Prints what was seen, where it is worth knowing but nothing can be demanded. */
__attribute__((format(printf, 1, 2))) void observe(const char *format, ...);
/* Ends the case as skipped. */
_Noreturn void skip(const char *why);

/* ---- the machine: filled in before a case runs, as far as its flags allow */
struct conform_machine {
    int device_count;
    CUdevice device;     /* the first one */
    CUcontext context;   /* its primary context, current when an ordinary case starts */
    size_t granule;      /* smallest chunk of device memory, with an fd */
    size_t host_granule; /* the same for HOST_NUMA */
    size_t total_bytes;  /* of the device's memory */
    unsigned block_threads; /* a good block size: 256, or fewer where the device has no blocks that large */
    int warp_threads;
    int sm_count;
    int numa; /* HOST_NUMA location near the device */
};
extern struct conform_machine machine;

/* Makes the primary context of another device current; the runner goes back to the first after the
 * case. */
void use_device(int ordinal);
size_t free_bytes(void);
/* Waits until free memory is at least this much, five seconds at most. */
bool wait_free_bytes(size_t at_least);

/* ---- taking */
enum conform_kind {
    OWN_RANGE,
    OWN_HANDLE,
    OWN_MAPPING,
    OWN_ALLOC,
    OWN_HOST,
    OWN_REGISTERED,
    OWN_STREAM,
    OWN_EVENT,
    OWN_FD,
    OWN_CONTEXT,
    OWN_MODULE,
    OWN_PEER,
    OWN_SERVER,
    OWN_CAPTURE, /* of a stream */
    OWN_GRAPH,
    OWN_EXEC,
};
void own(enum conform_kind kind, uint64_t value, uint64_t size);
void disown(enum conform_kind kind, uint64_t value);
void drop(enum conform_kind kind, uint64_t value);
void drop_all(void);
/* For a case that broke its context, where undoing would fail: forgets all but the peers. The end
 * of the process, which the case has to itself (ALONE), gives everything back. */
void abandon_all(void);

CUmemAllocationProp device_prop(void); /* device memory of the first device, exportable */
CUmemAllocationProp host_prop(void);   /* HOST_NUMA memory, exportable */
CUmemAccessDesc device_access(CUmemAccess_flags flags);
CUmemAccessDesc host_access(CUmemAccess_flags flags);

CUdeviceptr take_range(size_t size);
CUmemGenericAllocationHandle take_handle(size_t size);
CUmemGenericAllocationHandle take_host_handle(size_t size);
void take_mapping(CUdeviceptr at, size_t size, CUmemGenericAllocationHandle handle);
void give_access(CUdeviceptr at, size_t size, CUmemAccess_flags flags);
CUdeviceptr take_mapped(size_t size, CUmemGenericAllocationHandle handle); /* range, mapping, RW access */
CUdeviceptr take_memory(size_t size); /* the same with a new handle */
int take_export(CUmemGenericAllocationHandle handle);
CUmemGenericAllocationHandle take_import(int fd);
CUdeviceptr take_alloc(size_t size);
void *take_host(size_t size);
CUstream take_stream(unsigned flags);
CUevent take_event(unsigned flags);

/* ---- reading and writing memory */
uint32_t read_word(CUdeviceptr at); /* by copy */
void write_word(CUdeviceptr at, uint32_t value);
bool words_are(CUdeviceptr at, size_t words, uint32_t first, uint32_t step); /* by copy */
bool cpu_can_read(const void *at); /* asks the kernel, without a fault */
bool cpu_can_write(void *at);

/* ---- kernels */
extern const void *conform_image;
extern char conform_image_path[]; /* the file that it is */
CUfunction kernel(const char *name);
CUresult try_launch(const char *name, unsigned blocks, const void *params, CUstream stream);
void launch(const char *name, unsigned blocks, const void *params, CUstream stream);
uint32_t kernel_read(CUdeviceptr at);
CUresult kernel_try_read(CUdeviceptr at); /* launch and wait: what the pair answers */
CUresult kernel_try_write(CUdeviceptr at, uint32_t value);
void kernel_fill(CUdeviceptr at, size_t words, uint32_t first);
uint64_t kernel_sum(CUdeviceptr at, size_t words);
uint64_t sum_of_fill(size_t words, uint32_t first);
/* Some device memory for a case's own results, zeroed before each case; the leak check does not see
 * it. */
#define CONFORM_SCRATCH_BYTES (64 * KIB)
CUdeviceptr scratch(void);

/* A kernel that stays (kernels.h). One at a time; the end of the case stops it. */
void serve_start(CUstream stream);
bool serve_runs(void);
uint32_t serve_read(CUdeviceptr at);
void serve_write(CUdeviceptr at, uint32_t value);
void serve_stop(void);        /* and waits for its stream */
void conform_serve_end(void); /* for own.c */

/* ---- between the worker and the runner */
struct conform_options {
    const char *driver;
    const char *image; /* NULL: beside the program */
    const char *self;  /* what to execute for workers and peers */
};
extern struct conform_options options;

/* Both serve until the runner or the case ends them, and give the exit status. */
int conform_worker(void);
int conform_peer(void);
/* Calls the driver as far as a case with these flags wants it before it starts. */
void conform_setup(unsigned flags);
/* Starts this program again, with its role and the same driver. 0 or an errno. */
int conform_start(struct child *process, const char *role);
#define CONFORM_WORKER "--worker"
#define CONFORM_PEER "--peer"

#endif
