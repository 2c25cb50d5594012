#!/bin/sh
# usage: uninstall.sh [BUILD-FOLDER]
# Removes what install.sh has written since it was removed last, from the lists that it keeps in BUILD-FOLDER/install:
# files, folders that it made and that are empty now, and gstore_fdw from each PostgreSQL that it was installed for. Where that
# one's pg_config or PGXS is gone, its files stay and are named again the next time.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}/install
if [ ! -f "$build/installed" ]; then
    echo "uninstall: $build has no list of installed files: nothing was installed from there" >&2
    exit 1
fi
if [ -f "$build/installed-postgres" ]; then
    rm -f "$build/left-postgres"
    sort -u "$build/installed-postgres" | while IFS='|' read -r pg_config destdir; do
        # With libraries that may be gone: it only has to name the extension's files.
        if [ -f "$("$pg_config" --pgxs 2>/dev/null)" ] &&
            make -s -C "$build/postgres-install" -f "$PWD/postgres/Makefile" VPATH="$PWD/postgres" PG_CONFIG="$pg_config" \
                PKG_CONFIG=: SHLIB_LINK=none DESTDIR="$destdir" uninstall; then
            continue
        fi
        echo "uninstall: cannot remove gstore_fdw from the PostgreSQL of $pg_config: install its server headers, and try again" >&2
        echo "$pg_config|$destdir" >>"$build/left-postgres"
    done
    rm "$build/installed-postgres"
    [ ! -f "$build/left-postgres" ] || mv "$build/left-postgres" "$build/installed-postgres"
fi
sort -ru "$build/installed" | while read -r path; do # what is in a folder comes before it
    if [ -d "$path" ] && [ ! -L "$path" ]; then
        rmdir --ignore-fail-on-non-empty "$path"
    else
        rm -f "$path"
    fi
done
[ "$(id -u)" -ne 0 ] || ldconfig
if [ -f "$build/installed-postgres" ]; then
    : >"$build/installed"
    exit 1
fi
rm "$build/installed"
echo "uninstalled"
