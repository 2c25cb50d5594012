/* Children that answer, die, hang and do not end; see child.h. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/child.h"
#include "tests/lib/fixture.h"
#include "tests/lib/tap.h"

#define ROLE "--child"
#define SHORT_MS 200

static int be_child(void)
{
    char command, answer;
    int fd;

    while (child_next(&command, 1, &fd)) {
        if (command == 'd')
            raise(SIGKILL);
        while (command == 'h')
            pause_ms(1000);
        answer = command;
        (void)child_answer(&answer, 1, fd); /* what came along goes back */
        if (fd >= 0)
            close(fd);
    }
    return 3;
}

static child start(unsigned limit_ms)
{
    child c = child_must_start(ROLE);

    c.limit_ms = limit_ms;
    return c;
}

static bool answers(void)
{
    child c = start(CHILD_LIMIT_MS);
    char first = 0, second = 0;
    bool good = child_post(&c, "a", 1, -1) && child_post(&c, "b", 1, -1) &&
                child_wait(&c, &first, 1, NULL) == NULL && child_wait(&c, &second, 1, NULL) == NULL;
    const int status = child_end(&c);

    return good && first == 'a' && second == 'b' && WIFEXITED(status) && WEXITSTATUS(status) == 3 &&
           c.pid == 0 && child_end(&c) == -1;
}

static bool passes_a_descriptor(void)
{
    const int before = count_fds();
    child c = start(CHILD_LIMIT_MS);
    char answer, text[4] = "";
    int ends[2], back = -1;
    bool good = pipe(ends) == 0 && child_post(&c, "f", 1, ends[1]) &&
                child_wait(&c, &answer, 1, &back) == NULL && write(back, "far", 3) == 3 &&
                read(ends[0], text, sizeof text) == 3 && strcmp(text, "far") == 0;

    close(ends[0]);
    close(ends[1]);
    close(back);
    return child_end(&c) != -1 && good && count_fds() == before;
}

static bool is_dead(void)
{
    child c = start(CHILD_LIMIT_MS);
    char answer;
    const char *wrong = child_post(&c, "d", 1, -1) ? child_wait(&c, &answer, 1, NULL) : NULL;
    const int status = child_reap(&c);

    return wrong != NULL && strstr(wrong, "dead") != NULL && WIFSIGNALED(status) &&
           WTERMSIG(status) == SIGKILL && !child_post(&c, "a", 1, -1);
}

static bool hangs(void)
{
    child c = start(SHORT_MS);
    char answer;
    const char *wrong = child_post(&c, "h", 1, -1) ? child_wait(&c, &answer, 1, NULL) : NULL;

    return wrong != NULL && strstr(wrong, "hangs") != NULL && c.pid == 0;
}

static bool does_not_end(void)
{
    child c = start(SHORT_MS);

    return child_post(&c, "h", 1, -1) && WIFSIGNALED(child_end(&c));
}

static bool brings_nothing_else(void)
{
    const int beside = dup(STDIN_FILENO); /* not close-on-exec */
    child c = start(CHILD_LIMIT_MS);
    char path[64];
    int count;

    (void)child_post(&c, "a", 1, -1);
    (void)child_wait(&c, &(char){0}, 1, NULL); /* it runs */
    snprintf(path, sizeof path, "/proc/%d/fd", (int)c.pid);
    count = count_entries(path);
    close(beside);
    (void)child_end(&c);
    return count == 4; /* the three, and the socket */
}

int main(int argc, char **argv)
{
    if (child_is(argc, argv, ROLE))
        return be_child();
    tap_result(answers(), "child_answers_in_order_and_ends");
    tap_result(passes_a_descriptor(), "descriptor_goes_to_a_child_and_back");
    tap_result(is_dead(), "child_that_dies_is_said_so");
    tap_result(hangs(), "child_that_hangs_is_killed");
    tap_result(does_not_end(), "child_that_does_not_end_is_killed");
    tap_result(brings_nothing_else(), "child_has_no_descriptors_of_the_test");
    return tap_finish();
}
