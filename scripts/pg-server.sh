#!/bin/sh
# usage: pg-server.sh start FOLDER [SETTING=VALUE...] | stop FOLDER [MODE] | env FOLDER | why-not | check | programs
# A private PostgreSQL server with gstore_fdw, in FOLDER: nothing is installed in the system, and no
# other server is touched. `env` prints what a shell needs to connect to it: eval "$(pg-server.sh
# env F)". `why-not` says why there can be none here, and nothing if there can; `check` makes BUILD's folder
# if it is not there, and fails where there can be none; `programs`, of which it is made. As root the server
# runs as pg-owner.sh says. BUILD says where the library was or is to be built (default build), PG_CONFIG
# which PostgreSQL (default pg_config). GVMEM_SOFTGPU and GVMEM_DRIVER go to the server; PLCUDA_NVRTC names
# NVRTC's library, for tests on a GPU.
set -eu
cd "$(dirname "$0")/.."
verb=${1:-}
programs='initdb pg_basebackup pg_controldata pg_ctl pg_dump pg_dumpall pg_resetwal pg_restore pg_upgrade pgbench postgres psql vacuumdb'
pg_config=${PG_CONFIG:-pg_config}
export PGCTLTIMEOUT="${PGCTLTIMEOUT:-300}" # seconds, for a busy machine

as_owner() { scripts/pg-owner.sh "$@"; }

why_not() {
    if ! command -v "$pg_config" >/dev/null 2>&1; then
        echo 'there is no pg_config'
    elif [ ! -f "$($pg_config --includedir-server)/postgres.h" ]; then
        echo 'there are no server headers'
    elif [ ! -x "$($pg_config --bindir)/postgres" ]; then
        echo 'there is no PostgreSQL server'
    else
        for place in "$PWD" "$(cd "${BUILD:-build}" 2>/dev/null && pwd)"; do
            case $place in
            *[[:space:]]*) echo "make cannot build in $place, which has a blank in its name"; return ;;
            esac
            [ -n "$place" ] || {
                echo "there is no folder ${BUILD:-build}"
                return
            }
            as_owner test -x "$place" || {
                echo "user $(as_owner id -un) cannot enter $place"
                return
            }
        done
    fi
}

case $verb in
why-not) why_not; exit ;;
check)
    mkdir -p "${BUILD:-build}"
    why=$(why_not)
    [ -z "$why" ] || {
        echo "pg-server.sh: there can be no server here: $why" >&2
        exit 1
    }
    exit
    ;;
programs) echo "$programs"; exit ;;
esac
[ $# -ge 2 ] || { sed -n '2,9s/^# //p' "$0" >&2; exit 2; }
folder=$2
shift 2
bin=$($pg_config --bindir)
root=$folder/root

# PostgreSQL finds its files from where its programs are, so a copy of the programs, with links to the
# rest, is a PostgreSQL of its own, into which the extension is installed.
make_root() {
    libs=$($pg_config --pkglibdir)
    share=$($pg_config --sharedir)
    rm -rf "$root"
    mkdir -p "$root$bin" "$root$libs" "$root$share/extension"
    for program in $programs; do
        cp "$bin/$program" "$root$bin/"
    done
    ln -s "$libs"/* "$root$libs/"
    for entry in "$share"/*; do
        [ "$entry" = "$share/extension" ] || ln -s "$entry" "$root$share/"
    done
    ln -s "$share/extension"/* "$root$share/extension/"
    # A PostgreSQL from a Python package has libraries in a folder beside its own, named from where programs are.
    for entry in "$bin"/../../../*.libs; do
        [ ! -d "$entry" ] || ln -s "$(cd "$entry" && pwd)" "$root$bin/../../../"
    done
    for name in gstore_fdw pg_strom plcuda; do
        rm -rf "${root:?}$libs/$name"* "$root$share/extension/$name"*
    done
}

install_extension() {
    build=$(cd "${BUILD:-build}" && pwd)
    out=$build/postgres/$($pg_config --version | tr -c 'A-Za-z0-9.\n' '-') # what one was built for, another does not load
    mkdir -p "$out"
    # One at a time: several servers may be made at once.
    (
        flock 9
        # As for installed libraries, but for where those of the build folder and the headers are.
        set -- -s -C "$out" -f "$PWD/postgres/Makefile" PG_CONFIG="$pg_config" VPATH="$PWD/postgres" \
            COPT="-I$PWD/include ${COPT:-}" PG_LDFLAGS="-Wl,-rpath,$build"
        PKG_CONFIG_PATH=$build/meson-uninstalled
        export PKG_CONFIG_PATH
        make "$@" all
        make "$@" DESTDIR="$(cd "$root" && pwd)" install >/dev/null
    ) 9>"$out/lock"
}

start() {
    mkdir -p "$folder"
    folder=$(cd "$folder" && pwd)
    root=$folder/root
    [ -x "$root$bin/postgres" ] || make_root
    install_extension
    if [ ! -f "$folder/data/PG_VERSION" ]; then
        mkdir -p "$folder/data" "$folder/run"
        [ "$(id -u)" != 0 ] || chown "$(as_owner id -u)" "$folder" "$folder/data" "$folder/run"
        as_owner test -x "$folder/data" || {
            echo "pg-server.sh: user $(as_owner id -un) cannot enter $folder" >&2
            exit 1
        }
        as_owner "$root$bin/initdb" -D "$folder/data" -A trust -U postgres -N --locale=C.UTF-8 >/dev/null
        {
            echo "shared_preload_libraries = 'gstore_fdw'"
            echo "listen_addresses = ''"
            echo "unix_socket_directories = '$folder/run'"
            echo "fsync = off"
            [ -z "${PLCUDA_NVRTC:-}" ] || echo "plcuda.nvrtc = '$PLCUDA_NVRTC'"
            for setting in "$@"; do
                echo "${setting%%=*} = '${setting#*=}'"
            done
        } >>"$folder/data/postgresql.conf"
    fi
    as_owner "$root$bin/pg_ctl" -w -s -D "$folder/data" -l "$folder/log" start || {
        tail -n 20 "$folder/log" >&2
        exit 1
    }
}

case $verb in
start) start "$@" ;;
stop) as_owner "$root$bin/pg_ctl" -w -s -D "$folder/data" -m "${1:-fast}" stop ;;
env)
    folder=$(cd "$folder" && pwd)
    echo "export PGHOST='$folder/run' PGUSER=postgres PGDATABASE=postgres PATH='$folder/root$bin':\"\$PATH\""
    ;;
*)
    echo "pg-server.sh: unknown verb $verb" >&2
    exit 2
    ;;
esac
