#!/usr/bin/env python3
"""The device headers compile by NVRTC, which has no standard headers: a kernel that makes every kind of claim, for an H100
and without a GPU. usage: nvrtc.py ROOT; exits with 77 where there is no NVRTC."""
import ctypes
import sys
from pathlib import Path

LIBRARIES = ["libnvrtc.so"] + [f"{folder}libnvrtc.so.{major}" for major in (13, 12) for folder in ("", "/usr/local/cuda/lib64/")]
KERNEL = b"""
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


def load():
    for name in LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            pass
    print("no NVRTC")
    sys.exit(77)


def main():
    nvrtc = load()
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    options = [b"-I" + str(Path(sys.argv[1]) / "include").encode(), b"-arch=sm_90", b"-std=c++17"]
    result = nvrtc.nvrtcCreateProgram(ctypes.byref(program), KERNEL, b"kernel.cu", 0, None, None)
    if result == 0:
        result = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        print(log.value.decode())
    if result != 0:
        sys.exit(f"NVRTC answers {result}")


main()
