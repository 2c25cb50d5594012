/* tools/json.h - writes JSON as it goes: values in the order of the calls, indented, strings
 * escaped.
 *
 * key is the member's name inside an object and NULL inside an array or at the top.
 */
#ifndef TOOLS_JSON_H
#define TOOLS_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define JSON_DEPTH_MAX 16

typedef struct json {
    FILE *out;
    unsigned depth;
    bool filled[JSON_DEPTH_MAX]; /* something stands at that depth already */
    char closing[JSON_DEPTH_MAX];
} json;

void json_start(json *j, FILE *out);
void json_object(json *j, const char *key);
void json_array(json *j, const char *key);
void json_end(json *j); /* of the innermost object or array; at the top also ends the line */

void json_string(json *j, const char *key, const char *value); /* NULL: null */
void json_unsigned(json *j, const char *key, uint64_t value);
void json_integer(json *j, const char *key, int64_t value);
void json_number(json *j, const char *key, double value); /* not finite: null */
void json_bool(json *j, const char *key, bool value);
void json_verbatim(json *j, const char *key, const char *number); /* that is JSON already */
void json_null(json *j, const char *key);

#endif
