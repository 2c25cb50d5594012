/* tests/lib/device.h - a device whose memory a test watches.
 *
 * Threads: one. */
#ifndef LIB_DEVICE_H
#define LIB_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include <gvmem/gvmem.h>

extern gvm_device *watched_device;
extern bool watched_software; /* it is the software GPU's */

/* Opens device 0; the test cannot go on without. */
void memory_watch(void);
void memory_watch_end(void);

/* Remembers the free memory; and waits, up to 5 s, until it is free again. False if it is not. */
void memory_note(void);
bool memory_is_back(void);

/* Free memory of a device; the test cannot go on without. */
uint64_t memory_free_bytes(gvm_device *device);

#endif
