#!/bin/sh
# usage: [PG_CONFIG=FILE | POSTGRES_PACK=FILE] [NVRTC=FILE] [OUT=FOLDER] [PARTS=LIST] plcuda-gpu.sh [BUILD-FOLDER]
# What shows plcuda on a real GPU: its SQL tests, workers killed and wild kernels, the examples, recorded as OUT/check-plcuda-TIME.json
# (OUT: default bench/results); and the figures of bench-plcuda.py, bench-plcuda-examples.py and gvmem-bench pglz. PARTS is some of: tests bench.
# For a machine without PostgreSQL, scripts/pack-postgres.sh makes POSTGRES_PACK on another one. NVRTC names libnvrtc.so.13 or
# .12, which must be of no newer CUDA than the driver; it is searched for otherwise. WHEELS: see bench-plcuda-examples.py.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${1:-build}
out=${OUT:-bench/results}
nvidia-smi -L || exit 1
if [ -n "${POSTGRES_PACK:-}" ]; then
    mkdir -p "$build"
    PG_CONFIG=$(scripts/pack-postgres.sh unpack "$POSTGRES_PACK" "$(realpath "$build")/postgres-pack") || exit 1
    export PG_CONFIG
fi
scripts/build.sh "$build" >"$build.log" 2>&1 || { tail -n 20 "$build.log"; exit 1; }
NVRTC=${NVRTC:-$(find /usr/local/cuda*/ build-fetched /usr/lib -name 'libnvrtc.so.1[23]' 2>/dev/null | head -n 1)}
[ -n "$NVRTC" ] || { echo 'plcuda-gpu: there is no libnvrtc here'; exit 1; }
export PLCUDA_NVRTC="$NVRTC" GVMEM_DRIVER=cuda BUILD="$build"
mkdir -p "$out"
stamp=$(date -u +%Y%m%d-%H%M%S)
code=0

run_test() { # NAME COMMAND...
    name=$1
    shift
    timeout 240 "$@" >"$build/$name.tap" || code=1
    grep -E '^(not )?ok' "$build/$name.tap"
    logs="$logs $build/$name.tap"
}

tests() {
    logs=
    "$build/tools/gvmem" info --json >"$build/gpu-info.json" || exit 1
    # shellcheck disable=SC2046 # a word for each
    run_test plcuda-regress tests/postgres/run.sh regress $(basename -s .sql tests/postgres/sql/plcuda*.sql)
    run_test plcuda-workers python3 tests/postgres/plcuda.py
    run_test plcuda-examples python3 tests/postgres/plcuda_examples.py
    # shellcheck disable=SC2086 # names of files
    scripts/test-results.py --failures --record "$out/check-plcuda-$stamp.json" --info "$build/gpu-info.json" $logs || code=1
}

figures() {
    timeout 100 bench/bench-plcuda.py -r 3 -o "$out/plcuda-$stamp.json" || code=1
    timeout 60 "$build/bench/gvmem-bench" pglz --json="$out/pglz-$stamp.json" || code=1
    for part in knn kmeans logregr pattern; do
        timeout 150 bench/bench-plcuda-examples.py -r 5 -o "$out" "$part" || code=1
    done
}

for part in ${PARTS:-tests bench}; do
    case $part in
    tests) tests ;;
    bench) figures ;;
    *) echo "plcuda-gpu: PARTS is some of: tests bench" >&2; exit 2 ;;
    esac
done
exit "$code"
