/* postgres/window.h - a backend's way to the columns: commands through a window.
 *
 * A request collects ranges and performs them when it is full or told to. Windows are taken for the
 * time of one command only, so nobody holds one while waiting for another.
 */
#ifndef GSTORE_WINDOW_H
#define GSTORE_WINDOW_H

#include "postgres/shared.h"

/* How many bytes one command can carry. */
extern uint64 gstore_window_size(void);

/* One range, and where its bytes are in this process. */
typedef struct gstore_piece {
    uint16 column;
    uint8 part;
    uint64 offset_bytes;
    uint64 bytes;
    void *local; /* READ: filled; WRITE: copied from; NULL with WRITE: fill with byte */
    uint8 byte;
} gstore_piece;

/* Does all of it, in as many commands as it takes. ERROR on failure, on cancel and terminate; then
 * what a WRITE did is undefined. */
extern void gstore_transfer(gstore_verb verb, const gstore_store_name *store,
                            const gstore_piece *pieces, int count);

/* Waits until the keeper serves; ERROR after gstore_fdw.start_timeout. */
extern void gstore_wait_ready(void);

#endif
