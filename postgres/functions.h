/* postgres/functions.h - what SQL functions on tables in GPU memory have in common. */
#ifndef GSTORE_FUNCTIONS_H
#define GSTORE_FUNCTIONS_H

#include "postgres.h"

#include "postgres/directory.h"

/* ERROR if there is no such relation (42P01), or it is no table of ours (42809). */
extern void gstore_check_table(Oid relation);

/* The same, and that the user may SELECT from it (42501). */
extern void gstore_check_readable(Oid relation);

/* Is the user the table's owner, or a member of it? */
extern bool gstore_is_owner(Oid relation);

/*
 * The revision that the statement sees, of a table that was checked. What the transaction itself has
 * changed is not part of a revision before its commit.
 */
extern void gstore_look_now(Oid relation, bool want_dead, gstore_view *view);

#endif
