#!/bin/sh
# usage: test_uninstall.sh SOURCE-FOLDER
# make uninstall removes what make install has written, for each prefix and PostgreSQL, and nothing else, whatever became of
# that PostgreSQL meanwhile. Programs that only write a file or two stand where install.sh calls meson and PostgreSQL.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/scripts" "$folder/postgres" "$folder/bin" "$folder/pg/server" "$folder/pg/bin" "$folder/pg2"
cp "$1/scripts/install.sh" "$1/scripts/uninstall.sh" "$folder/scripts/"
: >"$folder/pg/server/postgres.h"
: >"$folder/pg/pgxs.mk"
cat >"$folder/scripts/build.sh" <<'END'
#!/bin/sh
echo "${2#-Dprefix=}" >"$1/prefix"
END
cat >"$folder/scripts/setup.sh" <<'END'
#!/bin/sh
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
cat >"$folder/pg/bin/pg_config" <<'END'
#!/bin/sh
pg=${0%/bin/pg_config}
case $1 in
--bindir) echo "$pg/bin" ;;
--includedir-server) echo "$pg/server" ;;
--pgxs) echo "$pg/pgxs.mk" ;;
*) echo PostgreSQL ;;
esac
END
cat >"$folder/bin/pg_config" <<'END'
#!/bin/sh
exec "$(cat "${0%/bin/pg_config}/newest")/bin/pg_config" "$@"
END
echo "$folder/pg" >"$folder/newest"
cat >"$folder/postgres/Makefile" <<'END'
to = $(DESTDIR)$(dir $(shell $(PG_CONFIG) --includedir-server))
clean all:
install:
	mkdir -p $(to) && : >$(to)/gstore_fdw.so
uninstall:
	rm -f $(to)/gstore_fdw.so
END
chmod +x "$folder/bin"/* "$folder/scripts"/* "$folder/pg/bin/pg_config"
cp -r "$folder/pg/." "$folder/pg2"
: >"$folder/pg2/gstore_fdw.so" # another package's
PATH=$folder/bin:$PATH

fail() {
    echo "$*"
    exit 1
}
left() { # the files under the folders that things were installed in
    (cd "$folder" && find usr staged pg pg2 ! -type d 2>/dev/null | sort)
}

! "$folder/scripts/uninstall.sh" build >/dev/null 2>&1 || fail 'it removes what was never installed'
mkdir -p "$folder/usr/lib/pkgconfig"
: >"$folder/usr/lib/libother.so"
: >"$folder/usr/lib/pkgconfig/other.pc"
for other in a b k m o y z; do # of other installations below
    mkdir -p "$folder/usr/$other/pkgconfig"
    : >"$folder/usr/$other/pkgconfig/gvmem-keeper.pc"
done
before=$(left)
! PG_CONFIG=$folder/bin/none PREFIX=$folder/usr "$folder/scripts/install.sh" build >"$folder/out" 2>&1 || fail 'PG_CONFIG names no PostgreSQL'
grep -q 'PG_CONFIG=.*/bin/none finds no server headers' "$folder/out" || fail "no PostgreSQL: $(cat "$folder/out")"
[ "$(left)" = "$before" ] || fail "installed without the PostgreSQL that is named: $(left)"
PREFIX=$folder/usr "$folder/scripts/install.sh" build >"$folder/out" 2>&1 || fail "install: $(cat "$folder/out")"
grep -q "PKG_CONFIG_PATH=$folder/usr/lib/pkgconfig CMAKE_PREFIX_PATH=$folder/usr\$" "$folder/out" || fail "libraries elsewhere: $(cat "$folder/out")"
PREFIX=$folder/usr "$folder/scripts/install.sh" build >"$folder/out" 2>&1 || fail "install again: $(cat "$folder/out")"
(umask 077 && PREFIX=/usr DESTDIR=$folder/staged "$folder/scripts/install.sh" build) >"$folder/out" 2>&1 || fail "stage: $(cat "$folder/out")"
[ -z "$(find "$folder/staged" -type d ! -perm -005)" ] || fail "the umask closed $(find "$folder/staged" -type d ! -perm -005)"
[ "$(left | wc -l)" -eq $(($(echo "$before" | wc -l) + 2 * 5)) ] || fail "installed: $(left)"
echo "$folder/pg2" >"$folder/newest" # a newer PostgreSQL was installed
"$folder/scripts/uninstall.sh" build >"$folder/out" 2>&1 || fail "uninstall: $(cat "$folder/out")"
[ "$(left)" = "$before" ] || fail "left: $(left)"
[ ! -d "$folder/usr/lib/new folder" ] || fail 'a folder that it made is left'
[ -d "$folder/usr/lib/pkgconfig" ] || fail 'a folder that was there is gone'
! "$folder/scripts/uninstall.sh" build >/dev/null 2>&1 || fail 'it has a list after it has removed everything'

# Without PGXS, and without pg_config, the extension's files stay until it is tried again; all else goes.
echo "$folder/pg" >"$folder/newest"
for gone in pgxs.mk bin/pg_config; do
    PREFIX=$folder/usr "$folder/scripts/install.sh" build >"$folder/out" 2>&1 || fail "install: $(cat "$folder/out")"
    mv "$folder/pg/$gone" "$folder/gone"
    for again in '' ' again'; do
        ! "$folder/scripts/uninstall.sh" build >"$folder/out" 2>&1 || fail "uninstalled$again without $gone"
        grep -q "^uninstall: .*$folder/pg/bin/pg_config" "$folder/out" || fail "without $gone: $(cat "$folder/out")"
        [ -e "$folder/pg/gstore_fdw.so" ] || fail "gone without $gone"
        [ ! -e "$folder/usr/lib/libgvmem.so" ] || fail "libraries are left without $gone"
    done
    mv "$folder/gone" "$folder/pg/$gone"
    "$folder/scripts/uninstall.sh" build >"$folder/out" 2>&1 || fail "uninstall with $gone: $(cat "$folder/out")"
    [ "$(left)" = "$before" ] || fail "left with $gone: $(left)"
done
! make -n -C "$folder" -f "$1/postgres/plcuda/Makefile" PKG_CONFIG=: PG_CONFIG="$folder/nothing" uninstall >"$folder/out" 2>&1 ||
    fail "without pg_config: $(cat "$folder/out")"
