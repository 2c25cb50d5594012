#!/usr/bin/env python3
"""PyTorch on a gvmem heap: usage: torch_heap.py [LIBRARY]

A small network is trained with libgvmem-heap-plugin in the place of PyTorch's caching allocator.
With GVMEM_HEAP_TRACE=FILE every allocation is recorded, to replay with `gvmem-bench heap -t FILE`.
"""
import sys

import gvmem_plugin

SKIPPED = 77  # what meson takes for a test that was left out

try:
    import torch
except ImportError:
    print("skipped: PyTorch is not installed")
    sys.exit(SKIPPED)
if not torch.cuda.is_available():
    print("skipped: PyTorch finds no GPU")
    sys.exit(SKIPPED)

library = sys.argv[1] if len(sys.argv) > 1 else "libgvmem-heap-plugin.so"
gvmem_plugin.use_in_torch(library)  # before the first tensor on the GPU

torch.manual_seed(1)
net = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1)).cuda()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
inputs = torch.randn(4096, 64, device="cuda")
wanted = inputs.square().sum(dim=1, keepdim=True)
losses = []
for _ in range(200):
    loss = torch.nn.functional.mse_loss(net(inputs), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(f"loss {losses[0]:.1f} -> {losses[-1]:.1f}")
sys.exit(0 if losses[-1] < losses[0] / 2 else 1)
