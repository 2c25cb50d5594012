/* A snapshot as text for people. */
#include <inttypes.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "tools/keeper.h"
#include "tools/keeper_fields.h"

static void print_pair(text_pen *pen, const char *title, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void print_pair(text_pen *pen, const char *title, const char *format, ...)
{
    char text[400];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    text_print(pen, "  %-11s%s", title, text);
    text_end(pen);
}

/* ---- status */

static void print_keeper_device(text_pen *pen, const gvm_keeper_device_info *d)
{
    char uuid[48], a[32], b[32], c[32];

    text_end(pen);
    text_print(pen, "device %d     %s", (int)d->ordinal, d->name);
    text_end(pen);
    print_pair(pen, "uuid", "%s", tool_uuid_text(d->uuid, uuid));
    print_pair(pen, "card", "%s, %s free for all programs",
               gvmi_size_text(d->driver_total_bytes, a), gvmi_size_text(d->driver_free_bytes, b));
    print_pair(pen, "budget", "%s, %s in use, %s kept free", gvmi_size_text(d->budget_bytes, a),
               gvmi_size_text(d->resident_bytes, b), gvmi_size_text(d->free_bytes, c));
    print_pair(pen, "in use", "%s leased, %s without a copy on the host",
               gvmi_size_text(d->leased_bytes, a), gvmi_size_text(d->dirty_bytes, b));
    if (d->held_bytes != 0)
        print_pair(pen, "held", "%s by clients that were cut off", gvmi_size_text(d->held_bytes, a));
    if (d->lent_bytes != 0)
        print_pair(pen, "lent", "%s of what is in use, to objects of other devices",
                   gvmi_size_text(d->lent_bytes, a));
    print_pair(pen, "objects", "%u, with %s in host memory", d->objects,
               gvmi_size_text(d->host_backed_bytes, a));
    print_pair(pen, "moved", "%s out (%" PRIu64 " chunks), %s in (%" PRIu64 ")",
               gvmi_size_text(d->evicted_bytes, a), d->evictions,
               gvmi_size_text(d->promoted_bytes, b), d->promotions);
}

void keeper_text_status(text_pen *pen, const snapshot_copy *s)
{
    const gvm_keeper_info *k = &s->keeper;
    char up[32], a[32], b[32], c[32];

    text_print(pen, "keeper       pid %" PRIu64 ", up %s", k->pid, text_duration(k->uptime_ms, up));
    text_end(pen);
    print_pair(pen, "serves", "%u client%s, %u object%s, %u device%s", k->clients,
               k->clients == 1 ? "" : "s", k->objects, k->objects == 1 ? "" : "s", k->devices,
               k->devices == 1 ? "" : "s");
    print_pair(pen, "host", "%s, %s in use, %s kept free", gvmi_size_text(k->host_budget_bytes, a),
               gvmi_size_text(k->host_used_bytes, b), gvmi_size_text(k->host_free_bytes, c));
    print_pair(pen, "acquires", "%" PRIu64 ", %" PRIu64 " by message, %" PRIu64 " timed out",
               k->acquires, k->slow_acquires, k->timeouts);
    print_pair(pen, "revokes", "%" PRIu64, k->revokes);
    print_pair(pen, "trouble",
               "%" PRIu64 " protocol faults, %" PRIu64 " cut off, %" PRIu64 " writers interrupted",
               k->faults, k->cut_offs, k->interrupted);
    for (uint32_t i = 0; i < k->devices; i++)
        print_keeper_device(pen, &s->devices[i]);
}

/* ---- ls */

static bool is_listed(const gvm_object_info *object, const char *prefix, bool nameless_too)
{
    if (object->name[0] == '\0')
        return nameless_too && prefix[0] == '\0';
    return strncmp(object->name, prefix, strlen(prefix)) == 0;
}

static int compare_names(const void *a, const void *b)
{
    const gvm_object_info *x = *(const gvm_object_info *const *)a;
    const gvm_object_info *y = *(const gvm_object_info *const *)b;
    int result = strcmp(x->name, y->name);

    return result != 0 ? result : x->id < y->id ? -1 : x->id > y->id;
}

const gvm_object_info **keeper_select(const snapshot_copy *s, const char *prefix, bool nameless_too,
                                      size_t *count)
{
    const gvm_object_info **list = malloc((s->keeper.objects + 1) * sizeof *list);

    *count = 0;
    if (list == NULL) {
        tool_error("out of memory");
        return NULL;
    }
    for (uint32_t i = 0; i < s->keeper.objects; i++)
        if (is_listed(&s->objects[i], prefix, nameless_too))
            list[(*count)++] = &s->objects[i];
    qsort(list, *count, sizeof *list, compare_names);
    return list;
}

static const char *user_text(uint32_t uid, char out[16])
{
    const struct passwd *user = getpwuid(uid);

    if (user != NULL && strlen(user->pw_name) < 16)
        return strcpy(out, user->pw_name);
    snprintf(out, 16, "%" PRIu32, uid);
    return out;
}

/* As ls -l writes it, without the execute bits. */
static void mode_text(const gvm_object_info *object, char out[8])
{
    static const char letters[] = "rwrwrw";
    static const uint32_t bits[] = {0400, 0200, 0040, 0020, 0004, 0002};

    for (unsigned i = 0; i < 6; i++)
        out[i] = (object->mode & bits[i]) != 0 ? letters[i] : '-';
    out[6] = '\0';
}

static void print_details(text_pen *pen, const gvm_object_info *o)
{
    char mode[8], user[16], size[16], device[16], host[16];

    mode_text(o, mode);
    text_print(pen, "%s %-8s %3d %6s %6s %6s %5u %5u %5u %5u %c%c%c%c ", mode,
               user_text(o->owner_uid, user), (int)o->device,
               text_short((double)o->size_bytes, true, size),
               text_short((double)o->device_bytes, true, device),
               text_short((double)o->host_bytes, true, host), o->openings, o->read_leases,
               o->write_leases, o->waiting, o->sealed ? 's' : '-', o->kept ? 'k' : '-',
               o->moving ? 'm' : '-', o->interrupted != 0 ? 'i' : '-');
    if (o->name[0] != '\0')
        text_put(pen, o->name);
    else
        text_print(pen, "(nameless %" PRIu64 ")", o->id);
    text_end(pen);
}

bool keeper_text_list(text_pen *pen, const snapshot_copy *s, const char *prefix, bool detailed)
{
    size_t count;
    const gvm_object_info **list = keeper_select(s, prefix, detailed, &count);

    if (list == NULL)
        return false;
    if (detailed && count > 0) {
        text_put(pen, "MODE   OWNER    DEV  BYTES DEVICE   HOST  OPEN  READ WRITE  WAIT FLAG OBJECT");
        text_end(pen);
    }
    for (size_t i = 0; i < count; i++) {
        if (detailed) {
            print_details(pen, list[i]);
        } else {
            text_put(pen, list[i]->name);
            text_end(pen);
        }
    }
    free(list);
    return true;
}

bool keeper_json_list(FILE *out, const snapshot_copy *s, const char *prefix)
{
    size_t count;
    const gvm_object_info **list = keeper_select(s, prefix, true, &count);
    json j;

    if (list == NULL)
        return false;
    json_start(&j, out);
    json_array(&j, NULL);
    for (size_t i = 0; i < count; i++) {
        json_object(&j, NULL);
        keeper_json_fields(&j, &keeper_of_object, list[i]);
        json_end(&j);
    }
    json_end(&j);
    free(list);
    return true;
}

/* ---- stat */

void keeper_text_object(text_pen *pen, const gvm_object_info *object)
{
    for (size_t i = 0; i < keeper_of_object.field_count; i++) {
        const keeper_field *field = &keeper_of_object.fields[i];
        const char *at = (const char *)object + field->offset;
        uint64_t value = keeper_number(field, object);
        char size[32];

        text_print(pen, "%-16s ", field->name);
        switch (field->type) {
        case KEEPER_TEXT: text_put(pen, at); break;
        case KEEPER_MODE: text_print(pen, "%04" PRIo64, value); break;
        case KEEPER_I32: text_print(pen, "%" PRId64, (int64_t)value); break;
        case KEEPER_BOOL: text_put(pen, value != 0 ? "yes" : "no"); break;
        case KEEPER_BYTES:
            text_print(pen, "%" PRIu64, value);
            if (value >= 1024)
                text_print(pen, " (%s)", gvmi_size_text(value, size));
            break;
        default: text_print(pen, "%" PRIu64, value); break;
        }
        text_end(pen);
    }
}

const gvm_object_info *keeper_find(const snapshot_copy *s, const char *name)
{
    for (uint32_t i = 0; i < s->keeper.objects; i++)
        if (name[0] != '\0' && strcmp(s->objects[i].name, name) == 0)
            return &s->objects[i];
    return NULL;
}
