/*
 * Device memory under CUDA handles; see copies.h.
 *
 * Two short lists under one lock: copies that were made here, and foreign memory that is open. The
 * lock is held for looking, never across a driver call: an entry belongs to the command that uses it,
 * and commands of one copy or of one opening follow each other.
 */
#include "postgres/copies.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "postgres/area.h"
#include "postgres/clock.h"
#include "postgres/cuda.h"

#define IDLE_S 3 /* after which an opening is closed */

typedef struct copy
{
	struct copy	  *next;
	uint64_t	   id;
	int32_t		   device;
	gvm_ipc		  *memory;
	uint64_t	   address;
	uint64_t	   bytes;
	gvm_ipc_handle handle;
	uint32_t	   readers; /* by the handle, in commands under way */
	bool		   dropped; /* the last reader frees it */
} copy;

typedef struct opening
{
	struct opening *next;
	uint64_t		id;
	int32_t			device;
	uint8_t			handle[GSTORE_HANDLE_BYTES];
	uint64_t		address, bytes; /* what of the allocation is at and behind the address */
	bool			busy;
	int64_t			used_ns;
} opening;

struct gstore_copies
{
	gvm_device *const *devices;
	gvm_client		  *keeper;
	pthread_mutex_t	   lock;
	copy			  *made;
	opening			  *open;
};

_Static_assert(sizeof(gvm_ipc_handle) == GSTORE_HANDLE_BYTES, "the handle is CUDA's");

/* ---- copies */

static copy *
find_copy_locked(gstore_copies *c, uint64_t id)
{
	copy *found = c->made;

	while (found != NULL && found->id != id)
		found = found->next;
	return found;
}

gvm_status
gstore_find_keeper_device(const gvm_snapshot *snapshot, gvm_device *device, gvm_keeper_device_info *out)
{
	gvm_keeper_info keeper = {.struct_size = sizeof keeper};
	gvm_device_info here = {.struct_size = sizeof here};
	gvm_status		status = gvm_device_get_info(device, &here);

	if (status == GVM_OK)
		status = gvm_snapshot_get_keeper(snapshot, &keeper);
	for (uint32_t i = 0; i < keeper.devices && status == GVM_OK; i++)
	{
		out->struct_size = sizeof *out;
		status = gvm_snapshot_get_device(snapshot, i, out);
		if (status == GVM_OK && memcmp(out->uuid, here.uuid, sizeof here.uuid) == 0)
			return GVM_OK;
	}
	return status != GVM_OK
		? status
		: gvm_error_set(GVM_E_OTHERDEVICE, "the keeper does not serve %s", here.name);
}

/* Gives the keeper's free memory of the device to other programs. False: the error is as before. */
static bool
trim_keeper(gstore_copies *c, gvm_device *device)
{
	const gvm_error		   error = gstore_last_error();
	gvm_keeper_device_info there;
	gvm_snapshot		  *snapshot = NULL;
	gvm_status			   status = gvm_client_get_snapshot(c->keeper, &snapshot);

	if (status == GVM_OK)
		status = gstore_find_keeper_device(snapshot, device, &there);
	gvm_snapshot_destroy(snapshot);
	if (status == GVM_OK)
		status = gvm_client_trim(c->keeper, there.ordinal, 0, NULL);
	if (status != GVM_OK)
		gvm_error_restore(&error);
	return status == GVM_OK;
}

/* Free memory that the keeper has may be what is missing. */
static gvm_status
allocate_copy(gstore_copies *c, copy *made)
{
	gvm_device	*device = c->devices[made->device];
	gvm_ipc_info info = {.struct_size = sizeof info};
	gvm_status	 status = gvm_ipc_create(device, made->bytes, &made->memory);

	if (status == GVM_E_NOSPACE && trim_keeper(c, device))
		status = gvm_ipc_create(device, made->bytes, &made->memory);
	if (status != GVM_OK)
		return status;
	status = gvm_ipc_get_info(made->memory, &info);
	if (status != GVM_OK)
	{
		gvm_ipc_destroy(made->memory);
		return status;
	}
	made->handle = info.handle;
	made->address = (uintptr_t) info.address;
	return GVM_OK;
}

static gvm_status
add_foreign_copy(gstore_copies *c, gstore_window *w)
{
	copy	  *made = calloc(1, sizeof *made);
	gvm_status status;

	if (made == NULL)
		return gvm_error_set(GVM_E_NOMEM, "out of host memory for a copy");
	made->id = w->copy;
	made->device = w->name.device;
	made->bytes = w->copy_bytes;
	status = allocate_copy(c, made);
	if (status != GVM_OK)
	{
		free(made);
		return status;
	}
	memcpy(w->handle, &made->handle, sizeof w->handle);
	pthread_mutex_lock(&c->lock);
	made->next = c->made;
	c->made = made;
	pthread_mutex_unlock(&c->lock);
	return GVM_OK;
}

gvm_status
gstore_copies_find(gstore_copies *c, uint64_t id, int32_t device, uint64_t offset_bytes,
				   uint64_t len_bytes, uint64_t *address)
{
	gvm_status	status = GVM_E_INVALID;
	const copy *found;

	pthread_mutex_lock(&c->lock);
	found = find_copy_locked(c, id);
	if (found != NULL && found->device == device && offset_bytes <= found->bytes &&
		len_bytes <= found->bytes - offset_bytes)
	{
		*address = found->address + offset_bytes;
		status = GVM_OK;
	}
	pthread_mutex_unlock(&c->lock);
	return status == GVM_OK ? GVM_OK : gvm_error_set(status, "a range beyond the copy");
}

static void
free_copy(copy *old)
{
	gvm_ipc_destroy(old->memory);
	free(old);
}

void
gstore_copies_drop(gstore_copies *c, uint64_t id)
{
	copy **at, *old;

	pthread_mutex_lock(&c->lock);
	for (at = &c->made; *at != NULL && (*at)->id != id;)
		at = &(*at)->next;
	old = *at;
	if (old != NULL)
	{
		*at = old->next;
		old->dropped = true;
		if (old->readers > 0)
			old = NULL;
	}
	pthread_mutex_unlock(&c->lock);
	if (old != NULL)
		free_copy(old);
}

/* A driver does not open a handle for the process that made it; so copies are known by theirs. */
static copy *
use_own_copy(gstore_copies *c, const gstore_window *w)
{
	copy *found;

	pthread_mutex_lock(&c->lock);
	for (found = c->made; found != NULL; found = found->next)
		if (memcmp(&found->handle, w->handle, sizeof w->handle) == 0)
			break;
	if (found != NULL)
		found->readers++;
	pthread_mutex_unlock(&c->lock);
	return found;
}

static void
unref_copy(gstore_copies *c, copy *held)
{
	bool last;

	pthread_mutex_lock(&c->lock);
	last = --held->readers == 0 && held->dropped;
	pthread_mutex_unlock(&c->lock);
	if (last)
		free_copy(held);
}

uint64_t
gstore_copies_bytes(gstore_copies *c, int32_t device)
{
	uint64_t sum = 0;

	pthread_mutex_lock(&c->lock);
	for (const copy *i = c->made; i != NULL; i = i->next)
		if (i->device == device)
			sum += i->bytes;
	pthread_mutex_unlock(&c->lock);
	return sum;
}

/* ---- foreign memory */

/* The opening of this business, now busy; NULL: there is none yet. */
static opening *
resume_foreign(gstore_copies *c, const gstore_window *w)
{
	opening *found;

	pthread_mutex_lock(&c->lock);
	for (found = c->open; found != NULL; found = found->next)
		if (!found->busy && found->id == w->copy && found->device == w->name.device &&
			memcmp(found->handle, w->handle, sizeof found->handle) == 0)
			break;
	if (found != NULL)
		found->busy = true;
	pthread_mutex_unlock(&c->lock);
	return found;
}

static gvm_status
open_handle(gstore_copies *c, opening *o)
{
	gvm_ipc_handle handle;
	uint64_t	   base = 0;
	void		  *opened;
	size_t		   size = 0;
	int			   result;
	gvm_status	   status;

	memcpy(handle.bytes, o->handle, sizeof handle.bytes);
	status = gvm_ipc_open(c->devices[o->device], &handle, &opened);
	if (status != GVM_OK)
		return status;
	o->address = (uintptr_t) opened;
	result = gstore_cu.cuMemGetAddressRange(&base, &size, o->address);
	if (result == 0 && base <= o->address && o->address - base < size)
	{
		o->bytes = base + size - o->address;
		return GVM_OK;
	}
	(void) gvm_ipc_close(c->devices[o->device], opened);
	return gvm_driver_error(result, "cuMemGetAddressRange", "the size of the memory is unknown");
}

static gvm_status
begin_foreign(gstore_copies *c, const gstore_window *w, opening **out)
{
	gvm_status status;
	opening	  *o = resume_foreign(c, w);

	if (o == NULL)
	{
		o = calloc(1, sizeof *o);
		if (o == NULL)
			return gvm_error_set(GVM_E_NOMEM, "out of host memory for an opened handle");
		o->id = w->copy;
		o->device = w->name.device;
		o->busy = true;
		memcpy(o->handle, w->handle, sizeof o->handle);
		status = open_handle(c, o);
		if (status != GVM_OK)
		{
			free(o);
			return status;
		}
		pthread_mutex_lock(&c->lock);
		o->next = c->open;
		c->open = o;
		pthread_mutex_unlock(&c->lock);
	}
	*out = o;
	return GVM_OK;
}

static void
end_foreign(gstore_copies *c, opening *o)
{
	pthread_mutex_lock(&c->lock);
	o->used_ns = gstore_now_ns();
	o->busy = false;
	pthread_mutex_unlock(&c->lock);
}

typedef enum which
{
	EVERY,
	OF_ID,
	IDLE,
} which;

/* One after the other, so that the driver is not called under the lock. */
static void
close_foreign(gstore_copies *c, which these, uint64_t id)
{
	const int64_t since_ns = gstore_now_ns() - IDLE_S * 1000 * GSTORE_NS_PER_MS;

	for (;;)
	{
		opening **at, *o;

		pthread_mutex_lock(&c->lock);
		for (at = &c->open; (o = *at) != NULL; at = &o->next)
			if (!o->busy &&
				(these == EVERY || (these == OF_ID && o->id == id) ||
				 (these == IDLE && o->used_ns < since_ns)))
				break;
		if (o != NULL)
			*at = o->next;
		pthread_mutex_unlock(&c->lock);
		if (o == NULL)
			return;
		(void) gvm_ipc_close(c->devices[o->device], (void *) (uintptr_t) o->address);
		free(o);
	}
}

void
gstore_copies_tidy(gstore_copies *c)
{
	close_foreign(c, IDLE, 0);
}

/* ---- commands */

static int
copy_piece(const gstore_window *w, const gstore_range *range, uint64_t at, uint8_t *bytes,
		   gvm_stream stream)
{
	if (w->verb == GSTORE_FOREIGN_READ)
		return gstore_cu.cuMemcpyDtoHAsync(bytes + range->window_bytes, at, range->bytes, stream);
	if (range->source == GSTORE_FROM_BYTE)
		return gstore_cu.cuMemsetD8Async(at, range->byte, range->bytes, stream);
	return gstore_cu.cuMemcpyHtoDAsync(at, bytes + range->window_bytes, range->bytes, stream);
}

/* The pieces of one command, from or to [address, + size). Waits for what was begun also on failure. */
static gvm_status
copy_pieces(const gstore_window *w, uint64_t address, uint64_t size, uint8_t *bytes,
			uint64_t window_bytes, gvm_stream stream)
{
	gvm_status status = GVM_OK;
	int		   result = 0;

	for (uint32_t i = 0; i < w->range_count && i < GSTORE_RANGES_MAX && status == GVM_OK; i++)
	{
		const gstore_range *range = &w->ranges[i];

		if (range->source != GSTORE_FROM_BYTE &&
			(range->window_bytes > window_bytes || range->bytes > window_bytes - range->window_bytes))
			status = gvm_error_set(GVM_E_INVALID, "a range beyond the window");
		else if (range->offset_bytes > size || range->bytes > size - range->offset_bytes)
			status = gvm_error_set(GVM_E_INVALID, "bytes %llu to %llu of memory that has %llu",
								   (unsigned long long) range->offset_bytes,
								   (unsigned long long) (range->offset_bytes + range->bytes),
								   (unsigned long long) size);
		else if ((result = copy_piece(w, range, address + range->offset_bytes, bytes, stream)) != 0)
			status = gvm_driver_error(result, "cuMemcpyAsync", "cannot copy %llu bytes",
									  (unsigned long long) range->bytes);
	}
	result = gstore_cu.cuStreamSynchronize(stream);
	if (result != 0 && status == GVM_OK)
		status = gvm_driver_error(result, "cuStreamSynchronize", "cannot copy");
	return status;
}

static gvm_status
write_copy(gstore_copies *c, const gstore_window *w, uint8_t *bytes, uint64_t window_bytes,
		   gvm_stream stream)
{
	copy		found = {0};
	const copy *at;

	pthread_mutex_lock(&c->lock);
	at = find_copy_locked(c, w->copy);
	if (at != NULL && at->device == w->name.device)
		found = *at;
	pthread_mutex_unlock(&c->lock);
	if (found.bytes == 0)
		return gvm_error_set(GVM_E_ABSENT, "the copy is gone");
	return copy_pieces(w, found.address, found.bytes, bytes, window_bytes, stream);
}

static gvm_status
transfer_own(const gstore_window *w, const copy *own, uint8_t *bytes, uint64_t window_bytes,
			 gvm_stream stream)
{
	if (w->verb == GSTORE_FOREIGN_WRITE)
		return gvm_error_set(GVM_E_READONLY,
							 "the handle is of a table in GPU memory: it can only be read");
	if (own->device != w->name.device)
		return gvm_error_set(GVM_E_INVALID, "the handle is of device %d", own->device);
	return copy_pieces(w, own->address, own->bytes, bytes, window_bytes, stream);
}

static gvm_status
transfer_foreign(gstore_copies *c, const gstore_window *w, uint8_t *bytes, uint64_t window_bytes,
				 gvm_stream stream)
{
	copy	  *own = use_own_copy(c, w);
	gvm_status status;
	opening	  *o = NULL;

	if (own != NULL)
	{
		status = transfer_own(w, own, bytes, window_bytes, stream);
		unref_copy(c, own);
		return status;
	}
	status = begin_foreign(c, w, &o);
	if (status != GVM_OK)
		return status;
	status = copy_pieces(w, o->address, o->bytes, bytes, window_bytes, stream);
	end_foreign(c, o);
	return status;
}

gvm_status
gstore_copies_carry_out(gstore_copies *c, gstore_window *w, uint8_t *bytes, uint64_t window_bytes,
						gvm_stream stream)
{
	switch (w->verb)
	{
		case GSTORE_COPY_MAKE:
			return add_foreign_copy(c, w);
		case GSTORE_COPY_WRITE:
			return write_copy(c, w, bytes, window_bytes, stream);
		case GSTORE_FOREIGN_READ:
		case GSTORE_FOREIGN_WRITE:
			return transfer_foreign(c, w, bytes, window_bytes, stream);
		case GSTORE_FOREIGN_CLOSE:
			close_foreign(c, OF_ID, w->copy);
			return GVM_OK;
		default:
			return gvm_error_set(GVM_E_INVALID, "an unknown command, %d", (int) w->verb);
	}
}

/* ---- life */

gvm_status
gstore_copies_create(gvm_device *const *devices, gvm_client *keeper, gstore_copies **out)
{
	gstore_copies *c = calloc(1, sizeof *c);

	if (c == NULL)
		return gvm_error_set(GVM_E_NOMEM, "out of host memory for the service");
	c->devices = devices;
	c->keeper = keeper;
	pthread_mutex_init(&c->lock, NULL);
	*out = c;
	return GVM_OK;
}

void
gstore_copies_destroy(gstore_copies *c)
{
	if (c == NULL)
		return;
	close_foreign(c, EVERY, 0);
	while (c->made != NULL)
		gstore_copies_drop(c, c->made->id);
	pthread_mutex_destroy(&c->lock);
	free(c);
}
