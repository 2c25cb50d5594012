/*
 * postgres/plcuda/device/text.h - comparing and searching text.
 *
 * Byte by byte: as with the collation "C", and for equality with any deterministic one. Places are byte offsets from 0 on. Functions with
 * _ascii in their name take A to Z and a to z for the same, and no other letters.
 */
#ifndef PLCUDA_DEVICE_TEXT_H
#define PLCUDA_DEVICE_TEXT_H

#include "../types.h"
#include "order.h"

/* Below 0, 0 or above 0: a is before b, the same, behind it. */
GVM_DEVICE int32_t
plcuda_text_compare(pg_text_t a, pg_text_t b)
{
	const uint32_t both = a.length < b.length ? a.length : b.length;
	uint32_t	   i;

	for (i = 0; i < both; i++)
		if (a.value[i] != b.value[i])
			return (unsigned char) a.value[i] < (unsigned char) b.value[i] ? -1 : 1;
	return a.length < b.length ? -1 : a.length > b.length;
}

GVM_DEVICE int
plcuda_text_is_equal(pg_text_t a, pg_text_t b)
{
	return a.length == b.length && plcuda_text_compare(a, b) == 0;
}

GVM_DEVICE int
plcuda_text_begins_with(pg_text_t text, pg_text_t prefix)
{
	if (text.length > prefix.length)
		text.length = prefix.length;
	return plcuda_text_is_equal(text, prefix);
}

/* Where the first one at or behind a place is; -1: nowhere. */
GVM_DEVICE int32_t
plcuda_text_find(pg_text_t text, pg_text_t wanted, uint32_t from)
{
	pg_text_t rest = {0, 0, 0};

	for (; from <= text.length && text.length - from >= wanted.length; from++)
	{
		rest.value = text.value + from;
		rest.length = text.length - from;
		if (plcuda_text_begins_with(rest, wanted))
			return (int32_t) from;
	}
	return -1;
}

/* ---- UTF-8 */

/* Bytes of the character that begins there: those up to the next one. */
GVM_DEVICE uint32_t
plcuda_utf8_length(pg_text_t text, uint32_t at)
{
	const uint32_t begin = at++;

	while (at < text.length && ((unsigned char) text.value[at] & 0xc0) == 0x80)
		at++;
	return at - begin;
}

GVM_DEVICE uint32_t
plcuda_utf8_characters(pg_text_t text)
{
	uint32_t n = 0, at;

	for (at = 0; at < text.length; at += plcuda_utf8_length(text, at))
		n++;
	return n;
}

/* As position(wanted IN text) of SQL: of characters, from 1 on; 0: nowhere. */
GVM_DEVICE int32_t
plcuda_utf8_position(pg_text_t text, pg_text_t wanted)
{
	const int32_t at = plcuda_text_find(text, wanted, 0);

	if (at < 0)
		return 0;
	text.length = (uint32_t) at;
	return (int32_t) plcuda_utf8_characters(text) + 1;
}

/* ---- ASCII letters */

GVM_DEVICE char
plcuda_lower_ascii(char c)
{
	return c >= 'A' && c <= 'Z' ? (char) (c - 'A' + 'a') : c;
}
GVM_DEVICE char
plcuda_upper_ascii(char c)
{
	return c >= 'a' && c <= 'z' ? (char) (c - 'a' + 'A') : c;
}

GVM_DEVICE int
plcuda_text_is_equal_ascii(pg_text_t a, pg_text_t b)
{
	uint32_t i = 0;

	while (i < a.length && i < b.length &&
		   plcuda_lower_ascii(a.value[i]) == plcuda_lower_ascii(b.value[i]))
		i++;
	return i == a.length && i == b.length;
}

/* ---- LIKE */

/* A pattern that ends with a backslash has no meaning. */
GVM_DEVICE int
plcuda_like_is_valid(pg_text_t pattern)
{
	uint32_t at = 0;

	while (at < pattern.length)
		at += pattern.value[at] == '\\' ? 2 : 1;
	return at == pattern.length;
}

/*
 * Only the last % needs to be tried anew, a character further: what the ones before it have matched need not be longer, since all
 * that follows them has been found as early as it can be.
 */
GVM_DEVICE_RARE int
plcuda_match_like(pg_text_t text, pg_text_t pattern, int fold_ascii)
{
	uint32_t at = 0, p = 0, again = 0, behind = 0; /* again, behind: text and pattern after the last % */
	int		 any = 0;

	if (!plcuda_like_is_valid(pattern))
		return -1;
	while (at < text.length || p < pattern.length)
	{
		if (p < pattern.length && pattern.value[p] == '%')
		{
			any = 1;
			behind = ++p;
			again = at;
			continue;
		}
		if (p < pattern.length && at < text.length)
		{
			const int  escaped = pattern.value[p] == '\\';
			const char wanted = pattern.value[p + (uint32_t) escaped], is = text.value[at];

			if (!escaped && wanted == '_')
			{
				p++;
				at += plcuda_utf8_length(text, at);
				continue;
			}
			if (fold_ascii ? plcuda_lower_ascii(is) == plcuda_lower_ascii(wanted) : is == wanted)
			{
				p += 1 + (uint32_t) escaped;
				at++;
				continue;
			}
		}
		if (!any || again >= text.length)
			return 0;
		again += plcuda_utf8_length(text, again);
		at = again;
		p = behind;
	}
	return 1;
}

/* text LIKE pattern, with % _ and \, of UTF-8: 1 or 0; -1: the pattern ends with a backslash. */
GVM_DEVICE int
plcuda_text_like(pg_text_t text, pg_text_t pattern)
{
	return plcuda_match_like(text, pattern, 0);
}
GVM_DEVICE int
plcuda_text_like_ascii(pg_text_t text, pg_text_t pattern)
{
	return plcuda_match_like(text, pattern, 1);
}

#endif
