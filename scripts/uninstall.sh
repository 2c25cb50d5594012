#!/bin/sh
# usage: uninstall.sh [BUILD-FOLDER]
# Removes what install.sh has written since it was removed last, from the lists that it keeps in BUILD-FOLDER/install:
# files, folders that it made and that are empty now, and gstore_fdw from each PostgreSQL that it was installed for.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}/install
if [ ! -f "$build/installed" ]; then
    echo "uninstall: $build has no list of installed files: nothing was installed from there" >&2
    exit 1
fi
if [ -f "$build/installed-postgres" ]; then
    sort -u "$build/installed-postgres" | while IFS='|' read -r pg_config destdir; do
        # With libraries that may be gone: it only has to name the extension's files.
        make -s -C "$build/postgres-install" -f "$PWD/postgres/Makefile" VPATH="$PWD/postgres" PG_CONFIG="$pg_config" \
            PKG_CONFIG=: SHLIB_LINK=none DESTDIR="$destdir" uninstall
    done
    rm "$build/installed-postgres"
fi
sort -ru "$build/installed" | while read -r path; do # what is in a folder comes before it
    if [ -d "$path" ] && [ ! -L "$path" ]; then
        rmdir --ignore-fail-on-non-empty "$path"
    else
        rm -f "$path"
    fi
done
rm "$build/installed"
[ "$(id -u)" -ne 0 ] || ldconfig
echo "uninstalled"
