/*
 * See gpu_worker.h: compiled images on disk. A file holds its whole key, so that what is found is what was asked for,
 * and a checksum; its name is the key's checksum. It is written under another name and renamed.
 */
#include "postgres/plcuda/gpu_worker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#define IMAGE_MAGIC		UINT64_C(0x0131656761636c70)
#define IMAGE_BYTES_MAX (256u << 20)
#define FILES_MAX		65536

typedef struct head
{
	uint64_t magic;
	uint64_t key_bytes, image_bytes;
	uint64_t checksum; /* of what follows */
} head;

static const char *const headers[] = {"device.h",
									  "slots.h",
									  "types.h",
									  "append.h",
									  "set.h",
									  "gather.h",
									  "device/dates.h",
									  "device/numeric.h",
									  "device/order.h",
									  "device/pglz.h",
									  "device/reduce.h",
									  "device/sort.h",
									  "device/text.h",
									  "device/threads.h",
									  "device/values.h",
									  "gvmem/append.h",
									  "gvmem/device/kernel.h",
									  "gvmem/device/appender.h",
									  "gvmem/device/detail/types.h",
									  "gvmem/device/detail/appender.h",
									  "gvmem/device/detail/poller.h"};

/* ---- what decides about an image */

const char *
plcuda_include_folder(void)
{
	static char path[PLCUDA_PATH_BYTES];
	char	   *slash;
	ssize_t		len;

	if (path[0] != '\0')
		return path;
	len = readlink("/proc/self/exe", path, sizeof path - 16);
	if (len < 0)
		len = 0;
	path[len] = '\0';
	slash = strrchr(path, '/');
	strcpy(slash != NULL ? slash : path, "/include");
	return path;
}

void *
plcuda_read_file(const char *path, size_t most, size_t *len)
{
	FILE	   *in = fopen(path, "rbe");
	struct stat found;
	void	   *bytes = NULL;

	if (in != NULL && fstat(fileno(in), &found) == 0)
	{
		*len = (uint64_t) found.st_size < most ? (size_t) found.st_size : most;
		if (posix_memalign(&bytes, PLCUDA_ALIGN, *len + PLCUDA_ALIGN) == 0)
			*len = fread(bytes, 1, *len, in);
	}
	if (in != NULL)
		fclose(in);
	return bytes;
}

static bool
sum_headers(uint64_t *sum)
{
	*sum = 0;
	for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++)
	{
		char	 path[PLCUDA_PATH_BYTES + 64];
		size_t	 len;
		uint8_t *bytes;

		snprintf(path, sizeof path, "%s/%s", plcuda_include_folder(), headers[i]);
		bytes = plcuda_read_file(path, IMAGE_BYTES_MAX, &len);
		if (bytes == NULL)
			return false;
		*sum = *sum * 31 + gvm_kernel_checksum_host(bytes, len);
		free(bytes);
	}
	return true;
}

/* The file that the name stands for, so that another compiler makes another image. */
static bool
identify_compiler(const char *name, char *text, size_t size)
{
	const char *folders = strchr(name, '/') != NULL ? "" : getenv("PATH"); /* main() sets one */
	char		path[PLCUDA_PATH_BYTES];
	struct stat found;

	for (const char *at = folders;; at++)
	{
		const int len = (int) strcspn(at, ":");

		if (len > 0)
			snprintf(path, sizeof path, "%.*s/%s", len, at, name);
		else
			snprintf(path, sizeof path, "%s", name);
		if (stat(path, &found) == 0 && S_ISREG(found.st_mode) && access(path, X_OK) == 0)
			break;
		at += len;
		if (*at == '\0')
			return false;
	}
	snprintf(text, size, "%s %lld %lld", path, (long long) found.st_size, (long long) found.st_mtime);
	return true;
}

bool
plcuda_choose_target(const plcuda_window *window, uint32_t architecture, plcuda_target *out,
					 plcuda_message *answer)
{
	char		   compiler[PLCUDA_PATH_BYTES + 64];
	struct utsname machine;
	uint64_t	   sum;

	if (!sum_headers(&sum))
	{
		plcuda_answer_error(answer, "58P01",
							"the headers of plcuda are not in %s: install the extension again",
							plcuda_include_folder());
		return false;
	}
	if (architecture == 0 && !identify_compiler(window->compiler, compiler, sizeof compiler))
	{
		plcuda_answer_error(
			answer, "58P01",
			"no C compiler \"%s\" for functions on the software GPU: install one, or set plcuda.compiler",
			window->compiler);
		return false;
	}
	if (architecture != 0 && !plcuda_nvrtc_version(window->nvrtc, compiler, sizeof compiler))
	{
		plcuda_answer_error(
			answer, "58P01",
			"libnvrtc, which compiles functions for GPUs, is not found: install it, or set plcuda.nvrtc");
		return false;
	}
	uname(&machine);
	out->architecture = architecture;
	if (architecture == 0)
		snprintf(out->text, sizeof out->text, "soft %.64s %016llx %s", machine.machine,
				 (unsigned long long) sum, compiler);
	else
		snprintf(out->text, sizeof out->text, "sm_%u %016llx %s", architecture,
				 (unsigned long long) sum, compiler);
	return true;
}

/* ---- files */

static char *
make_key(const plcuda_target *target, const char *text, size_t text_bytes, size_t *len)
{
	const size_t before = strlen(target->text) + 1;
	char		*key = malloc(before + text_bytes);

	if (key != NULL)
	{
		memcpy(key, target->text, before);
		memcpy(key + before, text, text_bytes);
		*len = before + text_bytes;
	}
	return key;
}

static void
name_file(const plcuda_window *window, const char *key, size_t len, char path[PLCUDA_PATH_BYTES + 64])
{
	snprintf(path, PLCUDA_PATH_BYTES + 64, "%.*s/%016llx.image", PLCUDA_PATH_BYTES - 1,
			 window->cache, (unsigned long long) gvm_kernel_checksum_host(key, len));
}

bool
plcuda_load_image(const plcuda_window *window, const plcuda_target *target, const char *text,
				  size_t text_bytes, plcuda_image *out)
{
	char	 path[PLCUDA_PATH_BYTES + 64];
	size_t	 key_bytes, len = 0;
	char	*key = make_key(target, text, text_bytes, &key_bytes);
	uint8_t *file = NULL;
	head	 h;
	bool	 found = false;

	if (key == NULL)
		return false;
	name_file(window, key, key_bytes, path);
	file = plcuda_read_file(path, IMAGE_BYTES_MAX, &len);
	if (file == NULL)
		goto done;
	if (len >= sizeof h)
		memcpy(&h, file, sizeof h);
	found = len >= sizeof h && h.magic == IMAGE_MAGIC && h.key_bytes == key_bytes &&
		h.image_bytes <= IMAGE_BYTES_MAX && len - sizeof h == key_bytes + h.image_bytes &&
		memcmp(file + sizeof h, key, key_bytes) == 0 &&
		h.checksum == gvm_kernel_checksum_host(file + sizeof h, len - sizeof h);
	if (found)
	{
		/* The driver requires an aligned image: it is moved to the front. */
		memmove(file, file + sizeof h + key_bytes, h.image_bytes);
		*out = (plcuda_image){.file = file, .bytes = file, .len = h.image_bytes};
		(void) utimensat(AT_FDCWD, path, NULL, 0); /* the time of its last use */
	}
	else
		free(file);
done:
	free(key);
	return found;
}

static bool
write_all(int fd, const void *bytes, size_t len)
{
	const char *at = bytes;

	while (len > 0)
	{
		const ssize_t written = write(fd, at, len);

		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			return false;
		at += written;
		len -= (size_t) written;
	}
	return true;
}

/* ---- bounds */

typedef struct entry
{
	char			name[32];
	struct timespec used;
	uint64_t		bytes;
} entry;

static int
compare_entries(const void *a, const void *b)
{
	const entry *x = a, *y = b;

	if (x->used.tv_sec != y->used.tv_sec)
		return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
	return (x->used.tv_nsec > y->used.tv_nsec) - (x->used.tv_nsec < y->used.tv_nsec);
}

static size_t
list_entries(DIR *folder, entry **out, uint64_t *total)
{
	struct dirent *d;
	size_t		   count = 0, places = 0;

	while (count < FILES_MAX && (d = readdir(folder)) != NULL)
	{
		const size_t len = strlen(d->d_name);
		struct stat	 found;

		if (len >= sizeof(*out)->name || len < 6 || strcmp(d->d_name + len - 6, ".image") != 0 ||
			fstatat(dirfd(folder), d->d_name, &found, AT_SYMLINK_NOFOLLOW) != 0)
			continue;
		if (count == places)
		{
			entry *more = realloc(*out, (places + 256) * sizeof *more);

			if (more == NULL)
				break;
			*out = more;
			places += 256;
		}
		(*out)[count] = (entry){.used = found.st_mtim, .bytes = (uint64_t) found.st_size};
		memcpy((*out)[count++].name, d->d_name, len + 1);
		*total += (uint64_t) found.st_size;
	}
	return count;
}

/* Removes the least recently used ones, while the cache is too large, but not the one that was made now: after the clock was set back
 * others may be of a later time. */
static void
bound_cache(const plcuda_window *window, const char *made)
{
	DIR		*folder = opendir(window->cache);
	entry	*all = NULL;
	uint64_t total = 0;
	size_t	 count;

	if (folder == NULL)
		return;
	count = list_entries(folder, &all, &total);
	if (total > window->cache_bytes)
		qsort(all, count, sizeof *all, compare_entries);
	for (size_t i = 0; i < count && total > window->cache_bytes; i++)
		if (strcmp(all[i].name, made) != 0 && unlinkat(dirfd(folder), all[i].name, 0) == 0)
			total -= all[i].bytes;
	free(all);
	closedir(folder);
}

bool
plcuda_store_image(const plcuda_window *window, const plcuda_target *target, const char *text,
				   size_t text_bytes, const void *image, size_t len)
{
	char	 path[PLCUDA_PATH_BYTES + 64], temporary[PLCUDA_PATH_BYTES + 64];
	size_t	 key_bytes;
	char	*key = make_key(target, text, text_bytes, &key_bytes);
	uint8_t *body = key != NULL ? malloc(key_bytes + len) : NULL;
	head	 h;
	int		 fd, error;
	bool	 written;

	if (body == NULL)
	{
		free(key);
		errno = ENOMEM;
		return false;
	}
	name_file(window, key, key_bytes, path);
	snprintf(temporary, sizeof temporary, "%.*s/" PLCUDA_TEMPORARY "%ld.new", PLCUDA_PATH_BYTES - 1,
			 window->cache, (long) getpid());
	memcpy(body, key, key_bytes);
	memcpy(body + key_bytes, image, len);
	h = (head){IMAGE_MAGIC, key_bytes, len, gvm_kernel_checksum_host(body, key_bytes + len)};
	fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, window->file_mode);
	written = fd >= 0 && write_all(fd, &h, sizeof h) && write_all(fd, body, key_bytes + len) &&
		fsync(fd) == 0;
	error = errno;
	if (fd >= 0)
		close(fd);
	free(body);
	free(key);
	if (written && rename(temporary, path) != 0)
	{
		error = errno;
		written = false;
	}
	if (!written)
		(void) unlink(temporary);
	else
		bound_cache(window, strrchr(path, '/') + 1);
	errno = error;
	return written;
}
