/* The ledger is /dev/shm/gvmem-softgpu-INSTANCE, read and written with pread and pwrite and never
 * mapped: whatever another process does to it, what is read here is a copy that can be checked, and
 * a file cut short is a short read, not a SIGBUS.
 *
 * Who is alive. Each process owns one byte of the file (LIFE_BYTE + its number) through an open
 * file description lock that it never gives up, so the kernel releases it however the process
 * ends. A child made by fork shares the description: it keeps the memory mapped, and the lock says
 * so.
 * Who may write. LOCK_BYTE is locked the same way, through a second description that a forked child
 * closes at once; so a holder that is killed leaves the ledger unlocked. It may leave it half
 * written: the head is marked dirty before the first change of a section, and a process that finds it so
 * takes stock again.
 *
 * I1  an entry is in use iff its id is not 0; all others below entry_end are on the free list, once.
 * I2  used_bytes[account] is the sum over its entries in use.
 * I3  an entry in use that is not exported has a holder; orphans counts the entries in use that have
 *     none.
 * Holders that ended still count in I3 until stock is taken. I1 to I3 hold whenever the head is not
 * dirty, and taking stock makes them true of any contents at all.
 *
 * The file goes when the last process leaves in good order. After a SIGKILL of the last one it
 * stays: the next one puts it right, or a process of another instance, when it starts, finds it
 * without an owner and removes it.
 * Limits: an exported fd that is in flight in a socket while nobody holds the memory is not seen;
 * neither are fds of processes that this user may not look into; soft_charge_join() charges such
 * memory again. A process stopped (not killed) within a section stops the others.
 */
#include "softgpu/ledger.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "softgpu/memfd.h"

#define MAGIC "gvmem softgpu 1"
#define DIRECTORY "/dev/shm/"
#define FILE_PREFIX "gvmem-softgpu-"
#define LOOKS 2 /* through /proc: one misses a file descriptor that is handed on meanwhile */
#define PATH_BYTES 128
#define BLOCK_ENTRIES 256u
#define LOCK_BYTE (1ll << 40)
#define LIFE_BYTE (LOCK_BYTE + 1)
#define OPEN_TRIES 100
#define DESERTED_MAX 64
#define USE_END (1ull << 48) /* an id is a use number and, in its low 16 bits, an entry */

typedef enum ledger_state { LEDGER_CLOSED, LEDGER_OPEN, LEDGER_FORKED, LEDGER_LEFT } ledger_state;

/* Everything below is guarded by mutex, but for state, which a forked child must be able to ask
 * without it. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic ledger_state state;
static int lock_fd = -1;
static int life_fd = -1;
static uint32_t self;         /* number of this process in the ledger */
static soft_ledger_head head; /* the copy that the running section works on */
static bool torn;             /* a write of the section failed: the next one must take stock */
static soft_ledger_entry block[BLOCK_ENTRIES];

/* ---- file */

static off_t entry_offset(uint32_t entry)
{
    return (off_t)sizeof(soft_ledger_head) + (off_t)entry * (off_t)sizeof(soft_ledger_entry);
}

bool soft_ledger_read(uint32_t first, uint32_t count, soft_ledger_entry *out)
{
    size_t bytes = count * sizeof *out;
    ssize_t got = pread(lock_fd, out, bytes, entry_offset(first));
    if (got < 0)
        return false;
    memset((char *)out + got, 0, bytes - (size_t)got);
    return true;
}

static bool write_head(void)
{
    return pwrite(lock_fd, &head, sizeof head, 0) == (ssize_t)sizeof head;
}

/* Every change of an entry goes through here; the first of a section marks the ledger dirty. */
bool soft_ledger_write(uint32_t first, uint32_t count, const soft_ledger_entry *in)
{
    size_t bytes = count * sizeof *in;
    if (!head.dirty) {
        head.dirty = 1;
        torn = !write_head();
    }
    torn = torn || pwrite(lock_fd, in, bytes, entry_offset(first)) != (ssize_t)bytes;
    return !torn;
}

/* taken: for F_OFD_GETLK, whether anybody else has one of the bytes. */
static bool lock_bytes(int fd, off_t start, off_t count, short type, int command, bool *taken)
{
    struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = count};
    int rc;
    do
        rc = fcntl(fd, command, &range);
    while (rc != 0 && errno == EINTR);
    if (taken)
        *taken = range.l_type != F_UNLCK;
    return rc == 0;
}

static bool process_alive(uint32_t process)
{
    bool taken = true;
    return !lock_bytes(lock_fd, LIFE_BYTE + process, 1, F_WRLCK, F_OFD_GETLK, &taken) || taken;
}

/* ---- entries */

bool soft_ledger_has_holder(const soft_ledger_entry *entry)
{
    for (size_t i = 0; i < SOFT_PROCESSES_MAX / 64; i++)
        if (entry->holders[i] != 0)
            return true;
    return false;
}

void soft_ledger_set_holder(soft_ledger_entry *entry, bool on)
{
    uint64_t bit = 1ull << self % 64;
    if (on)
        entry->holders[self / 64] |= bit;
    else
        entry->holders[self / 64] &= ~bit;
}

bool soft_ledger_free(uint32_t index, uint32_t account, uint64_t size_bytes)
{
    soft_ledger_entry entry = {.size_bytes = head.entry_free};
    if (!soft_ledger_write(index, 1, &entry))
        return false;
    head.entry_free = index;
    if (account < SOFT_ACCOUNTS) {
        uint64_t *used = &head.used_bytes[account];
        *used -= size_bytes < *used ? size_bytes : *used;
    }
    return true;
}

static bool repair_ledger(pid_t ignored_pid);

bool soft_ledger_find_free(uint32_t *index, uint32_t *next_free)
{
    for (int pass = 0; pass < 2; pass++) {
        soft_ledger_entry entry;
        if (head.entry_free == SOFT_ENTRY_NONE && head.entry_end < SOFT_ENTRIES_MAX) {
            *index = head.entry_end;
            *next_free = SOFT_ENTRY_NONE;
            return true;
        }
        if (head.entry_free < head.entry_end && soft_ledger_read(head.entry_free, 1, &entry) &&
            entry.id == 0) {
            *index = head.entry_free;
            *next_free = entry.size_bytes < head.entry_end ? (uint32_t)entry.size_bytes
                                                           : SOFT_ENTRY_NONE;
            return true;
        }
        if (!repair_ledger(0)) /* the list is broken, or ended processes fill the ledger */
            return false;
    }
    return false;
}

/* ---- taking stock */

/* Brings one entry of the block in order: ended holders out, nonsense freed, sums and list counted
 * anew. True if it changed. */
static bool count_entry(soft_ledger_entry *entry, uint32_t index, const uint64_t *dead)
{
    soft_ledger_entry before = *entry;
    bool valid = entry->id != 0 && entry->account < SOFT_ACCOUNTS && entry->size_bytes <= INT64_MAX;
    if (valid) {
        for (size_t i = 0; i < SOFT_PROCESSES_MAX / 64; i++)
            entry->holders[i] &= ~dead[i];
        valid = soft_ledger_has_holder(entry) || entry->exported;
    }
    if (valid) {
        uint64_t *used = &head.used_bytes[entry->account];
        if (__builtin_add_overflow(*used, entry->size_bytes, used))
            *used = UINT64_MAX;
    } else if (index + 1 == head.entry_end) {
        memset(entry, 0, sizeof *entry);
        head.entry_end = index;
    } else {
        *entry = (soft_ledger_entry){.size_bytes = head.entry_free};
        head.entry_free = index;
    }
    return memcmp(&before, entry, sizeof before) != 0;
}

/* Adds to a list that grows by doubling. False if there is no memory for it. */
static bool append_orphan(soft_orphan **list, size_t count, soft_orphan one)
{
    if ((count & (count - 1)) == 0) {
        soft_orphan *bigger = realloc(*list, (count ? 2 * count : 1) * sizeof **list);
        if (!bigger)
            return false;
        *list = bigger;
    }
    (*list)[count] = one;
    return true;
}

/* Looks at every entry, from the last down so that entry_end falls back over free ones. Gives the
 * orphans in *list. */
static bool count_entries(const uint64_t *dead, soft_orphan **list, size_t *count)
{
    uint32_t first = head.entry_end;
    head.entry_free = SOFT_ENTRY_NONE;
    head.orphans = 0;
    memset(head.used_bytes, 0, sizeof head.used_bytes);
    while (first > 0) {
        uint32_t end = first, i;
        bool changed = false;
        first = end > BLOCK_ENTRIES ? end - BLOCK_ENTRIES : 0;
        if (!soft_ledger_read(first, end - first, block))
            return false;
        for (i = end - first; i-- > 0;) {
            changed |= count_entry(&block[i], first + i, dead);
            if (block[i].id == 0 || soft_ledger_has_holder(&block[i]))
                continue;
            head.orphans++;
            soft_orphan one = {.id = block[i].id,
                               .size_bytes = block[i].size_bytes,
                               .account = block[i].account,
                               .entry = first + i};
            if (append_orphan(list, *count, one))
                ++*count;
        }
        if (changed && !soft_ledger_write(first, end - first, block))
            return false;
    }
    return true;
}

/* Removes what ended processes held and what nobody has any more, and makes I1 to I3 true of what
 * is left, whatever it was. ignored_pid is a process that is about to end and whose file
 * descriptors do not count, 0: none. */
static bool repair_ledger(pid_t ignored_pid)
{
    uint64_t dead[SOFT_PROCESSES_MAX / 64] = {0};
    soft_orphan *orphans = NULL;
    size_t count = 0;
    bool done;

    head.dirty = 1;
    if (head.entry_end > SOFT_ENTRIES_MAX)
        head.entry_end = SOFT_ENTRIES_MAX;
    torn = !write_head();
    if (torn)
        return false;
    for (uint32_t p = 0; p < SOFT_PROCESSES_MAX; p++) {
        if (head.process[p] != 0 && process_alive(p))
            continue;
        head.process[p] = 0;
        dead[p / 64] |= 1ull << p % 64;
    }
    done = count_entries(dead, &orphans, &count);
    for (int look = 0; done && count > 0 && look < LOOKS; look++)
        soft_memfd_look(orphans, count, ignored_pid);
    for (size_t i = 0; done && i < count; i++) {
        if (orphans[i].seen)
            continue;
        done = soft_ledger_free(orphans[i].entry, orphans[i].account, orphans[i].size_bytes);
        head.orphans -= done;
    }
    free(orphans);
    return done;
}

bool soft_ledger_take_stock(void)
{
    return repair_ledger(0);
}

bool soft_ledger_is_stale(void)
{
    if (head.orphans > 0)
        return true;
    for (uint32_t p = 0; p < SOFT_PROCESSES_MAX; p++)
        if (head.process[p] != 0 && !process_alive(p))
            return true;
    return false;
}

/* ---- sections */

static bool read_head(void)
{
    return pread(lock_fd, &head, sizeof head, 0) == (ssize_t)sizeof head &&
           memcmp(head.magic, MAGIC, sizeof head.magic) == 0 && head.use_number != 0 &&
           head.use_number < USE_END;
}

/* A new file, or one that is no ledger: what was charged in it is forgotten. */
static bool format_ledger(void)
{
    uint64_t start;
    if (getrandom(&start, sizeof start, 0) != (ssize_t)sizeof start)
        return false;
    /* Ids have room for 2^47 more uses. */
    head = (soft_ledger_head){
        .magic = MAGIC,
        .entry_free = SOFT_ENTRY_NONE,
        .use_number = (start >> 17) + 1,
    };
    return ftruncate(lock_fd, 0) == 0 && write_head();
}

/* Locks the ledger and reads its head. how: F_OFD_SETLKW, or F_OFD_SETLK to fail where it is locked. */
static CUresult enter_file(int how)
{
    if (!lock_bytes(lock_fd, LOCK_BYTE, 1, F_WRLCK, how, NULL))
        return CUDA_ERROR_OPERATING_SYSTEM;
    torn = false;
    if (read_head() || format_ledger()) {
        if (state == LEDGER_OPEN)
            head.process[self] = getpid();
        if ((!head.dirty && head.entry_end <= SOFT_ENTRIES_MAX) || repair_ledger(0))
            return CUDA_SUCCESS;
    }
    lock_bytes(lock_fd, LOCK_BYTE, 1, F_UNLCK, F_OFD_SETLK, NULL);
    return CUDA_ERROR_OPERATING_SYSTEM;
}

/* Writes the head back if the section changed anything; leaves it dirty if not all of that could be
 * written. */
static void leave_ledger_file(void)
{
    if (head.dirty && !torn) {
        head.dirty = 0;
        write_head();
    }
    lock_bytes(lock_fd, LOCK_BYTE, 1, F_UNLCK, F_OFD_SETLK, NULL);
}

static void close_fds(void)
{
    if (lock_fd >= 0)
        close(lock_fd);
    if (life_fd >= 0)
        close(life_fd);
    lock_fd = life_fd = -1;
}

static void ledger_path(char path[PATH_BYTES])
{
    const soft_config *config;
    soft_config_get(&config, NULL);
    snprintf(path, PATH_BYTES, DIRECTORY FILE_PREFIX "%s", config->instance);
}

/* Opens the file, or makes it: never both in one call, because a kernel that protects sticky
 * directories refuses O_CREAT on a file of another user. */
static int open_file(const char *path)
{
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    int fd = open(path, flags);
    if (fd < 0 && errno == ENOENT)
        fd = open(path, flags | O_CREAT | O_EXCL, 0666);
    if (fd >= 0)
        (void)!fchmod(fd, 0666); /* past the umask: it is for every user. Works for the owner alone. */
    return fd;
}

/* Takes a number that no living process has. */
static bool take_process_number(void)
{
    for (uint32_t p = 0; p < SOFT_PROCESSES_MAX; p++) {
        if (process_alive(p))
            continue;
        if (!lock_bytes(life_fd, LIFE_BYTE + p, 1, F_WRLCK, F_OFD_SETLK, NULL))
            continue;
        self = p;
        return true;
    }
    return false;
}

/* One try to open and enlist. *again: the file went away meanwhile, or is just being made. */
static CUresult try_open(const char *path, bool *again)
{
    char self_path[64];
    struct stat st;
    CUresult rc = CUDA_ERROR_OPERATING_SYSTEM;

    lock_fd = open_file(path);
    if (lock_fd < 0) {
        *again = errno == EACCES || errno == EEXIST || errno == ENOENT;
        return rc;
    }
    snprintf(self_path, sizeof self_path, "/proc/self/fd/%d", lock_fd);
    life_fd = open(self_path, O_RDWR | O_CLOEXEC); /* the same file by a description of its own */
    if (life_fd >= 0 && fstat(lock_fd, &st) == 0 && S_ISREG(st.st_mode))
        rc = enter_file(F_OFD_SETLKW);
    if (rc != CUDA_SUCCESS) {
        close_fds();
        return rc;
    }
    *again = fstat(lock_fd, &st) != 0 || st.st_nlink == 0;
    /* An ended process that had our number may have left holdings under it: they must go before it
     * is ours. */
    if (*again || (soft_ledger_is_stale() && !repair_ledger(0)) || !take_process_number()) {
        leave_ledger_file();
        close_fds();
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    head.process[self] = getpid();
    head.dirty = 1; /* have it written */
    leave_ledger_file();
    state = LEDGER_OPEN;
    return CUDA_SUCCESS;
}

/* Does any process use the ledger? */
static bool is_deserted(void)
{
    for (int i = 0; i < SOFT_ACCOUNTS; i++)
        if (head.used_bytes[i] != 0)
            return false;
    for (uint32_t p = 0; p < SOFT_PROCESSES_MAX; p++)
        if (head.process[p] != 0)
            return false;
    return true;
}

/* Removes the ledger of another instance if nobody lives in it and no file descriptor of its memory
 * is left. One that is locked stays: another process is clearing it, or a hostile one would stop this. */
static void clear_if_deserted(const char *path)
{
    bool alive = true;
    lock_fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (lock_fd < 0)
        return;
    if (lock_bytes(lock_fd, LIFE_BYTE, SOFT_PROCESSES_MAX, F_WRLCK, F_OFD_GETLK, &alive) &&
        !alive && enter_file(F_OFD_SETLK) == CUDA_SUCCESS) {
        if (repair_ledger(0) && is_deserted())
            unlink(path);
        leave_ledger_file();
    }
    close_fds();
}

/* Clears up after instances that ended by SIGKILL, a few at each start. */
static void clear_deserted(const char *own_path)
{
    char path[PATH_BYTES];
    struct dirent *entry;
    int left = DESERTED_MAX;
    DIR *directory = opendir(DIRECTORY);
    if (!directory)
        return;
    while (left > 0 && (entry = readdir(directory))) {
        if (strncmp(entry->d_name, FILE_PREFIX, sizeof FILE_PREFIX - 1) != 0 ||
            snprintf(path, sizeof path, DIRECTORY "%s", entry->d_name) >= (int)sizeof path ||
            strcmp(path, own_path) == 0)
            continue;
        clear_if_deserted(path);
        left--;
    }
    closedir(directory);
}

/* A fork waits for the end of the running section. The child keeps life_fd: the memory that it has
 * mapped is alive as long as it is. */
static void before_fork(void)
{
    pthread_mutex_lock(&mutex);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&mutex);
}

static void reset_ledger_in_child(void)
{
    if (state == LEDGER_OPEN) {
        state = LEDGER_FORKED;
        close(lock_fd);
    }
    pthread_mutex_unlock(&mutex);
}

static void begin_section(void)
{
    soft_cancel_hold();
    pthread_mutex_lock(&mutex);
}

static void end_section(void)
{
    pthread_mutex_unlock(&mutex);
    soft_cancel_release();
}

static CUresult open_ledger(void)
{
    static bool fork_watched;
    const struct timespec pause = {0, 1000000};
    char path[PATH_BYTES];
    CUresult rc = CUDA_ERROR_OPERATING_SYSTEM;

    if (!fork_watched && pthread_atfork(before_fork, after_fork_in_parent, reset_ledger_in_child) != 0)
        return rc;
    fork_watched = true;
    ledger_path(path);
    clear_deserted(path);
    for (int i = 0; i < OPEN_TRIES; i++) {
        bool again = false;
        rc = try_open(path, &again);
        if (!again)
            break;
        nanosleep(&pause, NULL);
    }
    return rc;
}

CUresult soft_ledger_enter(soft_ledger_head **out)
{
    CUresult rc;
    if (state == LEDGER_FORKED)
        return CUDA_ERROR_NOT_INITIALIZED;
    begin_section();
    rc = state == LEDGER_LEFT ? CUDA_ERROR_DEINITIALIZED : CUDA_SUCCESS;
    if (state == LEDGER_CLOSED)
        rc = open_ledger();
    if (rc == CUDA_SUCCESS)
        rc = enter_file(F_OFD_SETLKW);
    if (rc == CUDA_SUCCESS)
        *out = &head;
    else
        end_section();
    return rc;
}

void soft_ledger_leave(void)
{
    leave_ledger_file();
    end_section();
}

/* The end of the process in good order: what it held goes, and if nobody is left, so does the
 * file. */
__attribute__((destructor)) static void close_ledger(void)
{
    char path[PATH_BYTES];
    struct stat ours, named;
    if (state != LEDGER_OPEN || pthread_mutex_trylock(&mutex) != 0)
        return;
    if (state == LEDGER_OPEN && enter_file(F_OFD_SETLKW) == CUDA_SUCCESS) {
        close(life_fd);
        life_fd = -1;
        state = LEDGER_LEFT;
        ledger_path(path);
        if (repair_ledger(getpid()) && is_deserted() && fstat(lock_fd, &ours) == 0 &&
            stat(path, &named) == 0 && ours.st_ino == named.st_ino && ours.st_dev == named.st_dev)
            unlink(path);
        leave_ledger_file();
        close_fds();
    }
    pthread_mutex_unlock(&mutex);
}
