#!/bin/sh
# usage: dist.sh [BUILD-FOLDER]
# Makes BUILD-FOLDER/gvmem-VERSION.tar.gz of the tree as it is, what git ignores left out, with PGXN's META.json
# at its top, and prints its path. The files' times are those of the last commit, so that the same tree makes
# the same archive.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
version=$(scripts/version.sh)
extension=$(sed -n "s/^default_version = '\(.*\)'$/\1/p" postgres/gstore_fdw.control)
name=gvmem-$version
time=$(git log -1 --format=@%ct 2>/dev/null || date +@%s)

mkdir -p "$build"
work=$(mktemp -d "$build/dist.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/$name"
scripts/sources.sh | tar -cf - -T - | tar -C "$work/$name" -xf -
sed "s/@VERSION@/$version/; s/@EXTENSION@/$extension/" packaging/META.json.in >"$work/$name/META.json"
packaging/check-meta.py "$work/$name" >&2
tar -C "$work" --sort=name --mtime="$time" --owner=0 --group=0 --numeric-owner --mode=go+rX,go-w -cf "$work/$name.tar" "$name"
gzip -9n "$work/$name.tar"
mv "$work/$name.tar.gz" "$build/"
echo "$build/$name.tar.gz"
