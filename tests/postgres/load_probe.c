/* A program that writes rows for a table by a token of gstore_load_begin(), as any user's, honest or not: public headers
 * and the shared library alone. It reads commands and answers a line each:
 *
 *     open TOKEN            the object's size in bytes, or the status's name
 *     file PATH             writes the file's bytes to the object's beginning; the status
 *     poke OFFSET HEX       writes bytes; the status
 *     take | give           a write lease that is kept; the status
 *     scribble OFFSET HEX   writes without a lease from now on, again and again, these bytes and what was there by turns
 *     stop                  ends that; how often it wrote
 *     grow | shrink | seal | name | meta | list | make | spy NAME    what it must not; the status
 *     close                 the status of nothing: OK
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gvmem/gvmem.h>

#define LINE_BYTES 4096
#define BYTES_MAX 256

typedef int copy_in(uint64_t to, const void *from, size_t bytes);
typedef int copy_out(void *to, uint64_t from, size_t bytes);

static gvm_client *client;
static gvm_object *object;
static gvm_lease held;

static struct {
    pthread_t thread;
    atomic_bool stop;
    uint64_t address, count;
    uint8_t bytes[BYTES_MAX], before[BYTES_MAX];
    size_t len;
    copy_in *write;
    gvm_device *device;
} scribbler;

static const char *open_token(const char *token, char answer[64])
{
    gvm_object_info info = {.struct_size = sizeof info};
    gvm_status status = gvm_load_open(token, &client, &object);

    if (status == GVM_OK)
        status = gvm_object_get_info(object, &info);
    if (status != GVM_OK)
        return gvm_status_name(status);
    snprintf(answer, 64, "%" PRIu64, info.size_bytes);
    return answer;
}

static gvm_status write_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *bytes;
    long len;
    gvm_status status;

    if (file == NULL || fseek(file, 0, SEEK_END) != 0 || (len = ftell(file)) < 0)
        return GVM_E_SYSTEM;
    rewind(file);
    bytes = malloc((size_t)len + 1);
    status = bytes != NULL && fread(bytes, 1, (size_t)len, file) == (size_t)len
                 ? gvm_object_copy_in(object, 0, bytes, (uint64_t)len, GVM_FOREVER)
                 : GVM_E_SYSTEM;
    free(bytes);
    fclose(file);
    return status;
}

static size_t parse_hex(const char *text, uint8_t bytes[BYTES_MAX])
{
    size_t len = 0;
    unsigned byte;

    for (; len < BYTES_MAX && sscanf(text + 2 * len, "%2x", &byte) == 1; len++)
        bytes[len] = (uint8_t)byte;
    return len;
}

static void *scribble(void *arg)
{
    (void)arg;
    if (gvm_device_push_context(scribbler.device) != GVM_OK)
        return NULL;
    while (!atomic_load(&scribbler.stop)) {
        const void *from = scribbler.count++ % 2 == 0 ? scribbler.bytes : scribbler.before;

        if (scribbler.write(scribbler.address, from, scribbler.len) != 0)
            break;
    }
    gvm_device_pop_context();
    return NULL;
}

/* What was mapped for a lease stays mapped while nobody moves it. */
static gvm_status begin_scribbling(uint64_t offset, const char *hex)
{
    void (*write)(void) = NULL, (*read)(void) = NULL;
    gvm_lease lease;
    gvm_status status = gvm_driver_get_call("cuMemcpyHtoD_v2", &write);

    if (status == GVM_OK)
        status = gvm_driver_get_call("cuMemcpyDtoH_v2", &read);
    if (status == GVM_OK)
        status = gvm_device_open(0, &scribbler.device);
    if (status == GVM_OK)
        status = gvm_object_acquire(object, GVM_LEASE_WRITE, NULL, GVM_FOREVER, &lease);
    if (status != GVM_OK)
        return status;
    scribbler.len = parse_hex(hex, scribbler.bytes);
    scribbler.address = (uintptr_t)lease.address + offset;
    scribbler.write = (copy_in *)write;
    status = gvm_device_push_context(scribbler.device);
    if (status == GVM_OK) {
        if (((copy_out *)read)(scribbler.before, scribbler.address, scribbler.len) != 0)
            status = GVM_E_DRIVER;
        gvm_device_pop_context();
    }
    (void)!gvm_object_release(object, &lease);
    atomic_store(&scribbler.stop, false);
    if (status == GVM_OK && pthread_create(&scribbler.thread, NULL, scribble, NULL) != 0)
        status = GVM_E_SYSTEM;
    return status;
}

static gvm_status list_objects(void)
{
    gvm_snapshot *snapshot = NULL;
    gvm_status status = gvm_client_get_snapshot(client, &snapshot);

    gvm_snapshot_destroy(snapshot);
    return status;
}

static gvm_status try_forbidden(const char *verb, const char *name)
{
    gvm_object *other;
    gvm_status status;

    if (strcmp(verb, "grow") == 0)
        return gvm_object_grow(object, UINT64_MAX / 2);
    if (strcmp(verb, "shrink") == 0)
        return gvm_object_shrink(object, 0);
    if (strcmp(verb, "seal") == 0)
        return gvm_object_seal(object, 0);
    if (strcmp(verb, "name") == 0)
        return gvm_object_publish(object, "/mine", 0);
    if (strcmp(verb, "meta") == 0)
        return gvm_object_set_metadata(object, "x", 1);
    if (strcmp(verb, "list") == 0)
        return list_objects();
    status = strcmp(verb, "make") == 0 ? gvm_object_create(client, NULL, 1 << 21, NULL, &other)
                                       : gvm_object_open(client, name, GVM_OPEN_READONLY, &other);
    if (status == GVM_OK)
        gvm_object_close(other);
    return status;
}

static void close_all(void)
{
    gvm_object_close(object);
    gvm_client_close(client);
    object = NULL;
    client = NULL;
}

static const char *execute(char *verb, char *first, char *second, char answer[64])
{
    uint8_t bytes[BYTES_MAX];

    if (strcmp(verb, "open") == 0)
        return open_token(first, answer);
    if (strcmp(verb, "file") == 0)
        return gvm_status_name(write_file(first));
    if (strcmp(verb, "poke") == 0)
        return gvm_status_name(gvm_object_copy_in(object, strtoull(first, NULL, 10), bytes,
                                                  parse_hex(second, bytes), GVM_FOREVER));
    if (strcmp(verb, "take") == 0)
        return gvm_status_name(gvm_object_acquire(object, GVM_LEASE_WRITE, NULL, GVM_FOREVER, &held));
    if (strcmp(verb, "give") == 0)
        return gvm_status_name(gvm_object_release(object, &held));
    if (strcmp(verb, "scribble") == 0)
        return gvm_status_name(begin_scribbling(strtoull(first, NULL, 10), second));
    if (strcmp(verb, "stop") == 0) {
        atomic_store(&scribbler.stop, true);
        pthread_join(scribbler.thread, NULL);
        snprintf(answer, 64, "%" PRIu64, scribbler.count);
        return answer;
    }
    if (strcmp(verb, "close") == 0) {
        close_all();
        return "GVM_OK";
    }
    return gvm_status_name(try_forbidden(verb, first));
}

int main(void)
{
    char line[LINE_BYTES], verb[32], first[LINE_BYTES], second[LINE_BYTES], answer[64];

    while (fgets(line, sizeof line, stdin) != NULL) {
        first[0] = second[0] = '\0';
        if (sscanf(line, "%31s %4095s %4095s", verb, first, second) < 1)
            continue;
        printf("%s\n", execute(verb, first, second, answer));
        fflush(stdout);
    }
    close_all();
    return 0;
}
