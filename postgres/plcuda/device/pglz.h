/*
 * postgres/plcuda/device/pglz.h - PostgreSQL's compression: pglz_decompress() by a thread, and by a warp.
 *
 * A stream is groups of a control byte and up to 8 items, one for each of its bits from the lowest on. Bit 0: a literal byte.
 * Bit 1: a match, 2 bytes with an offset of 12 bits, 1 to 4095 bytes back, and a length of 3 to 17; a length of 18 is followed by
 * a third byte that is added to it. A match may be longer than its offset: it repeats what it writes.
 *
 * A stream is valid if its items end with the source, and the last one reaches the end of the value; what it writes beyond is
 * cut off. PostgreSQL's pglz_decompress() with check_complete returns the same for any bytes (tests/prop/pglz.c).
 */
#ifndef PLCUDA_DEVICE_PGLZ_H
#define PLCUDA_DEVICE_PGLZ_H

#include "threads.h"

#define PGLZ_GROUP_END 1u /* above the bits of a control byte that are left */

/* Where a stream is being read. */
typedef struct pglz_reader
{
	const unsigned char *source;
	int32_t				 slen, at;
	uint32_t			 control;
	int32_t				 length, offset; /* of the match that was read last */
} pglz_reader;

/* Reads the next match. written: the bytes before it; most: how many may follow. False: it is not valid. */
GVM_DEVICE int
pglz_read_match(pglz_reader *r, int32_t written, int32_t most)
{
	const unsigned char *s = r->source + r->at;
	const int32_t		 left = r->slen - r->at;

	if (left < 2 || ((s[0] & 15) == 15 && left < 3))
		return 0;
	r->length = (s[0] & 15) + 3;
	r->offset = (s[0] & 0xf0) << 4 | s[1];
	r->at += 2;
	if (r->length == 18)
	{
		r->length += s[2];
		r->at++;
	}
	if (r->length > most)
		r->length = most;
	r->control >>= 1;
	return r->offset > 0 && r->offset <= written;
}

/* The next 8 bytes of a match whose offset is below 8. `to` is a multiple of 8, with at least 8 bytes before it. */
GVM_DEVICE uint64_t
pglz_repeat(const uint64_t *to, uint32_t offset)
{
	uint64_t v = to[-1] >> (64 - 8 * offset);
	uint32_t bytes;

	for (bytes = offset; bytes < 8; bytes *= 2)
		v |= v << (8 * bytes);
	return v;
}

/* The 8 bytes from any place on. */
GVM_DEVICE uint64_t
pglz_load(const char *from)
{
	const uint32_t	skip = (uint32_t) ((uintptr_t) from & 7);
	const uint64_t *words = (const uint64_t *) (const void *) (from - skip);

	return skip == 0 ? words[0] : words[0] >> (8 * skip) | words[1] << (64 - 8 * skip);
}

/* Writes 8 bytes of a match at once, or some up to the next multiple of 8; returns how many. */
GVM_DEVICE int32_t
pglz_copy_some(char *dest, int32_t written, int32_t offset, int32_t length)
{
	char		 *to = dest + written;
	const char	 *from = to - offset;
	const int32_t beyond = (int32_t) ((uintptr_t) to & 7);
	int32_t		  n = 8 - beyond, i;

	if (beyond == 0 && length >= 8 && offset < 8 && written >= 8)
		*(uint64_t *) (void *) to = pglz_repeat((const uint64_t *) (const void *) to,
												(uint32_t) offset);
	else if (beyond == 0 && length >= 8 && offset >= 8 &&
			 written - offset >= (int32_t) ((uintptr_t) from & 7))
		*(uint64_t *) (void *) to = pglz_load(from);
	else
	{
		n = length < n ? length : n;
		for (i = 0; i < n; i++)
			to[i] = from[i];
	}
	return n;
}

GVM_DEVICE int32_t
pglz_result(const pglz_reader *r, int32_t written, int32_t rawsize)
{
	return written == rawsize && r->at == r->slen ? written : -1;
}

/*
 * rawsize bytes to dest, from slen bytes: rawsize, or -1 if these are not valid; then dest may have been written to. Reads
 * nothing but the source and what it has written; writes nothing beyond rawsize.
 *
 * In each round a thread reads an item or writes a few bytes: so lanes with matches of other lengths are not waited for.
 */
GVM_DEVICE_RARE int32_t
pglz_decompress(const char *source, int32_t slen, char *dest, int32_t rawsize)
{
	pglz_reader r = {(const unsigned char *) source, slen, 0, PGLZ_GROUP_END, 0, 0};
	int32_t		written = 0, n;

	while (written < rawsize && (r.length > 0 || r.at < slen))
	{
		if (r.length == 0)
		{
			if (r.control == PGLZ_GROUP_END)
				r.control = r.source[r.at++] | PGLZ_GROUP_END << 8;
			if (r.at == slen)
				break;
			if ((r.control & 1) == 0)
			{
				dest[written++] = (char) r.source[r.at++];
				r.control >>= 1;
				continue;
			}
			if (!pglz_read_match(&r, written, rawsize - written))
				return -1;
		}
		n = pglz_copy_some(dest, written, r.offset, r.length);
		written += n;
		r.length -= n;
	}
	return pglz_result(&r, written, rawsize);
}

/* Writes a whole match: a lane writes the byte of its number, and those at multiples of the number of lanes behind it. */
GVM_DEVICE void
pglz_copy_warp(char *to, uint32_t offset, uint32_t length)
{
	const char	  *from = to - offset;
	const uint32_t lanes = plcuda_lanes(), lane = gvm_lane();
	uint32_t	   at = lane, step = lanes, i; /* at: in the period, which is offset bytes long */
	char		   v;

	if (offset <= lanes)
	{
		at = offset == 1 ? 0 : lane % offset;
		step = offset == 1 ? 0 : lanes % offset;
	}
	if (lane >= length)
		return;
	v = from[at];
	for (i = lane; i < length; i += lanes)
	{
		if (step > 0)
		{
			v = from[at];
			at += step;
			at -= at >= offset ? offset : 0;
		}
		to[i] = v;
	}
}

/* The same, by all lanes of a warp: each calls it with the same arguments, and may then read all of dest. */
GVM_DEVICE_RARE int32_t
pglz_decompress_warp(const char *source, int32_t slen, char *dest, int32_t rawsize)
{
	pglz_reader	   r = {(const unsigned char *) source, slen, 0, PGLZ_GROUP_END, 0, 0};
	const int32_t  lanes = (int32_t) plcuda_lanes();
	const uint32_t mask = plcuda_lane_mask();
	int32_t		   written = 0, i, n;

	while (written < rawsize && r.at < slen)
	{
		if (r.control == PGLZ_GROUP_END)
			r.control = r.source[r.at++] | PGLZ_GROUP_END << 8;
		n = (int32_t) gvm_count_ones(~r.control & (r.control - 1)); /* literals before a match, or the end */
		n = n < slen - r.at ? n : slen - r.at;
		n = n < rawsize - written ? n : rawsize - written;
		for (i = (int32_t) gvm_lane(); i < n; i += lanes)
			dest[written + i] = (char) r.source[r.at + i];
		r.at += n;
		written += n;
		r.control >>= n;
		if (r.control == PGLZ_GROUP_END || r.at == slen || written == rawsize)
			continue;
		if (!pglz_read_match(&r, written, rawsize - written))
			break;
		gvm_warp_sync_lanes(mask); /* other lanes have written what is copied */
		pglz_copy_warp(dest + written, (uint32_t) r.offset, (uint32_t) r.length);
		written += r.length;
	}
	gvm_warp_sync_lanes(mask);
	return pglz_result(&r, written, rawsize);
}

#endif
