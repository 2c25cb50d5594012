/*
 * postgres/form.h - how the values of a column lie in its areas, in both formats.
 *
 * What a form is called by Arrow and how wide its values are is in one table (form.c). A column of format
 * 'pgstrom' has a form only if it is *uniform*: its type is one of variable length to PostgreSQL, but all of the
 * column's values have one length, and lie one behind the other without headers. uniform.c adds the headers when rows
 * are read. docs/gstore_format.md has the bytes.
 */
#ifndef GSTORE_FORM_H
#define GSTORE_FORM_H

#include "postgres.h"

#include "postgres/column.h"

/* gstore_column.form and .element_form */
typedef enum gstore_form
{
	GSTORE_FORM_NONE, /* of format 'pgstrom': as PostgreSQL has it */
	GSTORE_FORM_BOOL,
	GSTORE_FORM_INT16,
	GSTORE_FORM_INT32,
	GSTORE_FORM_INT64,
	GSTORE_FORM_UINT32,
	GSTORE_FORM_HALF, /* of elements alone: PostgreSQL has no such type */
	GSTORE_FORM_FLOAT,
	GSTORE_FORM_DOUBLE,
	GSTORE_FORM_DATE,
	GSTORE_FORM_TIME,
	GSTORE_FORM_TIMESTAMP,
	GSTORE_FORM_TIMESTAMPTZ,
	GSTORE_FORM_FIXED,	 /* any other type of fixed length: its bytes */
	GSTORE_FORM_DECIMAL, /* uniform from here on: numeric(p, s) */
	GSTORE_FORM_BITS,	 /* bit(n) */
	GSTORE_FORM_BYTES,	 /* text, character, bytea of so many bytes */
	GSTORE_FORM_ARRAY,	 /* arrays of so many elements */
	GSTORE_FORM_VECTOR,	 /* vector(n) and halfvec(n) of pgvector */
	GSTORE_FORM_UTF8,	 /* variable length from here on */
	GSTORE_FORM_BINARY,	 /* bytea, and any other type of variable length: its body without header */
	GSTORE_FORM_LIST,	 /* arrays of types of fixed length above */
	GSTORE_FORMS,
} gstore_form;

#define GSTORE_ARROW_FORMAT_BYTES 16

/* Of a uniform column: a row's bytes in `values`. What needs more has a variable length. */
#define GSTORE_STRIDE_MAX (1u << 20)

/*
 * Sets what type, type modifier and format of the column decide: form, element_form, element, element_width, stride, count,
 * precision and scale. length: the column's option; 0: there is none. ERROR if the type, of the column of that name, has no
 * such option.
 */
extern void gstore_form_describe(gstore_column *column, const char *name, uint32 length);

/* Whether columns of numeric with that type modifier are decimals, and of which precision and scale. */
extern bool gstore_form_decimal(int32 typmod, int *precision, int *scale);

/* Read with one or the other, the bytes of an area mean the same. Precisions of decimals may differ. */
extern bool gstore_form_is_same(const gstore_column *one, const gstore_column *other);

/* What other programs are told of a uniform column: GVM_TABLE_DECIMAL and so on, as in gvmem/gstore_kds.h; 0: it is none. */
extern uint8 gstore_uniform_kind(const gstore_column *column);

/* Arrow's name of a column's form, as in its C data interface, and that of a list's elements ("" for others). */
extern void gstore_arrow_format(const gstore_column *column, char text[GSTORE_ARROW_FORMAT_BYTES]);
extern void
gstore_arrow_element_format(const gstore_column *column, char text[GSTORE_ARROW_FORMAT_BYTES]);

/* The table's format is 'arrow'. */
static inline bool
gstore_is_arrow(const gstore_column *column)
{
	return column->arrow;
}

static inline bool
gstore_is_uniform(const gstore_column *column)
{
	return column->form >= GSTORE_FORM_DECIMAL && column->form < GSTORE_FORM_UTF8;
}

/* Its values lie in the bodies, and where is in `values`. */
static inline bool
gstore_is_variable(const gstore_column *column)
{
	return column->length < 0 && !gstore_is_uniform(column);
}

/* Of format 'arrow': offsets, and bytes they count. */
static inline bool
gstore_arrow_is_variable(const gstore_column *column)
{
	return column->form >= GSTORE_FORM_UTF8;
}

/* What offsets of the column count, in bytes. */
static inline uint32
gstore_arrow_unit(const gstore_column *column)
{
	return column->form == GSTORE_FORM_LIST ? column->element_width : 1;
}

/* Its elements follow each other, of a uniform column too. */
static inline bool
gstore_has_elements(const gstore_column *column)
{
	return column->element_form != GSTORE_FORM_NONE;
}

#endif
