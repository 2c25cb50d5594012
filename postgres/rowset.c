/* Sets of row numbers; see rowset.h. */
#include "postgres.h"

#include "port/pg_bitutils.h"
#include "utils/memutils.h"

#include "postgres/rowset.h"

#define PAGES_LEAST 16

gstore_rowset *
gstore_rowset_create(void)
{
	gstore_rowset *set = palloc0(sizeof *set);

	set->context = CurrentMemoryContext;
	return set;
}

static pg_noinline uint8 *
make_page(gstore_rowset *set, uint64 index)
{
	if (index >= set->page_count)
	{
		const uint64 count = Max(Max(index + 1, 2 * set->page_count), PAGES_LEAST);
		const Size	 bytes = sizeof *set->pages * count;

		set->pages = set->pages == NULL ? MemoryContextAllocHuge(set->context, bytes)
										: repalloc_huge(set->pages, bytes);
		memset(set->pages + set->page_count, 0, sizeof *set->pages * (count - set->page_count));
		set->page_count = count;
	}
	if (set->pages[index] == NULL)
		set->pages[index] = MemoryContextAllocZero(set->context, GSTORE_ROWSET_PAGE_BYTES);
	return set->pages[index];
}

bool
gstore_rowset_add(gstore_rowset *set, uint64 row)
{
	const uint64 index = row / GSTORE_ROWSET_PAGE_ROWS, bit = row % GSTORE_ROWSET_PAGE_ROWS;
	const uint8	 mask = (uint8) (1u << (bit % 8));
	uint8		*page = index < set->page_count ? set->pages[index] : NULL;

	if (page == NULL)
		page = make_page(set, index);
	if ((page[bit / 8] & mask) != 0)
		return false;
	page[bit / 8] |= mask;
	set->count++;
	return true;
}

bool
gstore_rowset_has(const gstore_rowset *set, uint64 row)
{
	const uint64 index = row / GSTORE_ROWSET_PAGE_ROWS, bit = row % GSTORE_ROWSET_PAGE_ROWS;

	return index < set->page_count && set->pages[index] != NULL &&
		(set->pages[index][bit / 8] >> (bit % 8) & 1) != 0;
}

void
gstore_rowset_remove(gstore_rowset *set, uint64 row)
{
	const uint64 bit = row % GSTORE_ROWSET_PAGE_ROWS;

	set->pages[row / GSTORE_ROWSET_PAGE_ROWS][bit / 8] &= (uint8) ~(1u << (bit % 8));
	set->count--;
}

void
gstore_rowset_clear(gstore_rowset *set)
{
	for (uint64 i = 0; i < set->page_count; i++)
		if (set->pages[i] != NULL)
			memset(set->pages[i], 0, GSTORE_ROWSET_PAGE_BYTES);
	set->count = 0;
}

uint64
gstore_rowset_limit(const gstore_rowset *set)
{
	for (uint64 i = set->page_count; i > 0; i--)
	{
		const uint8 *page = set->pages[i - 1];

		for (uint64 byte = page != NULL ? GSTORE_ROWSET_PAGE_BYTES : 0; byte > 0; byte--)
			if (page[byte - 1] != 0)
				return (i - 1) * GSTORE_ROWSET_PAGE_ROWS + byte * 8;
	}
	return 0;
}

void
gstore_rowset_mark(const gstore_rowset *set, uint8 *bitmap)
{
	const uint64 bytes = gstore_rowset_limit(set) / 8;

	for (uint64 i = 0; i * GSTORE_ROWSET_PAGE_BYTES < bytes; i++)
	{
		uint8		*to = bitmap + i * GSTORE_ROWSET_PAGE_BYTES;
		const uint8 *from = set->pages[i];
		const uint64 count = Min(bytes - i * GSTORE_ROWSET_PAGE_BYTES, GSTORE_ROWSET_PAGE_BYTES);

		for (uint64 byte = 0; from != NULL && byte < count; byte++)
			to[byte] |= from[byte];
	}
}

void
gstore_rowset_list(const gstore_rowset *set, uint64 *out)
{
	for (uint64 i = 0; i < set->page_count; i++)
		for (uint64 byte = 0; set->pages[i] != NULL && byte < GSTORE_ROWSET_PAGE_BYTES; byte++)
			for (uint32 bits = set->pages[i][byte]; bits != 0; bits &= bits - 1)
				*out++ = i * GSTORE_ROWSET_PAGE_ROWS + byte * 8 + (uint64) pg_rightmost_one_pos32(bits);
}
