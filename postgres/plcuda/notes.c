/* See notes.h. Values are written as PostgreSQL does: numbers with as many digits as tell them from all others. */
#include "postgres/plcuda/notes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "postgres/plcuda/driver.h"

static plcuda_device_block block;

uint64_t
plcuda_notes_address(void)
{
	plcuda_message ignored;

	return plcuda_reserve_block(&block, sizeof(plcuda_note) * PLCUDA_NOTES_MAX, "messages", &ignored)
		? block.address
		: 0;
}

void
plcuda_release_notes(void)
{
	plcuda_release_block(&block);
}

/* ---- texts */

typedef struct line
{
	char  *text;
	size_t room, used;
} line;

static void
append_bytes(line *out, const char *bytes, size_t len)
{
	const size_t fits = len < out->room - out->used - 1 ? len : out->room - out->used - 1;

	memcpy(out->text + out->used, bytes, fits);
	out->used += fits;
	out->text[out->used] = '\0';
}

static void
append_float(line *out, double v, bool single)
{
	char digits[64];
	int	 precision = single ? 6 : 15;

	if (isnan(v) || isinf(v))
		snprintf(digits, sizeof digits, "%s", isnan(v) ? "NaN" : v > 0 ? "Infinity" : "-Infinity");
	else
		do
			snprintf(digits, sizeof digits, "%.*g", precision++, v);
		while (single ? strtof(digits, NULL) != (float) v : strtod(digits, NULL) != v);
	append_bytes(out, digits, strlen(digits));
}

static void
append_value(line *out, const plcuda_note *note, const plcuda_value *v)
{
	char digits[32] = "NULL";

	if (v->kind == PLCUDA_VALUE_I64)
		snprintf(digits, sizeof digits, "%lld", (long long) v->is.i64);
	else if (v->kind == PLCUDA_VALUE_U64)
		snprintf(digits, sizeof digits, "%llu", (unsigned long long) v->is.u64);
	if (v->kind == PLCUDA_VALUE_F32)
		append_float(out, v->is.f32, true);
	else if (v->kind == PLCUDA_VALUE_F64)
		append_float(out, v->is.f64, false);
	else if (v->kind == PLCUDA_VALUE_TEXT)
	{
		if (v->is.u64 <= sizeof note->bytes && v->length <= sizeof note->bytes - v->is.u64)
			append_bytes(out, note->bytes + v->is.u64, strnlen(note->bytes + v->is.u64, v->length));
	}
	else
		append_bytes(out, digits, strlen(digits));
}

/* %% is %, and so is a % without a value. */
static void
write_line(const plcuda_note *note, char *text, size_t room)
{
	line   out = {text, room, 0};
	size_t len = strnlen(note->text, sizeof note->text), next = 0;

	text[0] = '\0';
	for (size_t i = 0; i < len; i++)
		if (note->text[i] != '%')
			append_bytes(&out, &note->text[i], 1);
		else if (i + 1 < len && note->text[i + 1] == '%')
			append_bytes(&out, &note->text[i++], 1);
		else if (next < PLCUDA_VALUES_MAX && note->values[next].kind != PLCUDA_VALUE_NONE)
			append_value(&out, note, &note->values[next++]);
		else
			append_bytes(&out, "%", 1);
}

/* ---- messages */

bool
plcuda_take_notes(const plcuda_state *state, plcuda_message *answer)
{
	static plcuda_note notes[PLCUDA_NOTES_MAX];
	plcuda_window	  *window = plcuda_map_window();
	const uint32_t	   kept = state->noted < PLCUDA_NOTES_MAX ? state->noted : PLCUDA_NOTES_MAX;
	char			   sqlstate[sizeof state->error.sqlstate], text[PLCUDA_MESSAGE_BYTES];

	if (window != NULL && state->noted > 0 && block.bytes > 0)
	{
		if (!plcuda_check(plcuda_cu.copy_out(notes, block.address, kept * sizeof *notes),
						  "cuMemcpyDtoH", answer))
			return false;
		for (uint32_t i = 0; i < kept; i++)
		{
			window->noted[i].level = notes[i].level;
			write_line(&notes[i], window->noted[i].text, sizeof window->noted[i].text);
		}
		window->noted_count = state->noted;
	}
	if (!state->raised)
		return true;
	memcpy(sqlstate, state->error.sqlstate, sizeof sqlstate);
	sqlstate[5] = '\0';
	write_line(&state->error, text, sizeof text);
	plcuda_answer_error(answer, sqlstate, "%s", text);
	return false;
}
