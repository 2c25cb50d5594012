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
	"PLCPU"					/* in place of an SQLSTATE: the function asks for its CPU fallback */
#define PLCUDA_FULL "PLCFU" /* likewise: no more can be appended */
#define PLCUDA_RESULT_BYTES_MAX \
	0x3fffff00ull /* of what a row points to; PostgreSQL's values are below 1 GiB */

/* In place of a % of a message. */
typedef enum plcuda_value_kind
{
	PLCUDA_VALUE_NONE,
	PLCUDA_VALUE_I64,
	PLCUDA_VALUE_U64,
	PLCUDA_VALUE_F32,
	PLCUDA_VALUE_F64,
	PLCUDA_VALUE_TEXT,
	PLCUDA_VALUE_NULL,
} plcuda_value_kind;

#define PLCUDA_VALUES_MAX 4 /* of a message */

typedef struct plcuda_value
{
	uint32_t kind;
	uint32_t length; /* of a text */
	union
	{
		int64_t		i64;
		uint64_t	u64;
		float		f32;
		double		f64;
		const char *text;
	} is;
} plcuda_value;

/* In place of the values that a message does not have. */
typedef struct plcuda_nothing
{
	char none;
} plcuda_nothing;

typedef enum plcuda_note_level
{
	PLCUDA_NOTE_ERROR = 1,
	PLCUDA_NOTE_NOTICE,
	PLCUDA_NOTE_DEBUG,
} plcuda_note_level;

/* A message of a kernel. The host puts it together. */
typedef struct plcuda_note
{
	uint32_t	 level;
	char		 sqlstate[8]; /* of an error */
	char		 text[PLCUDA_TEXT_BYTES];
	plcuda_value values[PLCUDA_VALUES_MAX]; /* a text: u64 is where it is in bytes */
	char		 bytes[PLCUDA_TEXT_BYTES];
} plcuda_note;

#define PLCUDA_NOTES_MAX 32 /* of a call; later ones are counted */

/* What kernels report. Of several errors the first one counts. */
typedef struct plcuda_state
{
	uint32_t	raised; /* 1: error is one */
	uint32_t	noted;	/* notices and debug messages */
	plcuda_note error;
} plcuda_state;

/* In place of the OID of types whose OID differs between databases. */
#define PLCUDA_VECTOR  1u /* of pgvector, as */
#define PLCUDA_HALFVEC 2u
#define PLCUDA_ENUM	   3u		   /* any */
#define PLCUDA_UNREAD  0xffffffffu /* in place of a type: the function is not to read the column */

/* By attribute number - 1; type 0: dropped. */
typedef struct plcuda_column
{
	char		name[PLCUDA_NAME_BYTES];
	uint32_t	type;	/* OID, below any domain; or one of those above */
	uint32_t	stored; /* 0: no memory, every row is NULL */
	const char *values, *nulls, *bodies, *element_nulls; /* gvmem/table.h */
	uint64_t	bodies_bytes;
	uint64_t	uniform_bytes; /* values of one length: each so long, in values; 0: it is not so */
	uint32_t	count;		   /* their elements, or bits */
	int32_t		scale;		   /* of decimals */
	uint32_t	varying; /* values have a length each; in format 'arrow' only those of bytes */
} plcuda_column;

typedef struct plcuda_table
{
	uint64_t			 rows; /* numbers of rows; some may be deleted */
	const unsigned char *dead; /* bitmap, 1: not seen by the statement; 0 (NULL): all are */
	uint64_t			 dead_bytes;
	const unsigned char *deleted; /* likewise, on top of it: that of the table's version */
	uint64_t			 deleted_bytes;
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

#define PLCUDA_RAW_LENGTH_BITS \
	30 /* of the second word of a compressed value; above them the method, pglz's is 0 */

/* A value of a table that may be compressed: length bytes, which are raw_length bytes when they are not. */
typedef struct plcuda_compressed
{
	const char	 *value;
	uint32_t	  length, raw_length;
	char		  compressed, isnull;
	plcuda_state *state;
} plcuda_compressed;

typedef struct plcuda_call
{
	const char	 *arguments; /* PLCUDA_SLOT_BYTES each */
	char		 *result;	 /* a row; of a set 0 */
	char		 *results, *workbuf;
	uint64_t	  results_bytes, workbuf_bytes;
	plcuda_state *state;
	plcuda_note *notes; /* the first PLCUDA_NOTES_MAX that are no errors; 0 (NULL): none are kept */
	const struct gvm_append *append; /* of what the function appends; 0: nothing */
} plcuda_call;

typedef struct plcuda_params
{
	const plcuda_call *call;
} plcuda_params;

/* Parameter of the kernels that gather such values. */
typedef struct plcuda_gather
{
	const char			 *rows;
	char				 *copies; /* of the rows */
	char				 *bytes;  /* what they point to, from PLCUDA_GATHERED_AT on */
	const plcuda_pointer *pointers;
	uint32_t			  pointer_count, row_bytes; /* row_bytes: a multiple of 8 */
	uint64_t			  row_count;
	uint64_t			  group; /* threads for a row */
	uint64_t			 *total; /* words of bytes */
	plcuda_state		 *state;
} plcuda_gather;

#endif
