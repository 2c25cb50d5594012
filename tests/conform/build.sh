#!/bin/sh
# Builds the conformance program and its kernels with gcc and nvcc alone: for a machine that has a GPU and no meson.
#   tests/conform/build.sh DIR
set -eu
if [ $# -ne 1 ]; then
    echo "usage: $0 DIR" >&2
    exit 2
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."

sources=
for source in tests/conform/*.c; do
    [ "$source" = tests/conform/kernels.c ] || sources="$sources $source"
done
# shellcheck disable=SC2086 # one word a file
${CC:-gcc} -std=gnu11 -D_GNU_SOURCE= -O2 -g -Wall -Wextra -I. -Iinclude $sources -o "$out/gvmem-conform" -lpthread -ldl
${CC:-gcc} -std=gnu11 -D_GNU_SOURCE= -O2 -g -Wall -Wextra -I. -Iinclude -fPIC -shared tests/conform/kernels.c \
    -o "$out/conform-kernels.so"
if command -v nvcc >/dev/null; then
    nvcc -std=c++17 -x cu -fatbin -gencode arch=compute_80,code=compute_80 -gencode arch=compute_90,code=sm_90 \
        -I. -Iinclude tests/conform/kernels.c -o "$out/conform-kernels.fatbin"
fi
