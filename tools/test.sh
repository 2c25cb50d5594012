#!/bin/sh
# usage: test.sh GVMEM CASE
# One case of the program gvmem, on whatever driver GVMEM_DRIVER says.
set -eu
gvmem=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() {
    echo "test.sh: $1" >&2
    for file in out err; do
        [ ! -s "$folder/$file" ] || sed "s/^/  $file: /" "$folder/$file" >&2
    done
    exit 1
}

# Runs gvmem, output to files, and compares its exit status.
expect() { # STATUS ARGUMENT...
    wanted=$1
    shift
    got=0
    "$gvmem" "$@" >"$folder/out" 2>"$folder/err" || got=$?
    [ "$got" -eq "$wanted" ] || fail "gvmem $*: exit status $got, not $wanted"
}

prints() { # WHERE PATTERN
    grep -Eq -e "$2" "$folder/$1" || fail "nothing like \"$2\" on $1"
}

is_json() {
    python3 -m json.tool <"$1" >/dev/null || fail "$1 is no JSON"
}

# The master's sum and one for each process, all the same to the last places.
sums() { # PROCESSES
    [ "$(grep -c '^total sum \[' "$folder/out")" -eq $(($1 + 1)) ] || fail "not $1 + 1 sums"
    [ "$(sed -n 's/^total sum \[.*\]: \(.*\)\..*/\1/p' "$folder/out" | sort -u | wc -l)" -eq 1 ] || fail 'sums differ'
    [ ! -s "$folder/err" ] || fail 'complaints'
}

case $2 in
info)
    expect 0 info
    prints out '^device 0 '
    prints out 'GVMEM_DRIVER='
    expect 0 info --json
    is_json "$folder/out"
    ;;
share)
    expect 0 share -n 2 -l 16M
    sums 2
    prints out '^total sum \[master\]: [0-9]+\.[0-9]{6}$'
    expect 0 share -n 3 -l 16M -c 2M -v
    sums 3
    expect 0 share -n 1 -l 8
    sums 1
    ;;
read-only)
    expect 0 share -n 2 -l 16M --read-only
    sums 2
    ;;
ipc)
    expect 0 share -n 2 -l 16M --ipc
    sums 2
    ;;
usage)
    expect 0 --version
    prints out '^gvmem [0-9]+\.[0-9]+\.[0-9]+$'
    for arguments in --help 'info --help' 'share --help' 'bench --help'; do
        # shellcheck disable=SC2086 # words
        expect 0 $arguments
        prints out '^usage: gvmem'
    done
    for arguments in '' nonsense --nonsense 'info --nonsense' 'info more' 'share -n 0' 'share -n' 'share -n 1x' \
        'share -l 0' 'share -l 7' 'share -l -1' 'share -l 1Q' 'share -l 99999999T' 'share -c 3M' 'share -c 2G' \
        'share --ipc --read-only' 'share more' 'share -t 0' 'bench' 'bench nonsense' 'bench vmm more' 'bench vmm -m 1'; do
        # shellcheck disable=SC2086
        expect 2 $arguments
        prints err '^gvmem: '
        [ ! -s "$folder/out" ] || fail "output of gvmem $arguments"
    done
    ;;
failure) # what cannot be done is said, with status 1
    expect 1 share -d 999 -l 16M
    prints err 'no device 999'
    expect 1 share -n 1 -l 900T
    prints err '^gvmem: cannot '
    export GVMEM_DRIVER=/nonexistent/libcuda.so.1
    expect 1 info
    prints err 'nonexistent'
    prints out 'GVMEM_DRIVER=/nonexistent'
    expect 1 info --json
    is_json "$folder/out"
    expect 1 share -n 1 -l 16M
    prints err 'nonexistent'
    ;;
bench)
    export GVMEM_SOFTGPU="${GVMEM_SOFTGPU:-memory=512MiB}" # a small one is measured sooner
    expect 0 bench vmm --quick --max 32M --json="$folder/record"
    prints out 'growing an array'
    is_json "$folder/record"
    ;;
*)
    fail "no case $2"
    ;;
esac
