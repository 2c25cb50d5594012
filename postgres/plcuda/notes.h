/* postgres/plcuda/notes.h - messages of kernels: from the device into the memory file, where the backend reads them. */
#ifndef PLCUDA_NOTES_H
#define PLCUDA_NOTES_H

#include "postgres/plcuda/gpu_worker.h"

/* Where kernels write messages that are no errors, on the device; 0: there is no memory, and they are only counted. */
extern uint64_t plcuda_notes_address(void);
/* The device is closed. */
extern void plcuda_release_notes(void);
/*
 * After each kernel: all messages so far become those of the window. False: a kernel has raised an error, or it cannot be
 * known; answer says which.
 */
extern bool plcuda_take_notes(const plcuda_state *state, plcuda_message *answer);

#endif
