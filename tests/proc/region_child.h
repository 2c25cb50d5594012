/* tests/proc/region_child.h - children (tests/lib/child.h) that have the homes of one collection in common.
 *
 * Each attaches the object NAME of the keeper to a space of its own, and then writes, syncs and reads as it is commanded, by kernels that
 * write and check all of what is theirs. What they are to find, and what they found, is on a board that all of them map.
 */
#ifndef PROC_REGION_CHILD_H
#define PROC_REGION_CHILD_H

#include <stdatomic.h>

#include <gvmem/region_object.h>

#include "tests/lib/child.h"

#define REGIONS_NAME "/regions"
#define REGION_COUNT 200u
#define REGION_BYTES (24ull * 1024) /* does not divide a chunk */
#define BUDGET_BYTES (2ull << 20)   /* less than half of them */
#define PARTIES 4u                  /* children that write */
#define PROBLEM_BYTES 200u

/* Of one child. */
typedef struct party {
    _Atomic uint64_t started, synced; /* rounds of REGION_RUN, the latest */
    uint64_t digests[REGION_COUNT];   /* of REGION_CHECK, of what kernels read */
    uint64_t at_home[REGION_COUNT];   /* of REGION_CHECK_BY_CPU */
    char problem[PROBLEM_BYTES];      /* what went wrong in REGION_RUN */
} party;

typedef struct board {
    char socket[100];
    uint32_t low[REGION_COUNT], high[REGION_COUNT]; /* rounds, of which units may be */
    party parties[PARTIES];
} board;

/* A command's a and b. */
typedef enum region_verb {
    REGION_ATTACH, /* as party a, to device b of the machine */
    REGION_DETACH,
    REGION_WRITE,        /* what is its own in round a; b: regions have owners */
    REGION_WRITE_ALL,    /* every region, in round a */
    REGION_CPU_WRITE,    /* the CPU writes what is its own in round a */
    REGION_SYNC,         /* once more as long as it returns GVM_E_TIMEOUT */
    REGION_CHECK,        /* every region is as the board says */
    REGION_CHECK_BY_CPU, /* by the CPU */
    REGION_RUN, /* writes what it owns and syncs, from round a on, b times; 0: until it is killed */
    REGION_ARM, /* kill yourself at the ath step from now (keeper_step.c) */
} region_verb;

typedef struct region_answer {
    gvm_status status;
    uint64_t value; /* REGION_RUN: steps that it took */
    char text[PROBLEM_BYTES];
} region_answer;

/* main() must begin with this; it does not return in a child. */
void region_child_main(int argc, char **argv);

/* A child that has the board. */
child region_child_start(int board_fd);

bool region_post(child *c, region_verb verb, uint64_t a, uint64_t b);
region_answer region_wait(child *c);
region_answer region_do(child *c, region_verb verb, uint64_t a, uint64_t b);

#endif
