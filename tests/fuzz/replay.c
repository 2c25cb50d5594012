/* usage: PROGRAM FOLDER...
 * Gives every file of the folders to a fuzz target, once: what a fuzzer begins with and what it
 * once found stays tested where there is no libFuzzer. Prints TAP; a fault ends the program. */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/tap.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PATH_BYTES 4096
#define INPUT_BYTES_MAX (1u << 20)

/* From memory of exactly its length, so that a sanitizer sees a read beyond. */
static int replay_file(const char *path)
{
    static uint8_t read_bytes[INPUT_BYTES_MAX];
    FILE *file = fopen(path, "rb");
    uint8_t *exact;
    size_t len;

    if (file == NULL)
        return -1;
    len = fread(read_bytes, 1, sizeof read_bytes, file);
    fclose(file);
    exact = malloc(len > 0 ? len : 1);
    if (exact == NULL)
        return -1;
    memcpy(exact, read_bytes, len);
    LLVMFuzzerTestOneInput(exact, len);
    free(exact);
    return 0;
}

/* False: a file of it cannot be read, or all of it. */
static bool replay_folder(const char *folder)
{
    struct dirent **names = NULL;
    const int count = scandir(folder, &names, NULL, alphasort);
    bool good = count >= 0;

    for (int i = 0; i < count; i++) {
        char path[PATH_BYTES];

        if (names[i]->d_name[0] != '.' && good) {
            snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
            printf("# %s\n", path);
            fflush(stdout); /* it may be the last that is heard of this program */
            good = replay_file(path) == 0 && tap_result(true, "%s", names[i]->d_name);
        }
        free(names[i]);
    }
    free(names);
    return good;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!replay_folder(argv[i]))
            tap_bail_out("cannot read %s: %s", argv[i], strerror(errno));
    return tap_finish();
}
