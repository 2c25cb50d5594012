#!/bin/sh
# usage: test_uninstall.sh SOURCE-FOLDER
# make uninstall removes what make install has written, for each prefix and PostgreSQL, and nothing else. Programs that only
# write a file or two stand where install.sh calls meson and PostgreSQL.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/scripts" "$folder/postgres" "$folder/bin" "$folder/pg/server"
cp "$1/scripts/install.sh" "$1/scripts/uninstall.sh" "$folder/scripts/"
: >"$folder/pg/server/postgres.h"
cat >"$folder/scripts/build.sh" <<'END'
#!/bin/sh
echo "${2#-Dprefix=}" >"$1/prefix"
END
cat >"$folder/bin/meson" <<'END'
#!/bin/sh
prefix=$DESTDIR$(cat "$3/prefix")
mkdir -p "$3/meson-logs" "$prefix/lib/pkgconfig"
echo '# List of files' >"$3/meson-logs/install-log.txt"
[ -d "$prefix/lib/new folder" ] || echo "$prefix/lib/new folder" >>"$3/meson-logs/install-log.txt"
mkdir -p "$prefix/lib/new folder"
: >"$prefix/lib/new folder/a file"
: >"$prefix/lib/pkgconfig/gvmem-keeper.pc"
ln -sf libgvmem.so.0 "$prefix/lib/libgvmem.so"
echo "$prefix/lib/an alias" >"$3/meson-logs/install-aliases.txt"
: >"$prefix/lib/an alias"
printf '%s\n' "$prefix/lib/new folder/a file" "$prefix/lib/pkgconfig/gvmem-keeper.pc" "$prefix/lib/libgvmem.so" >>"$3/meson-logs/install-log.txt"
END
cat >"$folder/bin/pkg-config" <<'END'
#!/bin/sh
END
cat >"$folder/bin/pg_config" <<'END'
#!/bin/sh
case $1 in
--includedir-server) echo "${0%/bin/pg_config}/pg/server" ;;
*) echo PostgreSQL ;;
esac
END
cat >"$folder/postgres/Makefile" <<'END'
to = $(DESTDIR)$(dir $(shell $(PG_CONFIG) --includedir-server))
clean all:
install:
	mkdir -p $(to) && : >$(to)/gstore_fdw.so
uninstall:
	rm -f $(to)/gstore_fdw.so
END
chmod +x "$folder/bin"/* "$folder/scripts"/*
PATH=$folder/bin:$PATH

fail() {
    echo "$*"
    exit 1
}
left() { # the files under the folders that things were installed in
    (cd "$folder" && find usr staged pg ! -type d 2>/dev/null | sort)
}

! "$folder/scripts/uninstall.sh" build >/dev/null 2>&1 || fail 'it removes what was never installed'
mkdir -p "$folder/usr/lib/pkgconfig"
: >"$folder/usr/lib/libother.so"
: >"$folder/usr/lib/pkgconfig/other.pc"
before=$(left)
PREFIX=$folder/usr "$folder/scripts/install.sh" build >"$folder/out" 2>&1 || fail "install: $(cat "$folder/out")"
PREFIX=$folder/usr "$folder/scripts/install.sh" build >"$folder/out" 2>&1 || fail "install again: $(cat "$folder/out")"
PREFIX=/usr DESTDIR=$folder/staged "$folder/scripts/install.sh" build >"$folder/out" 2>&1 || fail "stage: $(cat "$folder/out")"
[ "$(left | wc -l)" -eq $(($(echo "$before" | wc -l) + 2 * 5)) ] || fail "installed: $(left)"
"$folder/scripts/uninstall.sh" build >"$folder/out" 2>&1 || fail "uninstall: $(cat "$folder/out")"
[ "$(left)" = "$before" ] || fail "left: $(left)"
[ ! -d "$folder/usr/lib/new folder" ] || fail 'a folder that it made is left'
[ -d "$folder/usr/lib/pkgconfig" ] || fail 'a folder that was there is gone'
! "$folder/scripts/uninstall.sh" build >/dev/null 2>&1 || fail 'it has a list after it has removed everything'
