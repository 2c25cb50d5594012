/* Samples, figures and notes; waiting for the device, and its clock. */
#include "bench/bench.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void bench_add(bench_samples *samples, double value)
{
    if (samples->count < BENCH_SAMPLES_MAX)
        samples->value[samples->count++] = value;
}

static int compare_samples(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static bench_samples sort_samples(const bench_samples *samples)
{
    bench_samples copy = *samples;

    qsort(copy.value, copy.count, sizeof copy.value[0], compare_samples);
    return copy;
}

double bench_median(const bench_samples *samples)
{
    bench_samples copy = sort_samples(samples);

    return copy.count > 0 ? copy.value[(copy.count - 1) / 2] : 0;
}

static void add_figure(bench *b, const bench_figure *figure)
{
    if (b->figure_count < BENCH_FIGURES_MAX)
        b->figures[b->figure_count++] = *figure;
}

double bench_record(bench *b, const char *section, const char *name, const char *unit,
                    uint64_t bytes, uint64_t chunk_bytes, const bench_samples *samples)
{
    bench_samples copy = sort_samples(samples);
    bench_figure figure = {
        .section = section, .name = name, .unit = unit, .bytes = bytes, .chunk_bytes = chunk_bytes};

    if (copy.count == 0)
        return 0;
    figure.min = copy.value[0];
    figure.median = bench_median(&copy);
    figure.max = copy.value[copy.count - 1];
    figure.count = copy.count;
    add_figure(b, &figure);
    return figure.median;
}

void bench_record_value(bench *b, const char *section, const char *name, const char *unit,
                        uint64_t bytes, uint64_t chunk_bytes, double value)
{
    add_figure(b, &(bench_figure){section, name, unit, bytes, chunk_bytes, value, value, value, 1});
}

const char *bench_text(bench *b, const char *format, ...)
{
    char *text = b->texts + b->text_bytes;
    const size_t room = sizeof b->texts - b->text_bytes;
    va_list args;
    int len;

    va_start(args, format);
    len = vsnprintf(text, room, format, args);
    va_end(args);
    if (len < 0 || (size_t)len >= room)
        return "a figure without a name: BENCH_TEXTS_BYTES";
    b->text_bytes += (unsigned)len + 1;
    return text;
}

void bench_note(bench *b, const char *format, ...)
{
    char text[sizeof b->notes[0]];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(b->text, "  %s\n", text);
    if (b->note_count < BENCH_NOTES_MAX)
        memcpy(b->notes[b->note_count++], text, sizeof text);
}

void bench_failed_driver(bench *b, CUresult result, const char *call)
{
    gvmi_driver_fail((int32_t)result, call, "%s failed", call);
    bench_failed(b, "not measured");
}

bool bench_check_driver(bench *b, CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS)
        bench_failed_driver(b, result, call);
    return result == CUDA_SUCCESS;
}

void bench_failed(bench *b, const char *what)
{
    char why[400];

    tool_failure_text(why, sizeof why);
    bench_note(b, "%s: %.300s", what, why);
    tool_error("%s: %s", what, why);
    b->code = TOOL_FAILED;
}

void bench_wait(bench *b)
{
    if (gvm_device_synchronize(b->device) != GVM_OK)
        bench_failed(b, "waiting for the device");
}

void bench_trim(bench *b)
{
    if (gvm_device_trim(b->device, 0) != GVM_OK)
        bench_failed(b, "giving back what is cached");
}

uint64_t bench_free_bytes(bench *b)
{
    gvm_device_info info = {.struct_size = sizeof info};

    if (gvm_device_trim(b->device, 0) != GVM_OK || gvm_device_get_info(b->device, &info) != GVM_OK)
        return 0;
    return info.free_bytes;
}

/* ---- timing by the device's own clock */

bool bench_timer_create(bench *b, bench_timer *timer)
{
    CUresult result;

    memset(timer, 0, sizeof *timer);
    result = gvmi_cu->cuStreamCreate(&timer->stream, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuEventCreate(&timer->start, CU_EVENT_DEFAULT);
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuEventCreate(&timer->end, CU_EVENT_DEFAULT);
    if (result == CUDA_SUCCESS)
        return true;
    bench_failed_driver(b, result, "cuEventCreate");
    bench_timer_destroy(timer);
    return false;
}

void bench_timer_destroy(bench_timer *timer)
{
    if (timer->start != NULL)
        gvmi_cu->cuEventDestroy(timer->start);
    if (timer->end != NULL)
        gvmi_cu->cuEventDestroy(timer->end);
    if (timer->stream != NULL)
        gvmi_cu->cuStreamDestroy(timer->stream);
    memset(timer, 0, sizeof *timer);
}

bool bench_timer_start(bench *b, bench_timer *timer)
{
    CUresult result = gvmi_cu->cuEventRecord(timer->start, timer->stream);

    if (result != CUDA_SUCCESS)
        bench_failed_driver(b, result, "cuEventRecord");
    return result == CUDA_SUCCESS;
}

bool bench_timer_stop(bench *b, bench_timer *timer, double *us)
{
    float ms = 0;
    CUresult result = gvmi_cu->cuEventRecord(timer->end, timer->stream);

    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuEventSynchronize(timer->end);
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuEventElapsedTime(&ms, timer->start, timer->end);
    *us = (double)ms * 1e3;
    if (result != CUDA_SUCCESS)
        bench_failed_driver(b, result, "cuEventElapsedTime");
    return result == CUDA_SUCCESS;
}
