/* postgres/command.h - what backends ask the GPU memory keeper for, in shared memory.
 *
 * Plain C, for both sides: backends (window.c) are PostgreSQL processes, service threads (service.c)
 * know nothing of PostgreSQL. A window belongs to one backend at a time, from taking it to the end of
 * its command; the command's state says whose turn it is:
 *
 *     IDLE -> POSTED (backend) -> DONE (service thread) -> IDLE (backend)
 *
 * Only the side whose turn it is touches the command and the window's bytes.
 */
#ifndef GSTORE_COMMAND_H
#define GSTORE_COMMAND_H

#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>

#define GSTORE_RANGES_MAX 256u
#define GSTORE_WINDOWS_MAX 256u
#define GSTORE_ERROR_BYTES 200

typedef enum gstore_part {
    GSTORE_VALUES,
    GSTORE_NULLS,
    GSTORE_BODIES,
} gstore_part;

typedef enum gstore_verb {
    GSTORE_READ,  /* areas -> window */
    GSTORE_WRITE, /* window -> areas, which grow as needed */
    GSTORE_DROP,  /* the store's areas go */
} gstore_verb;

typedef enum gstore_command_state {
    GSTORE_IDLE,
    GSTORE_POSTED,
    GSTORE_DONE,
} gstore_command_state;

/* One piece of one area. */
typedef struct gstore_range {
    uint16_t column; /* attribute number */
    uint8_t part;    /* gstore_part */
    uint8_t fill;    /* WRITE: the window is not read, every byte is that of `byte` */
    uint8_t byte;
    uint8_t reserved[3];
    uint64_t offset_bytes; /* in the area */
    uint64_t window_bytes; /* offset in the window */
    uint64_t bytes;
} gstore_range;

typedef struct gstore_store_name {
    uint32_t database, table; /* OIDs */
    uint64_t store;           /* never used twice in a server's life */
    int32_t device;           /* ordinal */
    uint32_t epoch;           /* of the keeper in which it was made */
} gstore_store_name;

typedef struct gstore_window {
    _Atomic uint32_t state; /* gstore_command_state */
    gstore_verb verb;
    gstore_store_name name;
    uint32_t range_count;
    gstore_range ranges[GSTORE_RANGES_MAX];
    int32_t status; /* DONE: gvm_status */
    char text[GSTORE_ERROR_BYTES];
    void *latch; /* the backend's; woken when DONE */
} gstore_window;

/* The queue: any backend puts, any service thread takes. A window is in it once at most, so a ring of
 * as many places as there can be windows never runs over. */
typedef struct gstore_queue {
    sem_t posted;
    _Atomic uint32_t tail, head;
    _Atomic uint32_t places[GSTORE_WINDOWS_MAX]; /* window number + 1; 0: empty */
} gstore_queue;

#endif
