#!/bin/sh
# usage: [OUT=FOLDER] bench.sh [BUILD-FOLDER]
# Measures what the driver's virtual memory calls and buffers cost (see docs/benchmarks.md), shows
# it and records it as JSON under OUT. The build is a release one; for figures worth keeping, the
# machine must be quiet.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}-release
out=${OUT:-bench/results}

scripts/build.sh "$build" -Dbuildtype=release -Dtests=false -Ddocs=false

gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1 | tr ' A-Z' '-a-z')
[ "${GVMEM_DRIVER:-auto}" != soft ] || gpu=''
mkdir -p "$out"
file=$out/vmm-${gpu:-softgpu}-$(date -u +%Y%m%d-%H%M%S).json
"$build/tools/gvmem" bench vmm --json="$file"
echo "recorded in $file"
