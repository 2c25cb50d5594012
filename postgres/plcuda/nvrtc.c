/* See gpu_worker.h: NVIDIA's run-time compiler, by dlopen(). It needs no GPU and no driver. */
#include "postgres/plcuda/gpu_worker.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct _nvrtcProgram *program;

static struct
{
	int (*version)(int *major, int *minor);
	int (*create)(program *p, const char *text, const char *name, int headers,
				  const char *const *sources, const char *const *names);
	int (*compile)(program p, int count, const char *const *options);
	int (*log_size)(program p, size_t *size);
	int (*log)(program p, char *text);
	int (*cubin_size)(program p, size_t *size);
	int (*cubin)(program p, char *bytes);
	const char *(*error)(int result);
} nvrtc;

static void *
open_library(const char *library)
{
	static const char *const names[] = {"libnvrtc.so.13",
										"libnvrtc.so.12",
										"libnvrtc.so",
										"/usr/local/cuda/lib64/libnvrtc.so.13",
										"/usr/local/cuda/lib64/libnvrtc.so.12",
										"/usr/local/cuda/lib64/libnvrtc.so"};
	void					*handle = NULL;

	if (library[0] != '\0')
		return dlopen(library, RTLD_NOW | RTLD_LOCAL);
	for (size_t i = 0; i < sizeof names / sizeof names[0] && handle == NULL; i++)
		handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	return handle;
}

static bool
load(const char *library)
{
	const struct
	{
		const char *name;
		void	   *call;
	} calls[] = {
		{"nvrtcVersion", &nvrtc.version},		 {"nvrtcCreateProgram", &nvrtc.create},
		{"nvrtcCompileProgram", &nvrtc.compile}, {"nvrtcGetProgramLogSize", &nvrtc.log_size},
		{"nvrtcGetProgramLog", &nvrtc.log},		 {"nvrtcGetCUBINSize", &nvrtc.cubin_size},
		{"nvrtcGetCUBIN", &nvrtc.cubin},		 {"nvrtcGetErrorString", &nvrtc.error},
	};
	void *handle = open_library(library);

	for (size_t i = 0; handle != NULL && i < sizeof calls / sizeof calls[0]; i++)
	{
		void *found = dlsym(handle, calls[i].name);

		if (found == NULL)
			return false;
		memcpy(calls[i].call, &found, sizeof found);
	}
	return handle != NULL;
}

bool
plcuda_nvrtc_version(const char *library, char *text, size_t size)
{
	int major, minor;

	if (!load(library) || nvrtc.version(&major, &minor) != 0)
		return false;
	snprintf(text, size, "nvrtc %d.%d", major, minor);
	return true;
}

static char *
read_text(const char *path)
{
	FILE *in = fopen(path, "rbe");
	char *text = calloc(1, PLCUDA_TEXT_BYTES_MAX * 2);

	bool read = in != NULL && text != NULL && fread(text, 1, PLCUDA_TEXT_BYTES_MAX * 2 - 1, in) > 0;

	if (in != NULL)
		fclose(in);
	return read ? text : NULL;
}

static void
print_log(program p)
{
	size_t size = 0;
	char  *text;

	if (nvrtc.log_size(p, &size) != 0 || size <= 1 || (text = calloc(1, size + 1)) == NULL)
		return;
	if (nvrtc.log(p, text) == 0)
		puts(text);
	free(text);
}

static bool
write_cubin(program p, const char *to)
{
	size_t size = 0;
	char  *bytes;
	FILE  *out;
	bool   written;

	if (nvrtc.cubin_size(p, &size) != 0 || size == 0 || (bytes = malloc(size)) == NULL)
		return false;
	out = fopen(to, "wbe");
	written = nvrtc.cubin(p, bytes) == 0 && out != NULL && fwrite(bytes, 1, size, out) == size;
	if (out != NULL && fclose(out) != 0)
		written = false;
	free(bytes);
	return written;
}

int
plcuda_nvrtc_main(const char *library, const char *architecture, const char *from, const char *to)
{
	char folder[PLCUDA_PATH_BYTES + 16], target[64];
	/* Without contraction, as the C compiler: results are the same on both. */
	const char *options[] = {folder, target, "--std=c++17", "--fmad=false"};
	char	   *text = read_text(from);
	program		p;
	int			result;

	if (!load(library) || text == NULL)
		return 126;
	snprintf(folder, sizeof folder, "-I%s", plcuda_include_folder());
	snprintf(target, sizeof target, "--gpu-architecture=sm_%s", architecture);
	result = nvrtc.create(&p, text, "plcuda.cu", 0, NULL, NULL);
	if (result == 0)
	{
		result = nvrtc.compile(p, 4, options);
		print_log(p);
	}
	if (result != 0)
		printf("%s\n", nvrtc.error(result));
	return result == 0 && write_cubin(p, to) ? 0 : 1;
}
