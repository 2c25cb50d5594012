#!/usr/bin/env python3
"""CuPy on a gvmem heap: usage: cupy_heap.py [LIBRARY]

Arrays are allocated by libgvmem-heap-plugin in the place of CuPy's memory pool.
"""
import sys

import gvmem_plugin

SKIPPED = 77  # what meson takes for a test that was left out

try:
    import cupy
except ImportError:
    print("skipped: CuPy is not installed")
    sys.exit(SKIPPED)
try:
    cupy.cuda.runtime.getDeviceCount()
except cupy.cuda.runtime.CUDARuntimeError:
    print("skipped: CuPy finds no GPU")
    sys.exit(SKIPPED)

gvmem_plugin.use_in_cupy(sys.argv[1] if len(sys.argv) > 1 else "libgvmem-heap-plugin.so")

total = cupy.zeros(1 << 20)
for i in range(100):
    total += cupy.arange(1 << 20, dtype=cupy.float64) * i
wanted = (1 << 20) * ((1 << 20) - 1) // 2 * 4950
print(f"sum {float(total.sum()):.0f}, should be {wanted}")
sys.exit(0 if float(total.sum()) == wanted else 1)
