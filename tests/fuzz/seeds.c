/* usage: seeds STAMP FOLDER
 * Fills folders in FOLDER with what fuzzers begin with; writes the file STAMP at last, for meson.
 *   fuzz_wire     every message alone, and all that one end can send in one stream
 *   fuzz_machine  the lives of a few objects
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/fuzz/machine_events.h"
#include "tests/fuzz/wire_samples.h"

#define PATH_BYTES 4096

static int write_file(const char *path, const uint8_t *bytes, size_t len)
{
    FILE *file = fopen(path, "wb");
    int bad = file == NULL || fwrite(bytes, 1, len, file) != len;

    if (file != NULL && fclose(file) != 0)
        bad = 1;
    if (bad)
        fprintf(stderr, "seeds: cannot write %s: %s\n", path, strerror(errno));
    return bad;
}

static int write_seed(const char *folder, const char *name, const uint8_t *bytes, size_t len)
{
    char path[PATH_BYTES];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return write_file(path, bytes, len);
}

/* With the folders it is in. */
static int make_folder(const char *folder)
{
    char path[PATH_BYTES];

    if ((size_t)snprintf(path, sizeof path, "%s/", folder) >= sizeof path)
        return -1;
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            return -1;
        *slash = '/';
    }
    return 0;
}

static int write_wire_seeds(const char *folder)
{
    static const struct {
        gvmi_wire_type type;
        const char *name;
    } types[] = {
#define ROW(name, value, from, body, tail, fds) {GVMI_WIRE_##name, #name},
        GVMI_WIRE_TABLE(ROW)
#undef ROW
    };
    static uint8_t streams[2][sizeof types / sizeof types[0] * sizeof(gvmi_wire_message)];
    size_t lens[2] = {0, 0};
    int bad = 0;

    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        const int end = types[i].type >= GVMI_WIRE_WELCOME;
        uint8_t *to = streams[end] + lens[end];
        gvmi_wire_message message;
        size_t len;

        wire_sample(types[i].type, &message);
        len = gvmi_wire_encode(&message, to);
        bad |= write_seed(folder, types[i].name, to, len);
        lens[end] += len;
    }
    bad |= write_seed(folder, "from-client", streams[0], lens[0]);
    bad |= write_seed(folder, "from-keeper", streams[1], lens[1]);
    return bad;
}

/* ---- the machine */

#define MESSAGE(client, type, slot, a, b) \
    EVENT_MESSAGE | EVENT_CLIENT(client), GVMI_WIRE_##type - 1, slot, a, b
#define ANSWER(client) EVENT_ANSWER | EVENT_CLIENT(client)
#define UNMAPPED(client) EVENT_UNMAPPED | EVENT_CLIENT(client)
#define ANSWERS(client) ANSWER(client), ANSWER(client), ANSWER(client), ANSWER(client)
#define LEASE(client, slot, how) EVENT_LEASE | EVENT_CLIENT(client), slot, how
#define RELEASE(client, slot) LEASE(client, slot, LEASE_NONE | LEASE_RING)
#define PEER(client, how) EVENT_PEER | EVENT_CLIENT(client), how
#define JOB EVENT_JOB, 0, 0
#define JOBS JOB, JOB, JOB, JOB, JOB, JOB, JOB, JOB, JOB, JOB, JOB, JOB
#define TICK(ms) EVENT_TICK, ms
#define ROOMY 31, 0, 7, 0 /* a machine */
#define NARROW 6, 2, 0, 1

enum { NAME_A = 0, NAME_B = 1, NAMELESS = 3 }; /* of OPEN, PUBLISH, DROP, EVICT */
enum { CREATE_A = 0, CREATE_NAMELESS = 3 << 1, CREATE_OPEN_TO_ALL = 64 };
enum { LINK_OPEN_TO_ALL = 64, OPEN_LINK = 5 };
enum { FOR_EVER = 0, READ = 0, WRITE = 1, HOT = 4 }; /* of ACQUIRE */

/* clang-format off */
/* Larger than the device; written, read by another, wanted by both. */
static const uint8_t shared[] = {
    ROOMY,
    PEER(0, 0),
    PEER(1, 0),
    MESSAGE(0, CREATE, 0, CREATE_A, 20),
    JOBS,
    ANSWERS(0),
    MESSAGE(0, ACQUIRE, 0, WRITE, FOR_EVER),
    ANSWER(0),
    MESSAGE(1, OPEN, 0, NAME_A, 1),
    ANSWERS(1),
    MESSAGE(1, ACQUIRE, 0, READ, FOR_EVER),
    RELEASE(0, 0),
    ANSWER(1),
    MESSAGE(0, ACQUIRE, 0, WRITE, 50),
    TICK(100),
    RELEASE(1, 0),
    ANSWERS(0),
    MESSAGE(0, GROW, 0, 60, 0),
    MESSAGE(0, SHRINK, 0, 6, 0),
    JOBS,
    ANSWERS(0),
    ANSWERS(1),
    MESSAGE(0, SNAPSHOT, 0, 0, 0),
    MESSAGE(1, CLOSE, 0, 0, 0),
    MESSAGE(1, BYE, 0, 0, 0),
};

/* Two objects that do not fit beside each other, evicted, brought back, sealed, given away. */
static const uint8_t moved[] = {
    ROOMY,
    PEER(0, 0),
    MESSAGE(0, CREATE, 0, CREATE_A, 8),
    JOBS,
    ANSWERS(0),
    MESSAGE(0, EVICT, 0, NAME_A, 0),
    JOBS,
    UNMAPPED(0),
    ANSWERS(0),
    MESSAGE(0, CREATE, 0, CREATE_NAMELESS, 6),
    JOBS,
    ANSWERS(0),
    MESSAGE(0, PUBLISH, 1, NAME_B, 1),
    MESSAGE(0, ACQUIRE, 0, READ | HOT, FOR_EVER),
    JOBS,
    UNMAPPED(0),
    JOBS,
    ANSWERS(0),
    JOBS,
    ANSWERS(0),
    RELEASE(0, 0),
    MESSAGE(0, ACQUIRE, 0, WRITE | HOT, FOR_EVER),
    JOBS,
    ANSWERS(0),
    RELEASE(0, 0),
    TICK(200),
    JOBS,
    ANSWERS(0),
    MESSAGE(0, SEAL, 0, 0, 0),
    ANSWERS(0),
    MESSAGE(0, PUBLISH, 0, NAME_B, 1),
    MESSAGE(0, GET_INFO, 0, 0, 0),
    MESSAGE(0, TRIM, 0, 0, 0),
    EVENT_BUDGET, 0, 16,
    TICK(250),
    JOBS,
    ANSWERS(0),
    MESSAGE(0, DROP, 0, NAME_B, 0),
    MESSAGE(0, CLOSE, 0, 0, 0),
};

/* Clients that die, hang, or write over what they must not; little memory, jobs that fail. */
static const uint8_t broken[] = {
    NARROW,
    PEER(0, 1),
    PEER(1, 2),
    PEER(2, 0 | PEER_SILENT),
    MESSAGE(0, CREATE, 0, CREATE_A | CREATE_OPEN_TO_ALL, 12),
    EVENT_JOB, 0, JOB_FAILS,
    JOBS,
    ANSWERS(0),
    MESSAGE(1, OPEN, 0, NAME_A, 0),
    ANSWER(1),
    LEASE(1, 0, LEASE_SCRIBBLE),
    MESSAGE(0, EVICT, 0, NAME_A, 0),
    MESSAGE(0, SET_METADATA, 0, 9, 0),
    MESSAGE(0, SET_MODE, 0, 0600 >> 1, 0),
    MESSAGE(0, ACQUIRE, 0, WRITE, FOR_EVER),
    TICK(250), TICK(250), TICK(250), TICK(250), TICK(250),
    PEER(1, PEER_EXITS),
    JOBS,
    ANSWERS(0),
    MESSAGE(0, SET_QUOTA, 0, 1, 4),
    MESSAGE(0, GROW, 0, 64, 0),
    PEER(0, PEER_LEAVES),
    TICK(250),
    PEER(0, PEER_EXITS),
};

/* Links, made, followed, moved, ended, by who may and who may not; the last client says nothing but BYE. */
static const uint8_t linked[] = {
    ROOMY,
    PEER(0, 1),
    PEER(1, 2),
    PEER(2, 2 | PEER_SILENT),
    MESSAGE(0, CREATE, 0, CREATE_A, 8),
    JOBS,
    ANSWERS(0),
    MESSAGE(0, LINK, 0, NAME_A | LINK_OPEN_TO_ALL, 4),
    MESSAGE(1, OPEN, 0, NAME_A, OPEN_LINK),
    ANSWERS(1),
    MESSAGE(1, ACQUIRE, 0, READ, FOR_EVER),
    ANSWER(1),
    MESSAGE(0, GROW, 0, 40, 0),
    JOBS,
    ANSWERS(0),
    RELEASE(1, 0),
    MESSAGE(0, EVICT, 0, NAME_A, 0),
    JOBS,
    ANSWERS(0),
    ANSWERS(1),
    MESSAGE(1, LINK, 0, NAME_A | LINK_OPEN_TO_ALL, 4),
    MESSAGE(1, UNLINK, 0, NAME_A, 0),
    MESSAGE(0, LINK, 0, NAME_B | LINK_OPEN_TO_ALL, 20),
    MESSAGE(0, CREATE, 0, CREATE_NAMELESS, 4),
    JOBS,
    ANSWERS(0),
    MESSAGE(0, LINK, 1, NAME_A | LINK_OPEN_TO_ALL, 4),
    MESSAGE(0, UNLINK, 0, NAME_A, 0),
    MESSAGE(2, BYE, 0, 0, 0),
    PEER(0, PEER_EXITS),
    MESSAGE(1, OPEN, 0, NAME_B, OPEN_LINK),
};

/* A writer is cut off and lives on; there is no room for the copy that would let another in before it ends. */
static const uint8_t fenced[] = {
    ROOMY,
    PEER(0, 0),
    PEER(1, 0),
    MESSAGE(0, CREATE, 0, CREATE_A, 20),
    JOBS,
    MESSAGE(0, ACQUIRE, 0, WRITE, FOR_EVER),
    MESSAGE(1, OPEN, 0, NAME_A, 0),
    MESSAGE(1, ACQUIRE, 0, READ, FOR_EVER),
    MESSAGE(0, HELLO, 0, 0, 0),
};

/* clang-format on */

static int write_machine_seeds(const char *folder)
{
    return write_seed(folder, "shared", shared, sizeof shared) |
           write_seed(folder, "moved", moved, sizeof moved) |
           write_seed(folder, "broken", broken, sizeof broken) |
           write_seed(folder, "linked", linked, sizeof linked) |
           write_seed(folder, "fenced", fenced, sizeof fenced);
}

static int write_folder(const char *folder, const char *name, int (*write_seeds)(const char *folder))
{
    char path[PATH_BYTES];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (make_folder(path) == 0)
        return write_seeds(path);
    fprintf(stderr, "seeds: cannot make %s: %s\n", path, strerror(errno));
    return 1;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: seeds STAMP FOLDER\n");
        return 2;
    }
    return write_folder(argv[2], "fuzz_wire", write_wire_seeds) ||
           write_folder(argv[2], "fuzz_machine", write_machine_seeds) ||
           write_file(argv[1], (const uint8_t *)"", 0);
}
