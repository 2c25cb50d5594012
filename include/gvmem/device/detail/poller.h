/* gvmem/device/detail/poller.h - one thread at a time that reads what the host writes, and how the others wait.
 *
 * Host memory is far: many threads that poll it slow down each other and the host. So a thread that waits tries to become the
 * poller, which alone reads the host's words and copies them to device memory; the others look there. The poller waits for
 * nothing while it is that. What is exchanged is the business of who includes this.
 */
#ifndef GVMEM_DEVICE_DETAIL_POLLER_H
#define GVMEM_DEVICE_DETAIL_POLLER_H

#include <gvmem/device/detail/types.h>

#ifdef GVM_KERNEL

/* 1: this thread is the poller, and has seen what the one before has written. */
GVM_DEVICE int gvm_poller_begin(uint32_t *poller)
{
    if (gvm_load_consume_u32(poller) != 0 || gvm_atomic_cas_u32(poller, 0, 1) != 0)
        return 0;
    (void)gvm_load_acquire_u32(poller);
    return 1;
}

GVM_DEVICE void gvm_poller_end(uint32_t *poller)
{
    gvm_store_release_u32(poller, 0);
}

/* Waits before the next look, longer each time, up to a bound. pauses begins at 1. */
GVM_DEVICE void gvm_poller_pause(uint32_t *pauses)
{
    uint32_t i;

    for (i = 0; i < *pauses; i++)
        gvm_pause();
    *pauses = *pauses < 16 ? 2 * *pauses : 16;
}

#endif /* GVM_KERNEL */
#endif
