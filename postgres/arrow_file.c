/*
 * Arrow's IPC formats; see arrow_file.h.
 *
 * Metadata is in flatbuffers. A table begins with the distance back to its vtable, of 16-bit numbers: its own bytes, the
 * table's, and for each field where it is in the table, 0 for its default. Strings, vectors and tables are referred to by
 * distances forwards. Nothing of it is trusted: a view is bytes that were copied, and each access is checked to be in
 * them. A distance that leads outside reads as if the field were not there, and sets `bad`.
 */
#include "postgres/arrow_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC			   "ARROW1"
#define MAGIC_BYTES		   6u
#define METADATA_BYTES_MAX (16u << 20)

/* Message.fbs, Schema.fbs, File.fbs: fields by number, and members of unions */
enum
{
	MESSAGE_VERSION,
	MESSAGE_HEADER_TYPE,
	MESSAGE_HEADER,
	MESSAGE_BODY_BYTES,

	HEADER_SCHEMA = 1,
	HEADER_DICTIONARY = 2,
	HEADER_BATCH = 3,

	SCHEMA_ENDIANNESS = 0,
	SCHEMA_FIELDS = 1,

	FIELD_NAME = 0,
	FIELD_TYPE_TYPE = 2,
	FIELD_TYPE = 3,
	FIELD_DICTIONARY = 4,
	FIELD_CHILDREN = 5,

	BATCH_ROWS = 0,
	BATCH_NODES = 1,
	BATCH_BUFFERS = 2,
	BATCH_COMPRESSION = 3,

	FOOTER_VERSION = 0,
	FOOTER_SCHEMA = 1,
	FOOTER_DICTIONARIES = 2,
	FOOTER_BATCHES = 3,

	VERSION_4 = 3, /* the first one that has today's messages */
	VERSION_5 = 4,
};

enum
{
	TYPE_NULL = 1,
	TYPE_INT = 2,
	TYPE_FLOAT = 3,
	TYPE_BINARY = 4,
	TYPE_UTF8 = 5,
	TYPE_BOOL = 6,
	TYPE_DECIMAL = 7,
	TYPE_DATE = 8,
	TYPE_TIME = 9,
	TYPE_TIMESTAMP = 10,
	TYPE_LIST = 12,
	TYPE_FIXED_SIZE_BINARY = 15,
	TYPE_FIXED_SIZE_LIST = 16,
	TYPE_LARGE_BINARY = 19,
	TYPE_LARGE_UTF8 = 20,
	TYPE_LARGE_LIST = 21,
};

#define BLOCK_BYTES	 24u /* of the footer: where a batch is */
#define NODE_BYTES	 16u
#define BUFFER_BYTES 16u

typedef struct view
{
	const uint8_t *bytes;
	uint32_t	   count;
	bool		   bad;
} view;

/* What the buffers of a column are. */
typedef struct shape
{
	bool none;	   /* not even validity */
	bool variable; /* offsets and values */
	bool list;	   /* a child: a node and two buffers */
	bool fixed;	   /* without offsets, as all lists have one length */
} shape;

struct gstore_arrow_file
{
	gstore_arrow_input	input;
	uint64_t			at;		/* of a stream: the next message */
	uint8_t			   *blocks; /* of a file: where its batches are; NULL: a stream */
	uint32_t			block_count, block;
	uint8_t			   *metadata; /* of the message that was read last */
	uint32_t			column_count;
	gstore_load_column *columns;
	shape			   *shapes;
};

static gstore_arrow_result
fail_file(char *text, gstore_arrow_result result, const char *what, const char *of)
{
	snprintf(text, GSTORE_ARROW_TEXT_BYTES, "%s%s%s", what, of[0] != '\0' ? " " : "", of);
	return result;
}

/* ---- numbers */

static uint64_t
number_at(const uint8_t *bytes, uint32_t width)
{
	uint64_t value = 0;

	for (uint32_t i = width; i > 0; i--)
		value = value << 8 | bytes[i - 1];
	return value;
}

/* False, and bad: not all of it is in the view. */
static bool
is_within(view *v, uint64_t at, uint64_t bytes)
{
	if (at <= v->count && bytes <= v->count - at)
		return true;
	v->bad = true;
	return false;
}

/* ---- flatbuffers. Places are from the view's first byte; 0: there is none */

static uint32_t
follow(view *v, uint64_t at)
{
	uint64_t to;

	if (!is_within(v, at, 4))
		return 0;
	to = at + number_at(v->bytes + at, 4);
	return to != at && is_within(v, to, 4) ? (uint32_t) to : 0;
}

/* Where a field of a table is; width: what it takes there. */
static uint32_t
field_at(view *v, uint32_t table, uint32_t field, uint32_t width)
{
	int64_t	 vtable;
	uint32_t vtable_bytes, place;

	if (table == 0 || !is_within(v, table, 4))
		return 0;
	vtable = (int64_t) table - (int32_t) (uint32_t) number_at(v->bytes + table, 4);
	if (vtable < 0 || !is_within(v, (uint64_t) vtable, 4))
	{
		v->bad = true;
		return 0;
	}
	vtable_bytes = (uint32_t) number_at(v->bytes + vtable, 2);
	if (!is_within(v, (uint64_t) vtable, vtable_bytes) || 4 + 2 * (field + 1) > vtable_bytes)
		return 0;
	place = (uint32_t) number_at(v->bytes + vtable + 4 + 2 * field, 2);
	return place != 0 && is_within(v, (uint64_t) table + place, width) ? table + place : 0;
}

static uint64_t
number_of(view *v, uint32_t table, uint32_t field, uint32_t width, uint64_t usual)
{
	const uint32_t at = field_at(v, table, field, width);

	return at != 0 ? number_at(v->bytes + at, width) : usual;
}

/* A table, string or vector. */
static uint32_t
reference_of(view *v, uint32_t table, uint32_t field)
{
	const uint32_t at = field_at(v, table, field, 4);

	return at != 0 ? follow(v, at) : 0;
}

/* The first of a vector's elements, of so many bytes each; *count of them. */
static uint32_t
vector_of(view *v, uint32_t table, uint32_t field, uint32_t bytes_each, uint32_t *count)
{
	const uint32_t at = reference_of(v, table, field);

	*count = at != 0 ? (uint32_t) number_at(v->bytes + at, 4) : 0;
	if (at == 0 || !is_within(v, (uint64_t) at + 4, (uint64_t) *count * bytes_each))
	{
		*count = 0;
		return 0;
	}
	return at + 4;
}

/* False: it is longer. */
static bool
copy_string(view *v, uint32_t table, uint32_t field, char *to, uint32_t capacity)
{
	uint32_t	   count;
	const uint32_t at = vector_of(v, table, field, 1, &count);

	if (count >= capacity || (at != 0 && memchr(v->bytes + at, '\0', count) != NULL))
		return false;
	if (count > 0)
		memcpy(to, v->bytes + at, count);
	to[count] = '\0';
	return true;
}

/* ---- the schema */

static bool
set_int_format(view *v, uint32_t type, char *format)
{
	const uint64_t bits = number_of(v, type, 0, 4, 0);
	const bool	   is_signed = number_of(v, type, 1, 1, 0) != 0;
	char		   name = '\0';

	switch (bits)
	{
		case 8:
			name = 'c';
			break;
		case 16:
			name = 's';
			break;
		case 32:
			name = 'i';
			break;
		case 64:
			name = 'l';
			break;
		default:
			return false;
	}
	format[0] = is_signed ? name : (char) (name - 'a' + 'A');
	format[1] = '\0';
	return true;
}

/* What a unit of time is called; the values of TimeUnit. */
static bool
set_time_format(const char *begin, uint64_t unit, char *format)
{
	static const char units[] = "smun";

	if (unit >= sizeof units - 1)
		return false;
	snprintf(format, GSTORE_LOAD_FORMAT_BYTES, "%s%c", begin, units[unit]);
	return true;
}

/* With its zone, of which it matters whether there is one. */
static bool
set_timestamp_format(view *v, uint32_t type, char *format)
{
	uint32_t zone_bytes;

	(void) vector_of(v, type, 1, 1, &zone_bytes);
	if (!set_time_format("ts", number_of(v, type, 0, 2, 0), format))
		return false;
	strcat(format, zone_bytes > 0 ? ":UTC" : ":");
	return true;
}

static bool
set_decimal_format(view *v, uint32_t type, char *format)
{
	const int64_t precision = (int32_t) number_of(v, type, 0, 4, 0);
	const int64_t scale = (int32_t) number_of(v, type, 1, 4, 0);

	if (precision < 1 || precision > 38 || scale < -999 || scale > 999 ||
		number_of(v, type, 2, 4, 128) != 128)
		return false;
	snprintf(format, GSTORE_LOAD_FORMAT_BYTES, "d:%d,%d", (int) precision, (int) scale);
	return true;
}

static void
set_shape(uint64_t kind, shape *to)
{
	to->none = kind == TYPE_NULL;
	to->fixed = kind == TYPE_FIXED_SIZE_LIST;
	to->list = kind == TYPE_LIST || kind == TYPE_LARGE_LIST || to->fixed;
	to->variable = kind == TYPE_BINARY || kind == TYPE_UTF8 || kind == TYPE_LARGE_BINARY ||
		kind == TYPE_LARGE_UTF8;
}

/* The name of a field's type in Arrow's C data interface. False: of no type that can be here. */
static bool
set_format(view *v, uint32_t field, char *format)
{
	static const char *const plain[] = {
		[TYPE_NULL] = "n",		 [TYPE_BINARY] = "z",	   [TYPE_UTF8] = "u",
		[TYPE_BOOL] = "b",		 [TYPE_LIST] = "+l",	   [TYPE_LARGE_BINARY] = "Z",
		[TYPE_LARGE_UTF8] = "U", [TYPE_LARGE_LIST] = "+L",
	};
	static const char *const floats[] = {"e", "f", "g"};
	const uint64_t			 kind = number_of(v, field, FIELD_TYPE_TYPE, 1, 0);
	const uint32_t			 type = reference_of(v, field, FIELD_TYPE);
	uint64_t				 number;

	switch (kind)
	{
		case TYPE_INT:
			return set_int_format(v, type, format);
		case TYPE_FLOAT:
			number = number_of(v, type, 0, 2, 0);
			if (number >= sizeof floats / sizeof floats[0])
				return false;
			strcpy(format, floats[number]);
			return true;
		case TYPE_DATE:
			strcpy(format, number_of(v, type, 0, 2, 1) == 0 ? "tdD" : "tdm");
			return true;
		case TYPE_TIME:
			return set_time_format("tt", number_of(v, type, 0, 2, 1), format);
		case TYPE_TIMESTAMP:
			return set_timestamp_format(v, type, format);
		case TYPE_DECIMAL:
			return set_decimal_format(v, type, format);
		case TYPE_FIXED_SIZE_LIST:
			snprintf(format, GSTORE_LOAD_FORMAT_BYTES, "+w:%d",
					 (int) (int32_t) (uint32_t) number_of(v, type, 0, 4, 0));
			return true;
		case TYPE_FIXED_SIZE_BINARY:
			snprintf(format, GSTORE_LOAD_FORMAT_BYTES, "w:%d",
					 (int) (int32_t) (uint32_t) number_of(v, type, 0, 4, 0));
			return true;
		default:
			if (kind >= sizeof plain / sizeof plain[0] || plain[kind] == NULL)
				return false;
			strcpy(format, plain[kind]);
			return true;
	}
}

static gstore_arrow_result
read_child(view *v, uint32_t field, gstore_load_column *column, char *text)
{
	uint32_t	   count;
	const uint32_t children = vector_of(v, field, FIELD_CHILDREN, 4, &count);
	const uint32_t child = count == 1 ? follow(v, children) : 0;
	shape		   of_child = {0};

	if (child == 0)
		return fail_file(text, GSTORE_ARROW_MALFORMED, "a list has no child: column", column->name);
	set_shape(number_of(v, child, FIELD_TYPE_TYPE, 1, 0), &of_child);
	if (reference_of(v, child, FIELD_DICTIONARY) != 0 || !set_format(v, child, column->element_format) ||
		of_child.none || of_child.list || of_child.variable)
		return fail_file(text, GSTORE_ARROW_UNSUPPORTED,
						 "a list of elements of another kind than numbers: column", column->name);
	return GSTORE_ARROW_OK;
}

static gstore_arrow_result
read_field(view *v, uint32_t field, gstore_load_column *column, shape *to, char *text)
{
	if (!copy_string(v, field, FIELD_NAME, column->name, sizeof column->name))
		return fail_file(text, GSTORE_ARROW_UNSUPPORTED, "the name of a column is too long", "");
	if (reference_of(v, field, FIELD_DICTIONARY) != 0)
		return fail_file(text, GSTORE_ARROW_UNSUPPORTED, "dictionaries: column", column->name);
	set_shape(number_of(v, field, FIELD_TYPE_TYPE, 1, 0), to);
	if (!set_format(v, field, column->format))
		return fail_file(text, GSTORE_ARROW_UNSUPPORTED, "the type of column", column->name);
	return to->list ? read_child(v, field, column, text) : GSTORE_ARROW_OK;
}

static gstore_arrow_result
read_schema(gstore_arrow_file *file, view *v, uint32_t schema, char *text)
{
	uint32_t	   count;
	const uint32_t fields = vector_of(v, schema, SCHEMA_FIELDS, 4, &count);

	if (schema == 0 || count == 0)
		return fail_file(text, GSTORE_ARROW_MALFORMED, "no columns", "");
	if (number_of(v, schema, SCHEMA_ENDIANNESS, 2, 0) != 0)
		return fail_file(text, GSTORE_ARROW_UNSUPPORTED, "big-endian numbers", "");
	if (count > GSTORE_LOAD_COLUMNS_MAX)
		return fail_file(text, GSTORE_ARROW_UNSUPPORTED, "so many columns", "");
	file->columns = calloc(count, sizeof *file->columns);
	file->shapes = calloc(count, sizeof *file->shapes);
	if (file->columns == NULL || file->shapes == NULL)
		return fail_file(text, GSTORE_ARROW_NO_MEMORY, "out of memory", "");
	file->column_count = count;
	for (uint32_t i = 0; i < count; i++)
	{
		const gstore_arrow_result result = read_field(v, follow(v, (uint64_t) fields + 4 * i),
													  &file->columns[i], &file->shapes[i], text);

		if (v->bad)
			return fail_file(text, GSTORE_ARROW_MALFORMED,
							 "a description of columns that leads nowhere", "");
		if (result != GSTORE_ARROW_OK)
			return result;
	}
	return GSTORE_ARROW_OK;
}

/* ---- batches */

/* The next of the batch's buffers. False: there is none, or it is not in the body. */
static bool
take_buffer(view *v, uint32_t buffers, uint32_t count, uint32_t *next, uint64_t body,
			uint64_t body_bytes, gstore_load_buffer *out)
{
	uint64_t offset, bytes;

	if (*next >= count)
		return false;
	offset = number_at(v->bytes + buffers + *next * BUFFER_BYTES, 8);
	bytes = number_at(v->bytes + buffers + *next * BUFFER_BYTES + 8, 8);
	(*next)++;
	if (offset > body_bytes || bytes > body_bytes - offset)
		return false;
	*out = (gstore_load_buffer){.offset = body + offset, .bytes = bytes};
	return true;
}

/* What the columns of a batch are made of, in their order. */
typedef struct parts
{
	view	*v;
	uint32_t nodes, node_count, node;
	uint32_t buffers, buffer_count, buffer;
	uint64_t body, body_bytes;
} parts;

static bool
take_part(parts *p, gstore_load_buffer *out)
{
	return take_buffer(p->v, p->buffers, p->buffer_count, &p->buffer, p->body, p->body_bytes, out);
}

/* The length of an array, and how many of it are NULL. */
static bool
take_node(parts *p, uint64_t *length, uint64_t *nulls)
{
	const uint8_t *at = p->v->bytes + p->nodes + p->node * NODE_BYTES;

	if (p->node >= p->node_count)
		return false;
	p->node++;
	*length = number_at(at, 8);
	*nulls = number_at(at + 8, 8);
	return true;
}

/* Without NULLs the bits may be left out, or be anything. */
static bool
take_validity(parts *p, uint64_t nulls, gstore_load_buffer *out)
{
	if (!take_part(p, out))
		return false;
	if (nulls == 0)
		*out = (gstore_load_buffer){0};
	return nulls == 0 || out->bytes > 0;
}

static bool
take_column(parts *p, const shape *of, uint64_t rows, gstore_load_column *column)
{
	uint64_t length, nulls;

	if (!take_node(p, &length, &nulls) || length != rows)
		return false;
	column->validity = column->offsets = column->values = column->element_validity =
		(gstore_load_buffer){0};
	column->elements = 0;
	if (of->none)
		return true;
	if (!take_validity(p, nulls, &column->validity))
		return false;
	if ((of->variable || (of->list && !of->fixed)) && !take_part(p, &column->offsets))
		return false;
	if (!of->list)
		return take_part(p, &column->values);
	return take_node(p, &column->elements, &nulls) &&
		take_validity(p, nulls, &column->element_validity) && take_part(p, &column->values);
}

static gstore_arrow_result
read_batch(gstore_arrow_file *file, view *v, uint32_t batch, uint64_t body, uint64_t body_bytes,
		   gstore_load_batch *out, char *text)
{
	parts p = {.v = v, .body = body, .body_bytes = body_bytes};

	if (reference_of(v, batch, BATCH_COMPRESSION) != 0)
		return fail_file(text, GSTORE_ARROW_UNSUPPORTED, "compression", "");
	out->rows = number_of(v, batch, BATCH_ROWS, 8, 0);
	out->column_count = file->column_count;
	out->columns = file->columns;
	p.nodes = vector_of(v, batch, BATCH_NODES, NODE_BYTES, &p.node_count);
	p.buffers = vector_of(v, batch, BATCH_BUFFERS, BUFFER_BYTES, &p.buffer_count);
	for (uint32_t i = 0; i < file->column_count && !v->bad; i++)
		if (!take_column(&p, &file->shapes[i], out->rows, &file->columns[i]))
			return fail_file(text, GSTORE_ARROW_MALFORMED,
							 "a batch of rows whose buffers are missing, or beyond its body: column",
							 file->columns[i].name);
	if (v->bad || batch == 0)
		return fail_file(text, GSTORE_ARROW_MALFORMED, "a batch of rows that leads nowhere", "");
	return GSTORE_ARROW_OK;
}

/* ---- messages */

static gstore_arrow_result
read_input(const gstore_arrow_file *file, uint64_t at, void *to, uint64_t bytes, char *text)
{
	if (at > file->input.bytes || bytes > file->input.bytes - at)
		return fail_file(text, GSTORE_ARROW_MALFORMED, "it ends too early", "");
	if (!file->input.read(file->input.argument, at, to, bytes))
		return fail_file(text, GSTORE_ARROW_UNREADABLE, "it cannot be read", "");
	return GSTORE_ARROW_OK;
}

static gstore_arrow_result
read_metadata(gstore_arrow_file *file, uint64_t at, uint64_t bytes, view *out, char *text)
{
	uint8_t			   *metadata;
	gstore_arrow_result result;

	if (bytes < 8 || bytes > METADATA_BYTES_MAX)
		return fail_file(text, GSTORE_ARROW_MALFORMED, "metadata of a size that cannot be", "");
	if (at > file->input.bytes || bytes > file->input.bytes - at) /* before there is memory for it */
		return fail_file(text, GSTORE_ARROW_MALFORMED, "it ends too early", "");
	metadata = realloc(file->metadata, bytes);
	if (metadata == NULL)
		return fail_file(text, GSTORE_ARROW_NO_MEMORY, "out of memory", "");
	file->metadata = metadata;
	result = read_input(file, at, metadata, bytes, text);
	*out = (view){.bytes = metadata, .count = (uint32_t) bytes};
	return result;
}

typedef struct message
{
	view	 v;
	uint32_t header_type, header;
	uint64_t body, body_bytes;
	uint64_t end; /* where the next one begins */
} message;

/*
 * A length, since 0.15 behind 4 bytes of ones, the metadata, and the body, each filled up to a multiple of 8. A length
 * of 0 is the end, and so is the end of the input.
 */
static gstore_arrow_result
read_message(gstore_arrow_file *file, uint64_t at, message *out, char *text)
{
	uint8_t				prefix[8] = {0};
	const uint64_t		left = at <= file->input.bytes ? file->input.bytes - at : 0;
	uint64_t			prefix_bytes = 8, bytes;
	gstore_arrow_result result;
	uint32_t			root;

	if (left == 0)
		return GSTORE_ARROW_END;
	result = read_input(file, at, prefix, left < 8 ? 4 : 8, text);
	if (result != GSTORE_ARROW_OK)
		return result;
	bytes = number_at(prefix + 4, 4);
	if (number_at(prefix, 4) != UINT32_MAX)
	{
		prefix_bytes = 4;
		bytes = number_at(prefix, 4);
	}
	if (bytes == 0)
		return GSTORE_ARROW_END;
	result = read_metadata(file, at + prefix_bytes, bytes, &out->v, text);
	if (result != GSTORE_ARROW_OK)
		return result;
	root = follow(&out->v, 0);
	out->header_type = (uint32_t) number_of(&out->v, root, MESSAGE_HEADER_TYPE, 1, 0);
	out->header = reference_of(&out->v, root, MESSAGE_HEADER);
	out->body = at + prefix_bytes + bytes;
	out->body_bytes = number_of(&out->v, root, MESSAGE_BODY_BYTES, 8, 0);
	if (out->v.bad || root == 0 || out->header == 0)
		return fail_file(text, GSTORE_ARROW_MALFORMED, "a message that leads nowhere", "");
	if (number_of(&out->v, root, MESSAGE_VERSION, 2, 0) < VERSION_4 ||
		number_of(&out->v, root, MESSAGE_VERSION, 2, 0) > VERSION_5)
		return fail_file(text, GSTORE_ARROW_UNSUPPORTED, "another version of metadata than 4 and 5",
						 "");
	if (out->body_bytes > file->input.bytes - out->body)
		return fail_file(text, GSTORE_ARROW_MALFORMED, "it ends too early", "");
	out->end = out->body + out->body_bytes;
	return GSTORE_ARROW_OK;
}

static gstore_arrow_result
check_header(const message *m, uint32_t wanted, char *text)
{
	if (m->header_type == HEADER_DICTIONARY)
		return fail_file(text, GSTORE_ARROW_UNSUPPORTED, "dictionaries", "");
	if (m->header_type != wanted)
		return fail_file(text, GSTORE_ARROW_MALFORMED, "a message of another kind than was to come",
						 "");
	return GSTORE_ARROW_OK;
}

/* ---- files and streams */

/* The footer has the schema and where the batches are. */
static gstore_arrow_result
open_file(gstore_arrow_file *file, char *text)
{
	const uint64_t		all = file->input.bytes;
	uint8_t				tail[4 + MAGIC_BYTES];
	view				v;
	uint32_t			root, blocks, bytes;
	gstore_arrow_result result;

	if (all < 8 + sizeof tail)
		return fail_file(text, GSTORE_ARROW_MALFORMED, "it ends too early", "");
	result = read_input(file, all - sizeof tail, tail, sizeof tail, text);
	if (result != GSTORE_ARROW_OK)
		return result;
	bytes = (uint32_t) number_at(tail, 4);
	if (memcmp(tail + 4, MAGIC, MAGIC_BYTES) != 0 || bytes > all - sizeof tail)
		return fail_file(text, GSTORE_ARROW_MALFORMED,
						 "it has no end: it was not written to its end", "");
	result = read_metadata(file, all - sizeof tail - bytes, bytes, &v, text);
	if (result != GSTORE_ARROW_OK)
		return result;
	root = follow(&v, 0);
	result = read_schema(file, &v, reference_of(&v, root, FOOTER_SCHEMA), text);
	if (result != GSTORE_ARROW_OK)
		return result;
	(void) vector_of(&v, root, FOOTER_DICTIONARIES, BLOCK_BYTES, &bytes);
	blocks = vector_of(&v, root, FOOTER_BATCHES, BLOCK_BYTES, &file->block_count);
	if (bytes > 0)
		return fail_file(text, GSTORE_ARROW_UNSUPPORTED, "dictionaries", "");
	if (v.bad)
		return fail_file(text, GSTORE_ARROW_MALFORMED, "an end that leads nowhere", "");
	file->blocks = malloc((size_t) file->block_count * BLOCK_BYTES + 1);
	if (file->blocks == NULL)
		return fail_file(text, GSTORE_ARROW_NO_MEMORY, "out of memory", "");
	if (file->block_count > 0)
		memcpy(file->blocks, v.bytes + blocks, (size_t) file->block_count * BLOCK_BYTES);
	return GSTORE_ARROW_OK;
}

static gstore_arrow_result
open_stream(gstore_arrow_file *file, char *text)
{
	message				m;
	gstore_arrow_result result = read_message(file, 0, &m, text);

	if (result == GSTORE_ARROW_END)
		return fail_file(text, GSTORE_ARROW_MALFORMED, "it is empty", "");
	if (result == GSTORE_ARROW_OK)
		result = check_header(&m, HEADER_SCHEMA, text);
	if (result == GSTORE_ARROW_OK)
		result = read_schema(file, &m.v, m.header, text);
	file->at = m.end;
	return result;
}

gstore_arrow_result
gstore_arrow_file_open(const gstore_arrow_input *input, gstore_arrow_file **out, char *text)
{
	gstore_arrow_file  *file = calloc(1, sizeof *file);
	uint8_t				begin[MAGIC_BYTES] = {0};
	gstore_arrow_result result = GSTORE_ARROW_OK;

	if (file == NULL)
		return fail_file(text, GSTORE_ARROW_NO_MEMORY, "out of memory", "");
	file->input = *input;
	if (input->bytes >= sizeof begin)
		result = read_input(file, 0, begin, sizeof begin, text);
	if (result == GSTORE_ARROW_OK)
		result = memcmp(begin, MAGIC, MAGIC_BYTES) == 0 ? open_file(file, text)
														: open_stream(file, text);
	if (result == GSTORE_ARROW_OK)
		*out = file;
	else
		gstore_arrow_file_close(file);
	return result;
}

static gstore_arrow_result
next_block(gstore_arrow_file *file, message *m, char *text)
{
	gstore_arrow_result result;

	if (file->block == file->block_count)
		return GSTORE_ARROW_END;
	result = read_message(file, number_at(file->blocks + file->block++ * BLOCK_BYTES, 8), m, text);
	return result == GSTORE_ARROW_END
		? fail_file(text, GSTORE_ARROW_MALFORMED, "a batch of rows is not where it should be", "")
		: result;
}

static gstore_arrow_result
next_message(gstore_arrow_file *file, message *m, char *text)
{
	const gstore_arrow_result result = read_message(file, file->at, m, text);

	if (result == GSTORE_ARROW_OK)
		file->at = m->end;
	return result;
}

gstore_arrow_result
gstore_arrow_file_next(gstore_arrow_file *file, gstore_load_batch *out, char *text)
{
	message				m;
	gstore_arrow_result result = file->blocks != NULL ? next_block(file, &m, text)
													  : next_message(file, &m, text);

	if (result == GSTORE_ARROW_OK)
		result = check_header(&m, HEADER_BATCH, text);
	if (result == GSTORE_ARROW_OK)
		result = read_batch(file, &m.v, m.header, m.body, m.body_bytes, out, text);
	return result;
}

void
gstore_arrow_file_close(gstore_arrow_file *file)
{
	if (file == NULL)
		return;
	free(file->metadata);
	free(file->blocks);
	free(file->columns);
	free(file->shapes);
	free(file);
}
