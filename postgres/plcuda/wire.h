/*
 * postgres/plcuda/wire.h - what a backend and its GPU worker exchange: messages over a connection, and a memory file that
 * both have.
 *
 * The backend makes the file and seals it against shrinking, so that no worker can take away what a backend has mapped.
 * It begins with a plcuda_window; offsets are from the file's start. A worker runs code of users: what it
 * writes is copied, then checked, then used.
 */
#ifndef PLCUDA_WIRE_H
#define PLCUDA_WIRE_H

#include "postgres/plcuda/types.h"

#define PLCUDA_MAGIC			0x61637570u
#define PLCUDA_WIRE_VERSION		2u
#define PLCUDA_ARGUMENTS_MAX	32
#define PLCUDA_TABLES_MAX		8
#define PLCUDA_COLUMNS_MAX		1664
#define PLCUDA_KERNELS			3 /* prep, main, post */
#define PLCUDA_MAIN				1
#define PLCUDA_TOKEN_BYTES		512
#define PLCUDA_PATH_BYTES		1024
#define PLCUDA_MESSAGE_BYTES	1024
#define PLCUDA_ROW_BYTES_MAX	65536
#define PLCUDA_NOTED_BYTES		512
#define PLCUDA_ALIGN			64
#define PLCUDA_APPEND_BYTES_MIN (4ull << 20) /* a chunk of the appender's at either end */

#define PLCUDA_TEXT_BYTES_MAX	(1u << 20)	/* of a function */
#define PLCUDA_LOG_BYTES_MAX	(32u << 10) /* of a compiler's messages */

typedef enum plcuda_verb
{
	/* to a worker of a session */
	PLCUDA_CALL = 1,
	PLCUDA_INSPECT, /* of a function, or without a text of the GPU alone */
	PLCUDA_FETCH,	/* more rows of the set that PLCUDA_CALL has begun */
	/* to one that compiles */
	PLCUDA_COMPILE,
	/* answers */
	PLCUDA_DONE,
	PLCUDA_NEED_IMAGE, /* to PLCUDA_CALL: the text is not in the cache */
	PLCUDA_LOG,	  /* to PLCUDA_COMPILE: the compiler has reported errors, which are in window.log */
	PLCUDA_ERROR, /* sqlstate and text */
} plcuda_verb;

typedef struct plcuda_message
{
	uint32_t magic;
	uint32_t verb;
	uint32_t lost;		   /* to PLCUDA_ERROR: 1, the worker ends */
	uint32_t architecture; /* to PLCUDA_NEED_IMAGE: of the GPU, as 90; 0: the software GPU, or not known */
	char sqlstate[8];
	char text[PLCUDA_MESSAGE_BYTES];
} plcuda_message;

typedef struct plcuda_span
{
	uint64_t at, bytes;
} plcuda_span;

/* What addresses an argument's slot is given. */
typedef enum plcuda_argument_kind
{
	PLCUDA_ARGUMENT_PLAIN = 1, /* none */
	PLCUDA_ARGUMENT_BYTES,	   /* pointers[].value are offsets in `bytes`, and become addresses */
	PLCUDA_ARGUMENT_TABLE,	   /* its first 8 bytes become the address of tables[table] */
} plcuda_argument_kind;

typedef struct plcuda_argument
{
	uint32_t	   kind;
	uint32_t	   table;
	plcuda_span	   bytes;
	uint32_t	   pointer_count;
	plcuda_pointer pointers[PLCUDA_POINTERS_MAX];
	uint8_t		   slot[PLCUDA_SLOT_BYTES];
} plcuda_argument;

typedef struct plcuda_wanted_column
{
	char	 name[PLCUDA_NAME_BYTES];
	uint32_t type; /* below any domain; 0: dropped; PLCUDA_UNREAD */
	uint32_t code; /* the same for kernels: PLCUDA_VECTOR ... */
} plcuda_wanted_column;

typedef struct plcuda_wanted_table
{
	char		token[PLCUDA_TOKEN_BYTES]; /* "": it has no rows */
	uint64_t	rows;
	plcuda_span dead; /* bitmap of rows that are not seen; no bytes: none */
	/* Another one on the device, at this offset in what the link "0.deleted" leads to; 0 bytes: there is none. */
	uint64_t	deleted_at, deleted_bytes;
	plcuda_span columns; /* plcuda_wanted_column, by attribute number */
} plcuda_wanted_table;

/* A message of a kernel, put together. */
typedef struct plcuda_noted
{
	uint32_t level; /* plcuda_note_level */
	char	 text[PLCUDA_NOTED_BYTES];
} plcuda_noted;

typedef struct plcuda_kernel
{
	uint32_t present;
	uint32_t block_threads; /* at most; 0: the worker chooses */
	uint64_t threads;
	uint64_t shared_block_bytes, shared_thread_bytes;
} plcuda_kernel;

/* What the driver says of a kernel; sizes in bytes. */
typedef struct plcuda_kernel_info
{
	int32_t block_threads;				   /* at most */
	int32_t registers;					   /* of a thread */
	int32_t static_shared, dynamic_shared; /* of a block: taken, and at most more */
	int32_t constant, local;			   /* of the kernel, of a thread */
} plcuda_kernel_info;

typedef struct plcuda_gpu_info
{
	char	 name[96];
	uint32_t architecture; /* 0: the software GPU */
	int32_t	 ordinal;
	int32_t	 multiprocessors, warp_threads, block_threads;
	int32_t	 block_registers, block_shared, constant;
	uint64_t memory;
} plcuda_gpu_info;

typedef struct plcuda_window
{
	uint32_t	magic, version;
	uint64_t	used; /* bytes of the file that mean something; what a worker adds comes behind */
	uint32_t	role; /* for whom: tables and buffers of another one's calls are given up */
	int32_t		idle_ms;					 /* until the worker ends by itself */
	plcuda_span text;						 /* of the function, made ready for the compiler */
	char		cache[PLCUDA_PATH_BYTES];	 /* folder of images */
	char		compiler[PLCUDA_PATH_BYTES]; /* for the software GPU */
	char		nvrtc[PLCUDA_PATH_BYTES];	 /* library; "": it is searched for */
	uint32_t	folder_mode, file_mode;		 /* of what is made in it, as of the data directory */
	uint64_t	cache_bytes;				 /* most that it may have */
	/* of PLCUDA_COMPILE */
	uint32_t	architecture; /* 0: of the first GPU */
	uint32_t	compile_s;
	uint64_t	compile_bytes;
	plcuda_span log;
	/* of PLCUDA_CALL */
	uint32_t			argument_count, table_count;
	plcuda_argument		arguments[PLCUDA_ARGUMENTS_MAX];
	plcuda_wanted_table tables[PLCUDA_TABLES_MAX];
	plcuda_kernel		kernels[PLCUDA_KERNELS];
	uint64_t			results_bytes, workbuf_bytes;
	/* the result: rows of one size, of which a set has any number */
	uint32_t	row_bytes;
	uint32_t	returns_set, appends_bytes;
	plcuda_span row; /* NULLs, with which the kernels of a function that returns no set begin */
	plcuda_span pointers;	  /* plcuda_pointer: values of variable length in a row */
	uint64_t	append_bytes; /* most that may be appended; 0: nothing is */
	/* out: all rows; those that this answer has, the next ones; what these point to, by offsets in place of addresses */
	uint64_t	row_count;
	plcuda_span rows, bytes;
	/* out, of PLCUDA_INSPECT */
	plcuda_kernel_info kernel_info[PLCUDA_KERNELS];
	plcuda_gpu_info	   gpu;
	/* out: messages, also where the call fails; those that are counted beyond are lost */
	uint32_t	 noted_count;
	plcuda_noted noted[PLCUDA_NOTES_MAX];
} plcuda_window;

#define PLCUDA_ROUND_UP(n) (((n) + PLCUDA_ALIGN - 1) / PLCUDA_ALIGN * PLCUDA_ALIGN)

#define PLCUDA_TEXT_AT	   PLCUDA_ROUND_UP(sizeof(plcuda_window)) /* where a backend puts the text */

#endif
