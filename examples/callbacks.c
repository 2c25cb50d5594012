/* A kernel that asks the host for its work while it runs: which part comes next is decided by the CPU, and its results come back
 * part by part. What is odd is reported without waiting, and how far it is is said once for all blocks that want to say so.
 *
 *     callbacks [MILLIONS]
 */
#include "launch.h"

#define PART 65536u /* values of a part */

/* The same in callbacks_kernel.c. */
enum { NEXT_PART, ODD_ONE, PROGRESS };
typedef struct work_params {
    gvm_callback_view server;
    uint64_t *failures;
} work_params;

/* Functions of one number are called one after the other, but another one may run at the same time: each has its own members. */
typedef struct job {
    uint32_t *values;
    uint64_t count, taken, sum; /* next_part() */
    uint64_t odd;               /* note_odd_one() */
    uint64_t lines;             /* show_progress() */
} job;

/* words: in: and out: where a part is, and how many values it has; in: the sum of the part before. */
static gvm_status next_part(void *context, gvm_callback_args *args)
{
    job *j = context;
    const uint64_t left = j->count - j->taken, part = left < PART ? left : PART;

    j->sum += args->words[2];
    args->words[0] = (uint64_t)(uintptr_t)(j->values + j->taken);
    args->words[1] = part;
    j->taken += part;
    return GVM_OK;
}

static gvm_status note_odd_one(void *context, gvm_callback_args *args)
{
    job *j = context;

    j->odd += args->words[0];
    return GVM_OK;
}

static gvm_status show_progress(void *context, gvm_callback_args *args)
{
    job *j = context;

    (void)args; /* args->requests blocks wanted this */
    j->lines++;
    return GVM_OK;
}

int main(int argc, char **argv)
{
    job j = {.count = (argc > 1 ? strtoull(argv[1], NULL, 10) : 4) * 1000000};
    gvm_heap_options pinned = gvm_heap_options_init();
    uint64_t sum = 0, odd = 0, *failures;
    gvm_callback_server *server;
    work_params params;
    gvm_device *device;
    gvm_heap *heap;
    kernel k;

    if (j.count == 0) {
        fprintf(stderr, "usage: callbacks [MILLIONS]\n");
        exit(2);
    }
    pinned.kind = GVM_HEAP_HOST; /* kernels read it as well */
    must(gvm_device_open(0, &device), "cannot open device 0");
    use_device(device);
    k = load_kernel(device, "callbacks_kernel", "work");
    must(gvm_heap_create(device, &pinned, &heap), "cannot make a heap");
    must(gvm_heap_alloc(heap, (j.count + 1) * sizeof *j.values, (void **)&j.values),
         "no pinned memory");
    must(gvm_heap_alloc(heap, sizeof *failures, (void **)&failures), "no pinned memory");
    for (uint64_t i = 0; i < j.count; i++) {
        j.values[i] = (uint32_t)(i * 2654435761u);
        sum += j.values[i];
        odd += j.values[i] % 10007 == 0 ? j.values[i] : 0;
    }
    *failures = 0;
    params.failures = failures;

    must(gvm_callback_server_create(device, NULL, &server), "cannot make a callback server");
    must(gvm_callback_register(server, NEXT_PART, 0, next_part, &j), "cannot register a callback");
    must(gvm_callback_register(server, ODD_ONE, 0, note_odd_one, &j), "cannot register a callback");
    must(gvm_callback_register(server, PROGRESS, GVM_CALLBACK_COLLECTIVE, show_progress, &j),
         "cannot register a callback");
    must(gvm_callback_server_get_view(server, &params.server), "cannot pass the server");
    run_kernel(device, &k, &params);
    must(gvm_callback_server_drain(server), "a callback failed"); /* those that were not waited for */

    printf("%llu values in parts of %u: sum %s, odd ones %s; %llu lines of progress for %llu parts\n",
           (unsigned long long)j.count, PART, j.sum == sum ? "right" : "WRONG",
           j.odd == odd ? "right" : "WRONG", (unsigned long long)j.lines,
           (unsigned long long)((j.count + PART - 1) / PART));
    if (j.sum != sum || j.odd != odd || j.lines == 0 || *failures > 0)
        give_up("the kernel and the CPU differ");
    gvm_callback_server_destroy(server);
    unload_kernel(&k);
    gvm_heap_destroy(heap);
    gvm_device_pop_context();
    gvm_device_close(device);
    return 0;
}
