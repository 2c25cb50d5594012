/* keeper/server/rotation.h - which client is served next.
 *
 * Users are served in rotation, each for a slice of GVMI_SLICE_NS at most; within a user its clients are served in
 * rotation, one visit each. So what a client waits for does not depend on how many clients another user
 * has, or how much they send: it is at most one slice of each user that has something to be done, and
 * the visit at the end of each slice.
 *
 * Threads: one at a time.
 * Ownership: places are part of what they are places of. A user's account lives while it has places.
 */
#ifndef GVMI_KEEPER_ROTATION_H
#define GVMI_KEEPER_ROTATION_H

#include <stdbool.h>
#include <stdint.h>

#include <gvmem/status.h>

#define GVMI_SLICE_NS 1000000ll

typedef struct gvmi_rotation_user gvmi_rotation_user;
typedef struct gvmi_place gvmi_place;

/* Of a client. */
struct gvmi_place {
    void *owner; /* whose place it is */
    gvmi_rotation_user *user;
    gvmi_place *next; /* while queued */
    bool queued;
};

struct gvmi_rotation_user {
    uint32_t uid;
    uint32_t places;
    int64_t slice_ns;
    uint32_t refused; /* for the server: its clients that wait to be told that they are refused */
    uint32_t unread;  /* likewise: sockets kept though their clients have ended */
    uint64_t passing; /* likewise: descriptors sent and not received */
    gvmi_place *first, *last; /* those queued */
    gvmi_rotation_user *next; /* while it has any */
};

/* All zeros: nobody. */
typedef struct gvmi_rotation {
    void *users;                      /* tsearch(3), of pointers to gvmi_rotation_user.uid */
    gvmi_rotation_user *first, *last; /* those with something queued */
    bool begun;                       /* the first one's slice, which ends at end_ns */
    int64_t end_ns;
} gvmi_rotation;

/* Makes a place of a user's. GVM_E_NOMEM */
gvm_status gvmi_rotation_join(gvmi_rotation *rotation, uint32_t uid, void *owner, gvmi_place *out);

/* Ends a place, which is not queued; one that was never made, too. */
void gvmi_rotation_leave(gvmi_rotation *rotation, gvmi_place *place);

/* There is something to be done for it. It comes behind the user's others, the user behind other users. */
void gvmi_rotation_queue(gvmi_rotation *rotation, gvmi_place *place);

/* Takes out the owner of the place that is to be visited now; NULL: there is nobody. The visit ends in
 * time if it looks at end_ns. */
void *gvmi_rotation_next(gvmi_rotation *rotation, int64_t now_ns);

/* Nothing is queued any more. */
void gvmi_rotation_clear(gvmi_rotation *rotation);

/* Is anything queued? */
bool gvmi_rotation_waits(const gvmi_rotation *rotation);

#endif
