#!/bin/sh
# usage: check-demo.sh [BUILD-FOLDER]
# Unpacks the archive of make dist in a fresh Debian 12, which has make and nothing else, and runs make demo there.
# Exits 77 where fresh-root.sh cannot make a root.
set -eu
cd "$(dirname "$0")/.."

if [ -z "${ROOT:-}" ]; then
    ARCHIVE=$(packaging/dist.sh "${1:-build}")
    export ARCHIVE
    exec packaging/fresh-root.sh "${1:-build}" packaging/check-demo.sh
fi
mkdir "$ROOT/src"
tar -C "$ROOT/src" --strip-components=1 -xzf "$ARCHIVE"
chroot "$ROOT" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C.UTF-8 /bin/sh -euc '
apt-get update -q
apt-get install -y -q --no-install-recommends make
make -C /src demo' </dev/null
