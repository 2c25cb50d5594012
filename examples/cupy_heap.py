#!/usr/bin/env python3
"""CuPy on a gvmem heap: usage: cupy_heap.py [LIBRARY]

Arrays are allocated by libgvmem-heap-plugin in the place of CuPy's memory pool.
"""
import sys

import gvmem_plugin

cupy = gvmem_plugin.find_cupy()
gvmem_plugin.use_in_cupy(sys.argv[1] if len(sys.argv) > 1 else "libgvmem-heap-plugin.so")

total = cupy.zeros(1 << 20)
for i in range(100):
    total += cupy.arange(1 << 20, dtype=cupy.float64) * i
wanted = (1 << 20) * ((1 << 20) - 1) // 2 * 4950
print(f"sum {float(total.sum()):.0f}, should be {wanted}")
sys.exit(0 if float(total.sum()) == wanted else 1)
