#!/bin/sh
# usage: keeperd.sh GVMEM-KEEPER CASE GVMEM [HOLDER]
# One case of the daemon gvmem-keeper: starting, being found ready, ending, and that each option has an
# effect (flags, with the program test_holder); not what it serves.
set -eu
keeper=$1
folder=$(mktemp -d)
socket=$folder/k.sock
pid=
holder=
second=
clean_up() {
    for process in $pid $holder $second; do kill -9 "$process" 2>/dev/null || :; done
    rm -rf "$folder"
}
trap clean_up EXIT
export GVMEM_SOFTGPU="${GVMEM_SOFTGPU:-memory=256MiB,instance=keeperd-$$}"

fail() {
    echo "keeperd.sh: $1" >&2
    for file in out err; do
        [ ! -s "$folder/$file" ] || sed "s/^/  $file: /" "$folder/$file" >&2
    done
    exit 1
}

prints() { # WHERE PATTERN
    grep -Eq -e "$2" "$folder/$1" || fail "nothing like \"$2\" on $1"
}

# Runs the daemon where it is to end by itself.
expect() { # STATUS ARGUMENT...
    wanted=$1
    shift
    got=0
    timeout 60 "$keeper" "$@" >"$folder/out" 2>"$folder/err" || got=$?
    [ "$got" -eq "$wanted" ] || fail "gvmem-keeper $*: exit status $got, not $wanted"
}

# Starts it, and waits until it says that it is ready.
start() { # ARGUMENT...
    [ -p "$folder/ready" ] || mkfifo "$folder/ready"
    "$keeper" --ready-fd 3 "$@" >"$folder/out" 2>"$folder/err" 3>"$folder/ready" &
    pid=$!
    IFS= read -r ready <"$folder/ready" || fail 'it is not ready'
}

stop() { # SIGNAL STATUS
    got=0
    kill "-$1" "$pid"
    wait "$pid" || got=$?
    pid=
    [ "$got" -eq "$2" ] || fail "exit status $got after $1, not $2"
}

gone() {
    for file in "$@"; do
        [ ! -e "$file" ] || fail "$file is left"
    done
}

# A figure of the running keeper: "keeper budget_bytes", "device free_bytes", "devices" (how many).
figure() { # PART NAME
    "$gvmem" keeper status -s "$socket" --json | python3 -c '
import json, sys
status, (part, name) = json.load(sys.stdin), sys.argv[1:]
print(status["keeper"][name] if part == "keeper" else status["devices"][0][name])' "$1" "$2"
}

is() { # PART NAME VALUE, at last
    tries=0
    until [ "$(figure "$1" "$2")" = "$3" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 200 ] || fail "$1 $2 is $(figure "$1" "$2"), not $3"
        sleep 0.05
    done
}

# Makes objects of 44 MiB in all, two of them with names and one under a read lease.
hold() {
    [ -p "$folder/to_holder" ] || mkfifo "$folder/to_holder" "$folder/from_holder"
    "$test_holder" "$socket" <"$folder/to_holder" >"$folder/from_holder" 2>"$folder/holder" &
    holder=$!
    exec 4>"$folder/to_holder"
    said=
    IFS= read -r said <"$folder/from_holder" || :
    [ "$said" = ready ]
}

end_holder() {
    exec 4>&-
    wait "$holder" || :
    holder=
}

case $2 in
life)
    for signal in TERM INT HUP; do
        start --socket "$socket" -b 64M
        [ "$ready" = "$socket" ] || fail "ready at \"$ready\""
        prints out '^device 0: .*budget 64 MiB$'
        prints out "^listening at $socket\$"
        [ "$(stat -c %a "$socket")" = 600 ] || fail 'the socket is not mode 600'
        stop "$signal" 0
        [ ! -s "$folder/err" ] || fail 'complaints'
        gone "$socket" "$socket.lock"
    done
    umask 077
    start --socket "$socket" --socket-mode 666
    [ "$(stat -c %a "$socket")" = 666 ] || fail 'the socket is not mode 666'
    stop TERM 0
    GVMEM_KEEPER=$folder/other.sock start
    [ "$ready" = "$folder/other.sock" ] || fail "ready at \"$ready\""
    stop TERM 0
    GVMEM_DRIVER=auto start --socket "$socket"
    ! grep -q 'software GPU' "$folder/out" || prints err '^gvmem-keeper: the software GPU is used: no GPU: '
    stop TERM 0
    # What it opens does not get the numbers of files that it writes to.
    "$keeper" --ready-fd 3 --socket "$socket" 3>"$folder/ready" >&- 2>&- &
    pid=$!
    IFS= read -r ready <"$folder/ready" || fail 'it is not ready'
    for fd in 1 2; do
        [ "$(readlink "/proc/$pid/fd/$fd")" = /dev/null ] || fail "descriptor $fd"
    done
    # One that does not answer is named.
    kill -STOP "$pid"
    if "$3" keeper stop -s "$socket" >"$folder/out" 2>"$folder/err"; then fail 'a stopped process has answered'; fi
    prints err "process $pid of user $(id -u) listens there"
    kill -CONT "$pid"
    stop TERM 0
    ;;
second) # while one lives, nobody takes its place; what is there and no socket stays
    start --socket "$socket"
    expect 1 --socket "$socket"
    prints err 'listens at .* already'
    rm "$socket.lock" # somebody has tidied up
    expect 1 --socket "$socket"
    prints err 'listens at .* already'
    [ -S "$socket" ] || fail 'the socket is gone'
    stop TERM 0
    gone "$socket" "$socket.lock"
    echo precious >"$socket"
    expect 1 --socket "$socket"
    [ "$(cat "$socket")" = precious ] || fail 'a file was replaced'
    ;;
stale) # one that was killed is replaced, one whose socket was replaced leaves it alone
    start --socket "$socket"
    stop KILL 137
    [ -S "$socket" ] || fail 'no socket is left to be replaced'
    start --socket "$socket"
    rm "$socket"
    echo other >"$socket"
    stop TERM 0
    [ "$(cat "$socket")" = other ] || fail 'what is not its own was removed'
    ;;
manager) # as a service manager starts it
    python3 - "$keeper" "$socket" "$3" <<'END' || fail 'the test of the service manager failed'
import os, socket, subprocess, sys

keeper, path, tool = sys.argv[1:]
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen()
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.bind(path + ".notify")
notify.settimeout(60)


def pass_socket():
    os.dup2(listener.fileno(), 3)
    os.set_inheritable(3, True)  # it may have been there already


def start(fds, *arguments):
    """As sd_listen_fds(3) has it: from descriptor 3 on, for this very process."""
    command = ["sh", "-c", 'export LISTEN_PID=$$; exec "$@"', "sh", keeper, *arguments]
    environment = dict(os.environ, LISTEN_FDS=str(fds), NOTIFY_SOCKET=path + ".notify")
    return subprocess.Popen(command, env=environment, close_fds=False, preexec_fn=pass_socket)


child = start(1)
assert b"READY=1" in notify.recv(1024).split(b"\n"), "not ready"
client = socket.socket(socket.AF_UNIX)
client.connect(path)
client.sendall(b"nonsense" * 100)  # it is cut off, and the keeper lives
client.settimeout(60)
received = b""
try:
    while part := client.recv(4096):
        received += part
except ConnectionResetError:
    pass
assert b"no message" in received, "the reason why it is cut off is missing"
child.terminate()
assert b"STOPPING=1" in notify.recv(1024).split(b"\n"), "not stopping"
assert child.wait(60) == 0, "exit status"
assert os.path.exists(path), "the socket was not its own to remove"
client = socket.socket(socket.AF_UNIX)
client.connect(path)  # the manager's socket still listens

if os.geteuid() == 0:  # a user's socket, where that user could say of any keeper that it is this one
    os.unlink(path)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    os.seteuid(65534)
    listener.listen()
    os.seteuid(0)
    child = start(1)
    assert b"READY=1" in notify.recv(1024).split(b"\n"), "not ready"
    ended = subprocess.run([tool, "keeper", "stop", "--force", "-s", path], stderr=subprocess.PIPE)
    assert ended.returncode == 1 and b"is another user's" in ended.stderr, ended
    child.terminate()
    assert child.wait(60) == 0, "exit status"

assert start(2).wait(60) == 1, "two sockets"
assert start(1, "--socket", path).wait(60) == 1, "a socket and a path"
assert start(1, "--socket-mode", "660").wait(60) == 1, "a socket and a mode"
END
    ;;
options)
    expect 0 --version
    prints out '^gvmem-keeper [0-9]+\.[0-9]+\.[0-9]+$'
    expect 0 --help
    prints out '^usage: gvmem-keeper'
    for arguments in --nonsense more '-s' '--socket=' '-m 0' '-m 1000' '-m 8' '-m rw' '-d x' '-d 0,' '-d -1' \
        '-d 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16' '-b 1M' '-b x' '-B 1' '-k 0' '-a -1' '-l 1Q' '-q x' '-q 1M' '-q =1G' \
        '-q -1=1G' '-q 5=' '-q 4294967295=1G' '--revoke-timeout 0' '--lease-timeout x' '--fence=no' '--clients 0' '--clients 1025' \
        '--ready-fd x' '--ready-fd 77'; do
        # shellcheck disable=SC2086 # words
        expect 2 $arguments
        prints err '^gvmem-keeper: '
        prints err '^try: gvmem-keeper --help$'
        [ ! -s "$folder/out" ] || fail "output of gvmem-keeper $arguments"
    done
    ;;
failure) # what cannot be done is said, with status 1, and leaves nothing
    expect 1 --socket "$socket" -d 999
    prints err 'no device 999'
    expect 1 --socket "$socket" -d 0,0
    prints err 'twice'
    expect 1 --socket "$socket" -b 900T
    prints err 'more than'
    expect 1 --socket "$folder/missing/k.sock"
    prints err 'missing/k\.sock'
    expect 1 --socket "$folder/$(printf '%0200d' 0)"
    prints err 'at most [0-9]+ bytes'
    expect 1 --socket "$socket" --trace "$folder/missing/trace"
    prints err 'missing/trace'
    GVMEM_VMM=0 expect 1 --socket "$socket"
    prints err 'virtual memory management'
    GVMEM_DRIVER=/nonexistent/libcuda.so.1 expect 1 --socket "$socket"
    prints err 'nonexistent'
    gone "$socket" "$socket.lock"
    ;;
flags) # each option has an effect that can be seen (--ready-fd: all of them; -V, -h: case options)
    gvmem=$3
    test_holder=$4
    export GVMEM_SOFTGPU="devices=2,memory=256MiB,instance=keeperd-flags-$$"
    mib=1048576
    start -s "$socket" -m 640 -d 1 -b 64M -B 200M -a 10M -k 4M -q 60M --trace "$folder/trace" --clients 2
    [ "$(stat -c %a "$socket")" = 640 ] || fail '--socket-mode'
    [ "$(figure device ordinal) $(figure keeper devices)" = '1 1' ] || fail '--device'
    [ "$(figure device budget_bytes)" = $((64 * mib)) ] || fail '--device-budget'
    [ "$(figure keeper host_budget_bytes)" = $((200 * mib)) ] || fail '--host-budget'
    stop TERM 0
    start -s "$socket" -d 0 -b 64M -B 200M -a 10M -k 4M -q 60M --trace "$folder/trace" --clients 2
    hold || fail "the holder: $(cat "$folder/holder")"
    is keeper host_free_bytes $((10 * mib))
    tries=0
    until "$gvmem" keeper status -s "$socket" >"$folder/out" 2>&1; do # the one before may still count for a moment
        tries=$((tries + 1))
        [ "$tries" -lt 200 ] || fail 'two clients'
        sleep 0.05
    done
    "$test_holder" "$socket" 2>"$folder/refused" >"$folder/out" && fail 'the name is taken'
    end_holder
    "$gvmem" keeper drop -s "$socket" /test/one
    "$gvmem" keeper drop -s "$socket" /test/two
    is device free_bytes $((4 * mib))
    stop TERM 0
    grep -q '^0 ' "$folder/trace" || fail '--trace'

    # The holder's objects are larger than their device.
    for lend in 0,1 0 none; do
        start -s "$socket" -b 32M -B 64M --lend 0,1 --lend "$lend"
        hold || fail "the holder: $(cat "$folder/holder")"
        "$gvmem" map -s "$socket" --json >"$folder/out" || fail 'the map'
        case $lend$(grep -c '"state": *"lent"' "$folder/out") in
        0,1[1-9]* | 00 | none0) ;;
        *) fail "--lend $lend: $(cat "$folder/out")" ;;
        esac
        end_holder
        stop TERM 0
    done

    start -s "$socket" -d 0 -b 64M -B 64M --clients 1 # one at a time
    if hold; then
        "$gvmem" keeper status -s "$socket" >"$folder/out" 2>&1 && fail '--clients'
    else
        fail "the holder: $(cat "$folder/holder")"
    fi
    prints err '^gvmem-keeper: a client \(pid [0-9]+, uid [0-9]+\) was refused: '
    end_holder
    stop TERM 0

    for quota in 40M "$(id -u)=40M"; do
        start -s "$socket" -d 0 -b 64M -B 64M -q "$quota"
        if hold; then fail "--quota $quota"; fi
        grep -q QUOTA "$folder/holder" || fail "no word of the quota: $(cat "$folder/holder")"
        end_holder
        stop TERM 0
    done

    # Only root can be another user.
    if [ "$(id -u)" -eq 0 ]; then
        chmod 711 "$folder"
        for restrict in '' --restrict-others; do
            # shellcheck disable=SC2086 # no argument, or one
            start -s "$socket" -m 666 -d 0 -b 64M -B 64M $restrict
            code=0
            setpriv --reuid 65534 --regid 65534 --clear-groups \
                "$test_holder" "$socket" </dev/null >"$folder/out" 2>"$folder/holder" || code=$?
            case $restrict$code in
            0) ;;
            --restrict-others0) fail '--restrict-others' ;;
            --restrict*) grep -q 'opens links and nothing else' "$folder/holder" || fail "no word of rights: $(cat "$folder/holder")" ;;
            *) fail "another user: $(cat "$folder/holder")" ;;
            esac
            stop TERM 0
        done
    fi

    # Another keeper takes what was to be left free.
    start -s "$socket" -d 0 -b 64M -B 64M -l 200M
    is device budget_bytes $((56 * mib))
    hold || fail "the holder: $(cat "$folder/holder")"
    mkfifo "$folder/second.ready"
    "$keeper" -s "$folder/second.sock" -d 0 -b 128M -B 64M --ready-fd 3 >"$folder/second" 2>&1 3>"$folder/second.ready" 4>&- &
    second=$!
    IFS= read -r ready <"$folder/second.ready" || fail 'the second one is not ready'
    first=$socket
    first_holder=$holder
    socket=$folder/second.sock
    "$test_holder" "$socket" </dev/null >"$folder/out" 2>&1 || fail 'the second holder'
    socket=$first
    holder=$first_holder
    end_holder
    kill "$second"
    wait "$second" || :
    second=
    stop TERM 0
    prints err '^gvmem-keeper: device 0: its budget is lowered to '
    expect 1 --socket "$socket" -d 0 -l 256M
    prints err 'cannot be left to other programs'
    expect 1 --socket "$socket" -d 0 -B 900T
    prints err 'host budget of .* is more than the .* of memory'
    expect 1 --socket "$socket" -d 0 -B 64M -a 65M
    prints err 'ahead of need'

    start -s "$socket" -d 0 -b 64M -B 64M --revoke-timeout 1
    hold || fail "the holder: $(cat "$folder/holder")"
    kill -STOP "$holder"
    timeout 8 "$gvmem" keeper evict -s "$socket" /test/one >"$folder/out" || fail '--revoke-timeout' # 10 s by default
    is keeper cut_offs 1
    kill -KILL "$holder"
    end_holder
    stop TERM 0

    # One keeps a write lease; another gets it once the time is over (by default: never).
    start -s "$socket" -d 0 -b 64M -B 64M --lease-timeout 1
    "$test_holder" "$socket" </dev/null >"$folder/out" || fail 'the objects' # /test/one stays
    mkfifo "$folder/to_writer" "$folder/from_writer"
    "$test_holder" "$socket" write <"$folder/to_writer" >"$folder/from_writer" &
    second=$!
    exec 5>"$folder/to_writer"
    IFS= read -r said <"$folder/from_writer"
    timeout 15 "$test_holder" "$socket" write </dev/null >"$folder/out" 5>&- || fail '--lease-timeout'
    [ "$(figure keeper cut_offs)" = 1 ] || fail 'nobody was cut off'
    exec 5>&-
    wait "$second" || :
    second=
    stop TERM 0

    # The same, and the process that keeps the lease is killed.
    start -s "$socket" -d 0 -b 64M -B 64M --lease-timeout 1 --fence=kill
    "$test_holder" "$socket" </dev/null >"$folder/out" || fail 'the objects'
    "$test_holder" "$socket" write <"$folder/to_writer" >"$folder/from_writer" &
    second=$!
    exec 5>"$folder/to_writer"
    IFS= read -r said <"$folder/from_writer"
    timeout 15 "$test_holder" "$socket" write </dev/null >"$folder/out" 5>&- || fail '--fence'
    killed=0
    wait "$second" || killed=$?
    [ "$killed" -eq 137 ] || fail "a writer that was cut off ended with $killed, not by SIGKILL"
    exec 5>&-
    second=
    stop TERM 0
    ;;
*)
    fail "no case $2"
    ;;
esac
