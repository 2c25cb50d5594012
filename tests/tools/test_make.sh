#!/bin/sh
# usage: test_make.sh MAKEFILE
# What others call by name: make alone lists the targets and builds nothing; what `pgxn install` calls, `make
# PG_CONFIG=FILE all` and then install, builds and installs for that PostgreSQL. Folders may have blanks in their names. Scripts that only say how
# they were called stand where the makefile expects those that do it.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp "$1" "$folder/Makefile"
mkdir "$folder/scripts"
# shellcheck disable=SC2016 # the scripts expand it
for script in build install; do
    printf '#!/bin/sh\necho "%s of $1 for $PG_CONFIG, DESTDIR=${DESTDIR:-}"\n' "$script" >"$folder/scripts/$script.sh"
    chmod +x "$folder/scripts/$script.sh"
done
failed=0

expect() { # WANTED TARGET-AND-VARIABLES...: the first line that make prints begins so
    wanted=$1
    shift
    said=$(env -u MAKEFLAGS -u MAKELEVEL make -C "$folder" --no-print-directory "$@" 2>&1 | head -n 1)
    case $said in
    "$wanted"*) ;;
    *)
        failed=1
        echo "make $*: \"$said\", not \"$wanted\""
        ;;
    esac
}

expect '  make help '
expect 'build of build for /pg/bin/pg_config' PG_CONFIG=/pg/bin/pg_config all
expect 'install of build for /pg/bin/pg_config' PG_CONFIG=/pg/bin/pg_config install
expect 'install of my build for /pg/bin/pg_config, DESTDIR=a b' PG_CONFIG=/pg/bin/pg_config BUILD='my build' DESTDIR='a b' install
mkdir "$folder/my" "$folder/build" "$folder/my build" "$folder/my build-x"
expect 'rm -rf "my build" "my build"-*' BUILD='my build' clean
[ "$(cd "$folder" && echo build* my*)" = 'build my' ] || {
    failed=1
    echo 'make clean removes other folders'
}
exit "$failed"
