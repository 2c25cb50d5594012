/* Two processes, one piece of GPU memory.
 *
 * The parent fills a buffer and sends it through a socket; the child maps the very same memory,
 * read-only, and compares checksums. No byte of the data is copied or sent: what crosses the socket
 * is a description and a few file descriptors.
 *
 *     cc share_pair.c $(pkg-config --cflags --libs gvmem) && ./a.out
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gvmem/gvmem.h>

#define BYTES (64ull << 20)
#define TIMEOUT_MS 60000

static const char *who;

static void must(gvm_status status, const char *what)
{
    gvm_error error;

    if (status == GVM_OK)
        return;
    gvm_error_last(&error);
    fprintf(stderr, "share_pair, %s: %s: %s: %s\n", who, what, gvm_status_text(status), error.text);
    exit(1);
}

/* Makes a buffer, fills it, sends it, and then what its checksum is. */
static void export_buffer(int socket)
{
    gvm_device *device;
    gvm_buffer *buffer;
    gvm_share *share;
    uint64_t checksum;

    must(gvm_device_open(0, &device), "cannot open device 0");
    must(gvm_buffer_create(device, BYTES, NULL, &buffer), "cannot make a buffer");
    must(gvm_buffer_commit(buffer, 0, BYTES), "cannot put memory behind it");
    must(gvm_kernel_fill_random_f64(device, gvm_buffer_address(buffer), BYTES / 8, 0, 1, NULL),
         "cannot fill it");
    must(gvm_kernel_checksum(device, gvm_buffer_address(buffer), BYTES, NULL, &checksum),
         "cannot read it");
    printf("parent: %llu MiB at %p, checksum %016llx\n", BYTES >> 20, gvm_buffer_address(buffer),
           (unsigned long long)checksum);

    must(gvm_share_export(buffer, 0, 0, &share), "cannot export it");
    must(gvm_share_send(share, socket, TIMEOUT_MS), "cannot send it");
    gvm_share_destroy(share);
    /* The socket stays ours to use. */
    if (write(socket, &checksum, sizeof checksum) != sizeof checksum)
        perror("share_pair, parent: write");

    /* The child keeps what it imported even when the parent releases it now. */
    gvm_buffer_destroy(buffer);
    gvm_device_close(device);
}

/* Receives a buffer, maps it, and compares. True if it is what the parent said. */
static int import_buffer(int socket)
{
    gvm_import_options options = gvm_import_options_init();
    gvm_device *device;
    gvm_buffer *buffer;
    gvm_share *share;
    uint64_t expected = 0, checksum;

    must(gvm_device_open(0, &device), "cannot open device 0");
    must(gvm_share_receive(socket, TIMEOUT_MS, &share), "no buffer came");
    options.flags = GVM_IMPORT_READONLY;
    must(gvm_share_import(device, share, &options, &buffer), "cannot import the buffer");
    gvm_share_destroy(share);
    if (read(socket, &expected, sizeof expected) != sizeof expected)
        perror("share_pair, child: read");

    must(gvm_kernel_checksum(device, gvm_buffer_address(buffer), BYTES, NULL, &checksum),
         "cannot read the buffer");
    printf("child:  the same memory at %p, checksum %016llx: %s\n", gvm_buffer_address(buffer),
           (unsigned long long)checksum, checksum == expected ? "as it should be" : "WRONG");
    gvm_buffer_destroy(buffer);
    gvm_device_close(device);
    return checksum == expected;
}

int main(void)
{
    int ends[2], status;
    pid_t child;

    setvbuf(stdout, NULL, _IOLBF, 0); /* lines of both processes in the order they happen */
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) {
        perror("share_pair: socketpair");
        return 1;
    }
    child = fork(); /* before the first call to gvmem: a CUDA driver does not survive a fork */
    if (child == 0) {
        who = "child";
        close(ends[0]); /* so that the child sees the parent's end close */
        return import_buffer(ends[1]) ? 0 : 1;
    }
    who = "parent";
    close(ends[1]);
    if (child < 0) {
        perror("share_pair: fork");
        return 1;
    }
    export_buffer(ends[0]);
    close(ends[0]);
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0
                                                                                                : 1;
}
