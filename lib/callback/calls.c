/* Finding what kernels have asked for, and calling the function.
 *
 * What a kernel reports is data: numbers that are out of their limits are answered with GVM_CALLBACK_INVALID.
 */
#include "callback/callback.h"

#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/size.h"

#define PLACES (GVM_CALLBACK_SLOTS + GVM_CALLBACK_FUNCTIONS) /* where the lookout looks */

static _Thread_local const gvm_callback_server *inside; /* whose function the thread is in */

bool gvmi_callback_is_inside(const gvm_callback_server *server)
{
    return inside == server;
}

/* ---- finding */

static bool has_kind(const gvmi_callback *function, bool collective)
{
    return __atomic_load_n(&function->run, __ATOMIC_ACQUIRE) != NULL &&
           ((function->flags & GVM_CALLBACK_COLLECTIVE) != 0) == collective;
}

/* May the lookout have it called now? */
static bool claim_function(gvmi_callback *function)
{
    if (__atomic_load_n(&function->busy, __ATOMIC_ACQUIRE))
        return false;
    __atomic_store_n(&function->busy, true, __ATOMIC_RELAXED);
    return true;
}

static void release_function(gvmi_callback *function)
{
    __atomic_store_n(&function->busy, false, __ATOMIC_RELEASE);
}

static bool find_in_slot(gvm_callback_server *s, uint32_t slot, gvmi_callback_found *found)
{
    const uint64_t posted = __atomic_load_n(&s->mail->posted[slot], __ATOMIC_ACQUIRE);
    const uint32_t number = GVM_CALLBACK_POSTED_FUNCTION(posted);
    gvmi_callback *function = &s->functions[number % GVM_CALLBACK_FUNCTIONS];
    bool known;

    if (GVM_CALLBACK_POSTED_USE(posted) == s->taken[slot])
        return false;
    known = number < GVM_CALLBACK_FUNCTIONS && has_kind(function, false);
    if (known && (function->flags & GVM_CALLBACK_REENTRANT) == 0 && !claim_function(function))
        return false;
    s->taken[slot] = GVM_CALLBACK_POSTED_USE(posted);
    *found = (gvmi_callback_found){
        .slot = slot, .function = number, .known = known, .posted = posted, .requests = 1};
    return true;
}

static bool find_in_group(gvm_callback_server *s, uint32_t number, gvmi_callback_found *found)
{
    const uint64_t asked = __atomic_load_n(&s->mail->asked[number], __ATOMIC_ACQUIRE);
    gvmi_callback *function = &s->functions[number];

    if (asked <= function->begun || !claim_function(function))
        return false;
    *found = (gvmi_callback_found){.slot = GVM_CALLBACK_SLOTS,
                                   .function = number,
                                   .known = has_kind(function, true),
                                   .posted = asked,
                                   .requests = asked - function->begun};
    function->begun = asked;
    return true;
}

bool gvmi_callback_find(gvm_callback_server *s, gvmi_callback_found *found)
{
    __atomic_store_n(&s->mail->beat, s->mail->beat + 1, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < PLACES; i++) {
        const uint32_t place = (s->cursor + i) % PLACES;

        if (place < GVM_CALLBACK_SLOTS ? find_in_slot(s, place, found)
                                       : find_in_group(s, place - GVM_CALLBACK_SLOTS, found)) {
            s->cursor = (place + 1) % PLACES;
            __atomic_add_fetch(&s->running, 1, __ATOMIC_RELAXED);
            __atomic_store_n(&s->asked_ns, gvmi_now_ns(), __ATOMIC_RELAXED);
            return true;
        }
    }
    return false;
}

/* ---- calling */

/* The thread's latest error is that of the call. */
static void note_error(gvm_callback_server *s)
{
    __atomic_add_fetch(&s->failures, 1, __ATOMIC_RELAXED);
    gvmi_lock(&s->lock);
    if (s->error.status == GVM_OK)
        s->error = gvmi_error_save();
    gvmi_unlock(&s->lock);
}

static uint32_t call_function(gvm_callback_server *s, gvm_callback_args *args)
{
    const gvmi_callback *function = &s->functions[args->function];
    const gvm_error none = {.status = GVM_OK, .native_call = "", .native_name = ""};
    const uint64_t requests = args->requests; /* the function may write to both */
    const uint32_t number = args->function;
    gvm_error error;
    gvm_status status;

    gvm_error_restore(&none);
    inside = s;
    gvmi_kernel_waits = args->is_awaited != 0;
    status = function->run(function->context, args);
    gvmi_kernel_waits = false;
    inside = NULL;
    __atomic_add_fetch(&s->calls, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&s->requests, requests, __ATOMIC_RELAXED);
    if (status == GVM_OK)
        return GVM_CALLBACK_OK;
    (void)gvm_error_last(&error);
    if (error.status != status)
        (void)gvm_error_set(status, "callback %u of a kernel returned an error", number);
    note_error(s);
    return GVM_CALLBACK_FAILED;
}

static uint32_t refuse_call(gvm_callback_server *s, uint32_t number, bool collective)
{
    (void)gvm_error_set(GVM_E_INVALID, "a kernel called callback %u %s, and there is no such function",
                        number, collective ? "as a collective one" : "with parameters");
    note_error(s);
    return GVM_CALLBACK_INVALID;
}

static void run_slot(gvm_callback_server *s, const gvmi_callback_found *found)
{
    gvm_callback_mail *mail = s->mail;
    const uint32_t slot = found->slot, number = found->function;
    gvm_callback_args args = {
        .requests = found->requests,
        .function = number,
        .word_count = (uint32_t)gvmi_min(GVM_CALLBACK_POSTED_COUNT(found->posted), GVM_CALLBACK_WORDS),
        .is_awaited = GVM_CALLBACK_POSTED_WAITS(found->posted) != 0,
    };
    const size_t bytes = args.word_count * sizeof *args.words;
    uint32_t code;

    memcpy(args.words, mail->requests[slot].words, bytes);
    code = found->known ? call_function(s, &args) : refuse_call(s, number, false);
    if (found->known && (s->functions[number].flags & GVM_CALLBACK_REENTRANT) == 0)
        release_function(&s->functions[number]);
    if (code == GVM_CALLBACK_OK)
        memcpy(mail->replies[slot].words, args.words, bytes);
    mail->codes[slot] = code;
    /* Before done: after it the slot may be used again, and that use end earlier than this function. */
    __atomic_store_n(&s->finished[slot], GVM_CALLBACK_POSTED_USE(found->posted), __ATOMIC_SEQ_CST);
    __atomic_fetch_xor(&mail->done[slot / 64], 1ull << slot % 64, __ATOMIC_RELEASE);
}

static void run_group(gvm_callback_server *s, const gvmi_callback_found *found)
{
    gvmi_callback *function = &s->functions[found->function];
    gvm_callback_served *served = &s->mail->groups[found->function];
    gvm_callback_args args = {
        .requests = found->requests,
        .function = found->function,
        .is_awaited = true,
    };
    uint32_t code;

    code = found->known ? call_function(s, &args) : refuse_call(s, found->function, true);
    if (code == GVM_CALLBACK_OK)
        __atomic_store_n(&served->result, args.words[0], __ATOMIC_RELEASE);
    __atomic_store_n(&served->served, found->posted << GVM_CALLBACK_SERVED_SHIFT | code,
                     __ATOMIC_RELEASE);
    __atomic_store_n(&function->served, found->posted, __ATOMIC_SEQ_CST);
    release_function(function);
}

void gvmi_callback_run(gvm_callback_server *s, const gvmi_callback_found *found)
{
    if (found->slot < GVM_CALLBACK_SLOTS)
        run_slot(s, found);
    else
        run_group(s, found);
    __atomic_add_fetch(&s->ended, 1, __ATOMIC_RELAXED);
    __atomic_sub_fetch(&s->running, 1, __ATOMIC_RELAXED);
    if (__atomic_load_n(&s->drainers, __ATOMIC_SEQ_CST) == 0)
        return;
    gvmi_lock(&s->lock);
    pthread_cond_broadcast(&s->changed);
    gvmi_unlock(&s->lock);
}
