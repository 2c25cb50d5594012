#!/bin/sh
# usage: [OUT=FOLDER] [BENCHES=LIST] [ROWS=NUMBER] [PG_CONFIG=FILE | POSTGRES_PACK=FILE] bench.sh [BUILD-FOLDER]
# Measures what the driver's virtual memory calls and buffers cost, a keeper, models that are swapped, heaps, other pools beside
# them, a training in PyTorch, appenders, regions, and joins with them (see docs/benchmarks.md), replays
# bench/traces and made-up patterns, and measures gstore_fdw's tables, and how rows come into them, of ROWS rows, where there is a PostgreSQL as
# check-gpu.sh wants one; shows it and records it as JSON under OUT. BENCHES is some of: vmm keeper models python-models heap pools torch appender hashjoin pglz query search region devices policy gstore load queries partitions.
# The build is a release one; for figures worth keeping, the machine must be quiet.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}-release
out=${OUT:-bench/results}

scripts/build.sh "$build" -Dbuildtype=release -Dtests=false -Ddocs=false

gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1 | tr ' A-Z' '-a-z')
[ "${GVMEM_DRIVER:-auto}" != soft ] || gpu=''
[ -z "$gpu" ] || gpus=$(nvidia-smi --list-gpus | wc -l)
mkdir -p "$out"
stamp=${gpu:-softgpu}-$(date -u +%Y%m%d-%H%M%S)

measure() { # WHAT FILE ARGUMENT...
    what=$1 file=$2
    shift 2
    "$build/bench/gvmem-bench" "$what" --json="$file" "$@"
    echo "recorded in $file"
}

with_torch() { # FILE PROGRAM [ARGUMENT...]: where PyTorch and a GPU are
    code=0 name=$1
    shift
    "$@" -o "$out/$name-$stamp.json" || code=$?
    [ "$code" -eq 0 ] || [ "$code" -eq 77 ] || exit "$code"
}

joins() {
    "$build/bench/hashjoin/hashjoin" --sweep --json="$out/hashjoin-$stamp.json"
    echo "recorded in $out/hashjoin-$stamp.json"
    "$build/bench/hashjoin/hashjoin" --cross --json="$out/hashjoin-cross-$stamp.json"
    echo "recorded in $out/hashjoin-cross-$stamp.json"
}

devices() { # a search over 2, 4 and 8 GPUs of one host
    [ "${gpus:-0}" -ge 2 ] || echo 'a search over several GPUs is left out: there are fewer than two'
    for count in 2 4 8; do
        [ "$count" -le "${gpus:-0}" ] || break
        measure region "$out/region-devices-$count-$stamp.json" --devices "$count" bfs
        measure region "$out/region-processes-$count-$stamp.json" --devices "$count" --processes bfs
    done
}

tables() { # gstore|gstore-load|queries|partitions
    if [ -n "${POSTGRES_PACK:-}" ]; then
        PG_CONFIG=$(scripts/pack-postgres.sh unpack "$POSTGRES_PACK" "$build/postgres-pack")
        export PG_CONFIG
    fi
    why=$(BUILD=$build scripts/pg-server.sh why-not)
    if [ -n "$why" ]; then
        echo "tables of gstore_fdw are left out: $why"
        return
    fi
    [ -n "$gpu" ] && rows=10000000 || rows=1000000
    "bench/bench-$1.py" -n "${ROWS:-$rows}" -o "$out/$1-$stamp.json" "$build"
}

for name in ${BENCHES:-vmm keeper models python-models heap pools torch appender hashjoin pglz query search region devices policy gstore load queries partitions}; do
    case $name in
    policy)
        measure policy "$out/policy-traces-$stamp.json" bench/traces/*.trace
        measure policy "$out/policy-patterns-$stamp.json"
        ;;
    pools) bench/bench-pools.py -o "$out/heap-pools-$stamp.json" "$build" ;;
    torch) with_torch torch env BUILD="$build" python3 tests/python/package.py bench/bench-torch.py ;;
    python-models) with_torch python-models bench/bench-models.py "$build" ;;
    gstore) tables gstore ;;
    load) tables gstore-load ;;
    queries | partitions)
        if python3 -c 'import numpy' 2>/dev/null; then
            tables "$name"
        else
            echo 'statements on the GPU are left out: there is no numpy'
        fi
        ;;
    hashjoin) joins ;;
    devices) devices ;;
    *) measure "$name" "$out/$name-$stamp.json" ;;
    esac
done
