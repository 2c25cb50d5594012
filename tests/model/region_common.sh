#!/bin/sh
# usage: region_common.sh [--long | -D NAME...]
# Homes of regions in common, searched by SPIN (README.md).
#   (nothing)   small systems, and the planted faults, each of which must be found; prints TAP
#   --long      larger systems; prints TAP
#   -D NAME...  one system; a trail that ends in an error is shown step by step
# Environment: CC (default cc), KEEP=1 keeps the work folder and names it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck disable=SC2034 # of search.sh
model='region_common.pml'
# shellcheck source=tests/model/search.sh
. "$here/search.sh"

small_systems() {
    holds two_processes_take_turns
    holds clean_frames_are_evicted -DEVICTS
    holds process_is_killed -DTURNS=1 -DDEATH
    holds process_is_cut_off_and_killed -DTURNS=1 -DDEATH -DCUT_OFF
    holds collection_is_destroyed_unsynced -DLEAVES
}

planted_faults() {
    finds RAISED_EARLY 'stale|differ'
    finds BLOCK_RAISED_FIRST 'stale|differ'
    finds VERSIONS_ORDERED 'stale|differ'
    finds MAPPED_FORGOTTEN differ -DTURNS=1 -DMAPS
    finds DEATH_UNSEEN differ -DTURNS=1 -DDEATH
    finds COUNTED_EARLY differ -DTURNS=1 -DDEATH
    finds LEFT_BEFORE_COPIES differ -DLEAVES
}

large_systems() {
    # shellcheck disable=SC2034
    optimise='-O1 -DCOLLAPSE' memory_mib=3000 steps_max=20000000
    holds process_is_killed_in_one_of_two_turns -DDEATH
    holds writers_in_any_order -DRACE
}

run_model 12 2 "$@"
