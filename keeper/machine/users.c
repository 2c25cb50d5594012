/* Accounts of users: what each has of what is bounded, and what of it one may have. Rights to objects.
 *
 * An account is made when a user is first seen and ends when it counts nothing and has no quota of its
 * own, so that there are at most as many as clients, objects and quotas set. Accounts do not move:
 * clients, objects and growths point to theirs.
 *
 * The rule of allowances (gvmi_keep_may_take()): a part of each limit is set aside for the keeper's own user
 * and root. Of the rest, a user may take more only as long as what it then has is at most what was free
 * before. So one user gets at most half of it. Each further one gets half of what is left, as long as the
 * earlier ones give nothing back; 1/(n+1) for each of n, and as much free for the next, is where they end
 * only if they do. About ten users who take all they can and give nothing back leave nothing: who may
 * connect is for the group and mode of the socket to say. */
#include <search.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/size.h"
#include "keeper/machine/state.h"

#define QUOTAS_MAX 65536u    /* users with a quota of their own */
#define SET_ASIDE_DIVISOR 8u /* at most the limit divided by this is set aside */

/* clang-format off */
#define ROW(name, max, set_aside, what, remedy) {what, remedy, set_aside},
static const struct {
    const char *what, *remedy;
    uint64_t set_aside;
} allowances[] = {GVMI_ALLOWANCES(ROW)};
#undef ROW
/* clang-format on */

/* ---- accounts: a tree of pointers to keep_user.uid, and a list */

static keep_user *find_machine_user(const gvmi_machine *m, uint32_t uid)
{
    void *const *node = tfind(&uid, (void *const *)&m->user_tree, gvmi_compare_u32);

    return node == NULL ? NULL : (keep_user *)(void *)((char *)*node - offsetof(keep_user, uid));
}

keep_user *gvmi_keep_user(gvmi_machine *m, uint32_t uid)
{
    keep_user *user = find_machine_user(m, uid);

    if (user != NULL)
        return user;
    user = calloc(1, sizeof *user);
    if (user == NULL)
        return NULL;
    user->uid = uid;
    if (tsearch(&user->uid, &m->user_tree, gvmi_compare_u32) == NULL) {
        free(user);
        return NULL;
    }
    user->next = m->users;
    if (user->next != NULL)
        user->next->prev = user;
    m->users = user;
    return user;
}

static bool counts_nothing(const keep_user *user)
{
    for (int i = 0; i < KEEP_ALLOWANCES; i++)
        if (user->taken[i] > 0)
            return false;
    return user->used_bytes == 0 && !user->limited;
}

void gvmi_keep_end_user(gvmi_machine *m, keep_user *user)
{
    if (!counts_nothing(user))
        return;
    for (keep_user *busy = m->first_busy; busy != NULL; busy = busy->busy_next)
        if (busy->next_shown == user)
            busy->next_shown = user->next;
    tdelete(&user->uid, &m->user_tree, gvmi_compare_u32);
    if (user->prev != NULL)
        user->prev->next = user->next;
    else
        m->users = user->next;
    if (user->next != NULL)
        user->next->prev = user->prev;
    free(user);
}

/* Only accounts with a quota are left when the machine ends. */
void gvmi_keep_free_users(gvmi_machine *m)
{
    while (m->users != NULL) {
        GVM_ASSERT(m->users->limited);
        m->users->limited = false;
        gvmi_keep_end_user(m, m->users);
    }
}

/* ---- memory: quotas */

bool gvmi_keep_has_quota(const gvmi_machine *m, const keep_user *user, uint64_t bytes)
{
    const uint64_t limit_bytes = user->limited ? user->limit_bytes : m->config.quota_bytes;

    return user->used_bytes <= limit_bytes && bytes <= limit_bytes - user->used_bytes;
}

void gvmi_keep_charge(keep_user *user, uint64_t bytes)
{
    user->used_bytes += bytes;
}

void gvmi_keep_discharge(gvmi_machine *m, keep_user *user, uint64_t bytes)
{
    GVM_ASSERT(bytes <= user->used_bytes);
    user->used_bytes -= bytes;
    gvmi_keep_end_user(m, user);
}

bool gvmi_keep_holds_too_much(const gvmi_machine *m, const keep_user *user)
{
    return user->held_bytes > (user->limited ? user->limit_bytes : m->config.quota_bytes);
}

void gvmi_keep_reply_holds(gvmi_machine *m, keep_client *client, uint64_t request)
{
    gvmi_keep_reply_failed(
        m, client, request, GVM_E_QUOTA,
        "processes of user %u hold %llu MiB of memory that no object has, more than its quota: they were cut off, "
        "or could not map an object; end them",
        client->user->uid, (unsigned long long)(client->user->held_bytes >> 20));
}

gvm_status gvmi_machine_set_quota(gvmi_machine *m, uint32_t uid, uint64_t bytes)
{
    keep_user *user = find_machine_user(m, uid);

    if ((user == NULL || !user->limited) && m->quota_count >= QUOTAS_MAX)
        return gvm_error_set(GVM_E_LIMIT, "%u users have a quota of their own, the limit",
                             m->quota_count);
    user = gvmi_keep_user(m, uid);
    if (user == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for the quota of user %u", uid);
    m->quota_count += !user->limited;
    user->limited = true;
    user->limit_bytes = bytes;
    return GVM_OK;
}

/* ---- allowances */

static bool is_admin(const gvmi_machine *m, uint32_t uid)
{
    return uid == 0 || uid == m->config.uid;
}

bool gvmi_keep_is_restricted(const gvmi_machine *m, uint32_t uid)
{
    return m->config.restrict_others && !is_admin(m, uid);
}

static uint64_t limit_of(const gvmi_machine *m, keep_allowance allowance)
{
#define ROW(name, max, set_aside, what, remedy) max,
    const uint64_t limits[] = {GVMI_ALLOWANCES(ROW)};
#undef ROW

    return limits[allowance];
}

static uint64_t set_aside_of(const gvmi_machine *m, keep_allowance allowance)
{
    const uint64_t most = limit_of(m, allowance) / SET_ASIDE_DIVISOR;

    return allowances[allowance].set_aside < most ? allowances[allowance].set_aside : most;
}

bool gvmi_keep_may_take(const gvmi_machine *m, const keep_user *user, keep_allowance allowance,
                        uint64_t count)
{
    return count <= gvmi_allowance_left(limit_of(m, allowance), set_aside_of(m, allowance),
                                        m->taken[allowance], user->taken[allowance],
                                        is_admin(m, user->uid));
}

void gvmi_keep_take(gvmi_machine *m, keep_user *user, keep_allowance allowance, uint64_t count)
{
    user->taken[allowance] += count;
    m->taken[allowance] += count;
}

void gvmi_keep_give(gvmi_machine *m, keep_user *user, keep_allowance allowance, uint64_t count)
{
    GVM_ASSERT(count <= user->taken[allowance] && count <= m->taken[allowance]);
    user->taken[allowance] -= count;
    m->taken[allowance] -= count;
    gvmi_keep_end_user(m, user);
}

void gvmi_keep_end_proposal(gvmi_machine *m, keep_object *object)
{
    if (!object->proposed)
        return;
    object->proposed = false;
    gvmi_keep_give(m, object->user, KEEP_ADDRESSES, object->reserve_bytes);
}

void gvmi_keep_refusal(const gvmi_machine *m, const keep_user *user, keep_allowance allowance,
                       char text[GVMI_WIRE_TEXT_BYTES])
{
    snprintf(text, GVMI_WIRE_TEXT_BYTES,
             "user %u has %llu %s, its allowance: of %llu at this keeper %llu are in use, and %llu are kept for "
             "its own user and root; %s",
             user->uid, (unsigned long long)user->taken[allowance], allowances[allowance].what,
             (unsigned long long)limit_of(m, allowance), (unsigned long long)m->taken[allowance],
             (unsigned long long)set_aside_of(m, allowance), allowances[allowance].remedy);
}

void gvmi_keep_reply_allowance(gvmi_machine *m, keep_client *client, uint64_t request,
                               keep_allowance allowance)
{
    char text[GVMI_WIRE_TEXT_BYTES];

    gvmi_keep_refusal(m, client->user, allowance, text);
    gvmi_keep_reply_failed(m, client, request, GVM_E_LIMIT, "%s", text);
}

/* ---- rights */

bool gvmi_keep_is_admin(const gvmi_machine *m, const keep_client *client)
{
    return !client->restricted && is_admin(m, client->who.uid);
}

static bool in_group(const keep_client *client, uint32_t gid)
{
    if (gid == GVMI_GROUP_NONE)
        return false;
    if (client->who.gid == gid)
        return true;
    for (uint32_t i = 0; i < client->who.group_count && i < GVMI_GROUPS_MAX; i++)
        if (client->who.groups[i] == gid)
            return true;
    return false;
}

/* bits as for others: 4 read, 2 write. */
bool gvmi_keep_mode_allows(const gvmi_machine *m, const keep_client *client,
                           const keep_object *object, uint32_t mode, uint32_t bits)
{
    uint32_t granted = mode & 7;

    if (is_admin(m, client->who.uid)) /* a restricted one is let in by links that let in others */
        return true;
    if (client->who.uid == object->domain.uid)
        granted = mode >> 6 & 7;
    else if (in_group(client, object->domain.gid))
        granted = mode >> 3 & 7;
    return (granted & bits) == bits;
}

bool gvmi_keep_may_read(const gvmi_machine *m, const keep_client *client, const keep_object *object)
{
    return gvmi_keep_mode_allows(m, client, object, object->domain.mode, 4);
}

bool gvmi_keep_owns(const gvmi_machine *m, const keep_client *client, const keep_object *object)
{
    return !client->restricted &&
           (is_admin(m, client->who.uid) || client->who.uid == object->domain.uid);
}
