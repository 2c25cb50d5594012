/* What charging means, in terms of the ledger's entries. */
#include "softgpu/charge.h"

#include "softgpu/ledger.h"

#define BLOCK_ENTRIES 256u

/* All are guarded by the section. */
static soft_ledger_head *head;
static soft_ledger_entry block[BLOCK_ENTRIES];
static uint32_t held[SOFT_ENTRIES_MAX]; /* how often this process holds each entry */

static uint64_t account_limit(int account)
{
    const soft_config *config;
    soft_config_get(&config, NULL);
    if (account != SOFT_ACCOUNT_HOST)
        return config->memory_bytes;
    return config->host_bytes ? config->host_bytes : INT64_MAX;
}

static uint64_t free_bytes_locked(int account)
{
    uint64_t limit = account_limit(account), used = head->used_bytes[account];
    return used < limit ? limit - used : 0;
}

/* Charges under the id, or under a new one if it is 0. */
static CUresult charge_locked(uint64_t id, int account, uint64_t size_bytes, soft_charge *out)
{
    soft_ledger_entry entry = {.size_bytes = size_bytes, .account = (uint32_t)account};
    uint32_t index, next_free;

    if (size_bytes > account_limit(account))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (size_bytes > free_bytes_locked(account) && !soft_ledger_take_stock())
        return CUDA_ERROR_OPERATING_SYSTEM;
    if (size_bytes > free_bytes_locked(account) || !soft_ledger_find_free(&index, &next_free))
        return CUDA_ERROR_OUT_OF_MEMORY;
    entry.id = id ? id : head->use_number++ << 16 | index;
    entry.exported = id != 0;
    soft_ledger_set_holder(&entry, true);
    if (!soft_ledger_write(index, 1, &entry))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (index == head->entry_end)
        head->entry_end++;
    head->entry_free = next_free;
    head->used_bytes[account] += size_bytes;
    held[index] = 1;
    *out = (soft_charge){.id = entry.id, .entry = index};
    return CUDA_SUCCESS;
}

/* Where an id is kept: in most cases in the entry that it names itself. */
static bool find_id_locked(uint64_t id, uint32_t *index, soft_ledger_entry *entry)
{
    *index = (uint32_t)(id & (SOFT_ENTRIES_MAX - 1));
    if (*index < head->entry_end && soft_ledger_read(*index, 1, entry) && entry->id == id)
        return true;
    for (uint32_t first = 0; first < head->entry_end; first += BLOCK_ENTRIES) {
        uint32_t rest = head->entry_end - first;
        uint32_t count = rest < BLOCK_ENTRIES ? rest : BLOCK_ENTRIES;
        if (!soft_ledger_read(first, count, block))
            return false;
        for (uint32_t i = 0; i < count; i++)
            if (block[i].id == id) {
                *index = first + i;
                *entry = block[i];
                return true;
            }
    }
    return false;
}

CUresult soft_charge_open(void)
{
    CUresult rc = soft_ledger_enter(&head);
    if (rc == CUDA_SUCCESS)
        soft_ledger_leave();
    return rc;
}

CUresult soft_charge_create(int account, uint64_t size_bytes, soft_charge *out)
{
    CUresult rc = soft_ledger_enter(&head);
    if (rc != CUDA_SUCCESS)
        return rc;
    rc = charge_locked(0, account, size_bytes, out);
    soft_ledger_leave();
    return rc;
}

static CUresult join_locked(uint64_t id, int account, uint64_t size_bytes, soft_charge *out)
{
    soft_ledger_entry entry;
    uint32_t index;
    if (!find_id_locked(id, &index, &entry))
        return charge_locked(id, account, size_bytes, out);
    if (entry.account != (uint32_t)account || entry.size_bytes != size_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!soft_ledger_has_holder(&entry) && head->orphans > 0)
        head->orphans--;
    soft_ledger_set_holder(&entry, true);
    if (!soft_ledger_write(index, 1, &entry))
        return CUDA_ERROR_OPERATING_SYSTEM;
    held[index]++;
    *out = (soft_charge){.id = id, .entry = index};
    return CUDA_SUCCESS;
}

CUresult soft_charge_join(uint64_t id, int account, uint64_t size_bytes, soft_charge *out)
{
    CUresult rc = soft_ledger_enter(&head);
    if (rc != CUDA_SUCCESS)
        return rc;
    rc = join_locked(id, account, size_bytes, out);
    soft_ledger_leave();
    return rc;
}

CUresult soft_charge_export(soft_charge charge)
{
    soft_ledger_entry entry;
    CUresult rc = soft_ledger_enter(&head);
    if (rc != CUDA_SUCCESS)
        return rc;
    if (soft_ledger_read(charge.entry, 1, &entry) && entry.id == charge.id && !entry.exported) {
        entry.exported = 1;
        if (!soft_ledger_write(charge.entry, 1, &entry))
            rc = CUDA_ERROR_OPERATING_SYSTEM;
    }
    soft_ledger_leave();
    return rc;
}

static void leave_entry_locked(soft_charge charge)
{
    soft_ledger_entry entry;
    if (!soft_ledger_read(charge.entry, 1, &entry) || entry.id != charge.id)
        return;
    soft_ledger_set_holder(&entry, false);
    if (!soft_ledger_has_holder(&entry) && !entry.exported) {
        soft_ledger_free(charge.entry, entry.account, entry.size_bytes);
        return;
    }
    head->orphans += !soft_ledger_has_holder(&entry);
    soft_ledger_write(charge.entry, 1, &entry);
}

void soft_charge_leave(soft_charge charge)
{
    if (charge.id == 0 || soft_ledger_enter(&head) != CUDA_SUCCESS)
        return;
    if (held[charge.entry] > 0 && --held[charge.entry] == 0)
        leave_entry_locked(charge);
    soft_ledger_leave();
}

CUresult soft_charge_free_bytes(int account, uint64_t *free_bytes)
{
    CUresult rc = soft_ledger_enter(&head);
    if (rc != CUDA_SUCCESS)
        return rc;
    if (soft_ledger_is_stale() && !soft_ledger_take_stock())
        rc = CUDA_ERROR_OPERATING_SYSTEM;
    else
        *free_bytes = free_bytes_locked(account);
    soft_ledger_leave();
    return rc;
}
