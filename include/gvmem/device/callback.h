/* gvmem/device/callback.h - calling functions of the host from a kernel that runs.
 *
 * The device's side of gvmem/callback.h, in the dialect of gvmem/device/kernel.h:
 *
 *     typedef struct { gvm_callback_view server; ... } search_params;
 *
 *     GVM_KERNEL(search, search_params, p)
 *     {
 *         uint64_t words[2] = {key, 0};
 *         ...
 *         if (gvm_callback_call(&p.server, LOOK_UP, words, 2) != GVM_CALLBACK_OK)
 *             return;                                 // words are as they were
 *         use(words[1]);                              // the function has put it there
 *         ...
 *         gvm_callback_post(&p.server, REPORT, words, 2);  // goes on at once
 *         gvm_callback_join(&p.server, MAKE_ROOM, &bytes); // one call of the function for all threads that want it
 *     }
 *
 * A function of the host has a number and a kind (gvm_callback_register()):
 *
 *     kernel calls             kind         waits  the function is called
 *     gvm_callback_call()      parameters   yes    once for each call, with its words, which it may change
 *     gvm_callback_post()      parameters   no     once for each call, with its words
 *     gvm_callback_join()      collective   yes    once for all calls made before it begins; gives all one result
 *     gvm_callback_signal()    collective   no     likewise
 *
 * Those that wait return when the function has returned: what it has written to memory that the kernel can read is seen. What the caller
 * has written to memory that the host can read is seen by the function. Those that do not wait are over when
 * gvm_callback_server_drain() says so; nothing is said of the order of calls.
 *
 * Each returns GVM_CALLBACK_... No call waits longer than the server's wait_ms: if the host does nothing in that time it is GVM_CALLBACK_LATE,
 * and so is each later call, at once, until the host is seen to work again. A call that is LATE or CLOSED may have been made or not.
 *
 *     function                  who calls                   words, and what is returned
 *     ..._call(), ...           one thread                  its own
 *     ..._call_warp(), ...      all threads of a warp       those of lane 0, to all
 *     ..._call_block(), ...     all threads of a block      those of thread 0, to all
 *
 * Not every thread of a large grid should call for itself: a call takes microseconds, and the host's threads are few.
 *
 * How it works: gvmem/device/detail/callback.h. Why so: docs/design/callback.md.
 */
#ifndef GVMEM_DEVICE_CALLBACK_H
#define GVMEM_DEVICE_CALLBACK_H

#include <gvmem/callback_view.h>
#include <gvmem/device/kernel.h>

#ifdef GVM_KERNEL

/* Calls and waits. On GVM_CALLBACK_OK words are what the function has left in them. */
GVM_DEVICE uint32_t gvm_callback_call(const gvm_callback_view *view, uint32_t function,
                                      uint64_t *words, uint32_t count);
GVM_DEVICE uint32_t gvm_callback_call_warp(const gvm_callback_view *view, uint32_t function,
                                           uint64_t *words, uint32_t count);
GVM_DEVICE uint32_t gvm_callback_call_block(const gvm_callback_view *view, uint32_t function,
                                            uint64_t *words, uint32_t count);

/* Calls and goes on. It waits only while more than 255 calls are under way. An error of the function is returned by
 * gvm_callback_server_drain(). */
GVM_DEVICE uint32_t gvm_callback_post(const gvm_callback_view *view, uint32_t function,
                                      const uint64_t *words, uint32_t count);
GVM_DEVICE uint32_t gvm_callback_post_warp(const gvm_callback_view *view, uint32_t function,
                                           const uint64_t *words, uint32_t count);
GVM_DEVICE uint32_t gvm_callback_post_block(const gvm_callback_view *view, uint32_t function,
                                            const uint64_t *words, uint32_t count);

/* Waits for a call of a collective function that begins after this. *result, if the pointer is not NULL, is words[0] of that call or of a
 * later one. */
GVM_DEVICE uint32_t gvm_callback_join(const gvm_callback_view *view, uint32_t function,
                                      uint64_t *result);
GVM_DEVICE uint32_t gvm_callback_join_warp(const gvm_callback_view *view, uint32_t function,
                                           uint64_t *result);
GVM_DEVICE uint32_t gvm_callback_join_block(const gvm_callback_view *view, uint32_t function,
                                            uint64_t *result);

/* The same without waiting: there will be a call. One thread of those that want the same is enough, and others cost little. */
GVM_DEVICE uint32_t gvm_callback_signal(const gvm_callback_view *view, uint32_t function);

#endif /* GVM_KERNEL */

#include <gvmem/device/detail/callback.h>

#endif
