/* keeper/server/identity.h - who a client is, where not every user has a number.
 *
 * In a user namespace (user_namespaces(7)) that does not map all users and groups, those without a number
 * all appear as one: the overflow user and group, 65534 as a rule. That number is nobody's identity
 * there: many users share it. Where all are mapped, 65534 is an ordinary user.
 */
#ifndef GVMI_KEEPER_SERVER_IDENTITY_H
#define GVMI_KEEPER_SERVER_IDENTITY_H

#include "keeper/machine/machine.h"

typedef struct gvmi_identity {
    uint32_t overflow_uid, overflow_gid;
    bool all_uids, all_gids; /* are mapped in this process's namespace */
} gvmi_identity;

/* Of this process's user namespace. What cannot be read counts as not mapped. */
void gvmi_identity_read(gvmi_identity *out);

/* Whether a map, as in /proc/self/uid_map, has a number for every user. */
bool gvmi_identity_is_whole(const char *map);

/* Judges a client's credentials: refuses an overflow uid, except of the process `self`, and replaces
 * overflow gids by GVMI_GROUP_NONE.
 *
 * GVM_E_DENIED  the user has no number here */
gvm_status gvmi_identity_judge(const gvmi_identity *identity, int32_t self, gvmi_credentials *who);

#endif
