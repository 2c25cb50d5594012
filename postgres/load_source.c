/* Bytes of what is staged, or of a file; see load.h. */
#include "postgres.h"

#include <unistd.h>

#include "postgres/load.h"

static void
read_staged(const gstore_load_source *source, uint64 offset, void *to, uint64 bytes)
{
	const gstore_piece piece = {
		.part = GSTORE_STAGED, .offset_bytes = offset, .bytes = bytes, .local = to};

	gstore_transfer(GSTORE_READ, &source->name, &piece, 1);
}

bool
gstore_load_try_file(const gstore_load_source *source, uint64 offset, void *to, uint64 bytes)
{
	for (uint64 done = 0; done < bytes;)
	{
		const ssize_t got = pg_pread(source->file, (char *) to + done, bytes - done,
									 (off_t) (offset + done));

		if (got < 0 && errno == EINTR)
			continue;
		if (got == 0)
			errno = 0;
		if (got <= 0)
			return false;
		done += (uint64) got;
	}
	return true;
}

void
gstore_load_fail_file(const gstore_load_source *source)
{
	if (errno == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_BINARY_REPRESENTATION),
				 errmsg("file \"%s\" became shorter while it was read", source->path)));
	ereport(ERROR, (errcode_for_file_access(), errmsg("could not read file \"%s\": %m", source->path)));
}

void
gstore_load_read(const gstore_load_source *source, uint64 offset, void *to, uint64 bytes)
{
	if (bytes == 0)
		return;
	if (source->staged)
		read_staged(source, offset, to, bytes);
	else if (!gstore_load_try_file(source, offset, to, bytes))
		gstore_load_fail_file(source);
}
