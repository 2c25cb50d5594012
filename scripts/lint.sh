#!/bin/sh
# usage: lint.sh [BUILD-FOLDER [light]]
# Checks the tree against the house rules; every finding says where and how to fix it. With "light",
# only what needs no build. With CI set, it fails without c++ or clang-format 14, which setup.sh installs on Debian 12.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${1:-build}
weight=${2:-full}
failed=0

have() { command -v "$1" >/dev/null 2>&1; }
fail() {
    failed=1
    echo "$1"
}
unchecked() { # WHY: for want of what setup.sh was to install
    [ -z "${CI:-}" ] || failed=1
    echo "lint: $1"
}

# 1. What can be seen in the text: include direction, documentation, settings, length, paths.
# shellcheck disable=SC2046 # names without spaces
scripts/lint.py $(scripts/sources.sh) || failed=1

# Every public option has a test that sees its effect.
scripts/options.py . || failed=1

# 2. Each public header compiles alone, as C11 and as C++17.
for header in $(scripts/public-headers.sh); do
    name=${header#include/}
    alone() { # COMPILER LANGUAGE STANDARD
        if ! have "$1"; then
            unchecked "$1 is not installed: headers are not compiled as $3"
            return 0
        fi
        echo "#include <$name>" | "$1" -x "$2" -std="$3" -pedantic -Wall -Wextra -Werror -Iinclude -fsyntax-only - ||
            fail "$header:1: does not compile alone as $3; include what it uses, and keep to the standard"
    }
    alone cc c c11
    alone c++ c++ c++17
done

# 3. Format, by the version that .clang-format is written for: others decide a few lines otherwise.
if have clang-format && clang-format --version | grep -q 'version 14\.'; then
    scripts/sources.sh '*.c' '*.h' | while read -r file; do
        line=$(clang-format "$file" | diff "$file" - | sed -n '1s/[^0-9].*//p')
        [ -z "$line" ] || echo "$file:$line: not formatted; run make fmt"
    done | { ! grep .; } || failed=1
else
    unchecked 'there is no clang-format 14: the format is not checked'
fi

# 4. What a library exports is what its map has, and that is what the headers declare.
exports() { # LIBRARY MAP
    declared=$(sed -n 's/^ *\(gvmi*_.*\);$/\1/p' "$build/$2" | sort)
    exported=$(nm -D --defined-only "$build/$1" | awk '$2 != "A" {sub(/@.*/, "", $3); print $3}' | sort)
    for symbol in $declared; do
        echo "$exported" | grep -qx "$symbol" ||
            fail "$(grep -rnE "^(extern )?GVMI?_API.*[ *]$symbol\(" include/gvmem lib | head -n 1 | cut -d: -f1-2): $symbol is declared and not exported by $1; define it"
    done
    for symbol in $exported; do
        echo "$declared" | grep -qx "$symbol" ||
            fail "$1:1: $symbol is exported and not declared with GVM_API; declare it or make it static"
    done
}
if [ "$weight" != light ]; then
    exports libgvmem.so gvmem.map
    exports libgvmem-keeper.so gvmem-keeper.map
    # What libgvmem-keeper takes of the inside is all that is declared for it.
    # shellcheck disable=SC2013 # names without spaces
    for symbol in $(sed -n 's/^ *\(gvmi_.*\);$/\1/p' "$build/gvmem.map"); do
        nm -D --undefined-only "$build/libgvmem-keeper.so" | grep -q " $symbol@" ||
            fail "$(grep -rn "GVMI_API.*$symbol" lib keeper | head -n 1 | cut -d: -f1-2): libgvmem-keeper does not use $symbol; take GVMI_API away"
    done

    # 5. No C file of a folder is in a circle of calls with another that the folder does not explain.
    scripts/circles.py "$build" || [ $? -eq 77 ] || failed=1 # 77: not all of it is built

    # 6. What a file defines for others, others use.
    scripts/unused.py "$build" || failed=1
fi

[ "$failed" -eq 0 ] && echo 'lint: nothing found'
exit "$failed"
