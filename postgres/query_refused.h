/*
 * postgres/query_refused.h - why a query is not for the GPU, in words: what of it has no instructions there, or no memory.
 * Messages of DEBUG1, while a query is planned.
 */
#ifndef GSTORE_QUERY_REFUSED_H
#define GSTORE_QUERY_REFUSED_H

#include "postgres.h"

#include "nodes/nodes.h"

#include "postgres/query_expr.h"

#define GSTORE_SCALES_DIFFER \
	"has other numbers of digits behind the point in some rows than in others; write constants with those of the columns beside them, as in COALESCE(price, 0.00)"

/* An expression without instructions, after its parts. Of a column of texts, what is computed of it is named. */
extern void gstore_note_refused(gstore_emitter *emitter, Node *node);
/* Returns false. as: why, behind the node's description; NULL: it has no instructions. */
extern bool gstore_refuse(gstore_emitter *emitter, Node *node, const char *as);
/* The same is not said twice in one statement. */
extern void gstore_report_reason(const char *reason);
/* What was not compiled, by the emitter's `refused`. */
extern void gstore_report_refused(const gstore_emitter *emitter);

#endif
