/* memory/range.h - addresses that a process reserves as a whole, and in which buffers lie.
 *
 * What is to have the same address in several processes finds it free in each that has the range: nothing else is put
 * there. It is kept from the first hold or buffer until all of them are gone. A hold needs no driver: it maps the range
 * without access. The driver reserves it with the first buffer; buffers in it cost no reservation of their own. Where
 * that is refused (a limit on the process's addresses, or something lies in it already), buffers reserve their addresses
 * one by one.
 */
#ifndef GVMI_MEMORY_RANGE_H
#define GVMI_MEMORY_RANGE_H

#include <stdbool.h>
#include <sys/queue.h>

#include <gvmem/buffer.h>

#include "base/lock.h"

typedef struct gvmi_range {
    gvmi_mutex lock;
    uint64_t address, reserve_bytes; /* as they were set at first */
    LIST_HEAD(, gvm_buffer) buffers; /* in it */
    uint64_t holds;
    bool mapped;   /* without access; not while it is reserved */
    bool reserved; /* by the driver; there are buffers in it, or were since the first hold */
} gvmi_range;

#define GVMI_RANGE_INIT(address_, reserve_bytes_) \
    { \
        .lock = GVMI_MUTEX_INIT(GVMI_RANK_RANGE), .address = (address_), \
        .reserve_bytes = (reserve_bytes_) \
    }

/* Keeps the addresses free for buffers, if they are free now, until gvmi_range_release(). */
void gvmi_range_hold(gvmi_range *range);
void gvmi_range_release(gvmi_range *range);

/* Puts a buffer that has its size, and no addresses yet, at an address. *taken false: the range is not reserved, or does not
 * have the address, and the buffer is as it was.
 *
 * GVM_E_ADDRESS  another buffer is there */
gvm_status gvmi_range_take(gvmi_range *range, gvm_buffer *buffer, uint64_t address, bool *taken);

/* The reverse, for a buffer whose range is not NULL and that has nothing mapped. */
void gvmi_range_give(gvm_buffer *buffer);

/* In a child made by fork(), whose parent's threads may have been at work on the range: it has none of its parent's holds and buffers. */
void gvmi_range_reset_in_child(gvmi_range *range);

#endif
