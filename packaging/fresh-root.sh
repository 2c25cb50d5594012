#!/bin/sh
# usage: fresh-root.sh BUILD-FOLDER COMMAND [ARGUMENT...]
# Runs COMMAND with ROOT set to the folder of a fresh Debian 12, made for it and gone afterwards, whatever
# the command starts there. Base system and packages are fetched from Debian's mirror (MIRROR: another
# one) and kept in BUILD-FOLDER/fresh-root for the next time. Exits 77, with the reason, where this
# cannot be had: it takes root, debootstrap and the mirror.
set -eu
cd "$(dirname "$0")/.."
[ $# -ge 2 ] || { sed -n '2,6s/^# //p' "$0" >&2; exit 2; }

unavailable() {
    echo "fresh-root: $1" >&2
    exit 77
}

# In namespaces of its own: mounts and processes end with the first process.
if [ -z "${FRESH_ROOT:-}" ]; then
    mkdir -p "$1/fresh-root/archives/partial"
    cache=$(cd "$1/fresh-root" && pwd)
    shift
    [ "$(id -u)" -eq 0 ] || unavailable 'only root can make a root'
    scripts/setup.sh root || unavailable 'there is no debootstrap'
    unshare --mount --pid --fork true 2>/dev/null || unavailable 'no namespaces can be made here'
    FRESH_ROOT=$(mktemp -d /var/tmp/gvmem-root.XXXXXX)
    trap 'rm -rf --one-file-system "$FRESH_ROOT"' EXIT
    trap 'exit 1' HUP INT TERM
    debian() { debootstrap --variant=minbase --include=ca-certificates "$@" bookworm "$FRESH_ROOT" ${MIRROR:+"$MIRROR"}; }
    if [ ! -s "$cache/base.tar" ]; then
        debian --make-tarball="$cache/base.part" >"$cache/log" 2>&1 || unavailable "debootstrap: $(tail -n 1 "$cache/log")"
        mv "$cache/base.part" "$cache/base.tar"
        mkdir -p "$FRESH_ROOT"
    fi
    debian --unpack-tarball="$cache/base.tar" >"$cache/log" 2>&1 || unavailable "debootstrap: $(tail -n 1 "$cache/log")"
    chmod 755 "$FRESH_ROOT"
    export FRESH_ROOT FRESH_CACHE="$cache"
    code=0
    unshare --mount --pid --fork --kill-child --propagation private "$0" - "$@" || code=$?
    exit "$code"
fi

shift
export ROOT="$FRESH_ROOT"
mount -t proc proc "$ROOT/proc"
for folder in sys dev dev/pts; do mount --bind "/$folder" "$ROOT/$folder"; done
mount -t tmpfs -o mode=1777 tmpfs "$ROOT/dev/shm"
mount --bind "$FRESH_CACHE/archives" "$ROOT/var/cache/apt/archives"
cp -L /etc/resolv.conf "$ROOT/etc/"
# The network may have certificates of its own.
[ ! -f /etc/ssl/certs/ca-certificates.crt ] || cp -L /etc/ssl/certs/ca-certificates.crt "$ROOT/etc/ssl/certs/"
# No daemon is started by being installed; nothing is synced to the disk; what was fetched is kept.
printf '#!/bin/sh\nexit 101\n' >"$ROOT/usr/sbin/policy-rc.d"
chmod +x "$ROOT/usr/sbin/policy-rc.d"
echo force-unsafe-io >"$ROOT/etc/dpkg/dpkg.cfg.d/fresh-root"
echo 'APT::Keep-Downloaded-Packages "true";' >"$ROOT/etc/apt/apt.conf.d/fresh-root"
unset FRESH_ROOT FRESH_CACHE
"$@"
