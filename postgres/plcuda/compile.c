/*
 * See gpu_worker.h: compiles one text into the cache of images. The compiler is a child with limits of its own, in a
 * folder that is removed afterwards; one that was left by a killed worker is removed by the next.
 */
#include "postgres/plcuda/gpu_worker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define OUTPUT_BYTES_MAX (128u << 20)
#define NOT_RUN			 126 /* the child's status: there is no compiler */

typedef struct compilation
{
	char folder[PLCUDA_PATH_BYTES + 32];
	char from[PLCUDA_PATH_BYTES + 64], to[PLCUDA_PATH_BYTES + 64], log[PLCUDA_PATH_BYTES + 64];
} compilation;

/* ---- the GPU */

static int
ask_driver(int *major, int *minor)
{
	int (*init)(unsigned flags);
	int (*get)(int *device, int ordinal);
	int (*attribute)(int *value, int which, int device);
	const struct
	{
		const char *name;
		void	   *call;
	} calls[] = {{"cuInit", &init}, {"cuDeviceGet", &get}, {"cuDeviceGetAttribute", &attribute}};
	int device, result;

	for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
	{
		void (*found)(void);

		if (gvm_driver_get_call(calls[i].name, &found) != GVM_OK)
			return -1;
		memcpy(calls[i].call, &found, sizeof found);
	}
	if ((result = init(0)) != 0 || (result = get(&device, 0)) != 0 ||
		(result = attribute(major, 75, device)) != 0)
		return result;
	return attribute(minor, 76, device);
}

/* Without a context: that would take long. False: answer says why. */
static bool
find_architecture(const plcuda_window *window, uint32_t *out, plcuda_message *answer)
{
	gvm_driver_info	 info = {.struct_size = sizeof info};
	const gvm_status status = gvm_driver_get_info(&info);
	int				 major, minor, result;

	*out = window->architecture;
	if (status != GVM_OK)
	{
		plcuda_answer_status(answer, status, "cannot load a driver");
		return false;
	}
	if (info.software || *out != 0)
		return true;
	result = ask_driver(&major, &minor);
	if (result != 0)
	{
		plcuda_answer_error(
			answer, "58000",
			"cannot read the compute capability of GPU 0: the driver returned error %d", result);
		return false;
	}
	*out = (uint32_t) (major * 10 + minor);
	return true;
}

/* ---- the folder */

static void
remove_folder(const char *path)
{
	DIR			  *folder = opendir(path);
	struct dirent *d;

	while (folder != NULL && (d = readdir(folder)) != NULL)
		(void) unlinkat(dirfd(folder), d->d_name, 0);
	if (folder != NULL)
		closedir(folder);
	(void) rmdir(path);
}

/* Removes what killed workers have left: PLCUDA_TEMPORARY with their process number. */
static void
remove_left(const char *cache)
{
	DIR			  *folder = opendir(cache);
	struct dirent *d;
	char		   path[PLCUDA_PATH_BYTES + 300];

	while (folder != NULL && (d = readdir(folder)) != NULL)
	{
		char *end = "";
		long  pid = 0;

		if (strncmp(d->d_name, PLCUDA_TEMPORARY, strlen(PLCUDA_TEMPORARY)) == 0)
			pid = strtol(d->d_name + strlen(PLCUDA_TEMPORARY), &end, 10);
		if (pid <= 0 || kill((pid_t) pid, 0) == 0 || errno != ESRCH)
			continue;
		snprintf(path, sizeof path, "%s/%s", cache, d->d_name);
		if (*end == '\0')
			remove_folder(path);
		else
			(void) unlink(path);
	}
	if (folder != NULL)
		closedir(folder);
}

static bool
write_text(const char *path, const char *text, size_t len)
{
	FILE *out = fopen(path, "wbe");
	bool  written = out != NULL && fwrite(text, 1, len, out) == len;

	if (out != NULL && fclose(out) != 0)
		written = false;
	return written;
}

static bool
make_folder(const plcuda_window *window, compilation *w)
{
	struct stat found;

	(void) mkdir(window->cache, window->folder_mode);
	if (stat(window->cache, &found) != 0 || !S_ISDIR(found.st_mode) || found.st_uid != geteuid())
		return false;
	remove_left(window->cache);
	snprintf(w->folder, sizeof w->folder, "%.*s/" PLCUDA_TEMPORARY "%ld", PLCUDA_PATH_BYTES - 1,
			 window->cache, (long) getpid());
	remove_folder(w->folder); /* of a killed process with the same number */
	snprintf(w->from, sizeof w->from, "%s/function.c", w->folder);
	snprintf(w->to, sizeof w->to, "%s/image", w->folder);
	snprintf(w->log, sizeof w->log, "%s/log", w->folder);
	return mkdir(w->folder, window->folder_mode) == 0 &&
		write_text(w->from, plcuda_at(window->text), window->text.bytes);
}

/* ---- the compiler */

/* A process that is beyond `value` is told so by a signal, and one beyond `most` killed, where there is a difference. */
static void
limit(int what, uint64_t value, uint64_t most)
{
	const struct rlimit l = {value, most};

	(void) setrlimit((__rlimit_resource_t) what, &l);
}

/* Runs in the child. */
static void
become_compiler(const plcuda_window *window, const plcuda_target *target, const compilation *w,
				pid_t parent)
{
	char include[PLCUDA_PATH_BYTES + 16], self[PLCUDA_PATH_BYTES], number[16],
		temporary[PLCUDA_PATH_BYTES + 64];
	const int	  log = open(w->log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, window->file_mode);
	const ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
	/* As the project's own kernels; what is not declared is an error, not one when the image is loaded. */
	char *c[] = {(char *) window->compiler,
				 "-shared",
				 "-fPIC",
				 "-O2",
				 "-std=gnu11",
				 "-ffp-contract=off",
				 "-fno-strict-aliasing",
				 "-fno-diagnostics-color",
				 "-Werror=implicit-function-declaration",
				 "-Wl,-z,defs",
				 include,
				 "-o",
				 (char *) w->to,
				 (char *) w->from,
				 "-lm",
				 NULL};
	char *nvrtc[] = {self,			 "nvrtc", (char *) window->nvrtc, number, (char *) w->from,
					 (char *) w->to, NULL};

	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 ||
		getppid() != parent) /* fork() has cleared what the worker has */
		_exit(NOT_RUN);
	if (log < 0 || len < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
		_exit(NOT_RUN);
	self[len] = '\0';
	snprintf(include, sizeof include, "-I%s", plcuda_include_folder());
	snprintf(number, sizeof number, "%u", target->architecture);
	snprintf(temporary, sizeof temporary, "%s", w->folder);
	setenv("TMPDIR", temporary, 1);
	setenv("LC_ALL", "C", 1);
	limit(RLIMIT_CORE, 0, 0);
	limit(RLIMIT_FSIZE, OUTPUT_BYTES_MAX, OUTPUT_BYTES_MAX);
	limit(RLIMIT_CPU, window->compile_s, (uint64_t) window->compile_s + 1);
	limit(RLIMIT_AS, window->compile_bytes, window->compile_bytes);
	if (target->architecture == 0)
		execvp(c[0], c);
	else
		execv(self, nvrtc);
	_exit(NOT_RUN);
}

/* GCC's driver ends as after any error where a process that it has started was stopped; it names the signal, in the C locale. */
static bool
is_late(int status, const compilation *w)
{
	static const char said[] = "CPU time limit exceeded";
	size_t			  len = 0;
	void			 *text;
	bool			  late;

	if (WIFSIGNALED(status))
		return WTERMSIG(status) == SIGXCPU;
	text = plcuda_read_file(w->log, PLCUDA_LOG_BYTES_MAX, &len);
	late = text != NULL && memmem(text, len, said, sizeof said - 1) != NULL;
	free(text);
	return late;
}

/* The image is in w->to: true. */
static bool
run_compiler(const plcuda_window *window, const plcuda_target *target, const compilation *w,
			 plcuda_message *answer)
{
	const pid_t worker = getpid(), child = fork();
	int			status = 0;

	if (child == 0)
		become_compiler(window, target, w, worker);
	if (child < 0 || waitpid(child, &status, 0) != child)
	{
		plcuda_answer_error(answer, "58000", "cannot start a compiler: %s", strerror(errno));
		return false;
	}
	if (status != 0 && is_late(status, w))
		plcuda_answer_error(answer, "54000",
							"the compiler was stopped after %u s: its limit is plcuda.compile_time",
							window->compile_s);
	else if (WIFSIGNALED(status))
		plcuda_answer_error(
			answer, "54000",
			"the compiler was stopped by signal %d: its limits are plcuda.compile_time and plcuda.compile_memory",
			WTERMSIG(status));
	else if (WEXITSTATUS(status) == NOT_RUN)
		plcuda_answer_error(answer, "58P01", "cannot run the compiler \"%s\"",
							target->architecture == 0 ? window->compiler : "libnvrtc");
	else if (WEXITSTATUS(status) != 0)
		answer->verb = PLCUDA_LOG;
	else
		return true;
	return false;
}

/* Copies the compiler's messages into the memory file. */
static void
answer_log(plcuda_window *window, const compilation *w, plcuda_message *answer)
{
	size_t		len = 0;
	void	   *text = plcuda_read_file(w->log, PLCUDA_LOG_BYTES_MAX, &len);
	plcuda_span span = {0, 0};
	void	   *to = text != NULL ? plcuda_append(len, &span) : NULL;

	if (to == NULL)
		plcuda_answer_error(answer, "53200", "no memory for the compiler's messages");
	else
	{
		memcpy(to, text, len);
		window = plcuda_map_window(); /* the file has become longer */
		window->log = span;
	}
	free(text);
}

void
plcuda_compile(plcuda_window *window, plcuda_message *answer)
{
	const char	 *text = plcuda_at(window->text);
	plcuda_target target;
	plcuda_image  image;
	compilation	  w;
	uint32_t	  architecture;
	size_t		  len = 0;
	void		 *bytes = NULL;

	if (text == NULL || !find_architecture(window, &architecture, answer) ||
		!plcuda_choose_target(window, architecture, &target, answer))
		return;
	if (plcuda_load_image(window, &target, text, window->text.bytes, &image))
	{
		free(image.file);
		return;
	}
	if (!make_folder(window, &w))
	{
		plcuda_answer_error(answer, "58030",
							"cannot write to the folder of compiled functions, \"%s\": %s",
							window->cache, strerror(errno));
		return;
	}
	if (run_compiler(window, &target, &w, answer))
	{
		bytes = plcuda_read_file(w.to, OUTPUT_BYTES_MAX, &len);
		if (bytes == NULL || !plcuda_store_image(window, &target, text, window->text.bytes, bytes, len))
			plcuda_answer_error(answer, "58030", "cannot store a compiled function in \"%s\": %s",
								window->cache, strerror(errno));
	}
	else if (answer->verb == PLCUDA_LOG)
		answer_log(window, &w, answer);
	free(bytes);
	remove_folder(w.folder);
}
