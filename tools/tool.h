/* tools/tool.h - what the project's programs share.
 *
 * A subcommand takes its own argument vector and returns the exit status: 0 done, 1 something
 * failed (said on stderr), 2 wrong usage.
 */
#ifndef TOOLS_TOOL_H
#define TOOLS_TOOL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <gvmem/gvmem.h>

enum { TOOL_DONE = 0, TOOL_FAILED = 1, TOOL_USAGE = 2 };

int tool_info(int argc, char **argv);
int tool_share(int argc, char **argv);
int tool_keeper(int argc, char **argv);
int tool_models(int argc, char **argv);
int tool_table(int argc, char **argv);
int tool_map(int argc, char **argv);
int tool_top(int argc, char **argv);

/* The name before messages: "gvmem", unless main() says otherwise. */
extern const char *tool_program;

/* The program's name, ": " and a sentence on stderr. Returns TOOL_FAILED. */
int tool_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What was tried, and this thread's latest failure: its text, status and native call. Returns
 * TOOL_FAILED. */
int tool_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Nothing that is opened gets the number of a standard file that the caller had closed. False: the error is printed. */
bool tool_fill_standard_files(void);

/* The status of this thread's latest failure. */
gvm_status tool_failure_status(void);

/* The latest failure as one line. */
char *tool_failure_text(char *out, size_t out_bytes);

/* A sentence and where to find help. Returns TOOL_USAGE. */
int tool_usage(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The text on stdout. Returns TOOL_DONE; TOOL_FAILED, with a complaint, if it has not reached its file. */
int tool_help(const char *text);

/* What getopt_long() answered with '?' or ':' (a text of options that begins with ':' has it print nothing), as
 * tool_usage() does. */
int tool_bad_option(const char *command, int option, char *const argv[]);

/* Option values, complaining as tool_usage() does. Ranges are inclusive. */
bool tool_parse_number(const char *command, const char *option, const char *text, long least,
                       long most, int *out);
bool tool_parse_size(const char *command, const char *option, const char *text, uint64_t least,
                     uint64_t *out);

/* Everything printed has reached its file. False, with a complaint, if not. */
bool tool_flush(FILE *file, const char *name);

/* As many descriptors as the process may have: every chunk of a share is one. */
void tool_raise_descriptor_limit(void);

/* Monotonic. */
double tool_now_us(void);

/* "GPU-6c7a...", as the vendor's tools write it; needs 48 bytes. */
char *tool_uuid_text(const uint8_t uuid[16], char out[48]);

#endif
