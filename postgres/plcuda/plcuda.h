/* postgres/plcuda/plcuda.h - what the files of the extension plcuda share: functions as they are defined, and how they are run. */
#ifndef PLCUDA_H
#define PLCUDA_H

#include "postgres.h"

#include "access/tupdesc.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "nodes/pg_list.h"

#include "postgres/call.h"
#define pg_time_t plcuda_time_t /* PostgreSQL has another type of that name */
#include "postgres/plcuda/wire.h"
#undef pg_time_t

/* ---- settings (handler.c) */

extern int	 plcuda_time_limit_ms; /* of a call; 0: none */
extern int	 plcuda_idle_timeout_s;
extern int	 plcuda_buffer_mb; /* most of results and work buffer together */
extern int	 plcuda_cache_mb;
extern int	 plcuda_compile_time_s;
extern int	 plcuda_compile_memory_mb;
extern char *plcuda_compiler;
extern char *plcuda_nvrtc;

/* ERROR where gstore_fdw is not preloaded. */
extern const gstore_call_api *plcuda_gstore(void);

/* ---- types and values (values.c) */

typedef enum plcuda_kind
{
	PLCUDA_KIND_VALUE,	 /* of fixed length, in the slot itself */
	PLCUDA_KIND_ENUM,	 /* likewise */
	PLCUDA_KIND_BYTES,	 /* pg_text_t */
	PLCUDA_KIND_BITS,	 /* pg_varbit_t */
	PLCUDA_KIND_VECTOR,	 /* pg_vector_t */
	PLCUDA_KIND_HALFVEC, /* pg_halfvec_t */
	PLCUDA_KIND_NUMERIC, /* pg_numeric_t */
	PLCUDA_KIND_ARRAY,	 /* pg_array_t */
	PLCUDA_KIND_TABLE,	 /* pg_reggstore_t, as an argument alone */
} plcuda_kind;

/* A slot is a struct pg_NAME_t, as kernels have values of the type. */
typedef struct plcuda_type
{
	Oid			   oid; /* InvalidOid: it differs between databases */
	const char	  *name;
	plcuda_kind	   kind;
	int16		   length;	/* of a value, as in pg_type */
	Oid			   element; /* of arrays */
	uint16		   element_bytes;
	uint16		   slot_bytes, slot_align, isnull_at;
	uint16		   pointer_count; /* what a slot points to; 0: nothing */
	plcuda_pointer pointers[PLCUDA_POINTERS_MAX];
} plcuda_type;

/* What the addresses of a slot point to. The slot has offsets in these bytes in place of addresses (plcuda_pointer). */
typedef struct plcuda_bytes
{
	const void *at;
	Size		count;
} plcuda_bytes;

/* Of a type, or the type that a domain is over. NULL: there is none. */
extern const plcuda_type *plcuda_find_type(Oid oid);
/* How kernels know the type of a column, which is no domain: its OID, or PLCUDA_VECTOR and so on. */
extern uint32 plcuda_type_code(Oid base);
extern void	  plcuda_null_to_slot(const plcuda_type *type, void *slot);
/* For all types but reggstore and void. */
extern void
plcuda_datum_to_slot(const plcuda_type *type, Datum value, void *slot, plcuda_bytes *pointed);
/*
 * A value of the type with that OID, which may be a domain; palloc'd. The slot is a copy, the bytes may be those of a window.
 * ERROR if it is no value of the type.
 */
extern Datum plcuda_slot_to_datum(const plcuda_type *type, Oid oid, const void *slot,
								  plcuda_bytes pointed, bool *null);
/* The function that applies a modifier, as varchar(3) has one; none: *coercion is unchanged. */
extern void plcuda_find_coercion(Oid base, int32 typmod, FmgrInfo *coercion);
/* The value may be changed in place. */
extern Datum plcuda_coerce(const plcuda_type *type, FmgrInfo *coercion, int32 typmod, Datum value);

/* ---- what functions return (row.c) */

typedef struct plcuda_row_column
{
	const plcuda_type *type;   /* NULL: dropped */
	Oid				   oid;	   /* as declared */
	const char		  *member; /* of the struct; NULL: the row is the slot */
	uint32			   at;	   /* of its slot in the row */
	int32			   typmod;
	FmgrInfo		   coercion; /* to typmod; without OID: none */
} plcuda_row_column;

typedef struct plcuda_row
{
	Oid				   type; /* as declared */
	bool			   set, composite;
	TupleDesc		   desc; /* of a value that is not composite, too */
	plcuda_row_column *columns;
	int				   count, pointer_count;
	uint32			   bytes;
} plcuda_row;

/* Of a function in the catalog. ERROR if kernels cannot have such rows. */
extern void plcuda_read_row(Oid function, bool set, plcuda_row *row);
/* The declaration of plcuda_row, in C; of a set also that of plcuda_clear_row(). */
extern void plcuda_append_row_type(StringInfo out, const plcuda_row *row);
/* NULLs. */
extern void plcuda_null_row(const plcuda_row *row, void *to);
/* pointer_count of them. */
extern void plcuda_list_pointers(const plcuda_row *row, plcuda_pointer *pointers);
/* Of a copy of a row whose addresses are offsets in `all`, which may be a window's. ERROR if it has other values. */
extern void plcuda_row_to_datums(const plcuda_row *row, const char *from, plcuda_bytes all,
								 Datum *values, bool *nulls);

/* ---- functions (source.c) */

/* A number, or a function of the same arguments that returns it. */
typedef struct plcuda_size
{
	int64 value;
	Oid	  function; /* InvalidOid: value */
} plcuda_size;

typedef struct plcuda_block
{
	bool		present;
	plcuda_size threads, block_threads, shared_block, shared_thread;
} plcuda_block;

typedef struct plcuda_function
{
	Oid					oid, schema;
	char			   *name;
	int					nargs;
	Oid				   *argument_types; /* as declared */
	const plcuda_type **arguments;
	plcuda_row			row;
	bool				appends_bytes; /* by plcuda_append_bytes() */
	plcuda_block		blocks[PLCUDA_KERNELS];
	List **columns; /* of each argument: the names that a table's columns to be read have; NIL: all are */
	plcuda_size results, workbuf;
	Oid			sanity_check, cpu_fallback; /* InvalidOid: none */
	List	   *includes;					/* functions whose texts are included */
	char	   *text;						/* for the compiler, without these */
	Size		include_at;					/* where they belong in text */
} plcuda_function;

/* Of the catalog; palloc'd. ERROR if it is no function that can be run. */
extern plcuda_function *plcuda_read_function(Oid oid);
/* f->text with what its includes have returned, in their order. ERROR if it is not fit for the compiler. */
extern char *plcuda_include_texts(const plcuda_function *f, const List *texts);

/* ---- workers (session.c) */

/* Compiles the text, if it is not in the cache. architecture 0: of the first GPU. */
extern void plcuda_compile_text(const char *text, uint32 architecture);

/*
 * A window for a call, of so many bytes, undefined and with room for the text at PLCUDA_TEXT_AT; the worker of this session is
 * started if there is none. ERROR if none can be. The worker can write to it at any time: what is read from it is checked.
 */
extern plcuda_window *plcuda_begin_call(Size bytes);
/*
 * Runs the call, or another verb of a session's worker: the window has its answer; NULL: the function asks for its CPU
 * fallback. ERROR if it fails. The worker is ended then, unless a kernel has raised the error.
 */
extern plcuda_window *plcuda_run_call(plcuda_verb verb, const char *text);
/* The window with the next rows of a set. ERROR if there are none. The worker is ended then. */
extern plcuda_window *plcuda_fetch_rows(void);
/* Bytes that the worker has added. ERROR if there are none. */
extern plcuda_bytes plcuda_call_bytes(const plcuda_span *span);
/* ERROR: the worker's answer makes no sense. */
extern void plcuda_fail_result(void) pg_attribute_noreturn();
/* After plcuda_run_call(). Once all rows are copied: gives back memory of large results; else the worker is ended. */
extern void plcuda_end_call(bool complete);

/* ---- calls (call.c) */

/* NULL: it depends on arguments, and fcinfo is NULL. */
extern const char *plcuda_call_text(const plcuda_function *f, FunctionCallInfo fcinfo);
extern Datum	   plcuda_call_function(const plcuda_function *f, FunctionCallInfo fcinfo);
/* ERROR if the caller has no EXECUTE. */
extern void plcuda_check_execute(Oid function);

/* ---- questions (inspect.c) */

/* The kernel whose sizes are being evaluated: functions that do so may ask about it. */
typedef struct plcuda_evaluated
{
	const plcuda_function *function;
	const char			  *text; /* of this call */
	int					   kernel;
} plcuda_evaluated;

extern const plcuda_evaluated *plcuda_evaluated_now; /* NULL: none */

#endif
