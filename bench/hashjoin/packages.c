/* Debian's packages and their dependencies as two tables to be joined by name.
 *
 *     Package: mutt
 *     Version: 2.2.12-0.1
 *     Depends: libc6 (>= 2.36)
 *     Recommends: exim4 | mail-transport-agent
 *     Provides: mail-reader
 *
 * gives the outer rows, one an alternative, (libc6, from 2.36), (exim4, any), (mail-transport-agent,
 * any), and the inner rows, one a name, (mutt, 2.2.12-0.1), (mail-reader, none).
 *
 * Names become numbers: the keys. Versions become their places in the order of all versions that
 * occur, from 1 on: the values. A constraint so is a range of values. A name that is provided
 * without a version has value 0, which is in the range of dependencies without constraint alone.
 *
 * What is where in these files, and how versions compare: Debian Policy Manual, chapters 5.1,
 * 5.6.12, 7.1 and 7.5.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench/hashjoin/hashjoin.h"

/* Part of the file, which stays in memory meanwhile. */
typedef struct part {
    const char *text;
    size_t bytes;
} part;

/* ---- parts */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static part trim_blanks(part p)
{
    while (p.bytes > 0 && is_blank(p.text[0])) {
        p.text++;
        p.bytes--;
    }
    while (p.bytes > 0 && is_blank(p.text[p.bytes - 1]))
        p.bytes--;
    return p;
}

/* Takes what is before the separator, or all, off the front. */
static part split_at(part *p, char separator)
{
    const char *end = memchr(p->text, separator, p->bytes);
    const part taken = {p->text, end != NULL ? (size_t)(end - p->text) : p->bytes};
    const size_t gone = taken.bytes + (end != NULL);

    p->text += gone;
    p->bytes -= gone;
    return trim_blanks(taken);
}

static bool is_text(part p, const char *text)
{
    return p.bytes == strlen(text) && memcmp(p.text, text, p.bytes) == 0;
}

/* ---- versions: [epoch:]upstream[-revision] */

/* What sorts before what among characters that are no digits: ~, then the end (and digits), then
 * letters, then the rest. */
static int version_char_weight(part p, size_t i)
{
    const unsigned char c = i < p.bytes ? (unsigned char)p.text[i] : '0';

    return isdigit(c) ? 0 : c == '~' ? -1 : isalpha(c) ? c : c + 256;
}

static bool digit_at(part p, size_t i)
{
    return i < p.bytes && isdigit((unsigned char)p.text[i]);
}

/* Text by weight and numbers by size, in turns. */
static int compare_parts(part a, part b)
{
    size_t i = 0, k = 0;

    while (i < a.bytes || k < b.bytes) {
        int first = 0;

        while ((i < a.bytes && !digit_at(a, i)) || (k < b.bytes && !digit_at(b, k))) {
            const int difference = version_char_weight(a, i) - version_char_weight(b, k);

            if (difference != 0)
                return difference;
            i++;
            k++;
        }
        while (i < a.bytes && a.text[i] == '0')
            i++;
        while (k < b.bytes && b.text[k] == '0')
            k++;
        for (; digit_at(a, i) && digit_at(b, k); i++, k++)
            if (first == 0)
                first = a.text[i] - b.text[k];
        if (digit_at(a, i) != digit_at(b, k)) /* the longer number is the larger one */
            return digit_at(a, i) ? 1 : -1;
        if (first != 0)
            return first;
    }
    return 0;
}

/* Takes the epoch off the front; "0" if there is none. */
static part take_epoch(part *version)
{
    return memchr(version->text, ':', version->bytes) != NULL ? split_at(version, ':')
                                                              : (part){"0", 1};
}

/* Takes the revision off the end; "0" if there is none. */
static part take_revision(part *version)
{
    const char *dash = memrchr(version->text, '-', version->bytes);
    part revision = {"0", 1};

    if (dash != NULL) {
        revision = (part){dash + 1, version->bytes - (size_t)(dash + 1 - version->text)};
        version->bytes = (size_t)(dash - version->text);
    }
    return revision;
}

static int compare_versions(part a, part b)
{
    part revision_a, revision_b;
    int order = compare_parts(take_epoch(&a), take_epoch(&b));

    if (order != 0)
        return order;
    revision_a = take_revision(&a);
    revision_b = take_revision(&b);
    order = compare_parts(a, b);
    return order != 0 ? order : compare_parts(revision_a, revision_b);
}

/* ---- what has been read */

typedef enum relation { ANY, EARLIER, EARLIER_OR_SAME, SAME, LATER_OR_SAME, LATER } relation;

/* A name on either side, before the versions have their numbers. */
typedef struct mention {
    uint32_t key;
    relation relation; /* outer */
    part version;      /* of no bytes: none */
    uint32_t rank;
    char *text; /* the label, or the inner text */
} mention;

typedef struct mentions {
    mention *all;
    uint32_t count, room;
} mentions;

/* Names and their numbers: an open hash that is at most half full. */
typedef struct names {
    part *slots;
    uint32_t *keys;
    uint32_t count, room;
} names;

typedef struct reader {
    names names;
    mentions outer, inner;
} reader;

/* Of a stanza; no bytes: not there. */
typedef struct stanza {
    part package, version, status, provides, depends, pre_depends, recommends;
} stanza;

static uint32_t slot_of(const names *n, part name)
{
    uint64_t hash = name.bytes;
    uint32_t slot;

    for (size_t i = 0; i < name.bytes; i++)
        hash = mix(hash ^ (unsigned char)name.text[i]);
    for (slot = (uint32_t)hash & (n->room - 1); n->slots[slot].text != NULL;
         slot = (slot + 1) & (n->room - 1))
        if (n->slots[slot].bytes == name.bytes &&
            memcmp(n->slots[slot].text, name.text, name.bytes) == 0)
            break;
    return slot;
}

static uint32_t key_of(names *n, part name)
{
    uint32_t slot;

    if (2 * n->count >= n->room) {
        names larger = {.room = n->room > 0 ? 2 * n->room : 4096, .count = n->count};

        larger.slots = must_have(larger.room, sizeof *larger.slots);
        larger.keys = must_have(larger.room, sizeof *larger.keys);
        for (uint32_t i = 0; i < n->room; i++)
            if (n->slots[i].text != NULL) {
                slot = slot_of(&larger, n->slots[i]);
                larger.slots[slot] = n->slots[i];
                larger.keys[slot] = n->keys[i];
            }
        free(n->slots);
        free(n->keys);
        *n = larger;
    }
    slot = slot_of(n, name);
    if (n->slots[slot].text == NULL) {
        n->slots[slot] = name;
        n->keys[slot] = n->count++;
    }
    return n->keys[slot];
}

static mention *add_mention(mentions *m)
{
    if (m->count == m->room) {
        m->room = m->room > 0 ? 2 * m->room : 4096;
        m->all = realloc(m->all, m->room * sizeof *m->all);
        if (m->all == NULL)
            give_up("out of memory for packages");
    }
    m->all[m->count] = (mention){0};
    return &m->all[m->count++];
}

/* ---- dependencies */

static relation take_relation(part *constraint)
{
    static const struct {
        const char *text;
        relation relation;
    } table[] = {
        {"<<", EARLIER}, {"<=", EARLIER_OR_SAME}, {">=", LATER_OR_SAME}, {">>", LATER},
        {"=", SAME},     {"<", EARLIER_OR_SAME},  {">", LATER_OR_SAME}, /* as dpkg reads the old forms */
    };

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const size_t bytes = strlen(table[i].text);

        if (constraint->bytes >= bytes && memcmp(constraint->text, table[i].text, bytes) == 0) {
            *constraint = trim_blanks((part){constraint->text + bytes, constraint->bytes - bytes});
            return table[i].relation;
        }
    }
    return ANY;
}

/* Reads "name:any (>= 1.2)": the architecture after the colon does not matter here. */
static part read_name(part item, relation *how, part *version)
{
    part name = split_at(&item, '(');

    *how = ANY;
    *version = (part){"", 0};
    if (item.bytes > 0) {
        part constraint = split_at(&item, ')');

        *how = take_relation(&constraint);
        *version = constraint;
        if (*how == ANY || constraint.bytes == 0) { /* not a constraint */
            *how = ANY;
            version->bytes = 0;
        }
    }
    return split_at(&name, ':');
}

static void read_dependencies(reader *r, part package, const char *field, part list)
{
    for (unsigned group = 0; list.bytes > 0; group++) {
        part alternatives = split_at(&list, ',');

        while (alternatives.bytes > 0) {
            const part item = split_at(&alternatives, '|');
            relation how;
            part version;
            const part name = read_name(item, &how, &version);
            mention *m;

            if (name.bytes == 0)
                continue;
            m = add_mention(&r->outer);
            m->key = key_of(&r->names, name);
            m->relation = how;
            m->version = version;
            if (asprintf(&m->text, "%.*s\t%s\t%u\t%.*s", (int)package.bytes, package.text, field,
                         group, (int)item.bytes, item.text) < 0)
                give_up("out of memory for packages");
        }
    }
}

static void add_provider(reader *r, const stanza *s, part name, part version)
{
    mention *m = add_mention(&r->inner);
    const bool itself = name.text == s->package.text;

    m->key = key_of(&r->names, name);
    m->version = version;
    if (asprintf(&m->text, "%.*s %.*s%s%.*s", (int)s->package.bytes, s->package.text,
                 (int)s->version.bytes, s->version.text, itself ? "" : " provides ",
                 itself ? 0 : (int)name.bytes, name.text) < 0)
        give_up("out of memory for packages");
}

static void end_stanza(reader *r, stanza *s)
{
    /* In dpkg's own file packages that were removed have left something behind. */
    const bool installed = s->status.bytes == 0 ||
                           (s->status.bytes > 10 &&
                            memcmp(s->status.text + s->status.bytes - 10, " installed", 10) == 0);

    if (s->package.bytes > 0 && installed) {
        add_provider(r, s, s->package, s->version);
        while (s->provides.bytes > 0) {
            relation how;
            part version;
            const part name = read_name(split_at(&s->provides, ','), &how, &version);

            if (name.bytes > 0)
                add_provider(r, s, name, version);
        }
        read_dependencies(r, s->package, "Pre-Depends", s->pre_depends);
        read_dependencies(r, s->package, "Depends", s->depends);
        read_dependencies(r, s->package, "Recommends", s->recommends);
    }
    *s = (stanza){0};
}

/* ---- the file */

/* Stanzas end at an empty line. A field goes on in lines that begin with a blank. */
static void read_stanzas(reader *r, part file)
{
    stanza s = {0};

    while (file.bytes > 0) {
        const char *end = memchr(file.text, '\n', file.bytes), *next;
        part field, name;

        while (end != NULL && end + 1 < file.text + file.bytes && (end[1] == ' ' || end[1] == '\t'))
            end = memchr(end + 1, '\n', (size_t)(file.text + file.bytes - end - 1));
        next = end != NULL ? end + 1 : file.text + file.bytes;
        field = (part){file.text, (size_t)(next - file.text)};
        file.bytes -= field.bytes;
        file.text = next;
        if (trim_blanks(field).bytes == 0) {
            end_stanza(r, &s);
            continue;
        }
        name = split_at(&field, ':');
        field = trim_blanks(field);
        if (is_text(name, "Package"))
            s.package = field;
        else if (is_text(name, "Version"))
            s.version = field;
        else if (is_text(name, "Status"))
            s.status = field;
        else if (is_text(name, "Provides"))
            s.provides = field;
        else if (is_text(name, "Depends"))
            s.depends = field;
        else if (is_text(name, "Pre-Depends"))
            s.pre_depends = field;
        else if (is_text(name, "Recommends"))
            s.recommends = field;
    }
    end_stanza(r, &s);
}

static char *read_file(const char *path, size_t *bytes)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    size_t room = 1 << 20, got;
    char *text = malloc(room);

    if (file == NULL)
        give_up("cannot read %s: %s", path, strerror(errno));
    *bytes = 0;
    while (text != NULL && (got = fread(text + *bytes, 1, room - *bytes, file)) > 0) {
        *bytes += got;
        if (*bytes == room) {
            room *= 2;
            text = realloc(text, room);
        }
    }
    if (text == NULL)
        give_up("out of memory for %s", path);
    if (ferror(file))
        give_up("cannot read %s: %s", path, strerror(errno));
    if (file != stdin)
        fclose(file);
    return text;
}

/* ---- versions to numbers */

static int compare_mentions(const void *left, const void *right)
{
    mention *const *a = left, *const *b = right;

    return compare_versions((*a)->version, (*b)->version);
}

static void rank_versions(reader *r)
{
    mention **sorted = must_have(r->outer.count + r->inner.count + 1ul, sizeof *sorted);
    uint32_t count = 0, rank = 0;

    for (uint32_t i = 0; i < r->outer.count; i++)
        if (r->outer.all[i].version.bytes > 0)
            sorted[count++] = &r->outer.all[i];
    for (uint32_t i = 0; i < r->inner.count; i++)
        if (r->inner.all[i].version.bytes > 0)
            sorted[count++] = &r->inner.all[i];
    qsort(sorted, count, sizeof *sorted, compare_mentions);
    for (uint32_t i = 0; i < count; i++) {
        if (i == 0 || compare_mentions(&sorted[i - 1], &sorted[i]) != 0)
            rank++;
        sorted[i]->rank = rank;
    }
    free(sorted);
}

static void add_dependency(tables *out, const mention *m)
{
    const uint32_t v = m->rank;
    /* Where low is above high nothing matches: earlier than the earliest. */
    const uint32_t low = m->relation == ANY     ? 0
                         : m->relation < SAME   ? 1
                         : m->relation == LATER ? v + 1
                                                : v;
    const uint32_t high = m->relation == EARLIER                                  ? v - 1
                          : m->relation == EARLIER_OR_SAME || m->relation == SAME ? v
                                                                                  : UINT32_MAX;

    tables_add_outer(out, m->key, low, high, m->text);
}

void read_packages(const char *path, tables *out)
{
    reader r = {0};
    size_t bytes;
    char *file = read_file(path, &bytes);

    *out = (tables){0};
    read_stanzas(&r, (part){file, bytes});
    rank_versions(&r);
    for (uint32_t i = 0; i < r.outer.count; i++) {
        add_dependency(out, &r.outer.all[i]);
        free(r.outer.all[i].text);
    }
    for (uint32_t i = 0; i < r.inner.count; i++) {
        const mention *m = &r.inner.all[i];

        tables_add_inner(out, m->key, m->rank, m->text, strlen(m->text));
        free(m->text);
    }
    if (out->inner_rows == 0)
        give_up("there are no packages in %s: it must be in the form of /var/lib/dpkg/status", path);
    free(r.outer.all);
    free(r.inner.all);
    free(r.names.slots);
    free(r.names.keys);
    free(file);
}
