/* What the handling of an event leaves: actions for the server, and what gvmi_keep_settle() is to look at. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/text.h"
#include "keeper/machine/state.h"

/* ---- at the end of the event */

void gvmi_keep_mark(gvmi_machine *m, keep_object *object)
{
    if (object->marked)
        return;
    object->marked = true;
    object->next_marked = m->marked;
    m->marked = object;
}

void gvmi_keep_send_chunk(gvmi_machine *m, keep_object *object, uint32_t index)
{
    GVM_ASSERT(!object->chunks[index].send);
    object->chunks[index].send = true;
    if (object->sending == 0 || index < object->send_first)
        object->send_first = index;
    if (object->sending == 0 || index >= object->send_end)
        object->send_end = index + 1;
    object->sending++;
    gvmi_keep_mark(m, object);
}

void gvmi_keep_count_served(gvmi_machine *m, uint32_t count)
{
    m->served += count;
    m->serves_left -= count < m->serves_left ? count : m->serves_left;
}

void gvmi_keep_serve_later(gvmi_machine *m, keep_object *object)
{
    if (object->unserved)
        return;
    object->unserved = true;
    object->next_unserved = NULL;
    *(m->last_unserved != NULL ? &m->last_unserved->next_unserved : &m->first_unserved) = object;
    m->last_unserved = object;
}

void gvmi_keep_cut_later(gvmi_machine *m, keep_client *client, const char *reason)
{
    if (client->cut_due || client->cut)
        return;
    client->cut_due = true;
    m->cut_due = true;
    gvmi_text_print(client->reason, sizeof client->reason, "%s", reason);
}

void gvmi_keep_violated(gvmi_machine *m, keep_client *client, const char *how)
{
    m->faults++;
    gvmi_keep_cut_later(m, client, how);
}

/* ---- actions */

bool gvmi_keep_act(gvmi_machine *m, const gvmi_action *action)
{
    keep_action_node *node = malloc(sizeof *node);

    if (node == NULL)
        return false;
    node->next = NULL;
    node->action = *action;
    if (m->last_action != NULL)
        m->last_action->next = node;
    else
        m->first_action = node;
    m->last_action = node;
    return true;
}

bool gvmi_keep_send(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message,
                    const uint32_t *frames)
{
    gvmi_action action = {.kind = GVMI_ACTION_SEND, .client = client->number};

    if (!client->connected || client->cut_due)
        return true; /* it would not be read, or a message before it is missing: as if it had been sent */
    action.message = malloc(sizeof *action.message);
    if (action.message != NULL) {
        *action.message = *message;
        if (frames != NULL)
            memcpy(action.frames, frames, message->head.fd_count * sizeof *frames);
        if (gvmi_keep_act(m, &action))
            return true;
    }
    free(action.message);
    gvmi_keep_cut_later(m, client, "out of host memory for an answer");
    return false;
}

void gvmi_keep_reply_done(gvmi_machine *m, keep_client *client, uint64_t request, uint64_t value)
{
    gvmi_wire_message reply;

    gvmi_wire_start(&reply, GVMI_WIRE_DONE, request);
    reply.body.DONE.value = value;
    (void)gvmi_keep_send(m, client, &reply, NULL);
}

void gvmi_keep_reply_failed(gvmi_machine *m, keep_client *client, uint64_t request,
                            gvm_status status, const char *format, ...)
{
    gvmi_wire_message reply;
    va_list args;

    gvmi_wire_start(&reply, GVMI_WIRE_FAILED, request);
    reply.body.FAILED.status = (uint32_t)status;
    va_start(args, format);
    gvmi_text_vprint(reply.body.FAILED.text, sizeof reply.body.FAILED.text, format, args);
    va_end(args);
    (void)gvmi_keep_send(m, client, &reply, NULL);
}

void gvmi_keep_free_actions(gvmi_machine *m)
{
    while (m->first_action != NULL) {
        keep_action_node *node = m->first_action;

        m->first_action = node->next;
        free(node->action.message);
        free(node->action.bytes);
        free(node);
    }
}

/* ---- jobs: an id is the entry's number and a count, so that a stale one is known as such */

static keep_job *find_job(gvmi_machine *m, uint64_t id)
{
    const uint64_t index = id & 0xffffffff;

    return id != 0 && index < m->job_capacity && m->jobs[index].id == id ? &m->jobs[index] : NULL;
}

static keep_job *new_job(gvmi_machine *m)
{
    keep_job *job;

    if (m->first_free_job == 0) { /* numbers + 1, 0 is the end */
        const uint32_t capacity = m->job_capacity == 0 ? 64 : m->job_capacity * 2;
        keep_job *jobs = realloc(m->jobs, capacity * sizeof *jobs);

        if (jobs == NULL)
            return NULL;
        m->jobs = jobs;
        for (uint32_t i = capacity; i-- > m->job_capacity;) {
            jobs[i] = (keep_job){.next_free = m->first_free_job};
            m->first_free_job = i + 1;
        }
        m->job_capacity = capacity;
    }
    job = &m->jobs[m->first_free_job - 1];
    m->first_free_job = job->next_free;
    if ((uint32_t)++m->job_ids == 0)
        ++m->job_ids; /* no id is 0 */
    job->id = m->job_ids << 32 | (uint64_t)(job - m->jobs);
    return job;
}

static void free_job(gvmi_machine *m, keep_job *job)
{
    *job = (keep_job){.next_free = m->first_free_job};
    m->first_free_job = (uint32_t)(job - m->jobs) + 1;
}

bool gvmi_keep_end_job(gvmi_machine *m, uint64_t id, keep_job *out)
{
    keep_job *job = find_job(m, id);

    if (job == NULL)
        return false;
    *out = *job;
    free_job(m, job);
    if (out->object != NULL) {
        out->object->jobs--;
        gvmi_keep_mark(m, out->object);
    }
    return true;
}

bool gvmi_keep_start_job(gvmi_machine *m, gvmi_action_kind kind, keep_object *object,
                         uint32_t chunk, uint32_t to, uint32_t from, bool make)
{
    gvmi_action action = {.kind = kind, .make = make, .to = gvmi_keep_frame(m, to)->spec};
    keep_job *job = new_job(m);

    if (job == NULL)
        return false;
    action.uid = object != NULL ? object->domain.uid : m->config.uid;
    if (from != 0)
        action.from = gvmi_keep_frame(m, from)->spec;
    action.job = job->id;
    job->object = object;
    job->chunk = chunk;
    job->frame = to;
    job->make = make;
    if (!gvmi_keep_act(m, &action)) {
        free_job(m, job);
        return false;
    }
    if (object != NULL)
        object->jobs++;
    return true;
}

const char *gvmi_keep_job_failure_text(gvm_status status)
{
    switch (status) {
    case GVM_E_LIMIT:
        return "the keeper has no file descriptors or mappings left for more memory: raise its limit of "
               "open files (LimitNOFILE), or use larger chunks";
    case GVM_E_NOSPACE:
        return "the device has less memory free than the keeper's budget promises: other programs use it";
    case GVM_E_NOMEM:
        return "the machine has less memory free than the keeper's host budget promises: other programs "
               "use it";
    case GVM_E_LOST: return "the device is lost for the keeper, which must be started anew";
    default: return "the driver failed to make or to copy memory: the keeper's log says why";
    }
}
