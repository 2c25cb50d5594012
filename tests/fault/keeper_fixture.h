/* tests/fault/keeper_fixture.h - what a keeper and its clients do while driver calls fail.
 *
 *   keeper_fixture.c  a client that uses the whole interface; a witness, which must find all as it was
 *   keeper_calls.c    makes the driver fail, in the keeper's process or the client's
 *
 * Contents: chunk i of an object is filled with one word, that of the object plus i.
 *
 * Threads: one a process.
 */
#ifndef FAULT_KEEPER_FIXTURE_H
#define FAULT_KEEPER_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include <gvmem/client.h>
#include <gvmem/gvmem.h>
#include <gvmem/keeper.h>

#include "tests/lib/units.h"

#define CHUNK_BYTES (2 * MIB)

/* What the client says of its run; it travels between processes. */
typedef struct client_result {
    bool good;      /* nothing was answered that the interface does not list, no byte was wrong */
    bool published; /* surely */
    uint64_t public_chunks;  /* committed at least; with contents or zeros */
    uint64_t written_chunks; /* of these, from the first on, that surely have their contents */
} client_result;

/* What the client does, all of it: connects, and closes the connection at its end. accepted: statuses, a
 * bit for each, that any call may answer besides those that its contract lists. */
client_result client_run(const char *path, uint64_t accepted);

/* The witness: a client with an object of its own. Its process has no failing driver. */
typedef struct fixture_witness {
    gvm_client *keeper;
    gvm_object *still;
} fixture_witness;

bool witness_begin(fixture_witness *w, const char *path);
/* After the run, with a driver that works: data is intact, bytes are accounted for, and the keeper
 * does all it should. *frames is how many chunks it has, in both tiers. */
bool witness_check(fixture_witness *w, const client_result *result, uint64_t *frames);
void witness_end(fixture_witness *w);

/* How many chunks of its own object the witness has mapped when it is done. */
#define STILL_CHUNKS 2u

gvm_status fixture_serve(const char *path, gvm_keeper **out);

/* A client whose context breaks behind a release on a stream; false: it could not be done. Then the
 * end of that opening. The process has lost its device. */
bool fixture_break(const char *path);
void fixture_break_end(void);
/* Can a write lease be had on the object that the broken client has published? */
bool witness_may_write(fixture_witness *w);

/* Retains the device's context, for the test's own calls. After gvmi_driver_start(). */
bool fixture_enter(void);
uint64_t fixture_free_bytes(void);
void fixture_leave(void);

#endif
