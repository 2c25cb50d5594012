#!/bin/sh
# usage: [OUT=FOLDER] bench.sh [BUILD-FOLDER]
# Measures what the driver's virtual memory calls and buffers cost, and a keeper (see
# docs/benchmarks.md), and replays bench/traces; shows it and records it as JSON under OUT. The build
# is a release one; for figures worth keeping, the machine must be quiet.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}-release
out=${OUT:-bench/results}

scripts/build.sh "$build" -Dbuildtype=release -Dtests=false -Ddocs=false

gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1 | tr ' A-Z' '-a-z')
[ "${GVMEM_DRIVER:-auto}" != soft ] || gpu=''
mkdir -p "$out"
stamp=${gpu:-softgpu}-$(date -u +%Y%m%d-%H%M%S)
for what in vmm keeper; do
    "$build/tools/gvmem" bench "$what" --json="$out/$what-$stamp.json"
    echo "recorded in $out/$what-$stamp.json"
done
"$build/tools/gvmem" bench policy --json="$out/policy-traces-$stamp.json" bench/traces/*.trace
echo "recorded in $out/policy-traces-$stamp.json"
