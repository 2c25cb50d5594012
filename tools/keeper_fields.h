/* tools/keeper_fields.h - the members of a snapshot's records, in one table each: what JSON, the
 * metrics and gvmem keeper stat show is made from these.
 */
#ifndef TOOLS_KEEPER_FIELDS_H
#define TOOLS_KEEPER_FIELDS_H

#include "tools/json.h"
#include "tools/snapshot.h"

typedef enum keeper_type {
    KEEPER_U64,
    KEEPER_BYTES, /* uint64_t */
    KEEPER_MS,    /* uint64_t; a metric is in seconds */
    KEEPER_U32,
    KEEPER_I32,
    KEEPER_BOOL, /* uint8_t */
    KEEPER_MODE, /* uint32_t, octal for people */
    KEEPER_TEXT, /* char[] */
    KEEPER_UUID, /* uint8_t[16] */
} keeper_type;

typedef struct keeper_field {
    const char *name;
    keeper_type type;
    size_t offset;
    const char *metric; /* its name without the prefix; "..._total" is a counter; NULL: no metric */
    const char *help;   /* of the metric, without backslashes and line ends */
} keeper_field;

typedef struct keeper_table {
    const char *prefix; /* of the metrics' names */
    const keeper_field *fields;
    size_t field_count, record_bytes;
} keeper_table;

extern const keeper_table keeper_of_keeper, keeper_of_device, keeper_of_object, keeper_of_client;

/* A number of any type but TEXT and UUID; whether it is below zero is I32's alone. */
uint64_t keeper_number(const keeper_field *field, const void *record);

/* All fields, as members of the object that is open. */
void keeper_json_fields(json *j, const keeper_table *table, const void *record);

/* The whole snapshot as a JSON object. */
void keeper_json(FILE *out, const snapshot_copy *snapshot);

/* The whole snapshot in the text exposition format 0.0.4 of Prometheus; NULL: that there is none. */
void keeper_metrics(FILE *out, const snapshot_copy *snapshot);

#endif
