# shellcheck shell=sh disable=SC2154,SC2164 # $model and $here are the reader's, as is set -e
# What run.sh, region.sh, region_common.sh and callback.sh share: searches by SPIN (README.md). Read by the shell with $model, the files
# of the model with the main one first, in $here. Makes $work, a folder with these files, and goes there. Each ends with run_model.
# Environment: CC (default cc), KEEP=1 keeps the work folder and names it.

command -v spin >/dev/null 2>&1 || {
    [ -z "${CI:-}" ] || { echo 'Bail out! spin is not installed'; exit 1; }
    echo '1..0 # SKIP spin is not installed (Debian: spin)'
    exit 77
}

work=$(mktemp -d "${TMPDIR:-/tmp}/gvmem-model.XXXXXX")
if [ "${KEEP:-0}" = 1 ]; then
    echo "# work folder: $work"
else
    trap 'rm -rf "$work"' EXIT
    trap 'exit 1' HUP INT TERM
fi
for file in $model; do
    cp "$here/$file" "$work"
done
cd "$work"
model=${model%% *}

count=0 failed=0
optimise=-O0    # the verifier is one huge function: optimising it takes longer than a short search
memory_mib=1900 # of a search, at most
steps_max=2000000

verdict() { # ok|not TEXT
    count=$((count + 1))
    if [ "$1" = ok ]; then
        echo "ok $count - $2"
    else
        echo "not ok $count - $2"
        failed=$((failed + 1))
    fi
}

# Makes the verifier of a system and runs it: ./out has what it says, taken the transitions it took.
search() { # VERIFIER-OPTIONS C-OPTIONS NAMES...
    search_options=$1 search_flags=$2
    shift 2
    rm -f pan* ./*.trail out
    spin -a "$@" "$model" >spin.log 2>&1 || { cat spin.log >out; return 1; }
    # shellcheck disable=SC2086 # words of a list
    ${CC:-cc} $optimise -w $search_flags -DVECTORSZ=512 -DMEMLIM=$memory_mib -o pan pan.c 2>cc.log ||
        { cat cc.log >out; return 1; }
    # shellcheck disable=SC2086
    ./pan -m$steps_max -w24 $search_options >out 2>&1 || return 1
    sed -n 's/^row //p' out >>taken
}

is_complete() { grep -q 'errors: 0$' out && ! grep -Eq 'Search not completed|search depth too small' out; }

explain() { # NAMES...
    sed 's/^/# /' out | grep -Ev '^# *$|^# (row|Depth=) ' | head -n 40
    [ ! -f "$model.trail" ] || spin -t -p -g "$@" "$model" 2>/dev/null | tail -n 60 | sed 's/^/# /'
}

# All that can happen in a system: no assertion fails, nobody waits for ever.
holds() { # TEXT NAMES...
    text=$1
    shift
    if search '' '-DSAFETY' "$@" && is_complete; then
        verdict ok "$text ($(sed -n 's/^ *\([0-9]*\) states, stored.*/\1/p' out) states)"
    else
        verdict not "$text"
        explain "$@"
    fi
}

# Every run of a system ends well, if all go on who can. System: with ROUNDS.
ends() { # TEXT NAMES...
    text=$1
    shift
    if search '-a -f' '-DNFAIR=3' -DENDS "$@" && is_complete; then
        verdict ok "$text ($(sed -n 's/^ *\([0-9]*\) states, stored.*/\1/p' out) states)"
    else
        verdict not "$text"
        explain -DENDS "$@"
    fi
}

# A system in which something goes wrong: an assertion by its name, or 'invalid end state', is found.
errs() { # TEXT ERROR NAMES...
    text=$1 error=$2
    shift 2
    search '' '-DSAFETY' "$@" || true
    if grep '^pan:1: ' out | grep -Eq "$error"; then
        verdict ok "$text ($error)"
    else
        verdict not "$text ($error)"
        explain "$@"
    fi
}

# A planted fault is found, and as what it is.
finds() { # FAULT ERROR NAMES...
    fault=$1 error=$2
    shift 2
    errs "fault_$(echo "$fault" | tr '[:upper:]' '[:lower:]')_is_found" "$error" "-DFAULT_$fault" "$@"
}

run_model() { # SEARCHES SEARCHES-OF-LONG [--long | NAMES...]
    searches=$1 searches_of_long=$2
    shift 2
    case ${1:-} in
    '')
        echo "1..$searches"
        small_systems
        planted_faults
        ;;
    --long)
        echo "1..$searches_of_long"
        large_systems
        ;;
    *)
        holds "$*" "$@"
        ;;
    esac
    [ "$failed" -eq 0 ]
}
