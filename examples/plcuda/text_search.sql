/* Rows whose text matches a pattern of LIKE.
 *
 *     SELECT * FROM text_search('documents', 'id', 'body', '%GPU_memory%');
 *     SELECT id FROM documents WHERE body LIKE '%GPU_memory%';              -- the same rows
 *
 * id is an integer or a bigint. In a pattern % stands for any text, _ for any character, and \ takes the meaning from the
 * character that follows.
 *
 * Method: the pattern becomes a list of tokens, and a thread compares a row's text with them. Behind a % it tries one place after
 * the other, and never goes back to an earlier %. plcuda_text_like() of the library needs no list, but is of UTF-8 alone, and reads
 * the pattern again for each row. */
\ir columns.sql

CREATE FUNCTION text_search_memory(documents reggstore, id smallint, body smallint, pattern text, utf8 boolean) RETURNS bigint
    IMMUTABLE LANGUAGE SQL
    RETURN 16 + 2 * octet_length(pattern);

CREATE FUNCTION text_search_rows(documents reggstore, id smallint, body smallint, pattern text, utf8 boolean)
    RETURNS SETOF bigint LANGUAGE plcuda STRICT AS $$
#plcuda_working_bufsz text_search_memory
#plcuda_decl
#define ANY_CHARACTER 256 /* other tokens are bytes */
#define ANY_TEXT 257
#define NONE 0xffffffffu

typedef struct tokens {
    uint32_t count, utf8;
    unsigned short list[1]; /* count of them */
} tokens;

GVM_DEVICE void make_tokens(const plcuda_call *call, pg_text_t pattern, tokens *t)
{
    uint32_t i;

    for (i = 0; i < pattern.length; i++) {
        const char c = pattern.value[i];

        if (c == '\\' && ++i == pattern.length)
            plcuda_raise(call, "22025", "a pattern of LIKE must not end with its escape character");
        else if (c == '\\')
            t->list[t->count++] = (unsigned char)pattern.value[i];
        else
            t->list[t->count++] = c == '%' ? ANY_TEXT : c == '_' ? ANY_CHARACTER : (unsigned char)c;
    }
}

/* A byte of UTF-8 that is not a character's first one. */
GVM_DEVICE int is_inside(const tokens *t, char c)
{
    return t->utf8 && ((unsigned char)c & 0xc0) == 0x80;
}

GVM_DEVICE int is_like(pg_text_t text, const tokens *t)
{
    const char *s = text.value;
    uint32_t at = 0, token = 0, behind_any = NONE, from = 0; /* the last ANY_TEXT: the token behind it, and where that is tried */

    while (at < text.length) {
        const uint32_t wanted = token < t->count ? t->list[token] : NONE;

        if (wanted == ANY_TEXT) {
            if (++token == t->count)
                return 1;
            behind_any = token;
            from = at;
        } else if (wanted == (unsigned char)s[at]) {
            token++;
            at++;
        } else if (wanted == ANY_CHARACTER && !is_inside(t, s[at])) {
            token++;
            for (at++; at < text.length && is_inside(t, s[at]);)
                at++;
        } else {
            if (behind_any == NONE)
                return 0;
            token = behind_any;
            at = ++from;
        }
    }
    while (token < t->count && t->list[token] == ANY_TEXT)
        token++;
    return token == t->count;
}

/* 1: it is not NULL. */
GVM_DEVICE int get_id(const plcuda_table *t, int32_t number, uint64_t row, int64_t *id)
{
    if (number >= 1 && (uint32_t)number <= t->column_count && t->columns[number - 1].type == PLCUDA_INT4) {
        const pg_int4_t small = plcuda_get_int4(t, number, row);

        *id = small.value;
        return !small.isnull;
    } else {
        const pg_int8_t large = plcuda_get_int8(t, number, row);

        *id = large.value;
        return !large.isnull;
    }
}
#plcuda_end

#plcuda_prep
((tokens *)workbuf)->utf8 = arg5.value != 0;
make_tokens(plcuda, arg4, (tokens *)workbuf);
#plcuda_end

#plcuda_begin
#plcuda_num_threads 262144
PLCUDA_FOR_ROWS (arg1.value, row) {
    const pg_text_t text = plcuda_get_text(arg1.value, arg3.value, row);

    if (!text.isnull && is_like(text, (const tokens *)workbuf)) {
        plcuda_row *found = plcuda_append(plcuda);

        if (found == 0)
            break;
        found->isnull = (char)!get_id(arg1.value, arg2.value, row, &found->value);
    }
}
#plcuda_end
$$;

CREATE FUNCTION text_search(documents reggstore, id text, body text, pattern text) RETURNS SETOF bigint STABLE LANGUAGE plpgsql AS $$
DECLARE
    columns smallint[] = column_numbers(documents::regclass, ARRAY[id, body]);
    bytes int = pg_encoding_max_length(pg_char_to_encoding(getdatabaseencoding()));
BEGIN
    IF bytes > 1 AND getdatabaseencoding() <> 'UTF8' THEN
        RAISE feature_not_supported USING MESSAGE = format('text_search does not know characters of %s', getdatabaseencoding());
    END IF;
    RETURN QUERY SELECT * FROM text_search_rows(documents, columns[1], columns[2], pattern, bytes > 1);
END $$;
