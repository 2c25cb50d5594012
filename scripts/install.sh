#!/bin/sh
# usage: [PREFIX=/usr/local] [DESTDIR=FOLDER] [PG_CONFIG=FILE] install.sh [BUILD-FOLDER]
# Builds and installs the libraries, programs, headers, manual pages and units, and gstore_fdw for the
# PostgreSQL that PG_CONFIG names (default pg_config), in that server's folders, which PREFIX does not change.
# With PG_CONFIG=none gstore_fdw is left out, and so it is where PG_CONFIG names nothing and there is no pg_config, or
# no server headers; where it names one, that is an error, before anything is installed. What is installed is built in
# BUILD-FOLDER/install: a release, without tests and benchmarks.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}/install
prefix=${PREFIX:-/usr/local}
pg_config=${PG_CONFIG:-pg_config}

with_postgres=''
if [ "$pg_config" != none ] && command -v "$pg_config" >/dev/null 2>&1 && [ -f "$("$pg_config" --includedir-server)/postgres.h" ]; then
    with_postgres=yes
elif [ "$pg_config" != none ] && [ -n "${PG_CONFIG:-}" ]; then
    echo "install: PG_CONFIG=$pg_config finds no server headers of PostgreSQL: install them (Debian: postgresql-server-dev-15), or set PG_CONFIG=none" >&2
    exit 1
fi
case $with_postgres$PWD in
yes*[[:space:]]*)
    echo "install: make cannot build gstore_fdw in $PWD, which has a blank in its name: move the sources, or set PG_CONFIG=none" >&2
    exit 1
    ;;
esac
umask 022 # the server is another user's
scripts/setup.sh install
mkdir -p "$build"
scripts/build.sh "$build" -Dprefix="$prefix" -Dbuildtype=release -Dtests=false -Dbench=false
build=$(cd "$build" && pwd)
destdir=''
if [ -n "${DESTDIR:-}" ]; then
    mkdir -p "$DESTDIR"
    destdir=$(cd "$DESTDIR" && pwd)
fi
code=0
DESTDIR=$destdir meson install -C "$build" --no-rebuild --quiet || code=$?
# For uninstall.sh: also of a part.
cat "$build/meson-logs/install-log.txt" "$build/meson-logs/install-aliases.txt" | grep -v '^#' >>"$build/installed" || :
[ "$code" -eq 0 ] || exit "$code"
[ -n "$destdir" ] || [ "$(id -u)" -ne 0 ] || ldconfig

libraries=$(dirname "$(grep '/gvmem-keeper\.pc$' "$build/meson-logs/install-log.txt" | head -n 1)")
case $prefix in
/usr | /usr/local) ;;
*) # neither pkg-config nor the loader looks there
    libdir=$(dirname "${libraries#"$destdir"}")
    echo "install: to build programs: export PKG_CONFIG_PATH=$libdir/pkgconfig CMAKE_PREFIX_PATH=$prefix"
    echo "install: to run them: export LD_LIBRARY_PATH=$libdir PATH=$prefix/bin:\$PATH"
    ;;
esac
if [ -z "$with_postgres" ]; then
    [ "$pg_config" = none ] || echo "install: $pg_config finds no server headers of PostgreSQL"
    echo "install: gstore_fdw is left out"
    exit
fi
# The extension is built against what was installed; where that is staged, pkg-config reads it there.
PKG_CONFIG_PATH=$libraries${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
export PKG_CONFIG_PATH
[ -z "$destdir" ] || export PKG_CONFIG_SYSROOT_DIR="$destdir"
rpath=''
case $prefix in
/usr | /usr/local) ;;
*) rpath="'-Wl,-rpath,$(PKG_CONFIG_SYSROOT_DIR='' pkg-config --variable=libdir gvmem)'" ;; # the loader does not look there
esac
mkdir -p "$build/postgres-install"
set -- -s -C "$build/postgres-install" -f "$PWD/postgres/Makefile" VPATH="$PWD/postgres" PG_CONFIG="$pg_config" PG_LDFLAGS="$rpath"
make "$@" clean
make "$@" all
# Its own, not a script in front of it, which may choose another PostgreSQL by then.
own=$("$pg_config" --bindir)/pg_config
[ -x "$own" ] || own=$(command -v "$pg_config")
echo "$own|$destdir" >>"$build/installed-postgres"
make "$@" DESTDIR="$destdir" install
echo "installed gstore_fdw for $("$pg_config" --version)"
