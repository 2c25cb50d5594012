/* softgpu/charge.h - the ledger: who holds how many bytes of which device.
 *
 * Every process of an instance charges its allocations to one file, so that a device is as full for
 * all of them as it would be on a real machine. An allocation is known by an id that its memfd
 * carries in its name; it stays charged until the last process that holds it has released it or has
 * ended, and, once exported, until no process has a file descriptor of it.
 *
 * Threads: any thread may call. Takes the charge lock, the last in the order. A process forked from
 * one that uses the GPU can neither charge nor release.
 */
#ifndef SOFTGPU_CHARGE_H
#define SOFTGPU_CHARGE_H

#include "softgpu/soft.h"

/* What bytes are charged to: a device's ordinal, or the machine's pinned memory. */
enum { SOFT_ACCOUNT_HOST = SOFT_DEVICES_MAX, SOFT_ACCOUNTS };

typedef struct soft_charge {
    uint64_t id;    /* the allocation's name among processes; 0: nothing is charged */
    uint32_t entry; /* where the ledger keeps it */
} soft_charge;

/* Charges size_bytes and makes this process their holder. CUDA_ERROR_OUT_OF_MEMORY if the account
 * has not that much free after ended processes have been removed, CUDA_ERROR_OPERATING_SYSTEM if
 * there can be no ledger. */
CUresult soft_charge_create(int account, uint64_t size_bytes, soft_charge *out);

/* Becomes one more holder of what was charged under the id, here or elsewhere. What nobody was
 * found to hold meanwhile (it was in flight in a socket) is charged again. CUDA_ERROR_INVALID_VALUE
 * if the ledger knows the id with another account or size. */
CUresult soft_charge_join(uint64_t id, int account, uint64_t size_bytes, soft_charge *out);

/* From now on file descriptors of the allocation may live on without a holder, and count as one. */
CUresult soft_charge_export(soft_charge charge);

/* Undoes one create or join. */
void soft_charge_leave(soft_charge charge);

CUresult soft_charge_free_bytes(int account, uint64_t *free_bytes);

#endif
