/* sharing/socket.c and message.c: bytes and fds arrive whole, or not at all and nothing stays open.
 *
 * Every test runs between a count of the open fds and a second one, which must agree. The "memory"
 * in the shares is empty memfds, so that each can be told from the others.
 */
#include "tests/unit/unit.h"

#include <limits.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>

#include "base/registry.h"
#include "sharing/share.h"
#include "sharing/socket.h"
#include "tests/lib/fixture.h"
#include "tests/lib/units.h"

#define SHORT_MS 30
#define LONG_MS 20000 /* never reached */
#define BIG_BYTES (1u << 20)

typedef struct pair {
    int a, b;
    int fds_before;
} pair;

static int setup(void **state)
{
    static pair p;
    int ends[2];

    p.fds_before = count_fds();
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return -1;
    p.a = ends[0];
    p.b = ends[1];
    *state = &p;
    return 0;
}

static void close_end(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static int teardown(void **state)
{
    pair *p = *state;

    close_end(&p->a);
    close_end(&p->b);
    if (count_fds() != p->fds_before)
        print_error("%d fds before, %d after\n", p->fds_before, count_fds());
    return count_fds() == p->fds_before && gvmi_registry_count(GVMI_KIND_SHARE) == 0 ? 0 : -1;
}

static gvmi_socket begin(int fd, int timeout_ms)
{
    gvmi_socket socket;

    assert_int_equal(gvmi_socket_begin(fd, timeout_ms, &socket), GVM_OK);
    return socket;
}

static gvm_status send_bytes(int fd, const void *bytes, size_t len, const int *fds, uint32_t count,
                             int timeout_ms)
{
    gvmi_socket socket = begin(fd, timeout_ms);

    return gvmi_socket_send(&socket, bytes, len, fds, count);
}

static gvm_status receive_bytes(int fd, void *bytes, size_t len, int *fds, uint32_t count, int timeout_ms)
{
    gvmi_socket socket = begin(fd, timeout_ms);

    return gvmi_socket_receive(&socket, bytes, len, fds, count);
}

static void make_files(int *fds, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        fds[i] = memfd_create("test", MFD_CLOEXEC);
        assert_true(fds[i] >= 0);
    }
}

static void close_files(const int *fds, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        close(fds[i]);
}

static void assert_same_file(int a, int b)
{
    struct stat x, y;

    assert_int_equal(fstat(a, &x), 0);
    assert_int_equal(fstat(b, &y), 0);
    assert_true(x.st_ino == y.st_ino && x.st_dev == y.st_dev);
}

static void assert_native(const char *call, const char *name)
{
    gvm_error error;

    gvm_error_last(&error);
    assert_string_equal(error.native_call, call);
    assert_string_equal(error.native_name, name);
}

/* ---- what is no socket */

static void socket_of_another_kind_is_refused(void **state)
{
    gvmi_socket out;
    const int file = open("/dev/null", O_RDWR | O_CLOEXEC);
    const int datagram = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const int seqpacket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    const int tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)state;
    assert_int_equal(gvmi_socket_begin(-1, 0, &out), GVM_E_INVALID);
    assert_native("getsockopt", "EBADF");
    assert_int_equal(gvmi_socket_begin(file, 0, &out), GVM_E_INVALID);
    assert_int_equal(gvmi_socket_begin(datagram, 0, &out), GVM_E_INVALID);
    assert_int_equal(gvmi_socket_begin(seqpacket, 0, &out), GVM_E_INVALID);
    if (tcp >= 0)
        assert_int_equal(gvmi_socket_begin(tcp, 0, &out), GVM_E_INVALID);
    close(file);
    close(datagram);
    close(seqpacket);
    close_end((int[]){tcp});
}

static void socket_timeout_below_for_ever_is_refused(void **state)
{
    pair *p = *state;
    gvmi_socket out;

    assert_int_equal(gvmi_socket_begin(p->a, -2, &out), GVM_E_INVALID);
    assert_int_equal(gvmi_socket_begin(p->a, INT_MIN, &out), GVM_E_INVALID);
    assert_int_equal(gvmi_socket_begin(p->a, -1, &out), GVM_OK);
}

static void socket_not_connected_is_invalid(void **state)
{
    const int lone = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char byte = 0;

    (void)state;
    assert_int_equal(send_bytes(lone, &byte, 1, NULL, 0, LONG_MS), GVM_E_INVALID);
    assert_int_equal(receive_bytes(lone, &byte, 1, NULL, 0, LONG_MS), GVM_E_INVALID);
    close(lone);
}

/* ---- bytes */

typedef struct reader {
    int fd;
    size_t len;
    unsigned char *bytes;
    gvm_status status;
} reader;

static void *read_all(void *arg)
{
    reader *r = arg;

    r->status = receive_bytes(r->fd, r->bytes, r->len, NULL, 0, LONG_MS);
    return NULL;
}

static void socket_tiny_buffer_carries_large_data(void **state)
{
    pair *p = *state;
    const int tiny = 1;
    unsigned char *out = malloc(BIG_BYTES);
    reader r = {.fd = p->b, .len = BIG_BYTES, .bytes = calloc(1, BIG_BYTES)};
    pthread_t thread;

    assert_int_equal(setsockopt(p->a, SOL_SOCKET, SO_SNDBUF, &tiny, sizeof tiny), 0);
    for (uint32_t i = 0; i < BIG_BYTES; i++)
        out[i] = (unsigned char)(i * 2654435761u >> 24);
    assert_int_equal(pthread_create(&thread, NULL, read_all, &r), 0);
    assert_int_equal(send_bytes(p->a, out, BIG_BYTES, NULL, 0, LONG_MS), GVM_OK);
    pthread_join(thread, NULL);
    assert_int_equal(r.status, GVM_OK);
    assert_memory_equal(out, r.bytes, BIG_BYTES);
    free(out);
    free(r.bytes);
}

static void ignore_signal(int number)
{
    (void)number;
}

/* Sends one byte at a time while a timer interrupts the receiver. */
static void *send_slowly(void *arg)
{
    const reader *r = arg;

    for (size_t i = 0; i < r->len; i++) {
        usleep(200);
        if (write(r->fd, &r->bytes[i], 1) != 1)
            return arg;
    }
    return NULL;
}

static void socket_interrupted_receive_goes_on(void **state)
{
    pair *p = *state;
    const struct itimerval every_ms = {{0, 700}, {0, 700}}, never = {{0, 0}, {0, 0}};
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct sigaction action = {.sa_handler = ignore_signal}, before; /* no SA_RESTART */
    unsigned char out[200], in[sizeof out];
    reader r = {.fd = p->a, .len = sizeof out, .bytes = out};
    pthread_t thread;
    void *failed;

    for (size_t i = 0; i < sizeof out; i++)
        out[i] = (unsigned char)i;
    sigaction(SIGALRM, &action, &before);
    setitimer(ITIMER_REAL, &every_ms, NULL);
    assert_int_equal(pthread_create(&thread, NULL, send_slowly, &r), 0);
    assert_int_equal(receive_bytes(p->b, in, sizeof in, NULL, 0, LONG_MS), GVM_OK);
    pthread_join(thread, &failed);
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &ignore, NULL); /* and with it one that is still pending */
    sigaction(SIGALRM, &before, NULL);
    assert_null(failed);
    assert_memory_equal(in, out, sizeof out);
}

static void socket_bytes_beyond_stay_for_the_caller(void **state)
{
    pair *p = *state;
    char text[8] = {0};

    assert_int_equal(write(p->a, "beforeXXXXafter", 15), 15);
    assert_int_equal(read(p->b, text, 6), 6);
    assert_int_equal(receive_bytes(p->b, text, 4, NULL, 0, 0), GVM_OK);
    assert_memory_equal(text, "XXXX", 4);
    assert_int_equal(read(p->b, text, sizeof text), 5);
    assert_memory_equal(text, "after", 5);
}

static void socket_silent_peer_is_a_timeout(void **state)
{
    pair *p = *state;
    struct timespec from, to;
    char bytes[4];

    assert_int_equal(receive_bytes(p->b, bytes, 4, NULL, 0, 0), GVM_E_TIMEOUT);
    assert_int_equal(write(p->a, "ab", 2), 2);
    clock_gettime(CLOCK_MONOTONIC, &from);
    assert_int_equal(receive_bytes(p->b, bytes, 4, NULL, 0, SHORT_MS), GVM_E_TIMEOUT);
    clock_gettime(CLOCK_MONOTONIC, &to);
    assert_true((to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000 >=
                SHORT_MS - 1);
}

static void socket_peer_that_does_not_read_is_a_timeout(void **state)
{
    pair *p = *state;
    char *bytes = calloc(1, BIG_BYTES);

    assert_int_equal(send_bytes(p->a, bytes, BIG_BYTES, NULL, 0, SHORT_MS), GVM_E_TIMEOUT);
    free(bytes);
}

static void socket_closed_by_the_peer_is_reported(void **state)
{
    pair *p = *state;
    char bytes[4] = "abc";

    assert_int_equal(write(p->a, "ab", 2), 2);
    close_end(&p->a);
    assert_int_equal(receive_bytes(p->b, bytes, 4, NULL, 0, -1), GVM_E_PEER);
    assert_int_equal(send_bytes(p->b, bytes, 4, NULL, 0, -1), GVM_E_PEER); /* and no SIGPIPE */
    assert_native("sendmsg", "EPIPE");
}

static void socket_closed_with_unread_bytes_is_reported(void **state)
{
    pair *p = *state;
    char bytes[4] = "abc";

    assert_int_equal(write(p->b, "unread", 6), 6);
    close_end(&p->a);
    assert_int_equal(receive_bytes(p->b, bytes, 4, NULL, 0, -1), GVM_E_PEER);
    assert_native("recvmsg", "ECONNRESET");
}

/* ---- fds */

static void check_fds_arrive(pair *p)
{
    int out[GVMI_FDS_MAX], in[GVMI_FDS_MAX];
    char bytes[600] = {1, 2, 3};

    make_files(out, GVMI_FDS_MAX);
    assert_int_equal(send_bytes(p->a, bytes, sizeof bytes, out, GVMI_FDS_MAX, LONG_MS), GVM_OK);
    assert_int_equal(receive_bytes(p->b, bytes, sizeof bytes, in, GVMI_FDS_MAX, LONG_MS), GVM_OK);
    for (uint32_t i = 0; i < GVMI_FDS_MAX; i++) {
        assert_same_file(in[i], out[i]);
        assert_int_equal(fcntl(in[i], F_GETFD), FD_CLOEXEC);
    }
    close_files(out, GVMI_FDS_MAX);
    close_files(in, GVMI_FDS_MAX);
}

static void socket_most_fds_of_a_message_arrive(void **state)
{
    check_fds_arrive(*state);
}

static void socket_nonblocking_carries_fds_too(void **state)
{
    pair *p = *state;

    assert_int_equal(fcntl(p->a, F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(fcntl(p->b, F_SETFL, O_NONBLOCK), 0);
    check_fds_arrive(p);
}

static void socket_that_passes_credentials_carries_fds_too(void **state)
{
    pair *p = *state;
    const int on = 1;

    assert_int_equal(setsockopt(p->b, SOL_SOCKET, SO_PASSCRED, &on, sizeof on), 0);
#ifdef SO_PASSPIDFD
    (void)setsockopt(p->b, SOL_SOCKET, SO_PASSPIDFD, &on, sizeof on);
#else
    (void)setsockopt(p->b, SOL_SOCKET, 76, &on, sizeof on); /* SO_PASSPIDFD; refused before Linux 6.5 */
#endif
    check_fds_arrive(p);
}

/* The peer says one thing and sends another: fds of it are closed here, which teardown sees. */
static void check_fd_mismatch(pair *p, uint32_t sent, uint32_t wanted)
{
    int out[GVMI_FDS_MAX], in[GVMI_FDS_MAX];
    char bytes[8] = {0};

    make_files(out, sent);
    assert_int_equal(send_bytes(p->a, bytes, sizeof bytes, out, sent, LONG_MS), GVM_OK);
    assert_int_equal(receive_bytes(p->b, bytes, sizeof bytes, in, wanted, LONG_MS), GVM_E_FORMAT);
    close_files(out, sent);
}

static void socket_too_few_fds_are_malformed(void **state)
{
    check_fd_mismatch(*state, 3, 4);
    check_fd_mismatch(*state, 0, 1);
}

static void socket_too_many_fds_are_malformed(void **state)
{
    check_fd_mismatch(*state, 5, 4);
    check_fd_mismatch(*state, 253, 0);
}

static void socket_fds_before_the_peer_closed_are_closed(void **state)
{
    pair *p = *state;
    int out[7], in[7];
    char bytes[8] = {0};

    make_files(out, 7);
    assert_int_equal(send_bytes(p->a, bytes, 4, out, 7, LONG_MS), GVM_OK);
    close_files(out, 7);
    close_end(&p->a);
    assert_int_equal(receive_bytes(p->b, bytes, 8, in, 7, LONG_MS), GVM_E_PEER);
}

static void socket_without_room_for_fds_is_a_limit(void **state)
{
    pair *p = *state;
    struct rlimit before, low;
    int out[100], in[100];
    char bytes[8] = {0};
    gvm_status status;
    gvm_error error;

    SKIP_UNDER_VALGRIND(VALGRIND_FDS);
    make_files(out, 100);
    assert_int_equal(send_bytes(p->a, bytes, sizeof bytes, out, 100, LONG_MS), GVM_OK);
    close_files(out, 100);
    getrlimit(RLIMIT_NOFILE, &before);
    low = before;
    low.rlim_cur = (rlim_t)p->b + 50;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    status = receive_bytes(p->b, bytes, sizeof bytes, in, 100, LONG_MS);
    setrlimit(RLIMIT_NOFILE, &before);
    assert_int_equal(status, GVM_E_LIMIT);
    gvm_error_last(&error);
    assert_non_null(strstr(error.text, "ulimit -n"));
}

static void *read_later(void *arg)
{
    const int *ends = arg;

    usleep(SHORT_MS * 1000);
    close(ends[0]); /* whatever is still on its way there is dropped */
    close(ends[1]);
    return NULL;
}

/* Puts as many fds on their way as a user may have; root is exempt, so root becomes nobody
 * first. */
static int crowd_the_way(int *ends)
{
    const struct rlimit low = {30, 30};
    int fds[60];
    gvmi_socket other;

    for (int i = 0; i < 60; i++)
        fds[i] = memfd_create("test", MFD_CLOEXEC);
    CHILD_EXPECT(fds[59] >= 0);
    CHILD_EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    CHILD_EXPECT(geteuid() != 0 || setuid(65534) == 0);
    CHILD_EXPECT(setrlimit(RLIMIT_NOFILE, &low) == 0);
    CHILD_EXPECT(gvmi_socket_begin(ends[0], 0, &other) == GVM_OK);
    CHILD_EXPECT(gvmi_socket_send(&other, "x", 1, fds, 60) == GVM_OK);
    return 0;
}

static int send_through_a_crowd(void *arg)
{
    pair *p = arg;
    int ends[2], fd = p->a;
    gvmi_socket socket;
    pthread_t thread;
    gvm_error error;

    CHILD_EXPECT(crowd_the_way(ends) == 0);
    CHILD_EXPECT(gvmi_socket_begin(p->a, SHORT_MS, &socket) == GVM_OK);
    CHILD_EXPECT(gvmi_socket_send(&socket, "y", 1, &fd, 1) == GVM_E_TIMEOUT);
    CHILD_EXPECT(gvm_error_last(&error) == GVM_OK && strcmp(error.native_name, "ETOOMANYREFS") == 0);
    CHILD_EXPECT(pthread_create(&thread, NULL, read_later, ends) == 0);
    CHILD_EXPECT(gvmi_socket_begin(p->a, LONG_MS, &socket) == GVM_OK);
    CHILD_EXPECT(gvmi_socket_send(&socket, "z", 1, &fd, 1) == GVM_OK);
    pthread_join(thread, NULL);
    return 0;
}

static void socket_with_too_many_fds_on_their_way_waits(void **state)
{
    pair *p = *state;
    char byte;
    int fd;

    SKIP_UNDER_VALGRIND(VALGRIND_FDS);
    assert_child_succeeds(send_through_a_crowd, p);
    assert_int_equal(receive_bytes(p->b, &byte, 1, &fd, 1, LONG_MS), GVM_OK);
    assert_int_equal(byte, 'z');
    close(fd);
}

/* ---- shares */

static gvmi_descriptor describe(uint32_t chunk_count)
{
    gvmi_descriptor about;

    gvmi_descriptor_init(&about);
    about.chunk_count = chunk_count;
    about.generation = 1;
    about.exporter_address = 1ull << 40;
    about.chunk_bytes = 2 * MIB;
    about.reserve_bytes = about.span_len_bytes = 2ull * chunk_count * about.chunk_bytes;
    return about;
}

static gvmi_descriptor_chunk describe_chunk(uint32_t i)
{
    return (gvmi_descriptor_chunk){.offset_bytes = i * 4 * MIB, .stamp = i & 1, .tier = 1 + (i & 1)};
}

static gvm_share *make_share(uint32_t chunk_count)
{
    gvm_share *share, *out;

    assert_int_equal(gvmi_share_new(&share), GVM_OK);
    assert_int_equal(gvmi_share_grow(share, chunk_count), GVM_OK);
    share->about = describe(chunk_count);
    for (uint32_t i = 0; i < chunk_count; i++)
        share->chunks[i] = describe_chunk(i);
    make_files(share->fds, chunk_count);
    share->count = chunk_count;
    assert_int_equal(gvmi_share_publish(share, &out), GVM_OK);
    return out;
}

static void assert_same_share(const gvm_share *a, const gvm_share *b)
{
    assert_memory_equal(&a->about, &b->about, sizeof a->about);
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->chunks, b->chunks, a->count * sizeof *a->chunks);
    for (uint32_t i = 0; i < a->count; i++)
        assert_same_file(a->fds[i], b->fds[i]);
}

typedef struct sender {
    const gvm_share *share;
    int fd;
    gvm_status status;
} sender;

/* A share between words of the caller's own. */
static void *send_share(void *arg)
{
    sender *s = arg;

    s->status = send_bytes(s->fd, "hello", 5, NULL, 0, LONG_MS);
    if (s->status == GVM_OK)
        s->status = gvm_share_send(s->share, s->fd, LONG_MS);
    if (s->status == GVM_OK)
        s->status = gvm_share_send(s->share, s->fd, LONG_MS);
    if (s->status == GVM_OK)
        s->status = send_bytes(s->fd, "bye", 3, NULL, 0, LONG_MS);
    return NULL;
}

static void check_share_arrives(pair *p, uint32_t chunk_count)
{
    sender s = {.share = make_share(chunk_count), .fd = p->a};
    gvm_share *first, *second;
    char text[5];
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, send_share, &s), 0);
    assert_int_equal(receive_bytes(p->b, text, 5, NULL, 0, LONG_MS), GVM_OK);
    assert_memory_equal(text, "hello", 5);
    assert_int_equal(gvm_share_receive(p->b, LONG_MS, &first), GVM_OK);
    assert_int_equal(gvm_share_receive(p->b, LONG_MS, &second), GVM_OK);
    assert_int_equal(receive_bytes(p->b, text, 3, NULL, 0, LONG_MS), GVM_OK);
    assert_memory_equal(text, "bye", 3);
    pthread_join(thread, NULL);
    assert_int_equal(s.status, GVM_OK);
    assert_same_share(first, s.share);
    assert_same_share(second, s.share);
    gvm_share_destroy(first);
    gvm_share_destroy(second);
    gvm_share_destroy((gvm_share *)(uintptr_t)s.share);
}

static void share_of_any_size_arrives_between_other_words(void **state)
{
    struct rlimit limit;

    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    check_share_arrives(*state, 1);
    check_share_arrives(*state, 253);
    check_share_arrives(*state, 254);
    if (limit.rlim_cur > 3100)
        check_share_arrives(*state, 1000);
}

static void share_through_a_tiny_buffer_arrives(void **state)
{
    pair *p = *state;
    const int tiny = 1;

    assert_int_equal(setsockopt(p->a, SOL_SOCKET, SO_SNDBUF, &tiny, sizeof tiny), 0);
    check_share_arrives(p, 300);
}

static void share_info_tells_what_was_sent(void **state)
{
    gvm_share *share = make_share(3);
    gvm_share_info info = {.struct_size = sizeof info};

    (void)state;
    assert_int_equal(gvm_share_get_info(share, &info), GVM_OK);
    assert_int_equal(info.chunk_count, 3);
    assert_int_equal(info.committed_bytes, 6 * MIB);
    assert_int_equal(info.span_len_bytes, 12 * MIB);
    info.struct_size = 8;
    assert_int_equal(gvm_share_get_info(share, &info), GVM_E_INVALID);
    assert_int_equal(gvm_share_get_info(share, NULL), GVM_E_INVALID);
    gvm_share_destroy(share);
    info.struct_size = sizeof info;
    assert_int_equal(gvm_share_get_info(share, &info), GVM_E_FOREIGN);
    gvm_share_destroy(share);
    gvm_share_destroy(NULL);
}

static void share_to_nowhere_fails_and_stays(void **state)
{
    pair *p = *state;
    gvm_share *share = make_share(2), *received;

    assert_int_equal(gvm_share_send(share, -1, 0), GVM_E_INVALID);
    assert_int_equal(gvm_share_send(NULL, p->a, 0), GVM_E_FOREIGN);
    assert_int_equal(gvm_share_receive(p->b, 0, NULL), GVM_E_INVALID);
    assert_int_equal(gvm_share_send(share, p->a, -2), GVM_E_INVALID);
    assert_int_equal(gvm_share_receive(p->b, -2, &received), GVM_E_INVALID);
    assert_int_equal(gvm_share_send(share, p->a, GVM_TRY), GVM_OK);
    assert_int_equal(gvm_share_receive(p->b, GVM_TRY, &received), GVM_OK);
    close_end(&p->b);
    assert_int_equal(gvm_share_send(share, p->a, GVM_FOREVER), GVM_E_PEER);
    gvm_share_destroy(received);
    gvm_share_destroy(share);
}

/* What a hostile or broken exporter may send: the fixed part as given, then chunks with fds. */
static gvm_status receive_from_liar(pair *p, const gvmi_descriptor *about, size_t about_bytes,
                                    uint32_t chunk_count, uint32_t fd_count)
{
    gvmi_descriptor_chunk chunks[4];
    int fds[8];
    gvm_share *share = NULL;
    gvm_status status;

    assert_int_equal(send_bytes(p->a, about, about_bytes, NULL, 0, LONG_MS), GVM_OK);
    for (uint32_t i = 0; i < chunk_count; i++)
        chunks[i] = describe_chunk(i);
    make_files(fds, fd_count);
    if (chunk_count > 0)
        assert_int_equal(
            send_bytes(p->a, chunks, chunk_count * sizeof chunks[0], fds, fd_count, LONG_MS), GVM_OK);
    close_files(fds, fd_count);
    close_end(&p->a);
    status = gvm_share_receive(p->b, LONG_MS, &share);
    assert_null(share);
    return status;
}

static void share_cut_short_is_reported(void **state)
{
    const gvmi_descriptor about = describe(3);

    assert_int_equal(receive_from_liar(*state, &about, 7, 0, 0), GVM_E_PEER);
}

static void share_cut_short_in_the_fixed_part_is_reported(void **state)
{
    const gvmi_descriptor about = describe(3);

    assert_int_equal(receive_from_liar(*state, &about, sizeof about - 1, 0, 0), GVM_E_PEER);
}

static void share_with_fewer_chunks_than_said_is_reported(void **state)
{
    const gvmi_descriptor about = describe(4);

    assert_int_equal(receive_from_liar(*state, &about, sizeof about, 3, 3), GVM_E_PEER);
}

static void share_with_more_fds_than_chunks_is_malformed(void **state)
{
    const gvmi_descriptor about = describe(3);

    assert_int_equal(receive_from_liar(*state, &about, sizeof about, 3, 4), GVM_E_FORMAT);
}

static void share_with_fewer_fds_than_chunks_is_malformed(void **state)
{
    const gvmi_descriptor about = describe(3);

    assert_int_equal(receive_from_liar(*state, &about, sizeof about, 3, 2), GVM_E_FORMAT);
}

static void share_that_is_none_is_refused_by_its_start(void **state)
{
    gvmi_descriptor about = describe(3);

    about.magic[0] ^= 1;
    assert_int_equal(receive_from_liar(*state, &about, GVMI_DESCRIPTOR_START_BYTES, 0, 0),
                     GVM_E_FORMAT);
}

static void share_of_another_version_is_refused_by_its_start(void **state)
{
    gvmi_descriptor about = describe(3);

    about.version = GVMI_DESCRIPTOR_VERSION_GRADED + 1;
    assert_int_equal(receive_from_liar(*state, &about, GVMI_DESCRIPTOR_START_BYTES, 0, 0),
                     GVM_E_VERSION);
}

static void share_with_too_high_a_count_is_malformed(void **state)
{
    gvmi_descriptor about = describe(3);

    about.chunk_count = UINT32_MAX;
    assert_int_equal(receive_from_liar(*state, &about, sizeof about, 3, 3), GVM_E_FORMAT);
}

/* A promise of a million chunks must not cost the receiver the memory for them: it is only given 16
 * MiB more here. */
static int receive_a_promise(void *arg)
{
    pair *p = arg;
    gvmi_descriptor about = describe(GVMI_SHARE_CHUNKS_MAX);
    gvm_share *share;
    struct rlimit room = {0, 0};
    gvmi_socket socket;
    long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "re");

    CHILD_EXPECT(statm != NULL && fscanf(statm, "%ld", &pages) == 1);
    fclose(statm);
    room.rlim_cur = room.rlim_max = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + 16 * MIB;
    CHILD_EXPECT(setrlimit(RLIMIT_AS, &room) == 0);
    CHILD_EXPECT(gvmi_socket_begin(p->a, LONG_MS, &socket) == GVM_OK);
    CHILD_EXPECT(gvmi_socket_send(&socket, &about, sizeof about, NULL, 0) == GVM_OK);
    CHILD_EXPECT(gvm_share_receive(p->b, SHORT_MS, &share) == GVM_E_TIMEOUT);
    return 0;
}

static void share_that_only_promises_costs_nothing(void **state)
{
    if (SANITIZED) /* which needs address space of its own */
        skip();
    assert_child_succeeds(receive_a_promise, *state);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(socket_of_another_kind_is_refused),
        TEST(socket_timeout_below_for_ever_is_refused),
        TEST(socket_not_connected_is_invalid),
        TEST(socket_tiny_buffer_carries_large_data),
        TEST(socket_interrupted_receive_goes_on),
        TEST(socket_bytes_beyond_stay_for_the_caller),
        TEST(socket_silent_peer_is_a_timeout),
        TEST(socket_peer_that_does_not_read_is_a_timeout),
        TEST(socket_closed_by_the_peer_is_reported),
        TEST(socket_closed_with_unread_bytes_is_reported),
        TEST(socket_most_fds_of_a_message_arrive),
        TEST(socket_nonblocking_carries_fds_too),
        TEST(socket_that_passes_credentials_carries_fds_too),
        TEST(socket_too_few_fds_are_malformed),
        TEST(socket_too_many_fds_are_malformed),
        TEST(socket_fds_before_the_peer_closed_are_closed),
        TEST(socket_without_room_for_fds_is_a_limit),
        TEST(socket_with_too_many_fds_on_their_way_waits),
        TEST(share_of_any_size_arrives_between_other_words),
        TEST(share_through_a_tiny_buffer_arrives),
        TEST(share_info_tells_what_was_sent),
        TEST(share_to_nowhere_fails_and_stays),
        TEST(share_cut_short_is_reported),
        TEST(share_cut_short_in_the_fixed_part_is_reported),
        TEST(share_with_fewer_chunks_than_said_is_reported),
        TEST(share_with_more_fds_than_chunks_is_malformed),
        TEST(share_with_fewer_fds_than_chunks_is_malformed),
        TEST(share_that_is_none_is_refused_by_its_start),
        TEST(share_of_another_version_is_refused_by_its_start),
        TEST(share_with_too_high_a_count_is_malformed),
        TEST(share_that_only_promises_costs_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
