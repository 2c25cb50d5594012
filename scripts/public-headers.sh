#!/bin/sh
# Lists the public headers, one a line, as paths from the root.
set -eu
cd "$(dirname "$0")/.."
find include/gvmem -name '*.h' | sort
