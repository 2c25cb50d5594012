/* keeper/server/frame.h - frames: pieces of memory that have one chunk of an object each.
 *
 * A frame is one chunk of a pool, which is a buffer of chunks of one size, device and tier. It is
 * mapped here from its making to its end, so that a chunk is moved by a plain copy between two
 * frames, and has been exported once, as the fd that clients get. Numbers are the machine's
 * (keeper/machine/machine.h).
 *
 * Dropping a frame takes it out of the table at once and leaves the driver's part of the work to
 * gvmi_frames_reap(), since giving memory back takes the driver long. Making frames reaps first, so
 * what was dropped before is there for what is made after.
 *
 * Threads: any thread may call. Making, reaping, destroying and gvmi_frames_query() call the driver, the others do not.
 */
#ifndef GVMI_KEEPER_SERVER_FRAME_H
#define GVMI_KEEPER_SERVER_FRAME_H

#include "keeper/machine/machine.h"
#include "keeper/server/fd.h"
#include "memory/buffer.h"

typedef struct gvmi_frames gvmi_frames;

/* Of a device; frame_bytes: what frames take of it. */
typedef struct gvmi_device_memory {
    uint64_t free_bytes, total_bytes, frame_bytes;
} gvmi_device_memory;

/* devices[i] is the device that frames call i; they stay open as long as the frames. peers[i]: a bit for each of them that copies to
 * or from frames on it, which can be granted access. fd_limit: a
 * frame whose fd would be numbered so or higher is refused, so that there are some left for clients.
 *
 * GVM_E_NOMEM */
gvm_status gvmi_frames_create(gvm_device *const *devices, const uint32_t *peers,
                              uint32_t device_count, int fd_limit, gvmi_frames **out);

/* Gives all memory back. What other threads made must be over, and copies too. */
void gvmi_frames_destroy(gvmi_frames *frames);

/* Makes a frame; its contents are anything.
 *
 * GVM_E_NOSPACE  the device has no more
 * GVM_E_NOMEM    the host has no more
 * GVM_E_LIMIT    the process has no file descriptors, mappings or addresses left for more
 * GVM_E_INVALID  there is a frame of that number
 * GVM_E_LOST, GVM_E_DRIVER */
gvm_status gvmi_frames_make(gvmi_frames *frames, const gvmi_frame_spec *spec);

/* Takes a frame out of the table. False: there is none of that number. */
bool gvmi_frames_drop(gvmi_frames *frames, uint32_t number);

/* Gives the memory of dropped frames of a tier back to the driver; waits for other threads that do. */
void gvmi_frames_reap(gvmi_frames *frames, uint32_t tier);

/* Is there a dropped frame whose memory is not given back yet? */
bool gvmi_frames_dropped(gvmi_frames *frames);

/* The address of a frame here; 0: there is none of that number. */
uint64_t gvmi_frames_address(gvmi_frames *frames, uint32_t number);

/* A reference to a frame's fd; NULL: there is no such frame. */
gvmi_fd *gvmi_frames_fd(gvmi_frames *frames, uint32_t number);

/* What the driver says of the device, which is current, and what frames take of it then, but for those that were dropped before, which
 * are reaped first. Frames of one device are made, and reaped, by threads of others, too. Waits for those that do so just now. Where they
 * begin anew each time that it looks, it reports what it found last.
 *
 * GVM_E_LOST, GVM_E_DRIVER */
gvm_status gvmi_frames_query(gvmi_frames *frames, uint32_t device, gvmi_device_memory *out);

#endif
