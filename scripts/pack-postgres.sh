#!/bin/sh
# usage: pack-postgres.sh pack FILE | unpack FILE FOLDER
# PostgreSQL for a machine that has none and cannot fetch any. `pack` writes an archive (some 30 MB) of
# the server that PG_CONFIG names (default pg_config): programs, headers, PGXS with the programs that run
# tests, and the libraries that all of it needs. `unpack` lays it out in FOLDER, unless it is there
# already, and prints the path of its pg_config, for PG_CONFIG. Nothing is installed and no variable set:
# PostgreSQL finds its files from where its programs are, and these get run paths of that kind.
# Packing needs patchelf. The other machine must be of the same architecture, its C library no older.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
verb=${1:-}
case $verb:$# in pack:2 | unpack:3) ;; *) sed -n '2,8s/^# //p' "$0" >&2; exit 2 ;; esac
file=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")

give_up() {
    echo "pack-postgres: $1" >&2
    exit 1
}

# What the GPU's libraries share with the server must be the machine's own.
left_there='^(ld-linux.*|libc|libm|libdl|libpthread|librt|libresolv|libstdc\+\+|libgcc_s)\.so'

# The libraries that programs and modules want, and those want in turn: paths.
libraries_of() {
    for object; do ldd "$object" 2>/dev/null || :; done | awk '/=> \// { print $3 }' | sort -u |
        while read -r library; do
            basename "$library" | grep -qE "$left_there" || printf '%s\n' "$library"
        done
}

set_run_path() { # FOLDER-OF-LIBRARIES PROGRAM...: also for what the libraries themselves want
    libraries=$1
    shift
    for program; do
        patchelf --force-rpath --set-rpath "\$ORIGIN/$(realpath --relative-to "$(dirname "$program")" "$libraries")" "$program"
    done
}

# shellcheck disable=SC2046,SC2086 # lists of programs' paths
pack() {
    command -v patchelf >/dev/null || give_up 'needs patchelf: install the package of this name'
    pg_config=$("${PG_CONFIG:-pg_config}" --bindir)/pg_config # not a script in front of it
    bin=$("$pg_config" --bindir) libs=$("$pg_config" --pkglibdir)
    share=$("$pg_config" --sharedir) headers=$("$pg_config" --includedir-server)
    [ -f "$headers/postgres.h" ] || give_up 'there are no server headers'
    [ -f "$("$pg_config" --pgxs)" ] || give_up 'there is no PGXS'

    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    umask 022
    root=$work/postgres
    mkdir -p "$root$bin" "$root$libs" "$root$share" "$root$headers" "$root$libs/needed"
    originals=$(printf "$bin/%s " pg_config $("$here/pg-server.sh" programs))
    cp -L $originals "$root$bin/"
    cp -a "$libs/." "$root$libs/"
    cp -a "$headers/." "$root$headers/"
    cp -a "$share/." "$root$share/"
    # What no private server uses: just-in-time compilation, other languages, pages, translations.
    (cd "$root$libs" && rm -rf bitcode llvmjit* plperl* plpython* pltcl* ./*_plperl* ./*_plpython* gstore_fdw* pg_strom* plcuda*)
    rm -rf "$root$share/man" "$root$share"/extension/gstore_fdw* "$root$share"/extension/pg_strom* "$root$share"/extension/plcuda*

    # Those of the originals: libraries may be found from where a program is.
    modules=$(cd "$root$libs" && printf "$libs/%s " *.so pgxs/src/test/*/*)
    libraries_of $originals $modules | while read -r library; do
        cp -L "$library" "$root$libs/needed/"
    done
    set_run_path "$root$libs/needed" "$root$bin"/* "$root$libs"/pgxs/src/test/isolation/isolationtester
    # Of a library with a run path of its own, PostgreSQL's does not hold for what it wants.
    for library in "$root$libs"/needed/* "$root$libs"/*.so; do
        [ -z "$(patchelf --print-rpath "$library")" ] || set_run_path "$root$libs/needed" "$library"
    done
    chmod -R a+rX "$root"
    tar -C "$root" -czf "$file" .
    ls -l "$file"
}

unpack() {
    folder=$1
    mkdir -p "$folder"
    folder=$(cd "$folder" && pwd)
    if [ "$(cat "$folder/packed" 2>/dev/null)" != "$(cksum <"$file")" ]; then
        find "$folder" -mindepth 1 -delete
        chmod 755 "$folder"
        tar -C "$folder" --no-same-owner -xzf "$file" || give_up "cannot unpack $file"
        cksum <"$file" >"$folder/packed"
    fi
    find "$folder" -path '*/bin/pg_config' | grep . || give_up "$file has no pg_config in it"
}

shift 2
"$verb" "$@"
