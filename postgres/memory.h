/*
 * postgres/memory.h - the memory that stores have of the keeper, as the directory knows it: what of it no version
 * needs, and how much there is.
 */
#ifndef GSTORE_MEMORY_H
#define GSTORE_MEMORY_H

#include "postgres/shared.h"

/* For a writer that begins, or begins anew, to write behind a table's rows; the table's lock is held. */
extern uint64 gstore_next_writer_number(void);

/*
 * What the writer of this number has written behind the rows of the table's newest version is to be given back.
 * GSTORE_NO_WRITER: what was unpacked for an export that failed.
 */
extern void gstore_ask_trim(Oid relation, uint64 writer_number);

/* Takes one store that has memory to give back, and what of its areas is of use, palloc'd. */
extern bool gstore_next_trim(gstore_store_name *name, gstore_extent **extents, uint32 *count);

/*
 * Takes one store, or copy, off the list of those that nothing refers to any more. False: there is none. One to which
 * a command is left stays.
 */
extern bool gstore_next_dead_store(gstore_store_name *name);
extern bool gstore_next_dead_copy(uint64 *id, uint32 *epoch);

/* What the keeper has said of itself, and of the stores by their numbers, which rise. */
extern void
gstore_note_report(const gstore_report *report, const gstore_store_size *sizes, uint32 size_count);

/* Bytes that hash tables of a role may take in one GPU's executor, in device and host memory together: gstore_fdw.gpu_join_memory. */
extern uint64 gstore_join_memory(void);

#endif
