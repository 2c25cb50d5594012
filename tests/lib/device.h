/* tests/lib/device.h - a device whose memory a test watches.
 *
 * Threads: one. */
#ifndef LIB_DEVICE_H
#define LIB_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include <gvmem/gvmem.h>

#include "driver/driver.h"

extern gvm_device *watched_device;
extern bool watched_software; /* it is the software GPU's */

/* Opens device 0; the test cannot go on without. */
void memory_watch(void);
void memory_watch_end(void);

/* Opens device 0, makes its primary context that of the thread, and loads an image of kernels: that for the software GPU, or that
 * for real ones. *module is NULL if this build has none for the device. False if something fails. */
bool device_open_with_kernels(const unsigned char *soft, const unsigned char *real,
                              gvm_device **device, gvm_device_info *info, CUmodule *module);

/* Remembers the free memory; and waits, up to 5 s, until it is free again. False if it is not. */
void memory_note(void);
bool memory_is_back(void);

/* Free memory of a device; the test cannot go on without. */
uint64_t memory_free_bytes(gvm_device *device);

#endif
