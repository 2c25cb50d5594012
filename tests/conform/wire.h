/* tests/conform/wire.h - messages between the runner and a worker: one packet each, over a
 * SOCK_SEQPACKET pair.
 *
 * The runner sends the number of a case (uint32_t); the worker answers with any number of messages
 * and ends with WIRE_DONE.
 */
#ifndef CONFORM_WIRE_H
#define CONFORM_WIRE_H

#define CONFORM_TEXT_BYTES 600

enum {
    WIRE_DONE = 'd', /* the case is over; text: empty, or "leave" if the worker must not be used again */
    WIRE_FAILURE = 'f',  /* text: where and what */
    WIRE_OBSERVED = 'o', /* text: what the case saw */
    WIRE_SKIPPED = 's',  /* text: why */
    WIRE_DEVICE = 'n',   /* text: name of the first device */
    WIRE_VERSION = 'v',  /* text: driver version, decimal */
};

struct conform_message {
    char kind;
    char text[CONFORM_TEXT_BYTES];
};

/* In a worker; elsewhere nothing is sent. */
void conform_wire_send(char kind, const char *text);

/* Runs a function that makes expectations, then undoes what it took. */
enum conform_outcome { OUTCOME_PASSED, OUTCOME_SKIPPED, OUTCOME_FAILED };
enum conform_outcome conform_try(void (*run)(void));

#endif
