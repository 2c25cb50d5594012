#!/bin/sh
# usage: build.sh [FOLDER [MESON-OPTION...]]
# Configures FOLDER (default build) if it is not, applies the options, builds. With CI set, warnings
# are errors.
set -eu
cd "$(dirname "$0")/.."
case ${1:-} in
-*)
    sed -n '2,4s/^# //p' "$0" >&2
    exit 2
    ;;
esac
folder=${1:-build}
[ $# -eq 0 ] || shift

scripts/setup.sh build
[ -z "${CI:-}" ] || set -- -Dwerror=true "$@"

# What is found decides what is built (unit tests, manual checks, kernel images): after a package
# has come, the folder is configured anew.
found=$(
    command -v nvcc || :
    command -v g++ || : # nvcc calls it
    ls /usr/local/cuda/bin/nvcc build-fetched/cuda/nvidia/cu13/bin/nvcc 2>/dev/null || :
    command -v mandoc || :
    pkg-config --modversion cmocka 2>/dev/null || :
)

if [ ! -f "$folder/build.ninja" ]; then
    rm -rf "$folder/meson-private" # left by a configuration that failed
    meson setup "$folder" "$@"
elif [ "$found" != "$(cat "$folder/found" 2>/dev/null)" ]; then
    meson setup --reconfigure "$folder" "$@"
elif [ $# -gt 0 ]; then
    meson configure "$folder" "$@"
fi
printf '%s\n' "$found" >"$folder/found"
ninja -C "$folder"
