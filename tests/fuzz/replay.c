/* usage: PROGRAM FOLDER...
 * Gives every file of the folders to a fuzz target, once: what a fuzzer begins with and what it
 * once found stays tested where there is no libFuzzer. Prints TAP; a fault ends the program. */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Returns how many files there were, or -1. */
static int replay_folder(const char *folder, int number)
{
    struct dirent **names = NULL;
    const int count = scandir(folder, &names, NULL, alphasort);
    int done = 0;

    for (int i = 0; i < count; i++) {
        char path[PATH_BYTES];

        if (names[i]->d_name[0] != '.' && done >= 0) {
            snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
            printf("# %s\n", path);
            fflush(stdout); /* it may be the last that is heard of this program */
            if (replay_file(path) == 0)
                printf("ok %d - %s\n", number + ++done, names[i]->d_name);
            else
                done = -1;
        }
        free(names[i]);
    }
    free(names);
    return count < 0 ? -1 : done;
}

int main(int argc, char **argv)
{
    int number = 0;

    for (int i = 1; i < argc; i++) {
        const int done = replay_folder(argv[i], number);

        if (done < 0) {
            printf("Bail out! cannot read %s: %s\n", argv[i], strerror(errno));
            return 1;
        }
        number += done;
    }
    printf("1..%d\n", number);
    return number == 0; /* nothing was tested */
}
