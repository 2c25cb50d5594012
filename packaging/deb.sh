#!/bin/sh
# usage: deb.sh [BUILD-FOLDER]
# Makes Debian packages of the tree, in BUILD-FOLDER/deb, and has lintian look at them. PG says for which PostgreSQL the
# extension is (default 15). Needs nvcc, in TOOLKIT=FOLDER/bin, in PATH or where setup.sh leaves it; with
# DEB_BUILD_PROFILES=pkg.gvmem.nocuda it does not, and the packages have no kernels for real GPUs. DEB_BUILD_OPTIONS as
# Debian's policy has them: nocheck, parallel=N. DEBEMAIL is the maintainer's address; without it, the last commit's.
#
# What changes from release to release is written in one place each: the version in gvmem/status.h, from which the
# name of the library follows; names and texts in packaging/debian have @SO@, @PG@ and the like in their places.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
pg=${PG:-15}

scripts/setup.sh deb
archive=$(packaging/dist.sh "$build")
version=$(basename "$archive" .tar.gz)
version=${version#gvmem-}
so=${version%.*}
maintainer=${DEBEMAIL:-$(git log -1 --format=%ae 2>/dev/null || echo maintainers@gvmem.invalid)}
date=$(git log -1 --format=%cD 2>/dev/null || date -R)

deb=$build/deb
rm -rf "$deb"
mkdir -p "$deb"
tar -C "$deb" -xzf "$archive"
tree=$deb/gvmem-$version
cp -R packaging/debian "$tree/debian"
cat >"$tree/debian/changelog" <<END
gvmem ($version) unstable; urgency=medium

  * CHANGELOG.md has what is new.

 -- gvmem maintainers <$maintainer>  $date
END
for file in "$tree"/debian/*; do
    [ -f "$file" ] || continue
    target=$(printf '%s\n' "${file%.in}" | sed "s/@SO@/$so/; s/@PG@/$pg/")
    sed "s/@SO@/$so/g; s/@PG@/$pg/g; s/@MAINTAINER@/$maintainer/g" "$file" >"$target.new"
    rm "$file"
    mv "$target.new" "$target"
done
chmod +x "$tree/debian/rules"

if [ -z "${TOOLKIT:-}" ] && [ -x build-fetched/cuda/nvidia/cu13/bin/nvcc ] && ! command -v nvcc >/dev/null; then
    export TOOLKIT="$PWD/build-fetched/cuda/nvidia/cu13"
fi
DEB_BUILD_OPTIONS="parallel=$(nproc) ${DEB_BUILD_OPTIONS:-}"
export DEB_BUILD_OPTIONS
(cd "$tree" && dpkg-buildpackage -us -uc -b)
(cd "$deb" && lintian --fail-on error,warning --tag-display-limit 0 --allow-root ./*.changes)
ls "$deb"/*.deb
