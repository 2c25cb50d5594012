/* softgpu/ledger.h - the file that the processes of an instance keep their accounts in.
 *
 * It has a head and a row of entries, one for each allocation. All work is done in sections: enter,
 * read and write entries, leave. A section has the whole file to itself, against other processes and
 * other threads.
 *
 * The file is never mapped. What is read is a copy, made of whatever another process may have done
 * to it: indices and sizes are checked before they are used, by who uses them.
 */
#ifndef SOFTGPU_LEDGER_H
#define SOFTGPU_LEDGER_H

#include <sys/types.h>

#include "softgpu/charge.h"

#define SOFT_PROCESSES_MAX 512u
#define SOFT_ENTRIES_MAX 65536u
#define SOFT_ENTRY_NONE UINT32_MAX

typedef struct soft_ledger_head {
    char magic[16];
    uint32_t dirty;      /* a section began to change it and did not end */
    uint32_t entry_end;  /* entries from here on were never used */
    uint32_t entry_free; /* first of the free list, or SOFT_ENTRY_NONE */
    uint32_t orphans;    /* exported entries without a holder: worth a look through /proc */
    uint64_t use_number; /* of the next id; starts at random, so that ids of a ledger of earlier days mean nothing */
    uint64_t used_bytes[SOFT_ACCOUNTS];
    int32_t process[SOFT_PROCESSES_MAX]; /* pid of each, for people who look; 0: nobody */
} soft_ledger_head;

typedef struct soft_ledger_entry {
    uint64_t id;         /* 0: free */
    uint64_t size_bytes; /* of a free entry: the next one of the free list */
    uint32_t account;
    uint32_t exported;
    uint64_t holders[SOFT_PROCESSES_MAX / 64]; /* bit set of processes */
} soft_ledger_entry;

/* Begins a section; *head is good until its end and is written back then if an entry was. Opens the
 * ledger if need be. CUDA_ERROR_OPERATING_SYSTEM; CUDA_ERROR_NOT_INITIALIZED in a forked child,
 * CUDA_ERROR_DEINITIALIZED at the end of the process. */
CUresult soft_ledger_enter(soft_ledger_head **head);
void soft_ledger_leave(void);

/* ---- within a section */

/* False if the file cannot be read or written; after a failed write the next section takes
 * stock. */
bool soft_ledger_read(uint32_t first, uint32_t count, soft_ledger_entry *entries);
bool soft_ledger_write(uint32_t first, uint32_t count, const soft_ledger_entry *entries);

/* Finds an entry for a new allocation, without taking it; *next_free is the free list without it. */
bool soft_ledger_find_free(uint32_t *index, uint32_t *next_free);
/* Takes the bytes off the account and puts the entry on the free list. */
bool soft_ledger_free(uint32_t index, uint32_t account, uint64_t size_bytes);

bool soft_ledger_has_holder(const soft_ledger_entry *entry);
/* Makes this process a holder, or not. */
void soft_ledger_set_holder(soft_ledger_entry *entry, bool on);

/* Removes what ended processes held and what nobody has any more, and puts in order what is left,
 * whatever it was. */
bool soft_ledger_take_stock(void);
/* Is there anything that taking stock would find? */
bool soft_ledger_is_stale(void);

#endif
