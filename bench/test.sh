#!/bin/sh
# usage: test.sh GVMEM-BENCH CASE [HELPER [TRACE]]
# One case of the program gvmem-bench, on whatever driver GVMEM_DRIVER says. HELPER is table_holder or
# test_pool, for those that need it.
set -eu
program=$1
here=$(dirname "$0")
clean_up() {
    [ -z "$helper" ] || kill "$helper" || :
    rm -rf "$folder"
}
# shellcheck source=tests/lib/program.sh
. "$here/../tests/lib/program.sh"

left_out() { # WHY; with CI set, what setup.sh installs is not to be missing
    [ -z "${CI:-}" ] || fail "$1"
    exit 77
}

# bench-NAME.py with a server of its own and these options: $folder/record. Left out where there is no PostgreSQL or no NumPy.
measure_sql() {
    name=$1
    shift
    build=$(cd "$(dirname "$program")/.." && pwd)
    [ -z "$(BUILD=$build "$here/../scripts/pg-server.sh" why-not)" ] || left_out 'there is no PostgreSQL'
    for python in python3 /usr/bin/python3 ''; do
        [ -n "$python" ] || left_out 'there is no NumPy'
        ! "$python" -c 'import numpy' 2>/dev/null || break
    done
    PYTHONDONTWRITEBYTECODE=1 "$python" "$here/bench-$name.py" "$@" -o "$folder/record" "$build" >"$folder/out" 2>"$folder/err" || fail "bench-$name.py fails"
}

case $2 in
usage)
    for arguments in --help 'policy --help'; do
        # shellcheck disable=SC2086 # words
        expect 0 $arguments
        prints out "^usage: gvmem-bench ${arguments%--help}"
    done
    for arguments in '' nonsense 'vmm more' 'vmm -m 1' table 'table a b' 'policy -b 0' 'policy -s 2x' \
        'policy -g nonsense' 'region nonsense' 'region maps nonsense' 'region -s 0' 'region --devices 2' 'region --devices 2 maps' 'region --devices 2 bfs bfs' 'region --devices 1 bfs' 'vmm --devices 2' 'region --processes bfs' 'region -b 1' 'region -x 4M -x 4M -x 4M -x 4M -x 4M' 'policy -w x' 'policy -c 3M' 'policy -S -1' 'policy -g zipf x'; do
        # shellcheck disable=SC2086
        expect 2 $arguments
        prints err '^gvmem-bench: '
        [ ! -s "$folder/out" ] || fail "output of gvmem-bench $arguments"
    done
    ;;
failure) # what cannot be done is said, with status 1
    expect 1 vmm --quick --device 999
    prints err 'no device 999'
    ;;
vmm)
    export GVMEM_SOFTGPU="${GVMEM_SOFTGPU:-memory=512MiB,instance=bench-$$}" # a small one is measured sooner
    expect 0 vmm --quick --max 32M --json="$folder/record"
    prints out 'growing an array'
    is_json "$folder/record"
    python3 - "$folder/record" <<'EOF' || fail 'the figures are not those of --quick and --max'
import json, sys
figures = json.load(open(sys.argv[1]))['figures']
assert {f['bytes'] for f in figures if f['section'] == 'growth'} == {32 << 20}, 'growth'
assert {f['samples'] for f in figures if f['section'] == 'calls'} == {20}, 'calls'
copies = [f for f in figures if f['section'] == 'transfers']
assert {f['bytes'] for f in copies} == {4 << 10, 64 << 10, 1 << 20, 16 << 20}, 'sizes of copies'
for name in ('H2D pageable', 'H2D pinned queued, 4 streams', 'D2H pageable queued', 'D2H pinned', 'D2D queued'):
    for kind in ('VMM', 'cuMemAlloc', 'VMM / cuMemAlloc'):
        assert all(f['median'] > 0 for f in copies if f['name'] == f'{name} {kind}'), name
    assert len([f for f in copies if f['name'] == f'{name} VMM']) == 4, name
assert len(copies) == 4 * (15 * 3 + 1), len(copies)
EOF
    ;;
pglz)
    export GVMEM_SOFTGPU="${GVMEM_SOFTGPU:-memory=512MiB,sms=2,instance=bench-$$}"
    expect 0 pglz --quick --json="$folder/record"
    is_json "$folder/record"
    python3 - "$folder/record" <<'EOF' || fail 'figures of pglz are missing'
import json, sys
figures = json.load(open(sys.argv[1]))['figures']
rates = [f for f in figures if f['unit'] == 'GB/s']
assert len(rates) == 3 * 4 and all(f['median'] > 0 for f in rates), rates
assert all(0 < f['median'] < 1 for f in figures if f['unit'] == 'ratio'), figures
EOF
    ;;
search)
    export GVMEM_SOFTGPU="${GVMEM_SOFTGPU:-memory=512MiB,sms=2,instance=bench-$$}"
    expect 0 search --quick --json="$folder/record"
    is_json "$folder/record"
    python3 - "$folder/record" <<'EOF' || fail 'figures of search are missing'
import json, sys
figures = json.load(open(sys.argv[1]))['figures']
assert len(figures) == 3 * 6 and all(f['median'] > 0 and f['unit'] == 'us' for f in figures), figures
assert sum('from 1000 queries' in f['name'] for f in figures) == 6, figures
EOF
    ;;
region)
    export GVMEM_SOFTGPU="${GVMEM_SOFTGPU:-memory=512MiB,host=1GiB,sms=2,instance=bench-$$}"
    expect 0 region --quick --json="$folder/record" maps fetch faults resolve experts policies clean callbacks
    is_json "$folder/record"
    python3 - "$folder/record" <<'EOF' || fail 'figures of regions are missing'
import json, sys
record = json.load(open(sys.argv[1]))
sections = {}
for f in record['figures']:
    sections.setdefault(f['section'], []).append(f)
counts = {name.removeprefix('region '): len(figures) for name, figures in sections.items()}
assert counts == {'maps': 7 * 3, 'faults': 2 * 4 * 2, 'fetch': 2 * 2 * 5, 'resolve': 3 * 2 * 3 * 6, 'experts': 3 + 2 * 11,
                  'policies': 9 * (3 + 6), 'clean': 2 * 3 * 2 * 5 + 2 * 3 * 2, 'callbacks': 2 * 2 + 5}, counts
may_be_0 = ('missed', 'hits', 'share')
assert all(f['median'] > 0 for f in record['figures'] if not any(word in f['name'] for word in may_be_0)), record['figures']

# What is counted does not depend on times: what was missed in lists is what was wanted, and no policy hits more than the best choice.
figures = {(f['section'], f['name'], f.get('bytes', 0)): f['median'] for f in record['figures']}
for share, counted in ((100, 100), (20, 18.75), (0.1, 1.5625)):
    assert figures['region resolve', f'missed of {share:g} %, 2 requests, by count', 576] == counted, (share, counted)
def hits(pattern, policy):
    return figures['region policies', f'{pattern}, {policy}, hits', 4096]
for pattern in ('scan, hot half', 'cyclic scan', 'loop of 1.1', 'Zipf 0.8', 'Zipf 1.0', 'BFS', 'experts', 'shifting hot set', 'sliding hot set'):
    for policy in ('LIRS', 'CLOCK', 'LRU of 8', 'FIFO', 'NFU', 'STATIC', 'exact LRU', 'S3-FIFO'):
        assert 0 <= hits(pattern, policy) <= hits(pattern, 'best choice') + 0.02, (pattern, policy)
    assert abs(hits(pattern, 'LRU of 8') - hits(pattern, 'exact LRU')) < 0.03, pattern
assert hits('cyclic scan', 'STATIC') > 0.45 and hits('cyclic scan', 'LIRS') > 0.35 and hits('cyclic scan', 'CLOCK') < 0.1, figures
EOF
    expect 0 region --quick --extent 32M --budget 4M --scale 512 --json="$folder/record" fetch experts
    prints out '^  fetches have a budget of 4 MiB$'
    prints out '32 MiB  *512 B'
    [ "$(grep -c '"bytes": 5184,' "$folder/record")" -gt 0 ] || fail '--scale'
    [ "$(grep -c '"section": "region policies"' "$folder/record")" -eq 0 ] || fail 'a part that is not wanted is measured'
    ;;
graphs) # of region: results are compared with the CPU's by the program itself
    export GVMEM_SOFTGPU="${GVMEM_SOFTGPU:-memory=512MiB,host=1GiB,sms=2,warp=8,threads=32,instance=bench-$$}"
    expect 0 region --quick --json="$folder/record" bfs pagerank
    is_json "$folder/record"
    python3 - "$folder/record" <<'EOF' || fail 'figures of graphs are missing'
import json, sys
figures = json.load(open(sys.argv[1]))['figures']
for section in ('region bfs', 'region pagerank'):
    names = [(f['name'], f['unit'], f.get('bytes')) for f in figures if f['section'] == section]
    assert len(names) == len(set(names)), 'figures of one name'
    of = {(f['name'], f['unit']): f['median'] for f in figures if f['section'] == section}
    for graph in ('R-MAT 12 x 16', 'uniform 10 x 16', 'grid 6'):
        for way in ('STATIC, in core', 'STATIC, zero-copy', 'STATIC, partition', 'STATIC, static share', 'STATIC, regions', 'STATIC, regions, TLB',
                    'LIRS, regions', 'CLOCK, zero-copy', 'CLOCK, regions', 'CLOCK, regions, TLB'):
            assert of[f'{graph}, budget 2 MiB, {way}', 'us'] > 0, (graph, way)
    # Half of the regions stay, and no policy hits more than the best choice.
    for policy in ('LIRS', 'CLOCK', 'FIFO', 'NFU', 'STATIC'):
        hits, best = (of[f'R-MAT 13 x 128, {policy}, beside the best choice', unit] for unit in ('hit ratio', 'hit ratio, best'))
        assert 0 < hits <= best + 0.02, (section, policy, hits, best)
        assert policy != 'STATIC' or 0.45 < hits < 0.55, (section, hits)
    assert all(value > 0 for value in of.values()), of
assert len([f for f in figures if f['name'].startswith('series, ') and f['unit'] == 'GTEPS']) == 5 * 2
EOF
    # Files: the same graph in both forms, and what is none.
    printf 'Package: a\nDepends: b (>= 1),\n c | d:any\n\nPackage: b\nPre-Depends: d\nRecommends: a\n\nPackage: e\n' >"$folder/packages"
    python3 "$(dirname "$0")/debian-graph.py" "$folder/packages" >"$folder/packages.metis" || fail debian-graph.py
    printf '4 4\n2 3 4\n1 4\n1\n1 2\n' | cmp - "$folder/packages.metis" || fail 'the graph of packages'
    printf '%%%%MatrixMarket matrix coordinate real symmetric\n%% a comment\n4 4 4\n2 1 1.5\n3 1 2\n4 1 -1\n4 2 7e3\n' >"$folder/packages.mtx"
    printf '%% weights\n4 4 011\n9 2 1 3 1 4 1\n9 1 1 4 1\n9 1 1\n9 1 1 2 1\n' >"$folder/weights.metis"
    for file in packages.metis packages.mtx weights.metis; do
        expect 0 region --quick --json="$folder/record" --graph "$folder/$file" bfs pagerank
        [ "$(grep -c "\"name\": \"$file, budget 2 MiB, CLOCK, regions\"" "$folder/record")" -gt 0 ] || fail "no figures of $file"
    done
    for lines in '' '4 4\n2 3 4\n1 4\n1\n' '4 4\n2 3 4\n1 5\n1\n1 2\n' '4 5\n2 3 4\n1 4\n1\n1 2\n' '4 4\n2 3 x\n1 4\n1\n1 2\n' \
        '4 4\n2 3 4\n0 4\n1\n1 2\n' '2 0\n\n\n' '%%%%MatrixMarket matrix array real general\n1 1\n1\n' '99999999999 1\n'; do
        # shellcheck disable=SC2059
        printf "$lines" >"$folder/wrong"
        expect 1 region --quick --graph "$folder/wrong" bfs
        prints out "cannot read $folder/wrong, line "
    done
    expect 1 region --quick --graph "$folder/none" bfs
    prints out "cannot read $folder/none: "
    ;;
region-devices) # levels are compared with those of one device, and these with the CPU's, by the program itself
    for count in 2 4; do
        for processes in '' --processes; do
            what="$count devices${processes:+, a process each}"
            export GVMEM_SOFTGPU="devices=$count,peers=1,memory=512MiB,host=1GiB,sms=2,warp=8,threads=32,instance=bench-$$-$count$processes"
            expect 0 region --devices $count $processes --json="$folder/record" bfs
            is_json "$folder/record"
            python3 - "$folder/record" "$what" <<'EOF' || fail "figures of $what are missing"
import json, sys
figures = json.load(open(sys.argv[1]))['figures']
of = {(f['name'], f['unit']): f['median'] for f in figures}
assert len(of) == len(figures) == 1 + 2 * 8 and all(value > 0 for value in of.values()), of
for policy in ('STATIC', 'LIRS'):
    name = f'R-MAT 13 x 256, budget {2 * int(sys.argv[2][0])} MiB, {policy}'
    assert of[f'{name}, one device', 'us'] > of[f'{name}, one device', 'G edges read/s'], of
    # Frames of all devices together are as many as those of one.
    assert of[f'{name}, one device', 'bytes of frames'] == of[f'{name}, {sys.argv[2]}', 'bytes of frames'], of
    assert of[f'{name}, {sys.argv[2]}', 'times one device'] > 0 and of[f'{name}, {sys.argv[2]}, merging', 'us'] > 0, of
EOF
        done
    done
    # A graph of a file, whose levels are few and whose budget holds it; fewer devices than are wanted: nobody waits for those that are not there.
    printf '4 4\n2 3 4\n1 4\n1\n1 2\n' >"$folder/four.metis"
    expect 0 region --devices 4 --budget 16M --json="$folder/record" --graph "$folder/four.metis" bfs
    [ "$(grep -c '"name": "four.metis, budget 16 MiB, LIRS, 4 devices"' "$folder/record")" -gt 0 ] || fail 'no figures of a file'
    for processes in '' --processes; do
        # shellcheck disable=SC2086
        expect 1 region --devices 5 $processes bfs
        prints err 'no device 4'
    done
    ;;
region-kernels) # results are compared with the CPU's by the program itself
    export GVMEM_SOFTGPU="${GVMEM_SOFTGPU:-memory=512MiB,host=1GiB,sms=2,threads=256,instance=bench-$$}"
    expect 0 region --quick --json="$folder/record" kernels matmul
    is_json "$folder/record"
    python3 - "$folder/record" <<'EOF' || fail 'figures of kernels are missing'
import json, sys
figures = json.load(open(sys.argv[1]))['figures']
of = {(f['name'], f['unit']): f['median'] for f in figures}
for name in 'transpose scan reduction histogram hotspot pathfinder nearest kmeans sparse triad'.split():
    assert of[f'{name}, plain', 'us'] > 0 and of[f'{name}, regions', 'us'] > 0 and of[name, 'ratio'] > 0, name
assert all(of[f'regions, {way}', 'ratio to no regions'] > 0 for way in ('all in frames', 'half the memory')), of
EOF
    ;;
appender)
    export GVMEM_SOFTGPU="${GVMEM_SOFTGPU:-memory=512MiB,sms=4,threads=1,instance=bench-$$}" # figures of one thread: it waits for no others
    for _ in 1 2 3; do # of the two times that are compared, on a busy machine either can be the longer one
        expect 0 appender --quick --json="$folder/record"
        is_json "$folder/record"
        code=0
        python3 - "$folder/record" <<'EOF' || code=$?
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
sys.exit(0 if names['first byte'] < names['a chunk committed alone'] else 3)
EOF
        [ "$code" -eq 3 ] || break
    done
    [ "$code" -ne 3 ] || fail 'a kernel waits for its first chunk'
    [ "$code" -eq 0 ] || fail 'figures of the appender are missing'
    ;;
query) # counts of rows and groups are checked by the program itself
    export GVMEM_SOFTGPU="${GVMEM_SOFTGPU:-memory=512MiB,sms=2,instance=bench-$$}"
    expect 0 query --quick --json="$folder/record"
    is_json "$folder/record"
    python3 - "$folder/record" <<'EOF' || fail 'figures of queries are missing'
import json, sys
record = json.load(open(sys.argv[1]))
names = {f['name']: f['median'] for f in record['figures']}
for name in ('count, filter on one column', 'sum of products, three filters', 'filter and mark', 'mark of all rows',
             'filter and emit, few within bound', '8 groups, count and sum of doubles',
             '10000 groups, count and sum of integers'):
    assert names[name] > 0 and names[name + ', plain read'] > 0 and names[name + ', before'] > 0, name
assert record['benchmark'] == 'query' and not record['notes'], record['notes']
EOF
    ;;
keeper) # with its own budget: the figures are there, and none of them was left out
    export GVMEM_SOFTGPU="${GVMEM_SOFTGPU:-memory=512MiB,host=1GiB,sms=1,instance=bench-$$}"
    expect 0 keeper --quick --trace "$folder/trace" --json="$folder/record"
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
    GVMEM_SOFTGPU="devices=2,memory=512MiB,host=1GiB,sms=1,instance=bench-$$.2"
    expect 0 keeper --quick --lender 1 --json="$folder/record"
    python3 - "$folder/record" <<'EOF' || fail 'the other device has lent no memory'
import json, sys
lent = [f['median'] for f in json.load(open(sys.argv[1]))['figures'] if f['name'] == 'lent by the other device before it']
assert len(lent) == 2 and min(lent) > 0, lent
EOF
    ;;
models) # every swap moved the model, and nobody read wrong words (exit status)
    export GVMEM_SOFTGPU="${GVMEM_SOFTGPU:-memory=512MiB,host=1GiB,sms=1,instance=bench-$$}"
    expect 0 models --quick --json="$folder/record"
    is_json "$folder/record"
    python3 - "$folder/record" <<'EOF' || fail 'figures of models are missing'
import json, sys
record = json.load(open(sys.argv[1]))
names = {f['name']: f['median'] for f in record['figures']}
for name in ('swap, 1 process', 'swap, 2 processes', 'swap, 4 processes', 'swap, 8 processes', 'exchange of written models',
             'connect, open, acquire, read'):
    assert names[name] > 0 and names[name + ', floor'] > 0, name
assert names['swap, 8 processes, by chunk size'] > 0 and not record['notes'], record['notes']
EOF
    ;;
partitions) # tables over two GPUs, by NumPy: answers are right and computed by both (exit status), and all figures are there
    [ "${GVMEM_DRIVER:-}" = soft ] || exit 77
    export GVMEM_SOFTGPU="${GVMEM_SOFTGPU:-devices=2,memory=512MiB,sms=1,instance=bench-$$}"
    measure_sql partitions --quick -n 4000 -p 4 -r 2
    python3 - "$folder/record" <<'EOF' || fail 'figures of partitions are missing'
import json, sys
record = json.load(open(sys.argv[1]))
figures = {(f['name'], f['way']): f for f in record['figures']}
for name in ('count with a condition', 'sum of an expression', 'GROUP BY, 100 groups', 'report: seven aggregates in 100 groups', 'ORDER BY LIMIT 10'):
    for more, rows in (('', 1000), (', two rows in each', 2)):
        for way, times in (('all', 4), ('one', 1)):
            figure = figures[name + more, way]
            assert figure['rows'] == rows * times and figure['partitions'] == times and figure['rows_a_second'] > 0 and len(figure['samples']) == 2, figure
assert len(figures) == 20 and record['partitions'] == 4 and len(record['devices']) == 2, record
EOF
    ;;
fingerprints) # by NumPy: what the GPU and the others that are here find is right (exit status), and all figures are there
    [ "${GVMEM_DRIVER:-}" = soft ] || exit 77
    export GVMEM_SOFTGPU="${GVMEM_SOFTGPU:-memory=512MiB,sms=2,instance=bench-$$}"
    measure_sql fingerprints -n 500 -r 1
    python3 - "$folder/record" <<'EOF' || fail 'figures of fingerprints are missing'
import json, sys
record = json.load(open(sys.argv[1]))
figures = {(f['way'], f['name']): f for f in record['figures']}
names = ['the 10 nearest', 'all of a similarity of 0.7', 'the 10 nearest of each of 1000 at once']
assert [name for way, name in figures if way == 'gstore'] == names, figures
assert all(f['rows'] == 500 and f['median'] > 0 for f in figures.values()), figures
assert ('FPSim2', names[2]) in figures or record['fpsim2'] is None, record
assert ('rdkit', names[1]) in figures or not record['cartridge'], record
EOF
    ;;
costs) # constants follow from the times: each is there, and each plan that the planner chose was timed
    [ "${GVMEM_DRIVER:-}" = soft ] || exit 77
    export GVMEM_SOFTGPU="${GVMEM_SOFTGPU:-memory=512MiB,sms=2,instance=bench-$$}"
    measure_sql costs -n 1000 -r 1
    python3 - "$folder/record" <<'EOF' || fail 'figures of costs are missing'
import json, sys
record = json.load(open(sys.argv[1]))
figures, names = record['figures'], {'startup', 'instruction', 'group', 'probe', 'page'}
assert set(record['constants']) == set(record['fitted']) == names and record['constants']['startup'] > 0, record['constants']
assert {f['rows'] for f in figures} == {1, 1000} and len({f['name'] for f in figures}) >= 10, figures
assert all(f['local_cost'] > 0 and min(f['median'][way] for way in {'local', 'GPU', f['choice']}) > 0 for f in figures), figures
assert all(0 <= found['wrong'] <= found['of'] == len(figures) and found['worst'] >= 1 for found in record['outcomes'].values()), record['outcomes']
EOF
    ;;
python-models) # by NumPy, on the software GPU: every swap moved the model, nobody read wrong bytes (exit status), and hits are counted rightly
    [ "${GVMEM_DRIVER:-}" = soft ] || exit 77
    export GVMEM_SOFTGPU="${GVMEM_SOFTGPU:-memory=512MiB,host=1GiB,instance=bench-$$}"
    build=$(cd "$(dirname "$program")/.." && pwd)
    BUILD=$build python3 "$here/../tests/python/package.py" "$here/bench-models.py" --quick -o "$folder/record" "$build" >"$folder/out" 2>"$folder/err" || {
        ! grep -q '^there is no Python' "$folder/err" || left_out 'there is no Python'
        cat "$folder/out" "$folder/err"
        fail 'bench-models.py fails'
    }
    PYTHONDONTWRITEBYTECODE=1 python3 - "$folder/record" "$here" <<'EOF' || fail 'figures of models in Python are missing'
import importlib, json, sys
record = json.load(open(sys.argv[1]))
figures = {(f['section'], f['name']): f for f in record['figures']}
for count in ('1 process', '2 processes'):
    assert figures['swap', f'sleep of one and wake of the other, {count}']['median'] > 0
    assert figures['swap', f'bytes brought in, {count}']['min'] > 0.9 * 2**-6, 'models of 16 MiB'
    assert figures['swap', f'host memory of the keeper, {count}']['median'] == 2**-5
assert figures['restart', 'connect, attach, a first kernel']['samples'] == 2
assert 0 < figures['requests', 'hit ratio, keeper: bytes that were there']['median'] <= 1
assert set(record['left_out']) == {'saver', 'copies', 'tms'} and record['device']['software'], record['left_out']
sys.path.insert(0, sys.argv[2])
bench = importlib.import_module('bench-models')
around = [0, 1, 2] * 3
assert bench.lru_hits(around, 2, 0) == 0 and bench.belady_hits(around, 2, 0) == 3 and bench.belady_hits(around, 3, 3) == 6
assert sorted(set(bench.zipf_sequence(8, 1000, 1))) == list(range(8))
EOF
    ;;
table)
    expect 1 table gstore1:nonsense
    prints err 'attaching the table'
    start_table "$3"
    expect 0 table --quick "$token"
    prints out '^1000 rows, 2 columns '
    end_helper
    ;;
heap)
    pool=$3 trace=$4
    # of its own: it takes half of the device's memory
    export GVMEM_SOFTGPU="${GVMEM_SOFTGPU:-memory=4GiB,instance=bench-heap-$$}"
    expect 0 heap --quick --json="$folder/record"
    prints out 'made-up training'
    is_json "$folder/record"
    python3 - "$folder/record" <<'EOF' || fail 'the heap wastes memory, or figures are missing'
import json, sys
figures = {(f['section'], f['name'], f.get('bytes', 0)): f['median'] for f in json.load(open(sys.argv[1]))['figures']}
assert figures['pair, p50', 'gvm_heap', 1 << 20] > 0 and figures['threads, 16', 'gvm_heap async', 0] > 0
peak, mean = 'trace, committed peak / requested peak', 'trace, committed / requested, mean'
assert 1 <= figures[peak, 'gvm_heap, none kept', 0] < 1.1, figures
assert figures[mean, 'gvm_heap, none kept', 0] < 1.2, figures
assert figures[peak, 'sizes alone, rounded to powers of 2', 0] > 1.2, figures
EOF
    # 3 MiB live, then 1 more, a free of before the recording, and a comment
    printf '# gvmem heap trace 1\na 10 3145728 0 5\n# so\nf 77 5 0 6\na 20 1048576 3f 7\nf 10 3145728 0 9\n' >"$folder/trace"
    expect 0 heap --quick --trace "$folder/trace"
    prints out '3 events, 2 streams, peak 4 MiB'
    printf 'a 10 3145728 0 5\n' >"$folder/headless"
    expect 1 heap --quick -t "$folder/headless"
    prints err 'headless, line 1: not a heap trace'
    printf '# gvmem heap trace 1\na 10 64 0 5\na 10 64 0 5\n' >"$folder/twice"
    expect 1 heap --quick -t "$folder/twice"
    prints err 'line 3: a block is allocated that is live already'
    printf '# gvmem heap trace 1\nb 10 64 0 5\n' >"$folder/odd"
    expect 1 heap --quick -t "$folder/odd"
    prints err 'line 2: not an event'
    printf '# gvmem heap trace 1\n' >"$folder/empty"
    expect 1 heap --quick -t "$folder/empty"
    prints err 'no events'

    # packed: the same; not packed at all; cut off; not there
    gzip -c "$folder/trace" >"$folder/trace.gz"
    expect 0 heap --quick --trace "$folder/trace.gz"
    prints out '3 events, 2 streams, peak 4 MiB'
    cp "$folder/trace" "$folder/plain.gz"
    expect 1 heap --quick -t "$folder/plain.gz"
    prints err 'plain.gz, line 0: the file cannot be read to its end'
    head -c 200000 "$trace" >"$folder/cut.gz"
    expect 1 heap --quick -t "$folder/cut.gz"
    prints err 'cut.gz, line [0-9]+: '
    expect 1 heap --quick -t "$folder/none.gz"
    prints err 'none.gz, line 0: the file cannot be read to its end'

    # A pool of a library beside it, on the trace of a real program.
    expect 0 heap --quick --pool "$pool" --trace "$trace" --json="$folder/record"
    python3 - "$folder/record" <<'EOF' || fail 'a trace is replayed badly, or figures of a pool are missing'
import json, sys
record = json.load(open(sys.argv[1]))
figures = {(f['section'], f['name'], f.get('bytes', 0)): f['median'] for f in record['figures']}
peak, mean = 'trace, committed peak / requested peak', 'trace, committed / requested, mean'
assert figures['trace', 'events', 0] >= 100000 and not record['notes'], record['notes']
assert 1 <= figures[peak, 'gvm_heap', 0] < figures[peak, 'sizes alone, rounded to powers of 2', 0], figures
assert figures[peak, 'gvm_heap, none kept', 0] < 1.1, figures  # what is kept by default depends on time: heap_replay holds 1.1
assert figures[peak, 'test pool', 0] == 1 and figures[mean, 'test pool', 0] == 1, figures
assert figures['pair, p50', 'test pool', 1 << 20] > 0 and figures['threads, 16', 'test pool', 0] > 0
assert figures['trace, an event', 'test pool', 0] > 0 and figures['trace, an event', 'cuMemAllocAsync', 0] > 0, figures
EOF
    [ ! -s "$folder/err" ] || fail 'the pool complains'
    export TEST_POOL=short
    expect 0 heap --quick --pool "$pool" --trace "$folder/trace"
    prints out 'test pool failed: too little memory for it'
    export TEST_POOL=closed
    expect 1 heap --quick -p "$pool" -t "$folder/trace"
    prints err 'left out: this pool is closed'
    prints out '3 events, 2 streams'
    expect 1 heap --quick -p "$folder/nothing.so" -t "$folder/trace"
    prints err 'nothing.so is left out: '
    expect 1 heap --quick -p "$(cc -print-file-name=libm.so.6)" -t "$folder/trace"
    prints err 'it does not have the functions'
    expect 2 heap -p 1 -p 2 -p 3 -p 4 -p 5 -p 6 -p 7 -p 8 -p 9
    prints err 'no more than 8 pools'
    ;;
pools)
    # The whole script, on the software GPU: a pool of a library, one of Python, and what is not there.
    [ "${GVMEM_DRIVER:-}" = soft ] || exit 77
    export GVMEM_SOFTGPU="${GVMEM_SOFTGPU:-memory=1GiB,instance=bench-pools-$$}"
    printf '# gvmem heap trace 1\na 10 3145728 0\nf 77 5 0\na 20 1048576 3f\nf 10 3145728 0\nf 20 1048576 3f\n' | gzip >"$folder/trace.gz"
    "$here/bench-pools.py" -q -t "$folder/trace.gz" -p "$3" -p "$folder/none.so" -o "$folder/record" "$(dirname "$program")/.." \
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
    TEST_POOL=crash "$here/bench-pools.py" -q -t "$folder/trace.gz" -p "$3" -o "$folder/record" "$(dirname "$program")/.." \
        >"$folder/out" 2>"$folder/err" || fail 'bench-pools.py fails'
    prints out '^left out: libtest-pool.so: it was ended by signal'
    prints out '^left out: all in one process: it was ended by signal'
    prints out '^gvm_heap async '
    ;;
policy)
    expect 0 policy --generate cyclic --write "$folder/cyclic"
    expect 0 policy -s 0.5 -b 64M --json="$folder/record" "$folder/cyclic"
    prints out '^cyclic .*50%'
    is_json "$folder/record"
    python3 - "$folder/record" <<'EOF' || fail 'a cyclic scan does not keep its share'
import json, sys
for row in json.load(open(sys.argv[1]))['rows']:
    best = row['belady']['hit_ratio']
    assert 0 < row['keeper']['hit_ratio'] <= best and row['keeper']['hit_ratio'] > 0.98 * best, row
    assert row['lru']['hit_ratio'] == 0, row
EOF
    # No recorded trace may be served by LRU with more hits, but for one in a hundred, and no pattern may
    # lose what it had with a policy that was made for the patterns alone: hits of those of the optimum.
    expect 0 policy -s 5% -s 10% -s 15% -s 25% -s 35% -s 50% -s 67% -s 80% --json="$folder/record" "$here"/traces/*.trace
    expect 0 policy --json="$folder/patterns"
    python3 - "$folder/record" "$folder/patterns" <<'EOF' || fail 'the policy hits less than it should'
import json, sys
traces, patterns = (json.load(open(path))['rows'] for path in sys.argv[1:])
assert len({row['trace'] for row in traces}) == 3 and len(traces) == 24, len(traces)
for row in traces:
    assert row['keeper']['hit_ratio'] >= 0.99 * row['lru']['hit_ratio'], row
had = {'single': 1.000, 'cyclic': 1.000, 'scan': 0.379, 'alternate': 0.915, 'zipf': 0.934, 'shift': 0.854, 'mixed': 0.821,
       'growth': 0.943, 'everything': 0.984}
shares = {name: [] for name in had}
for row in patterns:
    shares[row['trace']].append(row['keeper']['hit_ratio'] / row['belady']['hit_ratio'])
means = {name: sum(found) / len(found) for name, found in shares.items()}
for name in had:
    assert means[name] >= had[name] - 0.01, (name, means[name])
assert sum(means.values()) / len(means) >= 0.93, means
EOF
    expect 0 policy -b 64M -b 128M -c 4M --budget-share 0.5 --json="$folder/record" "$folder/cyclic"
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
        expect 0 policy --chunk $chunk -b 64M --json="$folder/record" "$folder/six"
        python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["rows"][0]["footprint_bytes"] >> 20)' "$folder/record"
    done >"$folder/sizes"
    [ "$(cat "$folder/sizes")" = "$(printf '6\n8')" ] || fail '--chunk'
    for seed in 1 2; do
        expect 0 policy --generate zipf --seed $seed --write "$folder/seed$seed"
    done
    cmp -s "$folder/seed1" "$folder/seed2" && fail '--seed'
    expect 0 policy --generate scan -b 64M
    [ "$(grep -c ' 64 MiB ' "$folder/out")" -eq 1 ] || fail '--generate'
    printf '# gvmem-keeper trace 1\n0 1 2097152 1 0\n1 1 4194304 3 2\n0 1 4194304 1 0\n' >"$folder/two"
    expect 0 policy -s 100% --json "$folder/two"
    is_json "$folder/out"
    printf '# gvmem-keeper trace 1\n0 1 2097152 1\n' >"$folder/short"
    expect 1 policy "$folder/short"
    prints err 'short:2'
    expect 1 policy /dev/null
    prints err 'no trace'
    ;;
*)
    fail "no case $2"
    ;;
esac
