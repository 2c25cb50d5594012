#!/bin/sh
# usage: region.sh [--long | -D NAME...]
# The protocol of regions, searched by SPIN (README.md).
#   (nothing)   small systems, and the planted faults, each of which must be found; prints TAP
#   --long      larger systems; prints TAP
#   -D NAME...  one system; a trail that ends in an error is shown step by step
# Environment: CC (default cc), KEEP=1 keeps the work folder and names it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck disable=SC2034 # of search.sh
model='region.pml region_warp.pml region_engine.pml region_host.pml'
# shellcheck source=tests/model/search.sh
. "$here/search.sh"

small_systems() {
    holds two_warps_and_a_frame -DWRITE_ONLY
    holds two_warps_with_two_regions_each -DDEPTH=2
    holds three_warps_and_a_frame -DWARPS=3 -DWRITE_ONLY
    holds three_regions_and_two_frames -DREGIONS=3 -DFRAMES=2 -DWRITE_ONLY
    holds host_writes_and_syncs -DSYNC -DROUNDS=1
    holds host_deletes_what_is_read -DSYNC -DDELETES -DREADS
    holds list_of_changes_in_its_steps -DSYNC -DLIST -DROUNDS=1
    holds host_deletes_and_creates -DSYNC -DDELETES -DROUNDS=1
    holds frames_are_taken_away -DCHUNKS -DFRAMES=2
    holds engine_cleans -DCLEAN -DWRITE_ONLY
    holds engine_cleans_and_host_syncs -DCLEAN -DSYNC -DROUNDS=1
    holds engine_cleans_and_frames_are_taken_away -DCLEAN -DCHUNKS -DFRAMES=2 -DROUNDS=1
    holds engine_brings -DBRING -DWRITE_ONLY
    holds engine_brings_and_host_syncs -DBRING -DSYNC -DROUNDS=1
    holds engine_cleans_and_brings -DCLEAN -DBRING -DROUNDS=2
    ends two_warps_end -DROUNDS=2 -DWRITE_ONLY
    ends two_warps_with_two_regions_each_end -DROUNDS=2 -DDEPTH=2
    ends three_warps_end -DWARPS=3 -DROUNDS=1
    ends two_warps_and_a_host_end -DROUNDS=1 -DSYNC -DDELETES
    holds without_remote_one_region_at_a_time_is_served -DNO_REMOTE -DREGIONS=3
    errs without_remote_over_pinning_ends_in_a_deadlock 'invalid end state' -DNO_REMOTE -DDEPTH=2 -DREGIONS=3 -DFRAMES=2
}

planted_faults() {
    finds EVICT_BY_STORE 'reference_lost|evicted_while_mapped'
    finds EVICT_REFERENCED 'evicted_while_mapped|dropped'
    finds SLOT_NOT_COMPARED 'record_wrong|word_wrong' -DREGIONS=3 -DFRAMES=2
    finds TAKE_BY_STORE 'record_wrong'
    finds RECORD_LATE record_wrong
    finds HIT_IGNORES_BUSY 'evicted_while_mapped|lost_update|dropped'
    finds HIT_LEAVES_CLEAN dropped
    finds PUBLISH_EARLY lost_update
    finds DIRTY_DROPPED dropped
    finds LEAVES_DIRTY dropped
    finds CLEAN_LATE dropped
    finds DIRTY_WHILE_BUSY 'dropped|word_wrong'
    finds WRITE_BACK_UNCLAIMED dropped
    finds UNMAP_EARLY 'evicted_while_mapped|lost_update'
    finds UPGRADE_SHARED evicted_while_mapped
    finds FILL_UPGRADES evicted_while_mapped -DWRITE_ONLY
    finds SYNC_IGNORES_REFERENCES evicted_while_mapped -DSYNC
    finds SYNC_SKIPS_FETCHING lost_update -DSYNC
    finds HOST_IGNORES_BUSY host_reads_old -DSYNC
    finds NOT_LISTED host_reads_old -DSYNC
    finds CHANGED_UNWAITED host_reads_old -DSYNC -DLIST -DROUNDS=1
    finds COUNTED_UNWAITED host_reads_old -DSYNC -DLIST -DROUNDS=1
    finds LIST_RESET host_reads_old -DSYNC -DLIST -DROUNDS=1
    finds CPU_FILL_LEAVES_DIRTY 'host_reads_old|dropped' -DSYNC
    finds FAR_FORGOTTEN host_reads_old -DSYNC
    finds DELETE_UNCLAIMED lost_update -DSYNC -DDELETES
    finds RECORD_READ_EARLY lost_update -DSYNC -DDELETES
    finds CLEAN_REFERENCED dropped -DCLEAN
    finds CLEAN_AT_THE_END dropped -DCLEAN
    finds CLEAN_STAYS_LISTED dropped -DCLEAN
    finds EVICT_COPYING dropped -DCLEAN
    finds COPIES_UNWAITED host_reads_old -DCLEAN -DSYNC
    finds GIVEN_UP_AND_COPIED 'host_reads_old|dropped' -DCLEAN -DSYNC
    finds MAP_LEAVES_COMING 'word_wrong|lost_update' -DBRING
    finds BRING_BLINDLY lost_update -DBRING -DFRAMES=2
    finds SYNC_SKIPS_COMING lost_update -DBRING -DSYNC
    finds CLOSED_IS_FREE closed_frame_used -DCHUNKS -DFRAMES=2
}

large_systems() {
    # shellcheck disable=SC2034
    optimise='-O1 -DCOLLAPSE' memory_mib=6000 steps_max=20000000
    holds three_regions_and_two_frames_with_two_regions_each -DREGIONS=3 -DFRAMES=2 -DDEPTH=2
    holds three_warps_with_two_regions_each -DWARPS=3 -DDEPTH=2
    holds three_warps_and_a_host -DWARPS=3 -DSYNC -DREADS
    holds engine_cleans_with_three_regions_and_two_frames -DCLEAN -DREGIONS=3 -DFRAMES=2
    holds engine_brings_with_three_regions_and_two_frames -DBRING -DREGIONS=3 -DFRAMES=2 -DROUNDS=2
    holds host_does_everything -DSYNC -DDELETES -DCHUNKS -DWRITE_ONLY
    holds host_writes_and_syncs -DSYNC -DDELETES
    holds list_of_changes_in_its_steps -DSYNC -DLIST
}

run_model 58 8 "$@"
