/* See query_records.h. */
#include "postgres.h"

#include "miscadmin.h"

#include "postgres/query_records.h"

/* The results' next piece. Other than what is said of the first one, it is an error if it is not as it was said to be. */
static void
take_piece(gstore_run *run)
{
	const gquery_window *window = gstore_session_window(run->session);
	const uint32		 words = window->record_words;
	const gquery_span	 span = window->records;
	const uint64		 count = span.bytes / (words * sizeof(uint64) + (words == 0));

	if (words != (uint32) run->words || span.bytes % (words * sizeof(uint64)) != 0 ||
		count > run->left || (count == 0 && run->left > 0))
		elog(ERROR, "the executor of queries has returned no valid result");
	run->records = gstore_session_copy(run->session, span);
	run->count = count;
	run->at = 0;
	run->left -= count;
	if (run->left > 0)
		return;
	gstore_session_end(run->session, false);
	run->session = NULL;
}

/* Where the request goes on. */
static void
take_next_row(gstore_run *run, const gstore_request *request)
{
	const gquery_window *window = gstore_session_window(run->session);

	run->next_row = window->next_row < request->view[0].rows ? window->next_row : 0;
	run->slice_rows = window->next_slice_rows;
	if (run->next_row > 0 && run->next_row <= request->first_row)
		elog(ERROR, "the executor of queries has returned no valid result");
}

/* Records have texts behind their other words. */
static void
add_text_words(gstore_run *run, int texts)
{
	const gquery_window *window = gstore_session_window(run->session);

	for (int i = 0; i < texts; i++)
	{
		run->text_words[i] = window->text_words[i];
		if (run->text_words[i] == 0 || run->text_words[i] > 1 + GQUERY_NUMBERED_BYTES / sizeof(uint64))
			elog(ERROR, "the executor of queries has returned no valid result");
		run->words += (int) run->text_words[i];
	}
}

void
gstore_run_receive(gstore_run *run, gstore_session *session, const gstore_request *request,
				   gstore_record_shape shape)
{
	const gquery_window *window = gstore_session_window(session);

	run->session = session;
	run->gathered = shape.gathered_words > 0 && window->gathered != 0;
	run->words = run->gathered ? shape.gathered_words : shape.words;
	add_text_words(run, shape.texts);
	run->left = window->record_count;
	if (run->words > 0 && run->left > MaxAllocHugeSize / sizeof(uint64) / (uint64) run->words)
		elog(ERROR, "the executor of queries has returned no valid result");
	run->figures.records += run->left;
	if (request->nearest == 0 && (run->gathered || run->kind != GSTORE_QUERY_FILTER))
		gstore_query_count(run->kind, GSTORE_QUERY_ROWS_RETURNED, run->left);
	run->fetched = request->first_row > 0 || request->after != NULL;
	take_next_row(run, request);
	take_piece(run);
}

void
gstore_run_forget(gstore_run *run)
{
	if (run->records != NULL)
		pfree((void *) run->records);
	run->records = NULL;
	run->count = run->at = 0;
}

bool
gstore_run_try_fetch(gstore_run *run)
{
	CHECK_FOR_INTERRUPTS();
	gstore_run_forget(run);
	run->fetched = true;
	if (!gstore_session_run(run->session, GQUERY_FETCH, run->why))
	{
		gstore_query_count(run->kind, gstore_session_failure(run->session), 1);
		run->session = NULL;
		run->left = 0;
		return false;
	}
	take_piece(run);
	return true;
}

bool
gstore_run_fetch(gstore_run *run)
{
	if (run->session == NULL)
		return false;
	if (!gstore_run_try_fetch(run))
		ereport(ERROR,
				(errcode(ERRCODE_EXTERNAL_ROUTINE_EXCEPTION),
				 errmsg("the results of a query on the GPU cannot be fetched: %s", run->why),
				 errhint(GSTORE_REPEAT_HINT)));
	return true;
}

uint64 *
gstore_run_take(gstore_run *run, uint64 *count)
{
	const Size words = (Size) run->words;
	uint64	  *out, taken = 0;

	*count = run->count + run->left;
	out = MemoryContextAllocHuge(CurrentMemoryContext, sizeof *out * Max(*count * words, 1));
	for (;;)
	{
		memcpy(out + taken * words, run->records, sizeof *out * words * run->count);
		taken += run->count;
		if (run->session == NULL)
		{
			gstore_run_forget(run);
			return out;
		}
		if (!gstore_run_try_fetch(run))
		{
			pfree(out);
			return NULL;
		}
	}
}

static int
compare_words(const void *left, const void *right, void *argument)
{
	const int64 *l = left, *r = right;
	const int	 words = *(const int *) argument;

	CHECK_FOR_INTERRUPTS(); /* of millions of records */
	for (int i = 0; i < words; i++)
		if (l[i] != r[i])
			return l[i] < r[i] ? -1 : 1;
	return 0;
}

void
gstore_sort_records(uint64 *records, uint64 count, int record_words, int words)
{
	qsort_arg(records, count, sizeof *records * (Size) record_words, compare_words, &words);
}

bool
gstore_run_sort(gstore_run *run, int words)
{
	uint64	count;
	uint64 *records = gstore_run_take(run, &count);

	if (records == NULL)
		return false;
	gstore_sort_records(records, count, run->words, words);
	run->records = records;
	run->count = count;
	run->at = 0;
	return true;
}
