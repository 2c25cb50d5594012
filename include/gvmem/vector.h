/* gvmem/vector.h - an array in device memory that grows without moving.
 *
 * The array reserves addresses for the most elements it may ever hold and commits memory as it
 * grows: nothing is copied, no peak of twice the size, and pointers into it stay good, also those
 * inside kernels that are running.
 *
 * Counts and capacities are in elements of elem_bytes each.
 *
 * Threads: any thread may call. Calls that change one vector are serialised inside, gvm_vector_append()
 * with its copy; questions are answered at once.
 * Ownership: the caller owns a vector and ends it with gvm_vector_destroy().
 * Every call may also return GVM_E_FOREIGN (the vector is unknown or destroyed), GVM_E_NOMEM,
 * GVM_E_LOST and GVM_E_DRIVER.
 */
#ifndef GVMEM_VECTOR_H
#define GVMEM_VECTOR_H

#include <gvmem/buffer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gvm_vector gvm_vector;

/* Creates an empty array of elements of elem_bytes that can grow to max_count of them. options are
 * those of its buffer, or NULL.
 *
 * GVM_E_INVALID  elem_bytes or max_count is 0, their product is too large, the options are invalid,
 *                or out is NULL
 * GVM_E_NOTSUP   the device has no virtual memory management, so nothing can grow there
 * GVM_E_ADDRESS, GVM_E_SYSTEM  as for gvm_buffer_create() */
GVM_API GVM_CHECKED gvm_status gvm_vector_create(gvm_device *device, size_t elem_bytes,
                                                 uint64_t max_count,
                                                 const gvm_buffer_options *options, gvm_vector **out);

/* Copies count elements from host memory behind the last one, growing as needed. All or nothing,
 * but for memory: what was committed to grow stays.
 *
 * GVM_E_INVALID  elems is NULL while count is not 0
 * GVM_E_LIMIT    the array would pass max_count, or the process has too many mappings
 * GVM_E_NOSPACE  the device has too little free memory, after the waits of gvm_buffer_commit()
 * GVM_E_SEALED   the vector's buffer is sealed */
GVM_API GVM_CHECKED gvm_status gvm_vector_append(gvm_vector *vector, const void *elems, uint64_t count);

/* Makes the array count elements long. New elements have undefined contents; memory of dropped ones
 * is kept for growing again until gvm_vector_shrink().
 *
 * GVM_E_LIMIT, GVM_E_NOSPACE, GVM_E_SEALED  as for gvm_vector_append() */
GVM_API GVM_CHECKED gvm_status gvm_vector_resize(gvm_vector *vector, uint64_t count);

/* Commits memory for at least capacity elements; the length stays.
 *
 * GVM_E_LIMIT, GVM_E_NOSPACE, GVM_E_SEALED  as for gvm_vector_append() */
GVM_API GVM_CHECKED gvm_status gvm_vector_commit(gvm_vector *vector, uint64_t capacity);

/* Gives back the chunks that hold no element.
 *
 * GVM_E_SEALED  the vector's buffer is sealed */
GVM_API GVM_CHECKED gvm_status gvm_vector_shrink(gvm_vector *vector);

/* The address of element 0, constant for life; the number of elements; the number that fits in what
 * is committed; the buffer behind it, which stays owned by the vector. NULL or 0 for an unknown
 * vector. */
GVM_API void *gvm_vector_address(const gvm_vector *vector);
GVM_API uint64_t gvm_vector_count(const gvm_vector *vector);
GVM_API uint64_t gvm_vector_capacity(const gvm_vector *vector);
GVM_API gvm_buffer *gvm_vector_buffer(gvm_vector *vector);

/* Frees memory and addresses. NULL and unknown pointers are ignored. */
GVM_API void gvm_vector_destroy(gvm_vector *vector);

#ifdef __cplusplus
}
#endif
#endif
