#!/bin/sh
# usage: version.sh
# Prints the version of the tree, X.Y.Z. It is written in gvmem/status.h, as programs see it; all else takes it from here.
set -eu
cd "$(dirname "$0")/.."
sed -n 's/^#define GVM_VERSION_[A-Z]* \([0-9]*\)$/\1/p' include/gvmem/status.h | paste -sd.
