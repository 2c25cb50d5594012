#!/bin/sh
# Lists the project's files that match the patterns (all without any), one a line: what git tracks
# or would; without git, what is there.
set -eu
cd "$(dirname "$0")/.."
if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    git ls-files --cached --others --exclude-standard -- "$@" | sort -u | while read -r file; do
        if [ -f "$file" ]; then printf '%s\n' "$file"; fi
    done
    exit
fi
[ $# -gt 0 ] || set -- '*'
for pattern in "$@"; do
    find . -path './.git' -prune -o -path './build*' -prune -o -type f -name "$pattern" -print
done | sed 's|^\./||' | sort -u
