#!/bin/sh
# usage: run.sh TABLE [--long | -D NAME...]
# The keeper's lease protocol, searched by SPIN (README.md). TABLE is the program made of table.c.
#   (nothing)   small systems, and the planted faults, each of which must be found; prints TAP
#   --long      larger systems, and the faults that only they show; prints TAP
#   -D NAME...  one system; a trail that ends in an error is shown step by step
# Environment: CC (default cc), KEEP=1 keeps the work folder and names it.
set -eu
[ $# -ge 1 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
table=$(realpath "$1")
shift
here=$(cd "$(dirname "$0")" && pwd)

# shellcheck disable=SC2034 # of search.sh
model='keeper.pml client.pml environment.pml'
# shellcheck source=tests/model/search.sh
. "$here/search.sh"
"$table" >table.pml
"$table" --rows >rows
: >taken

# The searches so far took every transition of the table, and no other.
table_is_taken() {
    sort -u taken >taken.sorted
    cut -d ' ' -f 1-3 rows | sort -u >rows.sorted
    if cmp -s taken.sorted rows.sorted; then
        verdict ok "table_every_row_is_taken ($(wc -l <rows | tr -d ' ') rows)"
    else
        verdict not 'table_every_row_is_taken'
        diff rows.sorted taken.sorted | sed 's/^/# /'
        sed 's/^/# /' rows
    fi
}

# Without any one of its rows, the model steps outside the table.
table_is_needed() {
    cp table.pml whole.pml
    while read -r _ _ _ from event to; do
        grep -v "(from) == $from && (event) == $event && (to) == $to)" whole.pml >table.pml
        search '' '-DSAFETY' -DTHREADS=2 -DMOVES -DKILLS || true
        if ! cmp -s table.pml whole.pml && grep -q '^pan:1: assertion violated.*not_in_table' out; then
            verdict ok "table_without_row_is_noticed $from $event $to"
        else
            verdict not "table_without_row_is_noticed $from $event $to"
            explain
        fi
    done <rows
    cp whole.pml table.pml
}

small_systems() {
    holds two_clients_ask_time_out_and_give_up -DTHREADS=2 -DLIMITS -DTIMEOUTS
    holds two_clients_and_moves -DTHREADS=2 -DMOVES
    holds two_clients_that_keep_all_mapped_and_moves -DTHREADS=2 -DMOVES -DLAZY=0
    holds two_clients_that_map_at_an_acquire_and_moves -DTHREADS=2 -DROUNDS=2 -DMOVES -DLAZY=2
    holds two_clients_and_moves_between_three_places -DTHREADS=2 -DROUNDS=1 -DMOVES -DLENDS
    holds two_clients_and_death -DTHREADS=2 -DKILLS
    holds two_clients_and_cutting_off -DTHREADS=2 -DCUTS
    holds two_clients_moves_and_late_answers -DTHREADS=2 -DROUNDS=1 -DMOVES -DSLOW
    holds three_threads_of_two_clients -DTHREADS=3 -DROUNDS=1
    holds writer_is_cut_off_and_its_process_ends -DTHREADS=2 -DCUTS -DEXITS -DNO_ROOM
    holds writer_is_cut_off_and_room_comes -DTHREADS=2 -DCUTS -DROOM_COMES
    holds writer_is_cut_off_and_copies_fail -DTHREADS=2 -DCUTS -DSPARE -DCOPY_FAILS
    holds writer_of_untracked_is_cut_off -DTHREADS=2 -DCUTS -DUNTRACKED
    holds writer_of_untracked_is_cut_off_and_two_remain \
        -DTHREADS=3 -DCLIENTS=3 -DROUNDS=1 -DCUTS -DUNTRACKED -DREADS
    ends two_clients_end -DTHREADS=2 -DROUNDS=1
    ends two_clients_and_death_end -DTHREADS=2 -DROUNDS=1 -DKILLS
    ends two_clients_and_cutting_off_end -DTHREADS=2 -DROUNDS=1 -DCUTS
    ends writer_is_cut_off_and_its_process_ends_end -DTHREADS=2 -DROUNDS=1 -DCUTS -DEXITS -DNO_ROOM
    ends writer_is_cut_off_and_room_comes_end -DTHREADS=2 -DROUNDS=1 -DCUTS -DROOM_COMES
    table_is_taken
    table_is_needed
}

planted_faults() {
    finds NO_BARRIER_ACQUIRE two_leases -DTHREADS=2
    finds NO_BARRIER_REVOKE 'two_leases|invalid end state' -DTHREADS=2
    finds NO_BARRIER_RELEASE 'invalid end state' -DTHREADS=2
    finds NO_SECOND_LOOK two_leases -DTHREADS=3 -DROUNDS=2
    finds PERMIT_EARLY two_leases -DTHREADS=3 -DROUNDS=2
    finds HOLDER_READ two_leases -DTHREADS=3 -DROUNDS=2
    finds TAKEN_EARLY two_leases -DTHREADS=2
    finds TAKEN_UNHEARD 'invalid end state' -DTHREADS=2
    finds SILENT_BACKOUT 'invalid end state' -DTHREADS=2 -DLIMITS
    finds RING_LAST_ONLY 'invalid end state' -DTHREADS=3 -DROUNDS=1 -DKEEPS
    finds GONE_SILENT 'invalid end state' -DTHREADS=2 -DMOVES -DBREAKS
    finds IGNORE_GRANTED 'lease_while_frozen|frame_reused' -DTHREADS=2 -DMOVES
    finds COPY_UNLOOKED 'lease_while_frozen|frame_reused' -DTHREADS=2 -DMOVES
    finds GRANT_UNMAPPED lost_update -DTHREADS=2
    finds READY_EARLY lost_update -DTHREADS=3 -DROUNDS=2
    finds EVICTED_FOLLOWS lost_update -DTHREADS=2 -DMOVES
    finds DIRTY_LATE lost_update -DTHREADS=2 -DMOVES -DKILLS
    finds THAW_EARLY 'frame_reused|lost_update' -DTHREADS=2 -DMOVES
    finds RECALL_EARLY frame_reused -DTHREADS=2 -DROUNDS=1 -DMOVES -DLENDS
    finds VOID_EARLY 'frame_reused|lost_update' -DTHREADS=2 -DMOVES -DKILLS
    finds CUT_COUNTS 'invalid end state' -DTHREADS=2 -DCUTS
    finds REUSE_HELD frame_reused -DTHREADS=2 -DMOVES -DCUTS
    finds CUT_WRITER_KEEPS_FRAME lost_update -DTHREADS=2 -DCUTS
    finds CUT_UNLOOKED lost_update -DTHREADS=2 -DCUTS
    finds GONE_LATE loss_not_reported -DTHREADS=2 -DCUTS
    finds GRANTED_CANNOT_WRITE lost_update -DTHREADS=2 -DCUTS
    finds GONE_OPENS_FENCED lost_update -DTHREADS=2 -DCUTS
    finds THAW_OPENS_FENCED lost_update -DTHREADS=2 -DCUTS -DCOPY_FAILS
    finds FENCE_ENDS_EARLY lost_update -DTHREADS=2 -DCUTS -DCOPY_FAILS
    finds SHARED_WHILE_FENCED lost_update -DTHREADS=2 -DCUTS -DTIMEOUTS -DEXITS -DNO_ROOM
    finds EXIT_UNHEARD 'invalid end state' -DTHREADS=2 -DCUTS -DEXITS -DNO_ROOM
    finds ROOM_UNHEARD 'invalid end state' -DTHREADS=2 -DCUTS -DROOM_COMES
    finds WRITTEN_COPY_IS_CLEAN lost_update -DTHREADS=2 -DMOVES -DCUTS
    finds FENCE_IGNORES_READERS lease_while_frozen \
        -DTHREADS=3 -DCLIENTS=3 -DROUNDS=1 -DCUTS -DUNTRACKED -DREADS
}

large_systems() {
    # shellcheck disable=SC2034
    optimise='-O1 -DCOLLAPSE' memory_mib=6000
    holds two_clients_moves_and_death -DTHREADS=2 -DMOVES -DKILLS
    holds two_clients_moves_and_cutting_off -DTHREADS=2 -DMOVES -DCUTS
    holds two_clients_moves_and_failing_maps -DTHREADS=2 -DMOVES -DBREAKS
    holds two_clients_moves_and_time_outs -DTHREADS=2 -DMOVES -DTIMEOUTS -DLIMITS
    holds two_clients_moves_between_three_places_and_death -DTHREADS=2 -DROUNDS=1 -DMOVES -DLENDS -DKILLS
    holds two_clients_moves_between_three_places_and_cutting_off -DTHREADS=2 -DROUNDS=1 -DMOVES -DLENDS -DCUTS
    holds three_threads_and_a_lease_kept_for_ever -DTHREADS=3 -DROUNDS=1 -DKEEPS
    holds three_threads_and_moves -DTHREADS=3 -DROUNDS=1 -DMOVES
    holds writer_is_cut_off_moves_and_its_process_ends -DTHREADS=2 -DMOVES -DCUTS -DEXITS
    holds writer_is_cut_off_and_two_remain -DTHREADS=3 -DCLIENTS=3 -DROUNDS=1 -DCUTS
    holds two_writers_of_untracked_are_cut_off -DTHREADS=3 -DCLIENTS=3 -DROUNDS=1 -DCUTS=2 -DEXITS \
        -DUNTRACKED -DREADS -DLAZY=0 # with a client that maps at an acquire, more than 6000 MiB
    ends two_clients_moves_and_death_end -DTHREADS=2 -DROUNDS=1 -DMOVES -DKILLS
    finds COPY_JUDGED_LATE lost_update -DTHREADS=2 -DMOVES -DCUTS -DEXITS
    finds EXIT_ENDS_FENCE lost_update -DTHREADS=3 -DCLIENTS=3 -DROUNDS=1 -DCUTS=2 -DEXITS \
        -DUNTRACKED -DREADS -DLAZY=0
}

run_model 65 14 "$@"
