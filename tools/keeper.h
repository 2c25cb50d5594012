/* tools/keeper.h - what the commands around the keeper share.
 */
#ifndef TOOLS_KEEPER_H
#define TOOLS_KEEPER_H

#include <gvmem/client.h>

#include "tools/snapshot.h"
#include "tools/text.h"
#include "tools/tool.h"

/* What most of the commands take. */
typedef struct keeper_options {
    const char *socket; /* NULL: the default */
    bool json, prometheus, detailed, forced;
    int timeout_s;
} keeper_options;

/* A connection, or NULL with a complaint. */
gvm_client *keeper_connect(const char *socket);

/* A snapshot, with where chunks are if that is wanted. A keeper that does not answer is waited for so long; then *keeper is NULL, as the
 * connection is closed when the keeper responds again, or with this process.
 *
 * What snapshot_take() and snapshot_take_chunks() return, and GVM_E_TIMEOUT. */
#define KEEPER_ANSWER_S 10
gvm_status keeper_ask(gvm_client **keeper, bool chunks, snapshot_copy **out);

/* A pen on standard output, with the locale set up, that clips nothing. */
text_pen keeper_pen(void);

/* Starts the daemon with these arguments, and --socket if socket is not NULL; prints where it
 * listens. */
int keeper_start(const char *socket, int argc, char **argv);

/* Ends the keeper and waits until its process is gone. */
int keeper_stop(const keeper_options *options);

/* ---- a snapshot as text for people, from the snapshot alone */

void keeper_text_status(text_pen *pen, const snapshot_copy *snapshot);

/* The objects whose names begin with prefix by name, nameless ones first if they are wanted and the prefix is "". The caller frees the
 * list. NULL, with a complaint: out of memory. */
const gvm_object_info **keeper_select(const snapshot_copy *snapshot, const char *prefix,
                                      bool nameless_too, size_t *count);

/* The objects whose names begin with prefix, by name: the names alone, or a line of figures each,
 * then nameless ones too if the prefix is "". False, with a complaint: out of memory. */
bool keeper_text_list(text_pen *pen, const snapshot_copy *snapshot, const char *prefix, bool detailed);
bool keeper_json_list(FILE *out, const snapshot_copy *snapshot, const char *prefix);

/* Everything about one object. */
void keeper_text_object(text_pen *pen, const gvm_object_info *object);

/* The object of a name, or NULL. */
const gvm_object_info *keeper_find(const snapshot_copy *snapshot, const char *name);

#endif
