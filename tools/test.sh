#!/bin/sh
# usage: test.sh GVMEM CASE [HELPER [TRACE | HELPER]]
# One case of the program gvmem, on whatever driver GVMEM_DRIVER says. HELPER is test_render,
# test_holder, table_holder or test_pool, for those that need it.
set -eu
gvmem=$1
here=$(dirname "$0")
folder=$(mktemp -d)
socket=$folder/keeper.sock
holder=''
watcher=''
trap clean_up EXIT
trap 'exit 1' HUP INT TERM # or nothing would end the keeper

clean_up() {
    [ -z "$watcher" ] || kill "$watcher" || :
    [ -z "$holder" ] || kill "$holder" || :
    [ ! -S "$socket" ] || "$gvmem" keeper stop -s "$socket" || :
    rm -rf "$folder"
}

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
    holder=$!
    exec 3>"$folder/to_holder"
    read -r word <"$folder/from_holder" || fail 'the client could not start'
    [ "$word" = ready ] || fail "the client says $word"
}
start_table() { # HELPER
    mkfifo "$folder/to_table" "$folder/from_table"
    "$1" <"$folder/to_table" >"$folder/from_table" &
    holder=$!
    exec 3>"$folder/to_table"
    read -r token <"$folder/from_table" || fail 'the table could not be served'
}
end_holder() {
    exec 3>&-
    wait "$holder" || fail 'the client failed'
    holder=''
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
    expect 0 share -n 3 -l 16M -c 4M -v
    sums 3
    prints out '^  export .* us  4 chunks of 4 MiB$'
    [ "$(grep -c '^  import .* us  read-write$' "$folder/out")" -eq 3 ] || fail 'not three imports'
    expect 0 share -n 1 -l 8
    sums 1
    python3 "$here/test-share.py" "$gvmem" >"$folder/out" 2>"$folder/err" || fail 'a process that does not answer'
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
    for arguments in --help 'info --help' 'share --help' 'bench --help' 'bench policy --help' 'table --help'; do
        # shellcheck disable=SC2086 # words
        expect 0 $arguments
        prints out "^usage: gvmem ${arguments%--help}"
    done
    for arguments in '' nonsense --nonsense 'info --nonsense' 'info more' 'share -n 0' 'share -n' 'share -n 1x' \
        'share -l 0' 'share -l 7' 'share -l -1' 'share -l 1Q' 'share -l 99999999T' 'share -c 3M' 'share -c 2G' \
        'share --ipc --read-only' 'share more' 'share -t 0' 'bench' 'bench nonsense' 'bench vmm more' 'bench vmm -m 1' \
        'bench table' 'bench table a b' 'table' 'table a b' 'table -n x a' 'table --nonsense' \
        'bench policy -b 0' 'bench policy -s 2x' 'bench policy -g nonsense' 'bench policy -w x' 'bench policy -c 3M' 'bench policy -S -1' 'bench policy -g zipf x'; do
        # shellcheck disable=SC2086
        expect 2 $arguments
        prints err '^gvmem: '
        [ ! -s "$folder/out" ] || fail "output of gvmem $arguments"
    done
    ;;
failure) # what cannot be done is said, with status 1
    expect 1 bench vmm --quick --device 999
    prints err 'no device 999'
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
    export GVMEM_SOFTGPU="${GVMEM_SOFTGPU:-memory=512MiB,instance=bench-$$}" # a small one is measured sooner
    expect 0 bench vmm --quick --max 32M --json="$folder/record"
    prints out 'growing an array'
    is_json "$folder/record"
    python3 - "$folder/record" <<'EOF' || fail 'the figures are not those of --quick and --max'
import json, sys
figures = json.load(open(sys.argv[1]))['figures']
assert {f['bytes'] for f in figures if f['section'] == 'growth'} == {32 << 20}, 'growth'
assert {f['samples'] for f in figures if f['section'] == 'calls'} == {20}, 'calls'
EOF
    ;;
bench-appender)
    export GVMEM_SOFTGPU="${GVMEM_SOFTGPU:-memory=512MiB,sms=4,instance=bench-$$}"
    expect 0 bench appender --quick --json="$folder/record"
    is_json "$folder/record"
    python3 - "$folder/record" <<'EOF' || fail 'figures of the appender are missing'
import json, sys
record = json.load(open(sys.argv[1]))
names = {f['name']: f['median'] for f in record['figures']}
for name in ('from nothing committed, nothing expected', 'nothing expected, over everything committed', 'begin, nothing expected',
             'commits, nothing expected', 'from nothing committed', 'everything committed', 'a fixed buffer, no appender', 'managed memory, first touch',
             'from nothing, over everything committed', 'commits', 'first byte', 'a chunk committed alone',
             'everything committed, begin to finish', 'begin, from nothing committed', 'begin, everything committed',
             'from nothing, over everything committed, begin to finish'):
    assert names[name] > 0, name
assert record['benchmark'] == 'appender'
chunks = {f['chunk_bytes'] for f in record['figures']}
assert len(chunks) == 4, chunks
assert names['first byte'] < names['a chunk committed alone'], 'a kernel waits for its first chunk'
EOF
    ;;
bench-keeper) # with its own budget: the figures are there, and none of them was left out
    export GVMEM_SOFTGPU="${GVMEM_SOFTGPU:-memory=512MiB,host=1GiB,sms=1,instance=bench-$$}"
    expect 0 bench keeper --quick --trace "$folder/trace" --json="$folder/record"
    is_json "$folder/record"
    [ "$(head -n 1 "$folder/trace")" = '# gvmem-keeper trace 1' ] || fail 'no trace'
    python3 - "$folder/record" <<'EOF' || fail 'figures of the keeper are missing'
import json, sys
record = json.load(open(sys.argv[1]))
names = {f['name']: f['median'] for f in record['figures']}
for name in ('read lease, p50', 'write lease taken from another, p50', 'acquire of a clean set', 'acquire of a dirty set',
             'a pass with the hint SCAN', 'eviction, until the driver has the memory', 'growth of an object, memory from the driver'):
    assert names[name] > 0 and names[name + ', floor'] > 0, name
assert record['benchmark'] == 'keeper' and names['bytes brought in for a clean set'] > 0
EOF
    ;;
bench-table)
    expect 1 bench table gstore1:nonsense
    prints err 'attaching the table'
    start_table "$3"
    expect 0 bench table --quick "$token"
    prints out '^1000 rows, 2 columns '
    end_holder
    ;;
table)
    expect 1 table gstore1:nonsense
    prints err 'cannot attach the table'
    start_table "$3"
    expect 0 table "$token"
    prints out '^[^0-9]*id'
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
    end_holder
    ;;
bench-heap)
    pool=$3 trace=$4
    # of its own: it takes half of the device's memory
    export GVMEM_SOFTGPU="${GVMEM_SOFTGPU:-memory=4GiB,instance=bench-heap-$$}"
    expect 0 bench heap --quick --json="$folder/record"
    prints out 'made-up training'
    is_json "$folder/record"
    python3 - "$folder/record" <<'EOF' || fail 'the heap wastes memory, or figures are missing'
import json, sys
figures = {(f['section'], f['name'], f.get('bytes', 0)): f['median'] for f in json.load(open(sys.argv[1]))['figures']}
assert figures['pair, p50', 'gvm_heap', 1 << 20] > 0 and figures['threads, 16', 'gvm_heap async', 0] > 0
peak, mean = 'trace, committed peak / requested peak', 'trace, committed / requested, mean'
assert 1 <= figures[peak, 'gvm_heap, no reserve', 0] < 1.1, figures
assert figures[mean, 'gvm_heap, no reserve', 0] < 1.2, figures
assert figures[peak, 'sizes alone, rounded to powers of 2', 0] > 1.2, figures
EOF
    # 3 MiB live, then 1 more, a free of before the recording, and a comment
    printf '# gvmem heap trace 1\na 10 3145728 0 5\n# so\nf 77 5 0 6\na 20 1048576 3f 7\nf 10 3145728 0 9\n' >"$folder/trace"
    expect 0 bench heap --quick --trace "$folder/trace"
    prints out '3 events, 2 streams, peak 4 MiB'
    printf 'a 10 3145728 0 5\n' >"$folder/headless"
    expect 1 bench heap --quick -t "$folder/headless"
    prints err 'headless, line 1: not a heap trace'
    printf '# gvmem heap trace 1\na 10 64 0 5\na 10 64 0 5\n' >"$folder/twice"
    expect 1 bench heap --quick -t "$folder/twice"
    prints err 'line 3: a block is allocated that is live already'
    printf '# gvmem heap trace 1\nb 10 64 0 5\n' >"$folder/odd"
    expect 1 bench heap --quick -t "$folder/odd"
    prints err 'line 2: not an event'
    printf '# gvmem heap trace 1\n' >"$folder/empty"
    expect 1 bench heap --quick -t "$folder/empty"
    prints err 'no events'

    # packed: the same; not packed at all; cut off; not there
    gzip -c "$folder/trace" >"$folder/trace.gz"
    expect 0 bench heap --quick --trace "$folder/trace.gz"
    prints out '3 events, 2 streams, peak 4 MiB'
    cp "$folder/trace" "$folder/plain.gz"
    expect 1 bench heap --quick -t "$folder/plain.gz"
    prints err 'plain.gz, line 0: the file cannot be read to its end'
    head -c 200000 "$trace" >"$folder/cut.gz"
    expect 1 bench heap --quick -t "$folder/cut.gz"
    prints err 'cut.gz, line [0-9]+: '
    expect 1 bench heap --quick -t "$folder/none.gz"
    prints err 'none.gz, line 0: the file cannot be read to its end'

    # A pool of a library beside it, on the trace of a real program.
    expect 0 bench heap --quick --pool "$pool" --trace "$trace" --json="$folder/record"
    python3 - "$folder/record" <<'EOF' || fail 'a trace is replayed badly, or figures of a pool are missing'
import json, sys
record = json.load(open(sys.argv[1]))
figures = {(f['section'], f['name'], f.get('bytes', 0)): f['median'] for f in record['figures']}
peak, mean = 'trace, committed peak / requested peak', 'trace, committed / requested, mean'
assert figures['trace', 'events', 0] >= 100000 and not record['notes'], record['notes']
assert 1 <= figures[peak, 'gvm_heap', 0] < figures[peak, 'sizes alone, rounded to powers of 2', 0], figures
assert figures[peak, 'gvm_heap, no reserve', 0] < 1.1, figures  # with a reserve, which depends on time: heap_replay holds 1.1
assert figures[peak, 'test pool', 0] == 1 and figures[mean, 'test pool', 0] == 1, figures
assert figures['pair, p50', 'test pool', 1 << 20] > 0 and figures['threads, 16', 'test pool', 0] > 0
assert figures['trace, an event', 'test pool', 0] > 0 and figures['trace, an event', 'cuMemAllocAsync', 0] > 0, figures
EOF
    [ ! -s "$folder/err" ] || fail 'the pool complains'
    export TEST_POOL=short
    expect 0 bench heap --quick --pool "$pool" --trace "$folder/trace"
    prints out 'test pool failed: too little memory for it'
    export TEST_POOL=closed
    expect 1 bench heap --quick -p "$pool" -t "$folder/trace"
    prints err 'left out: this pool is closed'
    prints out '3 events, 2 streams'
    expect 1 bench heap --quick -p "$folder/nothing.so" -t "$folder/trace"
    prints err 'nothing.so is left out: '
    expect 1 bench heap --quick -p "$(cc -print-file-name=libm.so.6)" -t "$folder/trace"
    prints err 'it does not have the functions'
    expect 2 bench heap -p 1 -p 2 -p 3 -p 4 -p 5 -p 6 -p 7 -p 8 -p 9
    prints err 'no more than 8 pools'
    ;;
bench-pools)
    # The whole script, on the software GPU: a pool of a library, one of Python, and what is not there.
    [ "${GVMEM_DRIVER:-}" = soft ] || exit 77
    export GVMEM_SOFTGPU="${GVMEM_SOFTGPU:-memory=1GiB,instance=bench-pools-$$}"
    printf '# gvmem heap trace 1\na 10 3145728 0\nf 77 5 0\na 20 1048576 3f\nf 10 3145728 0\nf 20 1048576 3f\n' | gzip >"$folder/trace.gz"
    scripts=$here/../scripts
    "$scripts/bench-pools.py" -q -t "$folder/trace.gz" -p "$3" -p "$folder/none.so" -o "$folder/record" "$(dirname "$gvmem")/.." \
        >"$folder/out" 2>"$folder/err" || fail 'bench-pools.py fails'
    python3 - "$folder/record" <<'EOF' || fail 'figures of pools are missing'
import json, sys
record = json.load(open(sys.argv[1]))
figures = {(f['section'], f['name'], f.get('bytes', 0)): f['median'] for f in record['figures']}
assert len(figures) == len(record['figures'])
for name in ('gvm_heap', 'cuMemAllocAsync', 'test pool', 'fake'):
    assert figures['pair, p50', name, 16384] > 0, name
    assert name == 'cuMemAllocAsync' or figures['threads, 16', name, 0] > 0, name
peak = 'trace, committed peak / requested peak'
assert figures[peak, 'test pool', 0] == 1 and figures[peak, 'fake', 0] == 1.25, figures  # 5 MiB for 4
assert figures['trace, committed / requested at the peak', 'fake', 0] == 1.25
assert set(record['left_out']) == {'torch', 'rmm', 'none.so'} and 'cannot open' in record['left_out']['none.so'], record['left_out']
assert record['device']['software'] and record['versions']['python'] and record['trace'] == 'trace.gz'
EOF
    prints out '^left out: torch: '
    # A pool that brings the process down leaves the others measured.
    TEST_POOL=crash "$scripts/bench-pools.py" -q -t "$folder/trace.gz" -p "$3" -o "$folder/record" "$(dirname "$gvmem")/.." \
        >"$folder/out" 2>"$folder/err" || fail 'bench-pools.py fails'
    prints out '^left out: libtest-pool.so: it was ended by signal'
    prints out '^left out: all in one process: it was ended by signal'
    prints out '^gvm_heap async '
    ;;
bench-policy)
    expect 0 bench policy --generate cyclic --write "$folder/cyclic"
    expect 0 bench policy -s 0.5 -b 64M --json="$folder/record" "$folder/cyclic"
    prints out '^cyclic .*50%'
    is_json "$folder/record"
    python3 - "$folder/record" <<'EOF' || fail 'a cyclic scan does not keep its share'
import json, sys
for row in json.load(open(sys.argv[1]))['rows']:
    best = row['belady']['hit_ratio']
    assert 0 < row['keeper']['hit_ratio'] <= best and row['keeper']['hit_ratio'] > 0.98 * best, row
    assert row['lru']['hit_ratio'] == 0, row
EOF
    expect 0 bench policy -b 64M -b 128M -c 4M --budget-share 0.5 --json="$folder/record" "$folder/cyclic"
    python3 - "$folder/record" <<'EOF' || fail '--budget, --budget-share, --chunk'
import json, sys
record = json.load(open(sys.argv[1]))
footprint = record['rows'][0]['footprint_bytes']
assert [row['budget_bytes'] for row in record['rows']] == [64 << 20, 128 << 20, footprint // 2], record['rows']
assert record['chunk_bytes'] == 4 << 20, record
EOF
    # An object of 6 MiB in chunks of 4 MiB takes 8 MiB.
    printf '# gvmem-keeper trace 1\n0 1 6291456 1 0\n' >"$folder/six"
    for chunk in 2M 4M; do
        expect 0 bench policy --chunk $chunk -b 64M --json="$folder/record" "$folder/six"
        python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["rows"][0]["footprint_bytes"] >> 20)' "$folder/record"
    done >"$folder/sizes"
    [ "$(cat "$folder/sizes")" = "$(printf '6\n8')" ] || fail '--chunk'
    for seed in 1 2; do
        expect 0 bench policy --generate zipf --seed $seed --write "$folder/seed$seed"
    done
    cmp -s "$folder/seed1" "$folder/seed2" && fail '--seed'
    expect 0 bench policy --generate scan -b 64M
    [ "$(grep -c ' 64 MiB ' "$folder/out")" -eq 1 ] || fail '--generate'
    printf '# gvmem-keeper trace 1\n0 1 2097152 1 0\n1 1 4194304 3 2\n0 1 4194304 1 0\n' >"$folder/two"
    expect 0 bench policy -s 100% --json "$folder/two"
    is_json "$folder/out"
    printf '# gvmem-keeper trace 1\n0 1 2097152 1\n' >"$folder/short"
    expect 1 bench policy "$folder/short"
    prints err 'short:2'
    expect 1 bench policy /dev/null
    prints err 'no trace'
    ;;
keeper-usage)
    for arguments in 'keeper --help' 'keeper ls --help' 'keeper start --help' 'top --help'; do
        # shellcheck disable=SC2086 # words
        expect 0 $arguments
        prints out '^usage: gvmem'
    done
    expect 0 keeper stop --help
    prints out '^usage: gvmem keeper'
    for arguments in keeper 'keeper nonsense' 'keeper --json status' 'keeper status more' 'keeper status --long' \
        'keeper status -j -p' 'keeper stat' 'keeper stat /a /b' 'keeper evict' 'keeper evict /a 1M more' 'keeper drop' \
        'keeper drop /a --json' 'keeper stop -t 0' 'keeper quota 1' 'keeper start --nonsense' 'keeper ls --socket' \
        'top more' 'top -d 0' 'top -d 1x' 'top -d nan' 'top -n -1' 'top -o size' 'top --nonsense'; do
        # shellcheck disable=SC2086
        expect 2 $arguments
        prints err '^gvmem(-keeper)?: '
        [ ! -s "$folder/out" ] || fail "output of gvmem $arguments"
    done
    ;;
render) # what is made of a made-up snapshot
    for form in json top-json list-json; do
        "$3" $form >"$folder/$form" || fail "test_render $form"
        is_json "$folder/$form"
    done
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

    expect 0 keeper stat -s "$socket" /test/two
    prints out '^bytes +8388608 \(8 MiB\)$'
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
    expect 2 keeper quota -s "$socket" 1x 1G
    expect 2 keeper quota -s "$socket" 4294967295 1G
    expect 2 keeper quota -s "$socket" 1 much

    expect 0 keeper drop -s "$socket" /test/one
    expect 1 keeper drop -s "$socket" /test/one
    expect 0 keeper ls -s "$socket" /test/one
    [ ! -s "$folder/out" ] || fail 'a dropped name is listed'
    end_holder
    expect 0 keeper stop -s "$socket"
    [ ! -e "$socket" ] || fail 'the socket is left behind'
    expect 1 keeper stop -s "$socket"

    # A keeper in another program, which SIGTERM does not end either.
    (
        trap '' TERM
        start_table "$4"
        trap 'kill -KILL "$holder"' EXIT
        at=${token##*:}
        expect 1 keeper stop -s "$at"
        prints err 'is part of process .* \(table_holder\)'
        got=0
        timeout 15 "$gvmem" keeper stop -s "$at" --force --timeout 1 >"$folder/out" 2>"$folder/err" || got=$?
        [ "$got" -eq 1 ] || fail "--timeout: exit status $got" # 30 s by default
        prints err 'did not end within 1 seconds'
        end_holder
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
    COLUMNS=60 LC_ALL=C "$gvmem" top --once -d 0.1 -s "$socket" >"$folder/out"
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
    python3 "$here/test-top.py" "$gvmem" -s "$socket" >"$folder/out" 2>"$folder/err" || fail 'on a terminal'

    # The keeper goes, and another comes.
    mkfifo "$folder/watched"
    "$gvmem" top -d 0.1 -s "$socket" >"$folder/watched" &
    watcher=$!
    exec 4<"$folder/watched"
    await 'acquires *'
    # One that is stopped answers nobody, and is there again when it goes on.
    pid=$("$gvmem" keeper status -s "$socket" | sed -n 's/^keeper *pid \([0-9]*\),.*/\1/p')
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
    end_holder
    expect 0 keeper stop -s "$socket"
    ;;
*)
    fail "no case $2"
    ;;
esac
