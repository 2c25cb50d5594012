#!/usr/bin/env python3
"""The device headers compile by NVRTC, which has no standard headers: a kernel that makes every kind of claim, one that maps regions in every way, one that calls the host, and kernels that use
each header of plcuda's library, for an H100 and without a GPU. usage: nvrtc.py ROOT; exits with 77 where there is no NVRTC."""
import ctypes
import sys
from pathlib import Path

LIBRARIES = ["libnvrtc.so"] + [f"{folder}libnvrtc.so.{major}" for major in (13, 12) for folder in ("", "/usr/local/cuda/lib64/")]
APPENDER = b"""
typedef unsigned long long uint64_t, uintptr_t; /* as <cuda/std/cstdint> declares them */
#include <gvmem/device/appender.h>

typedef struct params { gvm_append append; uint64_t value; } params;

GVM_KERNEL(append_all_ways, params, p)
{
    gvm_append_place places[5];
    uint64_t amount = 0;
    uint32_t answers[5], i;

    answers[0] = gvm_append_claim(&p.append, 1, 5, 1, &places[0]);
    answers[1] = gvm_append_claim_warp(&p.append, 1, 5, 16, &places[1]);
    answers[2] = gvm_append_claim_whole_warp(&p.append, 32, 5, 16, &places[2]);
    answers[3] = gvm_append_claim_block(&p.append, 1, 5, 16, &places[3]);
    answers[4] = gvm_append_claim_whole_block(&p.append, 64, 5, 16, &places[4]);
    for (i = 0; i < 5; i++)
        if (answers[i] == GVM_APPEND_OK) {
            *(uint64_t *)places[i].rows = p.value;
            amount += places[i].amount;
        }
    gvm_append_publish(&p.append, amount);
}
"""
REGION = b"""
#include <gvmem/device/region.h>

typedef struct region_params { gvm_region_view view; } region_params;

GVM_KERNEL(map_all_ways, region_params, p)
{
    const uint32_t regions[2] = {3, 4};
    GVM_SHARED(gvm_region_line, lines, 8);
    GVM_SHARED(gvm_region_tlb, tlb, 1);
    gvm_region_request request;
    uint64_t *words[3];
    void *found[2];
    uint32_t i;

    words[0] = (uint64_t *)gvm_region_map(&p.view, gvm_lane(), GVM_REGION_READ);
    words[1] = (uint64_t *)gvm_region_map_warp(&p.view, gvm_warp(), GVM_REGION_READWRITE);
    words[2] = (uint64_t *)gvm_region_map_block(&p.view, gvm_block(), GVM_REGION_WRITE);
    for (i = 1; i < 3; i++)
        if (words[0] != 0 && words[i] != 0)
            words[i][gvm_thread()] = *words[0] + gvm_region_slot(&p.view, words[0]);
    words[0] = (uint64_t *)gvm_region_map_lanes(&p.view, gvm_lane(), GVM_REGION_READ);
    if (gvm_region_map_many_warp(&p.view, regions, 2, GVM_REGION_WRITE, found))
        *(uint64_t *)found[0] = *words[0];
    if (gvm_region_map_many_block(&p.view, regions, 2, GVM_REGION_WRITE, found))
        *(uint64_t *)found[1] = *words[0];
    if (!gvm_region_request_warp(&p.view, 5, GVM_REGION_WRITE, &request))
        *(uint64_t *)gvm_region_wait_warp(&p.view, &request) = 1;
    if (!gvm_region_request_block(&p.view, 6, GVM_REGION_WRITE, &request))
        *(uint64_t *)gvm_region_wait_block(&p.view, &request) = 1;
    gvm_region_prefetch_warp(&p.view, 7);
    gvm_region_prefetch_block(&p.view, 8);
    if (gvm_region_create_warp(&p.view, &request.region) || gvm_region_create_block(&p.view, &request.region))
        gvm_region_prefetch_warp(&p.view, request.region);
    gvm_region_tlb_begin(tlb, &p.view, lines, 8);
    words[0] = (uint64_t *)gvm_region_tlb_map_warp(tlb, 9, GVM_REGION_READ);
    gvm_region_tlb_unmap_warp(tlb, 9);
    gvm_region_tlb_end(tlb);
    gvm_region_unmap_lanes(&p.view, gvm_lane());
    gvm_region_unmap(&p.view, gvm_lane());
    gvm_region_unmap_warp(&p.view, gvm_warp());
    gvm_region_unmap_block(&p.view, gvm_block());
}
"""
CALLBACK = b"""
#include <gvmem/device/callback.h>

typedef struct callback_params { gvm_callback_view server; uint64_t *out; } callback_params;

GVM_KERNEL(call_all_ways, callback_params, p)
{
    uint64_t words[2] = {1, 2}, result = 0;
    uint32_t codes[9], i;

    codes[0] = gvm_callback_call(&p.server, 0, words, 2);
    codes[1] = gvm_callback_call_warp(&p.server, 0, words, 2);
    codes[2] = gvm_callback_call_block(&p.server, 0, words, 2);
    codes[3] = gvm_callback_post(&p.server, 1, words, 2);
    codes[4] = gvm_callback_post_warp(&p.server, 1, words, 2);
    codes[5] = gvm_callback_post_block(&p.server, 1, words, 2);
    codes[6] = gvm_callback_join(&p.server, 2, &result);
    codes[7] = gvm_callback_join_warp(&p.server, 2, &result) + gvm_callback_join_block(&p.server, 2, &result);
    codes[8] = gvm_callback_signal(&p.server, 2);
    for (i = 0; i < 9; i++)
        result += codes[i];
    p.out[gvm_thread_global()] = result + words[1];
}
"""
# Of postgres/plcuda/device: the included kernels use order.h, reduce.h, sort.h and threads.h, and this one the others.
PLCUDA = b"""
#include "postgres/plcuda/device.h"
#include "tests/prop/plcuda_library_kernels.c"

typedef struct column_params { plcuda_call call; const plcuda_table *table; double *out; } column_params;

GVM_KERNEL(read_columns, column_params, p)
{
    PLCUDA_FOR_ROWS (p.table, row) {
        const pg_text_t text = plcuda_get_text(p.table, 1, row);
        const pg_numeric_t numeric = plcuda_get_numeric(p.table, 2, row);
        const pg_timestamp_t at = plcuda_get_timestamp(p.table, 3, row);
        const pg_float4_array_t array = plcuda_get_float4_array(p.table, 4, row);
        const pg_varbit_t bits = plcuda_get_varbit(p.table, 5, row);
        const pg_vector_t vector = plcuda_get_vector(p.table, 6, row);
        char *dest = (char *)p.out + 8192 * row;
        int64_t integer = plcuda_decompress(plcuda_get_compressed(p.table, 7, row), dest) +
            plcuda_decompress_warp(plcuda_get_compressed(p.table, 8, row), dest);

        if (!plcuda_numeric_to_int8(&numeric, &integer))
            plcuda_raise(&p.call, "22003", "row % has no integer, but % and %", row, text, at.value);
        p.out[row] = plcuda_numeric_to_float8(&numeric) + (double)integer + plcuda_text_like(text, text) +
            plcuda_timestamp_to_parts(plcuda_timestamp_trunc(at.value, PLCUDA_QUARTER)).month +
            plcuda_float4_element(&array, 0).value + bits.length + vector.length;
    }
}
"""


def load():
    for name in LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            pass
    print("no NVRTC")
    sys.exit(77)


def compile_text(nvrtc, text):
    """Files that the host compiles, too, include <stdint.h>, which is empty here: the types are the dialect's own."""
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    options = [b"-I" + str(Path(sys.argv[1]) / folder).encode() for folder in ("", "include")] + [b"-arch=sm_90", b"-std=c++17"]
    result = nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, b"kernel.cu", 1, (ctypes.c_char_p * 1)(b""), (ctypes.c_char_p * 1)(b"stdint.h"))
    if result == 0:
        result = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        print(log.value.decode())
    if result != 0:
        sys.exit(f"NVRTC answers {result}")


def main():
    nvrtc = load()
    for text in (APPENDER, CALLBACK, REGION, PLCUDA):
        compile_text(nvrtc, text)


main()
