#!/bin/sh
# usage: test_pkg_config.sh FOLDER COMPILER...
# Programs are compiled against the library in the build folder by what pkg-config prints for each of the .pc files in
# FOLDER, and by nothing else.
set -eu
command -v pkg-config >/dev/null || exit 77
PKG_CONFIG_PATH=$1
export PKG_CONFIG_PATH
shift
for name in gvmem gvmem-keeper; do
    flags=$(pkg-config --cflags "$name-uninstalled")
    # shellcheck disable=SC2086 # several
    printf '#include <gvmem/gvmem.h>\n#include <gvmem/keeper.h>\n' | "$@" $flags -fsyntax-only -x c - || exit 1
done
