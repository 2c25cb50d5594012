# shellcheck shell=sh disable=SC2034,SC2154
# Read by scripts that need a server of their own: private_start NAME [SETTING...] starts one in a new
# folder, $private, of the build folder, and sees to it that server and folder are gone when the script
# ends, whatever it ends of: guard.sh waits for the end of file on a pipe that only the script writes to.
# Sets PGHOST, PGUSER, PATH, and $private_bin. A script whose children outlive it gives them 9>&-.
# Where there is no PostgreSQL to test with, the script ends as a skipped test; with CI set, as one that failed.

private_skip() {
    [ -z "${CI:-}" ] || { echo "Bail out! $1"; exit 1; }
    echo "1..0 # SKIP $1"
    exit 0
}

private_fail() { # WHAT FILE
    echo "Bail out! $1"
    sed 's/^/# /' "$2"
    exit 1
}

private_start() {
    private_reason=$("$project/scripts/pg-server.sh" why-not)
    [ -z "$private_reason" ] || private_skip "$private_reason"
    mkdir -p "$BUILD/postgres-run"
    private=$(mktemp -d "$BUILD/postgres-run/$1.XXXXXX") || exit 1
    chmod 755 "$private"
    mkfifo "$private/alive"
    private=$(cd "$private" && pwd -P)
    setsid "$project/tests/postgres/guard.sh" "$private" <"$private/alive" >/dev/null 2>&1 &
    private_guard=$!
    exec 9>"$private/alive"
    # The guard does the rest; waiting for it, so that nothing is left once the script is through.
    trap 'exec 9>&-; wait "$private_guard"' EXIT
    trap 'exit 1' HUP INT TERM
    shift
    # The name keeps its devices apart from those of other tests that run at the same time.
    GVMEM_SOFTGPU=${GVMEM_SOFTGPU:-devices=2,memory=4GiB,sms=2,instance=$(basename "$private")}
    export GVMEM_SOFTGPU
    setsid "$project/scripts/pg-server.sh" start "$private" "$@" >"$private/out" 2>&1 9>&- &
    echo $! >"$private/starting"
    wait $! || private_fail 'the server does not start' "$private/out"
    rm "$private/starting"
    eval "$("$project/scripts/pg-server.sh" env "$private")"
    private_bin=${PATH%%:*}
}
