/* keeper/server/schedule.h - which client is served next.
 *
 * The user is served next who has had the least of the server thread's time, of those with something to be done;
 * within a user its clients are served in rotation. A visit lasts GVMI_VISIT_NS at most, and counts as its user's.
 * What a user did not use while there was nothing to be done for it is not saved up: it then has had as much as who
 * is served next; and one that comes has had a visit more than that. So a user that asks for little is served after
 * the visit that is under way, and users that ask for all they can get have equal parts, however many clients they
 * have.
 *
 * Threads: one at a time.
 * Ownership: places are part of what they are places of. A user's account lives while it has places.
 */
#ifndef GVMI_KEEPER_SERVER_SCHEDULE_H
#define GVMI_KEEPER_SERVER_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include <gvmem/status.h>

#define GVMI_VISIT_NS 1000000ll

typedef struct gvmi_schedule_user gvmi_schedule_user;
typedef struct gvmi_place gvmi_place;

/* Of a client. */
struct gvmi_place {
    void *owner; /* whose place it is */
    gvmi_schedule_user *user;
    gvmi_place *next; /* while queued */
    bool queued;
};

struct gvmi_schedule_user {
    uint32_t uid;
    uint32_t places;
    uint32_t weight;          /* its part of the time; 1 but for the server's own */
    int64_t had_ns;           /* of the thread's time, for a weight of 1 */
    uint32_t refused;         /* for the server: its clients whose refusal is still to be sent */
    uint32_t unread;          /* likewise: sockets kept though their clients have ended */
    uint64_t passing;         /* likewise: descriptors sent and not received */
    gvmi_place *first, *last; /* those queued */
    gvmi_schedule_user *next; /* while it has any */
};

/* All zeros: nobody. */
typedef struct gvmi_schedule {
    void *users;                 /* tsearch(3), of pointers to gvmi_schedule_user.uid */
    gvmi_schedule_user *first;   /* those with something queued, by had_ns */
    gvmi_schedule_user *visited; /* whose visit it is; NULL: nobody's, or it has left */
    int64_t had_ns;              /* of the one visited last, when its visit began */
    int64_t end_ns;              /* of the visit */
} gvmi_schedule;

/* Makes a place of a user's. GVM_E_NOMEM */
gvm_status gvmi_schedule_join(gvmi_schedule *schedule, uint32_t uid, void *owner, gvmi_place *out);

/* Ends a place, which is not queued; one that was never made, too. */
void gvmi_schedule_leave(gvmi_schedule *schedule, gvmi_place *place);

/* There is something to be done for it. It comes behind the user's others. */
void gvmi_schedule_queue(gvmi_schedule *schedule, gvmi_place *place);

/* Takes out the owner of the place that is to be visited now; NULL: there is nobody. The visit ends in
 * time if it looks at end_ns, and is reported by gvmi_schedule_visited(). */
void *gvmi_schedule_next(gvmi_schedule *schedule, int64_t now_ns);

/* The visit has ended, and took so much of the thread's processor time. Time that passed while the process was stopped
 * is nobody's. */
void gvmi_schedule_visited(gvmi_schedule *schedule, int64_t spent_ns);

/* Nothing is queued any more. */
void gvmi_schedule_clear(gvmi_schedule *schedule);

/* Is anything queued? */
bool gvmi_schedule_waits(const gvmi_schedule *schedule);

#endif
