#!/bin/sh
# usage: build.sh [FOLDER [MESON-OPTION...]]
# Configures FOLDER (default build) if it is not, applies the options, builds. With CI set, warnings are errors.
set -eu
cd "$(dirname "$0")/.."
folder=${1:-build}
[ $# -eq 0 ] || shift

scripts/setup.sh build
[ -z "${CI:-}" ] || set -- -Dwerror=true "$@"

if [ ! -f "$folder/build.ninja" ]; then
    rm -rf "$folder/meson-private" # left by a configuration that failed
    meson setup "$folder" "$@"
elif [ $# -gt 0 ]; then
    meson configure "$folder" "$@"
fi
ninja -C "$folder"
