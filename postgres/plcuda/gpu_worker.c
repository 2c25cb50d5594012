/* See gpu_worker.h: start, connection, memory file. */
#include "postgres/plcuda/gpu_worker.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "postgres/spawned.h"
#include "postgres/spawner.h"

#define FIRST_WAIT_MS 60000
#define REST_MS		  1000

static struct
{
	uint8_t *bytes;
	uint64_t len;
} file;

/* ---- the memory file */

static bool
map_file(void)
{
	struct stat found;
	void	   *bytes;

	if (fstat(GSTORE_SPAWN_MEMORY, &found) != 0 || (uint64_t) found.st_size < sizeof(plcuda_window))
		return false;
	if ((uint64_t) found.st_size == file.len)
		return true;
	bytes = mmap(NULL, (size_t) found.st_size, PROT_READ | PROT_WRITE, MAP_SHARED,
				 GSTORE_SPAWN_MEMORY, 0);
	if (bytes == MAP_FAILED)
		return false;
	if (file.bytes != NULL)
		munmap(file.bytes, file.len);
	file.bytes = bytes;
	file.len = (uint64_t) found.st_size;
	return true;
}

plcuda_window *
plcuda_map_window(void)
{
	plcuda_window *window;

	if (!map_file())
		return NULL;
	window = (plcuda_window *) file.bytes;
	return window->magic == PLCUDA_MAGIC && window->version == PLCUDA_WIRE_VERSION ? window : NULL;
}

void *
plcuda_at(plcuda_span span)
{
	return span.at <= file.len && span.bytes <= file.len - span.at ? file.bytes + span.at : NULL;
}

void *
plcuda_append(uint64_t bytes, plcuda_span *span)
{
	const plcuda_span appended = {PLCUDA_ROUND_UP(((plcuda_window *) file.bytes)->used), bytes};

	if (appended.at + bytes > file.len &&
		(ftruncate(GSTORE_SPAWN_MEMORY, (off_t) (appended.at + bytes)) != 0 || !map_file()))
		return NULL;
	*span = appended;
	return plcuda_at(appended);
}

/* ---- answers */

void
plcuda_answer_error(plcuda_message *answer, const char *sqlstate, const char *format, ...)
{
	va_list arguments;

	answer->verb = PLCUDA_ERROR;
	snprintf(answer->sqlstate, sizeof answer->sqlstate, "%s", sqlstate);
	va_start(arguments, format);
	vsnprintf(answer->text, sizeof answer->text, format, arguments);
	va_end(arguments);
}

void
plcuda_answer_status(plcuda_message *answer, gvm_status status, const char *what)
{
	gvm_error error;

	gvm_error_last(&error);
	plcuda_answer_error(answer, gvm_status_sqlstate(status), "%s: %s %s", what, error.text,
						error.native_name);
	/* The context, or the connection to the keeper, is gone for good. */
	answer->lost = status == GVM_E_LOST || status == GVM_E_KEEPER;
}

/* ---- the connection */

static bool
wait_readable(int wait_ms)
{
	struct pollfd connection = {GSTORE_SPAWN_CONNECTION, POLLIN, 0};
	int			  ready;

	do
		ready = poll(&connection, 1, wait_ms);
	while (ready < 0 && errno == EINTR);
	return ready == 1;
}

/* False: the backend has closed it. */
static bool
receive(plcuda_message *message)
{
	return recv(GSTORE_SPAWN_CONNECTION, message, sizeof *message, 0) == (ssize_t) sizeof *message &&
		message->magic == PLCUDA_MAGIC;
}

/* False: it is none. */
static bool
take_request(bool compiles, uint32_t verb, plcuda_window *window, plcuda_message *answer)
{
	if (compiles != (verb == PLCUDA_COMPILE))
		return false;
	window->cache[sizeof window->cache - 1] = window->compiler[sizeof window->compiler - 1] = '\0';
	window->nvrtc[sizeof window->nvrtc - 1] = '\0';
	if (verb == PLCUDA_COMPILE)
		plcuda_compile(window, answer);
	else if (verb == PLCUDA_CALL)
		plcuda_run(window, answer);
	else if (verb == PLCUDA_FETCH)
		plcuda_fetch(answer);
	else if (verb == PLCUDA_INSPECT)
		plcuda_inspect(window, answer);
	else
		return false;
	return true;
}

static void
serve(bool compiles)
{
	int wait_ms = FIRST_WAIT_MS;

	for (;;)
	{
		plcuda_message message, answer = {.magic = PLCUDA_MAGIC, .verb = PLCUDA_DONE};
		plcuda_window *window;

		if (!wait_readable(wait_ms < REST_MS ? wait_ms : REST_MS))
		{
			if (wait_ms <= REST_MS)
				return;
			if (!compiles)
				plcuda_rest();
			if (!wait_readable(wait_ms - REST_MS))
				return;
		}
		if (!receive(&message))
			return;
		window = plcuda_map_window();
		if (window == NULL || !take_request(compiles, message.verb, window, &answer))
			return;
		/* Another address, if the file has grown. A backend may take long for the rows that it has got. */
		wait_ms = plcuda_has_rows() ? -1 : ((plcuda_window *) file.bytes)->idle_ms;
		if (send(GSTORE_SPAWN_CONNECTION, &answer, sizeof answer, MSG_NOSIGNAL) < 0 || answer.lost)
			return;
	}
}

int
main(int argc, char **argv)
{
	bool compiles;

	if (argc == 6 && strcmp(argv[1], "nvrtc") == 0)
		return plcuda_nvrtc_main(argv[2], argv[3], argv[4], argv[5]);
	if (argc != 4 || (strcmp(argv[1], "session") != 0 && strcmp(argv[1], "compile") != 0))
	{
		fputs("gstore-gpu-worker is started by gstore_fdw, for functions in the language plcuda\n",
			  stderr);
		return 2;
	}
	compiles = strcmp(argv[1], "compile") == 0;
	if (!gstore_spawned_begin(compiles ? GSTORE_SPAWN_MEMORY : GSTORE_SPAWN_KEEPER, argv[3]))
		return 1;
	/* pg_ctlcluster starts servers without it; a compiler is looked for there, and gcc finds its parts by it. */
	(void) setenv("PATH", "/usr/local/bin:/usr/bin:/bin", 0);
	serve(compiles);
	/* No clean-up: the driver gives everything back, and does not wait for work that is under way. */
	_exit(0);
}
