/* tests/unit/service_threads.h - the threads of the library in this process. */
#ifndef SERVICE_THREADS_H
#define SERVICE_THREADS_H

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Threads of the library's kind; of the last, whether it sleeps at this moment. */
static inline int service_threads(bool *sleeps)
{
    DIR *tasks = opendir("/proc/self/task");
    const struct dirent *task;
    int count = 0;

    while (tasks != NULL && (task = readdir(tasks)) != NULL) {
        char path[300], line[300] = "";
        FILE *file;

        snprintf(path, sizeof path, "/proc/self/task/%s/stat", task->d_name);
        file = fopen(path, "re");
        if (file != NULL && fgets(line, sizeof line, file) != NULL &&
            strstr(line, "(gvmem-thread)") != NULL) {
            count++;
            *sleeps = strstr(line, ") S ") != NULL;
        }
        if (file != NULL)
            fclose(file);
    }
    if (tasks != NULL)
        closedir(tasks);
    return count;
}

#endif
