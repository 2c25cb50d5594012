#!/bin/sh
# usage: callback.sh [--long | -D NAME...]
# Calls of host functions by kernels, searched by SPIN (README.md).
#   (nothing)   small systems, and the planted faults, each of which must be found; prints TAP
#   --long      larger systems; prints TAP
#   -D NAME...  one system; a trail that ends in an error is shown step by step
# Environment: CC (default cc), KEEP=1 keeps the work folder and names it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck disable=SC2034 # of search.sh
model='callback.pml'
# shellcheck source=tests/model/search.sh
. "$here/search.sh"

small_systems() {
    holds two_kernels_call_and_post_by_two_slots -DCALL -DPOST -DSLOTS=2 -DSERVERS=2 -DREENTRANT
    holds calls_and_joins_are_closed -DCALL -DJOIN -DCLOSERS=1
    holds two_threads_make_what_is_left_at_close -DPOST -DSLOTS=2 -DSERVERS=2 -DCLOSERS=1
    holds posts_and_signals_are_drained -DPOST -DSIGNAL -DDRAINS
    holds calls_and_joins_may_be_late -DCALL -DJOIN -DLATE
    holds destroyed_while_it_is_drained -DPOST -DDRAINS -DDESTROYS -DCLOSERS=1
    holds function_may_stay_for_ever -DCALL -DPOST -DLATE -DSTUCK
    ends kernels_end_though_it_is_closed -DCALL -DPOST -DJOIN -DCLOSERS=1
    errs drain_may_miss_a_signal_while_another_kernel_runs not_drained -DSIGNAL -DDRAINS -DEACH_KERNEL
}

planted_faults() {
    finds NOT_TAKEN made_twice -DCALL
    finds POSTED_BEFORE_WORDS wrong_reply -DCALL
    finds LEFT_IS_FREE wrong_reply -DCALL -DLATE -DCALLS=2
    finds LATE_IS_FREE wrong_reply -DCALL -DLATE -DCALLS=2
    finds TELLER_STOPS not_told -DJOIN -DSIGNAL
    finds SERVED_READ_LATE not_served -DJOIN
    finds CLOSED_BEFORE_DONE closed_though_served -DCALL -DCLOSERS=1
    finds CLOSED_READ_LAST closed_though_served -DCALL -DCLOSERS=1
    finds CLOSED_NOT_LOOKED closed_though_served -DCALL -DJOIN -DCLOSERS=1
    finds CLOSING_TURNED_AWAY not_made_at_close -DPOST -DSLOTS=2 -DSERVERS=2 -DCLOSERS=1
    finds DRAINER_COUNTED_LATE 'invalid end state' -DPOST -DDRAINS
    finds DONE_BEFORE_FINISHED 'invalid end state' -DPOST -DSERVERS=2 -DDRAINS
}

large_systems() {
    # shellcheck disable=SC2034
    optimise='-O1 -DCOLLAPSE' memory_mib=3000 steps_max=20000000
    holds two_threads_close_what_two_threads_serve -DCALL -DPOST -DSERVERS=2 -DCLOSERS=2
}

run_model 21 1 "$@"
