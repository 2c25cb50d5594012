/* A snapshot in the text exposition format 0.0.4 of Prometheus ("Exposition formats" in its
 * manual): all samples of a metric stand together behind its HELP and TYPE. */
#include <inttypes.h>
#include <string.h>

#include "tools/keeper_fields.h"
#include "tools/text.h"
#include "tools/tool.h"

/* A label's value: backslash, quote and line end are escaped, what is no UTF-8 becomes U+FFFD. */
static void put_value(FILE *out, const char *s)
{
    fputc('"', out);
    while (*s != '\0') {
        unsigned len = text_utf8_len(s);

        if (len == 0)
            fputs("\xef\xbf\xbd", out);
        else if (*s == '\n')
            fputs("\\n", out);
        else if (*s == '"' || *s == '\\')
            fprintf(out, "\\%c", *s);
        else
            fwrite(s, 1, len, out);
        s += len > 0 ? len : 1;
    }
    fputc('"', out);
}

static void put_device(FILE *out, const snapshot_copy *s, int32_t ordinal)
{
    char uuid[48];

    fprintf(out, "device=\"%" PRId32 "\"", ordinal);
    for (uint32_t i = 0; i < s->keeper.devices; i++)
        if (s->devices[i].ordinal == ordinal)
            fprintf(out, ",uuid=\"%s\"", tool_uuid_text(s->devices[i].uuid, uuid));
}

/* The labels distinguish records of a kind: nameless objects, and connections of one process, by
 * the keeper's number for them. */
static void put_labels(FILE *out, const snapshot_copy *s, const keeper_table *table, const void *record)
{
    if (table == &keeper_of_device) {
        const gvm_keeper_device_info *device = record;

        put_device(out, s, device->ordinal);
    } else if (table == &keeper_of_object) {
        const gvm_object_info *object = record;

        put_device(out, s, object->device);
        fputs(",object=", out);
        put_value(out, object->name);
        fprintf(out, ",id=\"%" PRIu64 "\"", object->id);
    } else if (table == &keeper_of_client) {
        const gvm_client_info *client = record;

        fprintf(out, "client=\"%" PRIu64 "\",pid=\"%" PRId32 "\",uid=\"%" PRIu32 "\"", client->id,
                client->pid, client->uid);
    }
}

static void put_head(FILE *out, const char *prefix, const char *name, const char *help)
{
    static const char total[] = "_total";
    size_t len = strlen(name);
    bool counter = len > sizeof total - 1 && strcmp(name + len - (sizeof total - 1), total) == 0;

    fprintf(out, "# HELP %s%s %s\n# TYPE %s%s %s\n", prefix, name, help, prefix, name,
            counter ? "counter" : "gauge");
}

static void put_records(FILE *out, const snapshot_copy *s, const keeper_table *table,
                        const void *records, uint32_t count)
{
    for (size_t i = 0; i < table->field_count && count > 0; i++) {
        const keeper_field *field = &table->fields[i];

        if (field->metric == NULL)
            continue;
        put_head(out, table->prefix, field->metric, field->help);
        for (uint32_t k = 0; k < count; k++) {
            const void *record = (const char *)records + k * table->record_bytes;
            uint64_t value = keeper_number(field, record);

            fprintf(out, "%s%s", table->prefix, field->metric);
            if (table != &keeper_of_keeper) {
                fputc('{', out);
                put_labels(out, s, table, record);
                fputc('}', out);
            }
            if (field->type == KEEPER_MS)
                fprintf(out, " %" PRIu64 ".%03u\n", value / 1000, (unsigned)(value % 1000));
            else
                fprintf(out, " %" PRIu64 "\n", value);
        }
    }
}

static void put_device_names(FILE *out, const snapshot_copy *s)
{
    if (s->keeper.devices > 0)
        put_head(out, keeper_of_device.prefix, "info", "Always 1; the labels describe the device.");
    for (uint32_t i = 0; i < s->keeper.devices; i++) {
        fprintf(out, "%sinfo{", keeper_of_device.prefix);
        put_device(out, s, s->devices[i].ordinal);
        fputs(",name=", out);
        put_value(out, s->devices[i].name);
        fputs("} 1\n", out);
    }
}

void keeper_metrics(FILE *out, const snapshot_copy *s)
{
    put_head(out, "gvmem_keeper_", "up", "1: a keeper answered.");
    fprintf(out, "gvmem_keeper_up %d\n", s != NULL);
    if (s == NULL)
        return;
    put_records(out, s, &keeper_of_keeper, &s->keeper, 1);
    put_device_names(out, s);
    put_records(out, s, &keeper_of_device, s->devices, s->keeper.devices);
    put_records(out, s, &keeper_of_object, s->objects, s->keeper.objects);
    put_records(out, s, &keeper_of_client, s->clients, s->keeper.clients);
}
