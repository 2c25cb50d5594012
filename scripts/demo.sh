#!/bin/sh
# usage: demo.sh [BUILD-FOLDER]
# Builds and shows what gvmem does first, each in one command. Needs no GPU: without one the software GPU
# takes its place.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}

scripts/build.sh "$build"

show() {
    printf '\n==== %s\n' "$1"
    shift
    printf '$ %s\n' "$*"
    "$@"
}

show 'the devices, the driver behind them, the settings and where each came from' \
    "$build/tools/gvmem" info
show 'one buffer of 256 MiB, filled here, imported by 4 processes, summed by a kernel in each' \
    "$build/tools/gvmem" share -n 4 -l 256M
show 'an array that grows where it is: its address does not move and nothing is copied' \
    "$build/examples/growing_array"
show 'memory larger than its budget, shared: a producer grows and publishes, consumers sum what they see' \
    "$build/examples/keeper_pair"
scripts/demo-table.sh "$build"
printf '\nNext: make help, README.md, man docs/man/gvmem.1\n'
