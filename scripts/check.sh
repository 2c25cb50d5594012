#!/bin/sh
# usage: check.sh fast|full|all|install [BUILD-FOLDER]
# Runs the checks of a level, all of them even if one fails, then a summary, which also names what was left out. The last line is "N
# passed, N failed": tests by their cases, every other step as one. Exit 0 only if nothing failed. With CI set, what is left out for
# want of what setup.sh installs has failed. Excepted are the fresh Debian of level install, which takes namespaces
# and Debian's mirror, and tests that are skipped without sqlsmith, scikit-learn or RDKit's data.
#   fast  build, light lint, unit and conform tests
#   full  build, lint, kernels for real GPUs (where there is nvcc), all tests but the slow ones
#   all   full, then: ASan and UBSan, TSan, clang, fuzzers, valgrind, slow tests, spelling, shell, libraries
#         beside those of the last release (abi.py), install
#   install  make Debian packages, install and use them in a fresh Debian, run the demo in another
# FUZZ_SECONDS (default 20): how long each fuzzer runs. SLOW_TIMES (default 1): how many times as long the
# longest of the slow tests run.
set -u
cd "$(dirname "$0")/.." || exit 1
level=${1:-full}
build=${2:-build}

case $level in
fast | full) scripts/setup.sh test || exit 1 ;;
all) scripts/setup.sh all || exit 1 ;;
install) ;;
*)
    echo "usage: check.sh fast|full|all|install [BUILD-FOLDER]" >&2
    exit 2
    ;;
esac

# A failure of a sanitizer ends the program, and so fails the test. With a signal stack of its own ASan reports the end of a
# thread that was cancelled, as the marks of its frames stay.
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=1:strict_string_checks=1:intercept_tls_get_addr=0:use_sigaltstack=0}"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}"
export TSAN_OPTIONS="${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1}"

passed=0 failed=0 logs='' summary=''

have() { command -v "$1" >/dev/null 2>&1; }

note() { # RESULT STEP
    summary="$summary
  $(printf '%-9s %s' "$1" "$2")"
}

step() { # NAME COMMAND...: a step that passes or fails as a whole, or says by 77 that it cannot be done here
    step_name=$1
    shift
    printf '\n==== %s\n' "$step_name"
    step_code=0
    "$@" || step_code=$?
    if [ "$step_code" -eq 0 ]; then
        passed=$((passed + 1))
        note ok "$step_name"
    elif [ "$step_code" -eq 77 ]; then
        left_out "$step_name" 'it cannot be done here'
    else
        failed=$((failed + 1))
        note FAILED "$step_name"
        return 1
    fi
}

left_out() { # STEP WHY
    note 'left out' "$1: $2"
}

lacks() { # STEP WHY: for want of what setup.sh was to install
    if [ -z "${CI:-}" ]; then
        left_out "$1" "$2"
    else
        failed=$((failed + 1))
        note FAILED "$1: $2"
    fi
}

tests() { # NAME FOLDER MESON-TEST-ARGUMENTS...: tests count by their cases
    tests_name=$1 folder=$2
    shift 2
    printf '\n==== %s\n' "$tests_name"
    base=check-$(printf '%s' "$tests_name" | tr -c 'a-z0-9\n' '-')
    rm -f "$folder/meson-logs/$base"*
    meson test -C "$folder" --no-rebuild --print-errorlogs --logbase "$base" "$@"
    code=$?
    for log in "$folder/meson-logs/$base"*.json; do :; done # meson adds the wrapper's name to the base
    if [ "$code" -eq 0 ] && [ -s "$log" ]; then
        note ok "$tests_name: $(scripts/test-results.py "$log")"
    elif [ -s "$log" ]; then
        note FAILED "$tests_name: $(scripts/test-results.py "$log")"
        scripts/test-results.py "$log" >/dev/null && failed=$((failed + 1)) # meson failed, no test did
    else
        failed=$((failed + 1))
        note FAILED "$tests_name: no test ran"
        return 1
    fi
    logs="$logs$log
"
}

tap() { # NAME COMMAND...: a program that prints TAP; its cases count
    tap_name=$1
    shift
    printf '\n==== %s\n' "$tap_name"
    log=$build/check-$(printf '%s' "$tap_name" | tr -c 'a-z0-9\n' '-').tap
    code=0
    "$@" >"$log" || code=$?
    cat "$log"
    if [ "$code" -eq 77 ]; then
        left_out "$tap_name" 'it cannot be done here'
        return
    fi
    logs="$logs$log
"
    counted=$(scripts/test-results.py "$log") && [ "$code" -eq 0 ] && note ok "$tap_name: $counted" && return
    note FAILED "$tap_name: $counted"
    case $counted in *' 0 failed') failed=$((failed + 1)) ;; esac # it ended before it had said which
}

# The tests with threads of their own. ThreadSanitizer of this compiler needs addresses that are not
# randomised; where that is not possible, tests run without the wrapper.
tsan_tests() {
    set -- --suite unit --suite conform --suite prop --suite proc --no-suite slow --timeout-multiplier 4
    if setarch "$(uname -m)" -R true 2>/dev/null; then
        set -- "$@" --wrapper "setarch $(uname -m) -R"
    fi
    tests 'tests under TSan' "$build-tsan" "$@"
}

fuzz() {
    for fuzzer in "$build"-fuzz/tests/fuzz/fuzz_*; do
        if [ ! -f "$fuzzer" ] || [ ! -x "$fuzzer" ]; then continue; fi
        name=$(basename "$fuzzer")
        corpus=$build-fuzz/corpus/$name
        mkdir -p "$corpus"
        set -- "$corpus"
        [ -d "tests/fuzz/corpus/$name" ] && set -- "$@" "tests/fuzz/corpus/$name"
        step "fuzz: $name" "$fuzzer" -max_total_time="${FUZZ_SECONDS:-20}" -verbosity=0 -print_final_stats=1 \
            -artifact_prefix="$corpus/" "$@"
    done
    [ -d "$build-fuzz/corpus" ] || left_out 'fuzzers' 'there are none'
}

spelling() { scripts/sources.sh | grep -v '^LICENSE$' | xargs codespell -L fo,inh,nd,Nd,ot,froms,befores,cancelability,inout,columnn,nam; }
shell_scripts() { scripts/sources.sh '*.sh' '.ci/run' | xargs shellcheck -x; }

# The packages' own tests are those that were run here. Without nvcc the packages are those that say so.
check_install() {
    DEB_BUILD_OPTIONS="nocheck ${DEB_BUILD_OPTIONS:-}"
    export DEB_BUILD_OPTIONS
    if ! scripts/setup.sh deb; then
        lacks 'packages and their installation' 'what they need cannot be installed here'
        return
    fi
    if ! have nvcc && [ ! -x /usr/local/cuda/bin/nvcc ] && [ ! -x build-fetched/cuda/nvidia/cu13/bin/nvcc ]; then
        export DEB_BUILD_PROFILES=pkg.gvmem.nocuda
    fi
    if step 'packages' packaging/deb.sh "$build"; then
        tap 'installation' packaging/check-install.sh "$build"
    fi
    step 'demo in a fresh Debian' packaging/check-demo.sh "$build"
}

# The other builds have no kernels for real GPUs, which take longest and which none of their tests runs.
# shellcheck disable=SC2086 # options
check_all() {
    others='-Dcuda=disabled -Ddocs=false'
    if step 'build with ASan and UBSan' scripts/build.sh "$build-asan" $others -Db_sanitize=address,undefined -Db_lundef=false; then
        tests 'tests under ASan and UBSan' "$build-asan" --no-suite model # the SPIN models contain no code that this built
    fi
    if step 'build with TSan' scripts/build.sh "$build-tsan" $others -Dbench=false -Db_sanitize=thread -Db_lundef=false; then
        tsan_tests
    fi
    if ! have clang; then
        lacks 'clang' 'clang is not installed'
    else
        if step 'build with clang' env CC=clang scripts/build.sh "$build-clang" $others -Dwerror=true; then
            tests 'tests built by clang' "$build-clang" --suite unit --suite conform --no-suite slow
        fi
        if step 'build the fuzzers' env CC=clang scripts/build.sh "$build-fuzz" $others -Dbench=false -Dfuzz=true \
            -Db_sanitize=address,undefined -Db_lundef=false; then
            fuzz
        fi
    fi
    # SKIP_UNDER_VALGRIND in tests/unit says of single tests why they are left out.
    if have valgrind; then
        tests 'unit tests under valgrind' "$build" --suite unit --no-suite slow --timeout-multiplier 10 \
            --wrapper "env GVMEM_RANGE=0 valgrind -q --fair-sched=try --error-exitcode=9 --leak-check=full --show-leak-kinds=definite \
--errors-for-leak-kinds=definite --suppressions=$PWD/scripts/valgrind.supp"
    else
        lacks 'valgrind' 'valgrind is not installed'
    fi
    if step 'length of the slow tests' scripts/build.sh "$build" -Dslow_times="${SLOW_TIMES:-1}"; then
        tests 'slow tests' "$build" --suite slow
    fi
    if have codespell; then step 'spelling' spelling; else lacks 'spelling' 'codespell is not installed'; fi
    if have shellcheck; then step 'shell scripts' shell_scripts; else lacks 'shell scripts' 'shellcheck is not installed'; fi
    if have abidiff; then
        step 'libraries beside the last release' scripts/abi.py "$build"
    else
        lacks 'libraries beside the last release' 'abidiff is not installed'
    fi
}

if [ "$level" = install ]; then
    check_install
elif step 'build' scripts/build.sh "$build"; then
    pkg-config --exists cmocka || lacks 'unit tests' 'cmocka is not installed'
    case $level in
    fast)
        step 'light lint' scripts/lint.sh "$build" light
        tests 'unit and conform tests' "$build" --suite unit --suite conform --no-suite slow
        ;;
    *)
        step 'lint' scripts/lint.sh "$build"
        if grep -q '/nvcc$' "$build/found"; then
            step 'kernels for real GPUs' scripts/kernel-usage.py "$build"
        else
            lacks 'kernels for real GPUs' 'there is no nvcc'
        fi
        tests 'tests' "$build"
        step 'circles of calls' scripts/circles.py "$build" # again: the tests have built postgres/
        ;;
    esac
    if [ "$level" = all ]; then
        check_all
        check_install
    fi
fi

results() { # OPTION...: test-results.py of all logs, which stand in a line each
    [ -n "$logs" ] || return 0
    (
        IFS='
'
        set -f
        # shellcheck disable=SC2086 # a word a line
        exec scripts/test-results.py "$@" $logs
    )
}

sums=$(results)
# shellcheck disable=SC2086
set -- ${sums:-0 passed, 0 failed}
total_passed=$((passed + $1)) total_failed=$((failed + $3))

mkdir -p "$build"
{
    printf '\n==== summary%s\n' "$summary"
    results --failures --skipped | sed '$d; s/^/  /'
} | tee "$build/check-summary"
echo "$total_passed passed, $total_failed failed" | tee "$build/check-result"
[ "$total_failed" -eq 0 ] && { [ "$1" -gt 0 ] || [ "$level" = install ]; }
