/* postgres/commit_limit.h - statement_timeout for what a commit has to wait for. */
#ifndef GSTORE_COMMIT_LIMIT_H
#define GSTORE_COMMIT_LIMIT_H

#include "postgres.h"

#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/timeout.h"

/*
 * The server ends a statement's time limit before it commits. It begins anew for this part of a commit: nothing is
 * committed yet, and an ERROR is as good as any before.
 */
static inline void
gstore_commit_limited(void (*part)(void))
{
	const bool limited = StatementTimeout > 0 && !get_timeout_active(STATEMENT_TIMEOUT);

	if (limited)
		enable_timeout_after(STATEMENT_TIMEOUT, StatementTimeout);
	part();
	if (limited)
	{
		disable_timeout(STATEMENT_TIMEOUT, true);
		CHECK_FOR_INTERRUPTS();
	}
}

#endif
