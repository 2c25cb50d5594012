#!/bin/sh
# usage: test.sh GVMEM CASE [HELPER [HELPER]]
# One case of the program gvmem, on whatever driver GVMEM_DRIVER says. HELPER is test_render,
# test_holder or table_holder, for those that need it.
set -eu
program=$1
here=$(dirname "$0")
watcher=''
# shellcheck source=tests/lib/program.sh
. "$here/../tests/lib/program.sh"
socket=$folder/keeper.sock

clean_up() {
    [ -z "$watcher" ] || kill "$watcher" || :
    [ -z "$helper" ] || kill "$helper" || :
    [ ! -S "$socket" ] || "$program" keeper stop -s "$socket" || :
    rm -rf "$folder"
}

is_metrics() {
    python3 "$here/check-metrics.py" <"$1" >"$folder/out" || fail "$1 are no metrics"
}

# A keeper at $socket, and the helper's objects in it. The pipes' ends stay open until the end.
start_keeper() {
    expect 0 keeper start --socket "$socket" --device-budget 64M --host-budget 256M
    [ "$(cat "$folder/out")" = "$socket" ] || fail 'the path is not printed'
}
start_holder() { # HELPER
    mkfifo "$folder/to_holder" "$folder/from_holder"
    "$1" "$socket" <"$folder/to_holder" >"$folder/from_holder" &
    helper=$!
    exec 3>"$folder/to_holder"
    read -r word <"$folder/from_holder" || fail 'the client could not start'
    [ "$word" = ready ] || fail "the client says $word"
}

# Reads what the watcher writes until a line matches.
await() { # GLOB
    while read -r line <&4; do
        # shellcheck disable=SC2254 # a pattern
        case $line in $1) return ;; esac
    done
    fail "the watcher never wrote $1"
}

# The master's sum and one for each process, all the same to the last places.
sums() { # PROCESSES
    [ "$(grep -c '^sum of ' "$folder/out")" -eq $(($1 + 1)) ] || fail "not $1 + 1 sums"
    [ "$(sed -n 's/^sum of .*: \(.*\)\..*/\1/p' "$folder/out" | sort -u | wc -l)" -eq 1 ] || fail 'sums differ'
    [ ! -s "$folder/err" ] || fail 'complaints'
}

case $2 in
info)
    expect 0 info
    prints out '^device 0 '
    prints out 'GVMEM_DRIVER='
    kernels='none' architectures=''
    if [ -f "$(dirname "$program")/../lib/kernels/basic.fatbin" ]; then
        architectures=$(sed -n 's/.*gvmi_image_architectures_basic\[\] = "\(.*\)".*/\1/p' "$(dirname "$program")/../lib/kernels/basic-image.c")
        kernels=$architectures
    fi
    prints out "^kernels for real GPUs: $kernels\$"
    expect 0 info --json
    is_json "$folder/out"
    python3 -c "import json, sys
sys.exit(json.load(open('$folder/out'))['kernel_architectures'] != '$architectures'.split())" || fail 'kernel_architectures'
    ;;
share)
    expect 0 share -n 2 -l 16M
    sums 2
    prints out '^sum of the exporter: [0-9]+\.[0-9]{6}$'
    expect 0 share -n 3 -l 16M -c 4M -v
    sums 3
    prints out '^  export .* us  4 chunks of 4 MiB$'
    [ "$(grep -c '^  import .* us  read-write$' "$folder/out")" -eq 3 ] || fail 'not three imports'
    expect 0 share -n 1 -l 8
    sums 1
    python3 "$here/test-share.py" "$program" >"$folder/out" 2>"$folder/err" || fail 'a process that does not answer'
    ;;
read-only)
    expect 0 share -n 2 -l 16M -v --read-only
    sums 2
    [ "$(grep -c '^  import .* us  read-only$' "$folder/out")" -eq 2 ] || fail 'not read-only'
    ;;
ipc)
    expect 0 share -n 2 -l 16M -v --ipc
    sums 2
    prints out '^  export .* us  with a copy on the device$'
    ;;
usage)
    expect 0 --version
    prints out '^gvmem [0-9]+\.[0-9]+\.[0-9]+$'
    for arguments in --help 'info --help' 'share --help' 'table --help'; do
        # shellcheck disable=SC2086 # words
        expect 0 $arguments
        prints out "^usage: gvmem ${arguments%--help}"
    done
    for arguments in '' nonsense --nonsense 'info --nonsense' 'info more' 'share -n 0' 'share -n' 'share -n 1x' \
        'share -l 0' 'share -l 7' 'share -l -1' 'share -l 1Q' 'share -l 99999999T' 'share -c 3M' 'share -c 2G' \
        'share --ipc --read-only' 'share more' 'share -t 0' bench 'table' 'table a b' 'table -n x a' 'table --nonsense'; do
        # shellcheck disable=SC2086
        expect 2 $arguments
        prints err '^gvmem: '
        [ ! -s "$folder/out" ] || fail "output of gvmem $arguments"
    done
    expect 2 info --json=x
    prints err '^gvmem: --json takes no value$'
    expect 2 share --length=1M -vx
    prints err '^gvmem: unknown option -x$'
    expect 2 share --length=1M -xv
    prints err '^gvmem: unknown option -x$'
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
table)
    expect 1 table gstore1:nonsense
    prints err 'cannot attach the table'
    start_table "$3"
    expect 0 table "$token"
    prints out '^[^0-9]*id'
    for locale in C C.UTF-8; do # no control character of others' names goes to the terminal
        export LC_ALL="$locale"
        expect 0 table "$token"
        prints out '^table      public\.\?, revision'
        prints out '^body +t[e]\? '
    done
    unset LC_ALL
    expect 0 table --rows 3 --json "$token"
    python3 - "$folder/out" <<'EOF' || fail '--rows, --json'
import json, sys
table = json.load(open(sys.argv[1]))
assert [c['name'] for c in table['columns']] == ['id', 'body'], table['columns']
assert [row['id'] for row in table['rows']] == [1, 4, 7], table['rows']
assert [row['body'] for row in table['rows']] == [None, 'odd', None], table['rows']
EOF
    expect 0 table --columns body -j "$token"
    python3 - "$folder/out" <<'EOF' || fail '--columns'
import json, sys
table = json.load(open(sys.argv[1]))
assert [c['name'] for c in table['columns']] == ['body'], table['columns']
assert len(table['rows']) == 10 and all(list(row) == ['body'] for row in table['rows']), table['rows']
EOF
    expect 1 table -c nothing "$token"
    prints err 'has no column "nothing"'
    expect 1 table -c "$(printf '\033\302\233')" "$token"
    prints err 'has no column "\?\?\?"'
    end_helper
    ;;
keeper-usage)
    for arguments in 'keeper --help' 'keeper ls --help' 'keeper start --help' 'top --help' 'map --help' 'models --help'; do
        # shellcheck disable=SC2086 # words
        expect 0 $arguments
        prints out '^usage: gvmem'
    done
    expect 0 keeper stop --help
    prints out '^usage: gvmem keeper'
    for arguments in keeper 'keeper nonsense' 'keeper --json status' 'keeper status more' 'keeper status --long' \
        'keeper status -j -p' 'keeper stat' 'keeper stat /a /b' 'keeper evict' 'keeper evict /a 1M more' 'keeper drop' \
        'keeper drop /a --json' 'keeper stop -t 0' 'keeper quota 1 1G x' 'keeper start --nonsense' 'keeper ls --socket' \
        'top more' 'top -d 0' 'top -d 1x' 'top -d nan' 'top -n -1' 'top -o size' 'top --nonsense' \
        'models more' 'models --nonsense' 'models --socket' 'map --svg --json' 'map /a /b' 'map --nonsense'; do
        # shellcheck disable=SC2086
        expect 2 $arguments
        prints err '^gvmem(-keeper)?: '
        [ ! -s "$folder/out" ] || fail "output of gvmem $arguments"
    done
    ;;
render) # what is made of a made-up snapshot
    for form in json top-json list-json map-json; do
        "$3" $form >"$folder/$form" || fail "test_render $form"
        is_json "$folder/$form"
    done
    "$3" map-svg >"$folder/map.svg" || fail 'test_render map-svg'
    python3 - "$folder/map.svg" <<'EOF' || fail 'a picture'
import sys, xml.etree.ElementTree as xml
picture = xml.parse(sys.argv[1]).getroot()
texts = [t.text for t in picture.iter('{http://www.w3.org/2000/svg}text')]
assert '/quote"back\\slash' in texts and '/umlaut/äöü' in texts and '/no utf-8/??(' in texts, texts
assert all(float(r.get('width')) > 0 for r in picture.iter('{http://www.w3.org/2000/svg}rect')), 'an empty rectangle'
EOF
    for form in metrics no-metrics; do
        "$3" $form >"$folder/$form" || fail "test_render $form"
        is_metrics "$folder/$form"
    done
    ;;
keeper)
    expect 1 keeper status -s "$socket"
    prints err '^gvmem: no connection to a keeper: '
    expect 1 keeper status -s "$socket" --prometheus
    prints out '^gvmem_keeper_up 0$'
    cp "$folder/out" "$folder/metrics"
    is_metrics "$folder/metrics"
    start_keeper
    expect 1 keeper start --socket "$socket"
    prints err 'gvmem-keeper: '
    start_holder "$3"

    expect 0 keeper status -s "$socket"
    prints out '^keeper +pid [0-9]+, up '
    prints out 'serves +2 clients, 3 objects, 1 device$'
    expect 0 keeper --socket "$socket" status --json
    is_json "$folder/out"
    prints out '"name": "/test/one"'
    expect 0 keeper status -s "$socket" --prometheus
    prints out '^gvmem_keeper_object_bytes\{.*object="/test/one".*\} 33554432$'
    prints out '^gvmem_keeper_objects 3$'
    cp "$folder/out" "$folder/metrics"
    is_metrics "$folder/metrics"

    expect 0 keeper ls -s "$socket"
    [ "$(cat "$folder/out")" = "$(printf '/test/one\n/test/two')" ] || fail 'names'
    expect 0 keeper ls -s "$socket" /test/t
    [ "$(cat "$folder/out")" = /test/two ] || fail 'names that begin so'
    expect 0 keeper ls -s "$socket" -l
    [ "$(wc -l <"$folder/out")" -eq 4 ] || fail 'a heading and three objects'
    prints out '^rw---- .* 8\.00M .* 1 +0 +0 s... /test/two$'
    expect 0 keeper ls -s "$socket" --json
    is_json "$folder/out"

    expect 0 models --socket "$socket" # python/tests/test_models.py has some
    [ ! -s "$folder/out" ] || fail 'models that are none'
    expect 0 models -s "$socket" --json
    [ "$(tr -d '[:space:]' <"$folder/out")" = '[]' ] || fail 'models that are none'
    expect 1 models -s "$socket.nothing"
    prints err '^gvmem: no connection to a keeper: '

    expect 0 keeper stat -s "$socket" /test/two
    prints out '^size_bytes +8388608 \(8 MiB\)$'
    prints out '^sealed +yes$'
    expect 0 keeper stat -s "$socket" /test/two --json
    is_json "$folder/out"
    prints out '"mode": 384'
    expect 1 keeper stat -s "$socket" /test/three
    prints err 'no object /test/three'

    expect 0 keeper evict -s "$socket" /test/one 4M
    [ "$(cat "$folder/out")" = '4 MiB moved to host memory' ] || fail 'evicted'
    expect 0 keeper evict -s "$socket" /test/one --json
    is_json "$folder/out"
    prints out '"evicted_bytes": 29360128'
    expect 0 keeper stat -s "$socket" /test/one
    prints out '^host_bytes +33554432 '
    expect 0 keeper evict -s "$socket" /test/two # is leased
    [ "$(cat "$folder/out")" = '0 B moved to host memory' ] || fail 'leased memory was evicted'
    expect 1 keeper evict -s "$socket" /test/three
    prints err '^gvmem: cannot evict /test/three: '

    expect 0 map -s "$socket"
    prints out '^device 0: '
    prints out '^/test/one +32\.0M +- +(\.|░)+$' # as the locale has it
    prints out '^/test/two +8\.00M +R1 +(#|█)+$'
    expect 0 map --socket "$socket" --json /test/t
    python3 - "$folder/out" <<'EOF' || fail 'map --json'
import json, sys
(two,) = json.load(open(sys.argv[1]))
assert two['name'] == '/test/two' and two['in_order'] and two['read_leases'] == 1, two
assert two['runs'] == [{'first': 0, 'chunks': 8388608 // two['chunk_bytes'], 'state': 'device'}], two
EOF
    expect 0 map --socket "$socket" --svg
    python3 -c "import sys, xml.etree.ElementTree as xml; xml.parse(sys.argv[1])" "$folder/out" || fail 'map --svg'

    expect 0 keeper trim -s "$socket" 0 16M
    expect 0 keeper trim -s "$socket" --json
    is_json "$folder/out"
    expect 0 keeper trim -s "$socket"
    [ "$(cat "$folder/out")" = '0 B given back' ] || fail 'trimmed twice'
    expect 1 keeper trim -s "$socket" 7
    for quota in '12345 1G' '12345 0' 'root none'; do
        # shellcheck disable=SC2086
        expect 0 keeper quota -s "$socket" $quota
    done
    expect 0 keeper quota -s "$socket" 12345
    prints out '^12345 +0 B +0 B$'
    expect 0 keeper quota -s "$socket"
    prints out '^USER +QUOTA +COMMITTED$'
    prints out '^12345 +0 B +0 B$'
    prints out "^$(id -un) +none +[1-9][0-9.]* [KMG]iB\$"
    expect 1 keeper quota -s "$socket" 54321
    prints err 'user 54321 has no connection, objects or quota'
    expect 2 keeper quota -s "$socket" 1x 1G
    expect 2 keeper quota -s "$socket" 4294967295 1G
    expect 2 keeper quota -s "$socket" 1 much

    expect 0 keeper drop -s "$socket" /test/one
    expect 1 keeper drop -s "$socket" /test/one
    expect 0 keeper ls -s "$socket" /test/one
    [ ! -s "$folder/out" ] || fail 'a dropped name is listed'
    end_helper
    expect 0 keeper stop -s "$socket"
    [ ! -e "$socket" ] || fail 'the socket is left behind'
    expect 1 keeper stop -s "$socket"

    # A keeper in another program, which SIGTERM does not end either.
    (
        trap '' TERM
        start_table "$4"
        trap 'kill -KILL "$helper"' EXIT
        at=${token##*:}
        expect 1 keeper stop -s "$at"
        prints err 'is part of process .* \(table_holder\)'
        got=0
        timeout 15 "$program" keeper stop -s "$at" --force --timeout 1 >"$folder/out" 2>"$folder/err" || got=$?
        [ "$got" -eq 1 ] || fail "--timeout: exit status $got" # 30 s by default
        prints err 'did not end within 1 seconds'
        end_helper
        trap - EXIT
    ) || exit 1
    ;;
top)
    expect 1 top --once -s "$socket"
    prints err '^gvmem: '
    expect 1 top --prometheus -s "$socket"
    prints out '^gvmem_keeper_up 0$'
    start_keeper
    start_holder "$3"
    expect 0 top --once -d 0.1 -s "$socket"
    prints out '^gvmem top - up .*, 2 clients, 3 objects'
    prints out ' /test/one$'
    if LC_ALL=C grep -q '[[:cntrl:]]' "$folder/out"; then fail 'control characters'; fi
    COLUMNS=60 LC_ALL=C "$program" top --once -d 0.1 -s "$socket" >"$folder/out"
    if LC_ALL=C grep -Eq '[^ -~]|.{61}' "$folder/out"; then fail 'not 60 columns of ASCII'; fi
    for order in bytes name; do
        expect 0 top --once -d 0.1 -s "$socket" --sort $order
        sed -n '/ OBJECT$/,/^$/s/.* \([^ ]\)/\1/p' "$folder/out" | tr '\n' ' '
    done >"$folder/orders"
    # The nameless one is the smallest, and before those that have names.
    [ "$(cat "$folder/orders")" = 'OBJECT /test/one /test/two 3) OBJECT 3) /test/one /test/two ' ] || fail '--sort'
    started=$(date +%s%N)
    expect 0 top --once --delay 1.6 -s "$socket"
    [ $(($(date +%s%N) - started)) -ge 1600000000 ] || fail '--delay' # 1 s by default
    expect 0 top -n 2 -d 0.1 -s "$socket"
    [ "$(grep -c '^gvmem top' "$folder/out")" -eq 2 ] || fail 'not two blocks'
    expect 0 top --once --json -d 0.1 -s "$socket"
    is_json "$folder/out"
    expect 0 top --prometheus -s "$socket"
    cp "$folder/out" "$folder/metrics"
    is_metrics "$folder/metrics"
    python3 "$here/test-top.py" "$program" -s "$socket" >"$folder/out" 2>"$folder/err" || fail 'on a terminal'

    # The keeper goes, and another comes.
    mkfifo "$folder/watched"
    "$program" top -d 0.1 -s "$socket" >"$folder/watched" &
    watcher=$!
    exec 4<"$folder/watched"
    await 'acquires *'
    # One that is stopped does not answer, and is there again when it goes on.
    pid=$("$program" keeper status -s "$socket" | sed -n 's/^keeper *pid \([0-9]*\),.*/\1/p')
    kill -STOP "$pid"
    await 'no keeper: the keeper does not answer *'
    expect 1 keeper status -s "$socket"
    prints err '^gvmem: no connection to a keeper: the keeper does not answer'
    kill -CONT "$pid"
    await 'acquires *'
    expect 0 keeper stop -s "$socket"
    await 'no keeper: *'
    start_keeper
    await 'acquires *'
    kill "$watcher"
    watcher=''
    end_helper
    expect 0 keeper stop -s "$socket"
    ;;
*)
    fail "no case $2"
    ;;
esac
