#!/bin/sh
# usage: [OUT=FOLDER] [SUITES=LIST] [PG_CONFIG=FILE | POSTGRES_PACK=FILE] check-gpu.sh [BUILD-FOLDER]
# The tests on a real GPU and its driver, one at a time. OUT/check-gpu-TIME.json gets the outcome of
# every test and what `gvmem info` says of the machine, OUT/conform-TIME.json each case of the
# conformance table. Needs no network; without cmocka the unit tests are left out.
# The suite postgres, gstore_fdw's tests, needs a PostgreSQL with server headers: pg_config, the one that
# PG_CONFIG names, or one that pack-postgres.sh packed on another machine.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
out=${OUT:-bench/results}
suites=${SUITES:-conform unit prop fault proc foreign gpu postgres}

if ! nvidia-smi -L 2>/dev/null | grep -q '^GPU '; then
    echo 'check-gpu: nvidia-smi shows no GPU here; make check runs the same tests on the software GPU' >&2
    exit 1
fi
nvidia-smi -L

scripts/build.sh "$build"
if [ -n "${POSTGRES_PACK:-}" ]; then
    PG_CONFIG=$(scripts/pack-postgres.sh unpack "$POSTGRES_PACK" "$build/postgres-pack")
    export PG_CONFIG
fi

mkdir -p "$out"
stamp=$(date -u +%Y%m%d-%H%M%S)
record=$out/check-gpu-$stamp.json
GVMEM_DRIVER=cuda "$build/tools/gvmem" info --json >"$build/gpu-info.json" || {
    echo 'check-gpu: gvmem cannot open the GPU through libcuda.so.1; the line above says why' >&2
    exit 1
}

code=0 times=''
set -- # the logs of what ran

# The program of meson's test 'conform', which runs it on the software GPU.
conform() {
    "$build/tests/conform/gvmem-conform" --driver libcuda.so.1 --json "$out/conform-$stamp.json" >"$build/conform.tap" || code=1
    grep -A4 '^not ok' "$build/conform.tap" || true
    tail -n 1 "$build/conform.tap"
    log=$build/conform.tap
}

meson_suite() { # SUITE
    rm -f "$build/meson-logs/check-gpu-$1"*
    meson test -C "$build" --no-rebuild --setup cuda --num-processes 1 --print-errorlogs --logbase "check-gpu-$1" \
        --suite "$1" --no-suite slow --no-suite soft || code=$?
    for log in "$build/meson-logs/check-gpu-$1"*.json; do :; done # meson adds the setup's name to the base
}

for suite in $suites; do
    if [ "$suite" != conform ]; then
        meson test -C "$build" --list --no-rebuild --suite "$suite" >/dev/null 2>&1 || continue
    fi
    if [ "$suite" = postgres ]; then
        why=$(BUILD=$build scripts/pg-server.sh why-not)
        if [ -n "$why" ]; then
            times="$times
  postgres  left out: $why"
            continue
        fi
    fi
    printf '\n==== %s\n' "$suite"
    started=$(date +%s)
    if [ "$suite" = conform ]; then conform; else meson_suite "$suite"; fi
    times="$times
  $(printf '%-9s %4d s' "$suite" $(($(date +%s) - started)))"
    set -- "$@" "$log"
done

printf '\n==== summary%s\n' "$times"
scripts/test-results.py --failures --record "$record" --info "$build/gpu-info.json" "$@" || code=1
echo "recorded in $record"
exit "$code"
