/* gvmem/load.h - rows for a PostgreSQL table, handed over in GPU memory.
 *
 * In SQL, gstore_load_begin('mytable', bytes) makes memory at the server's keeper and returns a token: a line of text.
 * A program that opens it here has one object of that size, and nothing else of the keeper's: it writes columns
 * there. gstore_load('mytable', token) then appends them to the table within the caller's transaction.
 *
 *     gvm_load_open(token, &client, &object);
 *     gvm_object_copy_in(object, 0, bytes, size_bytes, GVM_FOREVER);
 *     gvm_object_close(object);
 *     gvm_client_close(client);
 *
 * A kernel can write there, too, under a write lease (gvmem/client.h). End it before gstore_load(): the server
 * copies the bytes under a read lease, and checks the copy. What is written meanwhile, or later, changes nothing of
 * the rows.
 *
 * Layout: that of a copy of format 'arrow' (gvmem/gstore_arrow.h): a gstore_arrow_head at offset 0, `ncols`
 * descriptions, and buffers that begin at multiples of 64, in any order. Of the head `length` (at most the object's
 * size), `nitems`, `version`, `ncols`, `format`, `head_bytes` and `column_bytes` count, of a description `name`,
 * `format`, `element_format`, the buffers and `elements`; the rest is not looked at. Columns are found by name, which is UTF-8. Beside
 * the formats that tables are exported in, "u", "z" and "+l" have offsets of 32 bits, and "n" is a column of nothing but
 * NULL, without buffers. docs/gstore_fdw.md, "Loading", says which types take which formats.
 *
 * A token is a secret: who has it may write the memory until it ends, if the setting gstore_fdw.readers lets in the
 * program's user. It ends when its rows are loaded and committed, with gstore_revoke(token), with the session and
 * by the setting gstore_fdw.token_lifetime; and when the transaction that made it is rolled back.
 *
 * Threads: any thread may call. No call is a cancellation point.
 * Ownership: the caller owns the connection and the object, and ends them with gvm_object_close() and
 * gvm_client_close().
 *
 * Semantics: docs/design/gstore.md, "Loading".
 */
#ifndef GVMEM_LOAD_H
#define GVMEM_LOAD_H

#include <gvmem/client.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Opens the memory of a token of gstore_load_begin() for writing. The connection can open nothing else but links
 * (gvm_client_restrict()). The object has the size that was asked for, rounded up to its chunks, and cannot grow.
 *
 * GVM_E_INVALID   token, client or object is NULL
 * GVM_E_FORMAT    that is no token of gstore_load_begin()
 * GVM_E_VERSION   the token is of another version of gvmem
 * GVM_E_ABSENT    the token has ended: its rows were loaded, it was revoked or expired, or the session that made it has
 *                 ended. Begin anew
 * GVM_E_PEER      nobody listens there: the server is down
 * GVM_E_DENIED    the server lets only its own user in; see gstore_fdw.readers
 * GVM_E_NODEVICE  the table's device is not visible to this process
 * and the errors of gvm_client_connect() and gvm_object_open() */
GVM_API GVM_CHECKED gvm_status gvm_load_open(const char *token, gvm_client **client,
                                             gvm_object **object);

#ifdef __cplusplus
}
#endif
#endif
