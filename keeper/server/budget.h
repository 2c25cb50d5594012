/* keeper/server/budget.h - how much memory the machine lets a keeper have. */
#ifndef GVMI_KEEPER_SERVER_BUDGET_H
#define GVMI_KEEPER_SERVER_BUDGET_H

#include <stdint.h>

#include <gvmem/status.h>

/* Host memory, as /proc and /sys below root ("" for the machine's own) show it. */
typedef struct gvmi_host_memory {
    uint64_t limit_bytes; /* the machine's, or what its control groups leave this process; 0: unknown */
    uint64_t available_bytes; /* of it, without putting pressure on others; 0: unknown */
} gvmi_host_memory;

void gvmi_host_memory_read(const char *root, gvmi_host_memory *out);

/* The host budget in force: what is wanted, or (0) half of what is available. ahead_bytes is a part
 * of it.
 *
 * GVM_E_NOSPACE  the budget is larger than the memory
 * GVM_E_INVALID  ahead_bytes is larger than the budget */
gvm_status gvmi_host_budget(const gvmi_host_memory *memory, uint64_t wanted_bytes,
                            uint64_t ahead_bytes, uint64_t *budget_bytes);

#endif
