#!/bin/sh
# usage: [OUT=FOLDER] check-gpu.sh [BUILD-FOLDER]
# The tests on a real GPU and its driver, one at a time. OUT/check-gpu-TIME.json gets the outcome of
# every test and what `gvmem info` says of the machine, OUT/conform-TIME.json each case of the
# conformance table. Needs no network; without cmocka the unit tests are left out.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
out=${OUT:-bench/results}

if ! nvidia-smi -L 2>/dev/null | grep -q '^GPU '; then
    echo 'check-gpu: nvidia-smi shows no GPU here; make check runs the same tests on the software GPU' >&2
    exit 1
fi
nvidia-smi -L

scripts/build.sh "$build"

mkdir -p "$out"
stamp=$(date -u +%Y%m%d-%H%M%S)
record=$out/check-gpu-$stamp.json
GVMEM_DRIVER=cuda "$build/tools/gvmem" info --json >"$build/gpu-info.json" || {
    echo 'check-gpu: gvmem cannot open the GPU through libcuda.so.1; the line above says why' >&2
    exit 1
}

# The program of meson's test 'conform', which runs it on the software GPU.
code=0
echo 'conformance of libcuda.so.1'
"$build/tests/conform/gvmem-conform" --driver libcuda.so.1 --json "$out/conform-$stamp.json" >"$build/conform.tap" || code=1
grep -A4 '^not ok' "$build/conform.tap" || true
tail -n 1 "$build/conform.tap"

set --
for suite in unit prop fault proc gpu; do
    meson test -C "$build" --list --no-rebuild --suite "$suite" >/dev/null 2>&1 && set -- "$@" --suite "$suite"
done

rm -f "$build/meson-logs/check-gpu"*
meson test -C "$build" --no-rebuild --setup cuda --num-processes 1 --print-errorlogs --logbase check-gpu --no-suite slow "$@" || code=$?
for log in "$build/meson-logs/check-gpu"*.json; do :; done # meson adds the setup's name to the base
scripts/test-results.py --failures --record "$record" --info "$build/gpu-info.json" \
    "$build/conform.tap" "$log" || code=1
echo "recorded in $record"
exit "$code"
