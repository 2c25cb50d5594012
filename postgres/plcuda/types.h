/*
 * postgres/plcuda/types.h - what kernels of plcuda see of a call: arguments, tables, the result. For the C compiler and
 * NVRTC, and for the programs that fill it in.
 *
 * Pointers are of the device.
 */
#ifndef PLCUDA_TYPES_H
#define PLCUDA_TYPES_H

#include "slots.h"

#define PLCUDA_NAME_BYTES 64 /* of PostgreSQL's names, with the NUL */
#define PLCUDA_TEXT_BYTES 256
#define PLCUDA_FALL_BACK \
	"PLCPU" /* in place of an SQLSTATE: the function asks for its CPU fallback */

/* What a kernel has raised: the first one counts. */
typedef struct plcuda_state
{
	uint32_t raised;
	char	 sqlstate[8];
	char	 text[PLCUDA_TEXT_BYTES];
} plcuda_state;

/* In place of the OID of types whose OID differs between databases. */
#define PLCUDA_VECTOR  1u /* of pgvector, as */
#define PLCUDA_HALFVEC 2u
#define PLCUDA_ENUM	   3u /* any */

/* By attribute number - 1; type 0: dropped. */
typedef struct plcuda_column
{
	char		name[PLCUDA_NAME_BYTES];
	uint32_t	type;	/* OID, below any domain; or one of those above */
	uint32_t	stored; /* 0: no memory, every row is NULL */
	const char *values, *nulls, *bodies, *element_nulls; /* gvmem/table.h */
	uint64_t	bodies_bytes;
	uint32_t	uniform_bytes; /* values of one length: each so long, in values; 0: it is not so */
	uint32_t	count;		   /* their elements, or bits */
	int32_t		scale;		   /* of decimals */
} plcuda_column;

typedef struct plcuda_table
{
	uint64_t			 rows; /* numbers of rows; some may be deleted */
	const unsigned char *dead; /* bitmap, 1: deleted; 0 (NULL): none */
	uint64_t			 dead_bytes;
	const plcuda_column *columns;
	uint32_t			 column_count;
	uint32_t			 arrow; /* its format */
	plcuda_state		*state;
} plcuda_table;

typedef struct pg_reggstore_t
{
	const plcuda_table *value;
	char				isnull;
} pg_reggstore_t;

typedef struct plcuda_call
{
	const char	 *arguments; /* PLCUDA_SLOT_BYTES each */
	char		 *result;	 /* one */
	char		 *results, *workbuf;
	uint64_t	  results_bytes, workbuf_bytes;
	plcuda_state *state;
} plcuda_call;

typedef struct plcuda_params
{
	const plcuda_call *call;
} plcuda_params;

#endif
