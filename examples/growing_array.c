/* An array on the GPU that grows and never moves.
 *
 * With malloc-like device memory a growing array is allocated anew and copied each time it is full,
 * and every pointer into it is lost. A gvm_vector reserves addresses for the most it could ever
 * hold, which costs nothing, and puts memory behind them as it grows: this program appends, lets a
 * kernel sum the array after each step, and shows that its address stays.
 *
 *     cc growing_array.c $(pkg-config --cflags --libs gvmem) && ./a.out
 */
#include <stdio.h>
#include <stdlib.h>

#include <gvmem/gvmem.h>

#define MOST (1ull << 30) /* doubles, 8 GiB of addresses */
#define STEP (1u << 20)   /* doubles, 8 MiB a time */
#define STEPS 16

/* Every call returns a status; what exactly went wrong is kept for the thread that called. */
static void must(gvm_status status, const char *what)
{
    gvm_error error;

    if (status == GVM_OK)
        return;
    gvm_error_last(&error);
    fprintf(stderr, "growing_array: %s: %s: %s\n", what, gvm_status_text(status), error.text);
    exit(1);
}

int main(void)
{
    gvm_device *device;
    gvm_device_info info = {.struct_size = sizeof info};
    gvm_vector *array;
    double *values = malloc(STEP * sizeof *values);
    double expected = 0, sum;
    void *address;

    if (values == NULL)
        return 1;
    must(gvm_device_open(0, &device), "cannot open device 0");
    must(gvm_device_get_info(device, &info), "cannot ask device 0");
    must(gvm_vector_create(device, sizeof *values, MOST, NULL, &array), "cannot make an array");
    address = gvm_vector_address(array); /* good from now on, before there is any memory */
    printf("on %s: room for %llu doubles at %p\n", info.name, MOST, address);

    for (unsigned step = 1; step <= STEPS; step++) {
        for (unsigned i = 0; i < STEP; i++) {
            values[i] = step + i % 7; /* whole numbers: any order of adding gives the same sum */
            expected += values[i];
        }
        must(gvm_vector_append(array, values, STEP), "cannot append");

        /* A kernel reads the whole array, old and new, through the one address. */
        must(gvm_kernel_sum_f64(device, address, gvm_vector_count(array), NULL, &sum), "cannot sum");
        printf("%9llu doubles at %p, sum %.0f\n", (unsigned long long)gvm_vector_count(array),
               gvm_vector_address(array), sum);
        if (sum != expected || gvm_vector_address(array) != address) {
            fprintf(stderr, "growing_array: the sum should be %.0f, at %p\n", expected, address);
            return 1;
        }
    }
    puts("the address never changed, and nothing was copied to grow");

    gvm_vector_destroy(array);
    gvm_device_close(device);
    free(values);
    return 0;
}
