#!/bin/sh
# usage: [PG_CONFIG=FILE | POSTGRES_PACK=FILE] [NVRTC=FILE] [OUT=FOLDER] plcuda-gpu.sh [BUILD-FOLDER]
# What shows plcuda on a real GPU: its SQL test, workers killed and wild kernels, and bench/bench-plcuda.py, whose figures go to
# OUT (default bench/results). For a machine without PostgreSQL, scripts/pack-postgres.sh makes POSTGRES_PACK on another one. NVRTC
# names libnvrtc.so.13 or .12, which must be of no newer CUDA than the driver; it is searched for otherwise.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${1:-build}
out=${OUT:-bench/results}
nvidia-smi -L || exit 1
scripts/build.sh "$build" >"$build.log" 2>&1 || { tail -n 20 "$build.log"; exit 1; }
if [ -n "${POSTGRES_PACK:-}" ]; then
    PG_CONFIG=$(scripts/pack-postgres.sh unpack "$POSTGRES_PACK" "$build/postgres-pack") || exit 1
    export PG_CONFIG
fi
NVRTC=${NVRTC:-$(find /usr/local/cuda*/ build-fetched /usr/lib -name 'libnvrtc.so.1[23]' 2>/dev/null | head -n 1)}
[ -n "$NVRTC" ] || { echo 'plcuda-gpu: there is no libnvrtc here'; exit 1; }
export PLCUDA_NVRTC="$NVRTC" GVMEM_DRIVER=cuda BUILD="$build"
mkdir -p "$out"
code=0
tests/postgres/run.sh regress plcuda plcuda_tables plcuda_sets || code=1
timeout 240 python3 tests/postgres/plcuda.py || code=1
timeout 200 bench/bench-plcuda.py -n 10000000 -o "$out/plcuda-$(date -u +%Y%m%d-%H%M%S).json" || code=1
exit "$code"
