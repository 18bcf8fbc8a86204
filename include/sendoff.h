/*
 * libsendoff: take requests from Sendoff's front or from any web server that speaks FastCGI,
 * answer with bytes and files.
 *
 * Conventions
 * - There are two kinds of worker. A worker of sendoff_worker_new() serves the links that a front
 *   created for this process; a worker of sendoff_worker_on() serves a connection that a web
 *   server opened to a listening socket. A process may have any number of both.
 * - A `sendoff_worker` serves one request at a time and is used by one thread at a time;
 *   workers are independent of each other, so threads that have a worker each need no locks.
 *   Functions without a worker may be called by any thread.
 * - Memory handed out by a function belongs to the worker and stays valid until the next
 *   sendoff_accept() on it. Memory handed in is borrowed for the call only, unless the function
 *   says otherwise.
 * - A pointer handed in is NULL only where the function says that it may be. A worker has not
 *   been freed. Other pointers lead to memory that may be read, and written unless they are
 *   const; where a length follows, to that many bytes.
 * - A descriptor handed in is borrowed for the call, unless the function says that it takes
 *   ownership; then it owns it even when it fails. A descriptor handed out belongs to the caller.
 *   All are close-on-exec.
 * - Sizes and offsets are in bytes. Strings are not assumed to end in NUL; where one does, the
 *   function says so.
 * - A child that the process forks inherits memory, not the workers of sendoff_worker_new(): in
 *   it output is discarded, no file is held or in use, and sendoff_accept() returns 0. Files that
 *   were mapped at the fork may change when another process writes to them. A worker of
 *   sendoff_worker_on() may be used by the child if the parent only frees it.
 * - A function that fails returns -1 or NULL; errno has the reason where the function's comment
 *   names it. No function raises signals, calls back, or jumps. An internal failure is reported
 *   as a lost link.
 *
 * Workers of a front
 *
 *     sendoff_worker *worker = sendoff_worker_new(links, link_count, guard);
 *     while (sendoff_accept(worker) == 1)
 *         answer(worker);
 *     sendoff_worker_free(worker);
 *
 * Applications that any web server connects to
 *
 *     for (;;) {
 *         int connection = sendoff_accept_connection(0, NULL);
 *         sendoff_worker *worker = sendoff_worker_on(connection, SENDOFF_RESPONDER);
 *         while (sendoff_accept(worker) == 1)
 *             answer(worker);
 *         sendoff_worker_close(worker);
 *     }
 *
 * Such applications send files by sendoff_send_file(), which does not read them if the front can
 * take them over. The process, or each of its threads, makes a sender, and calls
 * sendoff_sends_files() for its workers.
 *
 * Response, in order: perhaps sendoff_write_interim(), then sendoff_write_head() once, then any
 * mixture of sendoff_write() and sendoff_write_file(), then sendoff_finish(). Output is queued;
 * the queue is sent when it is large, at sendoff_flush() and at the end. Output after the client
 * has gone is discarded; the request must still be finished.
 *
 * A process may receive its requests elsewhere (php-fpm: over FastCGI) and move bodies that it
 * does not want to copy to a link (docs/handover.md, section 8). Instead of sendoff_worker_new()
 * and sendoff_accept() it calls sendoff_channel_open() and then, for each request,
 * sendoff_channel_begin(), perhaps sendoff_channel_claim() and the functions of a response
 * except sendoff_write_head(), and sendoff_channel_end().
 */

#ifndef SENDOFF_H
#define SENDOFF_H

/* Made of the Rust sources in crates/capi by `make header`; change the words there. */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

/**
 * The application is asked for a response (FastCGI 1.0, section 6.2).
 */
#define SENDOFF_RESPONDER 1u

/**
 * The application decides whether a client may have a response (section 6.3).
 */
#define SENDOFF_AUTHORIZER 2u

/**
 * The application is asked to change a file (section 6.4).
 */
#define SENDOFF_FILTER 4u

/**
 * Maximum number of blobs per worker.
 */
#define SENDOFF_BLOBS 64

/**
 * Maximum number of bytes in all blobs of a worker.
 */
#define SENDOFF_BLOB_BYTES (8u << 20)

/**
 * A fragment that is kept, or that the caller makes. It is for the thread that has asked for it.
 */
typedef struct sendoff_fragment sendoff_fragment;

/**
 * The fragments of a pool (docs/fragments.md): parts of pages that one process makes and all send.
 * They are in memory that processes share, and stay until the process ends.
 */
typedef struct sendoff_fragments sendoff_fragments;

/**
 * A worker serves requests, one at a time. It is created by sendoff_worker_new(),
 * sendoff_worker_on() or sendoff_channel_open(), and freed by sendoff_worker_free() or
 * sendoff_worker_close().
 */
typedef struct sendoff_worker sendoff_worker;

/**
 * Hands over files on connections. Created by sendoff_sender_new(). Any number of threads may
 * share a sender until it is freed: it holds each file once for all of them.
 */
typedef struct sendoff_sender sendoff_sender;

/**
 * One request parameter. Both strings are followed by a NUL byte that their length does not count.
 */
typedef struct sendoff_param {
    /**
     * The name, such as `REQUEST_METHOD`.
     */
    const char *name;
    /**
     * Length of the name in bytes.
     */
    size_t name_len;
    /**
     * The value, such as `POST`.
     */
    const char *value;
    /**
     * Length of the value in bytes.
     */
    size_t value_len;
} sendoff_param;

/**
 * A string that need not end in NUL.
 */
typedef struct sendoff_text {
    /**
     * Its bytes.
     */
    const char *data;
    /**
     * Their number.
     */
    size_t len;
} sendoff_text;

/**
 * A part of a body.
 */
typedef struct sendoff_part {
    /**
     * Its bytes.
     */
    const char *data;
    /**
     * Their number.
     */
    size_t len;
    /**
     * 0, or the place of the fragment with these bytes, from sendoff_fragment_bytes().
     */
    uint64_t place;
} sendoff_part;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Makes the worker of this process, for links that a front created. Takes ownership of
 * `link_count` connected UNIX stream sockets (at most 255) and of the guard socket (UNIX,
 * SOCK_SEQPACKET; -1: no guard, every sendoff_file_hold() is refused). Call it after the last
 * fork: it starts a thread. Returns NULL (errno) if a thread or a descriptor cannot be created.
 */
struct sendoff_worker *sendoff_worker_new(const int *links, size_t link_count, int guard);

/**
 * Frees the worker, drops its files and closes its sockets. NULL is allowed.
 */
void sendoff_worker_free(struct sendoff_worker *worker);

/**
 * Ends the current request and waits for the next one. 1: there is a request. 0: the front closed
 * a link, asked the process to end, or violated the protocol (logged to stderr); the process
 * should exit. On a connection, 0: no further request will come on it, and it should be closed; -1
 * with errno EINTR: a signal handler ran before a request began.
 */
int sendoff_accept(struct sendoff_worker *worker);

/**
 * Makes sendoff_accept() return 0 once no request is waiting. May be called from a signal handler,
 * even while another call on the worker is running, and does nothing in a forked child. A request
 * that sendoff_accept() has begun to read on a connection is not affected.
 */
void sendoff_stop(const struct sendoff_worker *worker);

/**
 * The request's parameters, in the order the front sent them, without SENDOFF_ACCEPT. `count`
 * receives their number.
 */
const struct sendoff_param *sendoff_params(const struct sendoff_worker *worker, size_t *count);

/**
 * The value of one parameter, NUL-terminated, or NULL if there is no such parameter. `len`
 * receives its length and may be NULL.
 */
const char *sendoff_param_get(const struct sendoff_worker *worker,
                              const char *name,
                              size_t name_len,
                              size_t *len);

/**
 * Reads the request body. Returns the number of bytes read, 0 at its end, -1 on an error (errno).
 */
ssize_t sendoff_read(struct sendoff_worker *worker, void *buf, size_t len);

/**
 * Waits until sendoff_read() would not wait: bytes of the request body, its end or an error have
 * come. Returns 1 then. Returns 0 if the descriptor `wake` (-1: none) can be read, if `timeout`
 * milliseconds are over (-1: no limit), or if a signal handler ran.
 */
int sendoff_await_body(struct sendoff_worker *worker, int wake, int timeout);

/**
 * Writes the CGI header block (RFC 3875 section 6), with the empty line that ends it. Returns 0,
 * or -1 if the client has gone.
 */
int sendoff_write_head(struct sendoff_worker *worker, const char *block, size_t len);

/**
 * Writes the head of an interim response (103 Early Hints; RFC 9110 section 15.2): a CGI header
 * block whose Status is 1xx, with the empty line that ends it. May be called several times before
 * sendoff_write_head(). The head is sent before the call returns. Returns 1; 0 if it was not sent,
 * because the final head has been written or the server has not announced that it supports interim
 * heads; -1 if the client has gone.
 */
int sendoff_write_interim(struct sendoff_worker *worker, const char *block, size_t len);

/**
 * Writes body bytes. They are copied, or sent before the call returns, so `data` may be reused.
 * Returns 0, or -1 if the client has gone.
 */
int sendoff_write(struct sendoff_worker *worker, const void *data, size_t len);

/**
 * Writes an entry about this request to the server's log; it may have several lines. A missing
 * newline at the end is added. May also be called between sendoff_finish() with `detach` and
 * sendoff_ready().
 */
void sendoff_log(struct sendoff_worker *worker, const char *line, size_t len);

/**
 * Sends the queued output. Returns 0, or -1 if the client has gone.
 */
int sendoff_flush(struct sendoff_worker *worker);

/**
 * 1 if the client has gone, else 0. Checks the link without waiting. While the body is arriving,
 * it finds that out once the bytes that have arrived are read.
 */
int sendoff_aborted(struct sendoff_worker *worker);

/**
 * Ends the response. With `detach` nonzero the process goes on working on the request (further
 * output is discarded) and calls sendoff_ready() when it can take another one. A second call is
 * ignored. An `app_status` other than 0 means that the response may be incomplete; the front does
 * not cache it.
 */
void sendoff_finish(struct sendoff_worker *worker, int app_status, int detach);

/**
 * Announces that a process that went on working after sendoff_finish() can take another request.
 * sendoff_accept() announces it, too.
 */
void sendoff_ready(struct sendoff_worker *worker);

/**
 * 1 if the front accepts file segments in this request (the request announced it), else 0.
 */
int sendoff_accepts_files(const struct sendoff_worker *worker);

/**
 * 1 if the front accepts the file that a header block names (X-Sendfile, X-Accel-Redirect), else
 * 0.
 */
int sendoff_takes_named(const struct sendoff_worker *worker);

/**
 * Sends the file that the header block names, open for reading, right before the header block is
 * written. Takes ownership of `fd`. Returns 0, or -1 if the client has gone.
 */
int sendoff_named(struct sendoff_worker *worker, int fd);

/**
 * 1 if the front wants this response explained (`sendoff explain`), else 0.
 */
int sendoff_explains(const struct sendoff_worker *worker);

/**
 * Explains the output that follows, in the format of docs/handover.md (EXPLAIN); at most 1024
 * bytes are used. Has no effect unless sendoff_explains() returns 1.
 */
void sendoff_explain(struct sendoff_worker *worker, const char *text, size_t len);

/**
 * Opens a listening socket. `address`, NUL-terminated, is a path or `:port`, `host:port`,
 * `[v6]:port`. An existing socket at the path is replaced; any other file is an error. Returns the
 * descriptor, or -1 (errno).
 */
int sendoff_listen(const char *address, int backlog);

/**
 * 1 if the descriptor is a listening socket, else 0. A FastCGI application is started with one as
 * descriptor 0, a CGI program is not.
 */
int sendoff_is_listener(int fd);

/**
 * Waits for a connection on a listening socket, blocking or not. Returns its descriptor, which is
 * never 0, 1 or 2, or -1: errno EINTR if a signal handler ran (one installed without SA_RESTART),
 * or another error of accept(2). `peers`, NUL-terminated or NULL, is a comma-separated list of IP
 * addresses, as servers give it in the environment variable FCGI_WEB_SERVER_ADDRS: TCP connections
 * from other addresses are closed. UNIX connections that stay silent for 2 s are closed, too.
 * Several threads and processes may wait on one socket.
 */
int sendoff_accept_connection(int listener, const char *peers);

/**
 * Makes a worker for a connection, and takes ownership of the connection. `roles`: the roles of
 * the application, SENDOFF_RESPONDER and so on, joined by `|`; requests for other roles are
 * refused. sendoff_accept() on this worker returns as soon as the parameters have arrived; the
 * body is read as it arrives. The worker has no guard and starts no thread. Returns NULL on
 * failure: errno EINVAL, EBADF.
 */
struct sendoff_worker *sendoff_worker_on(int connection, unsigned int roles);

/**
 * Ends the response, closes the connection and frees a worker of sendoff_worker_on(). If the
 * server is still sending, its request is read first (until it is silent for 2 s): otherwise it
 * might lose the response. NULL is allowed. (sendoff_worker_free() only closes the descriptor. Use
 * it in a parent that leaves the connection to its child, and, after sendoff_flush(), for a
 * response that fails after its head: without an end the client does not take the response as
 * complete.)
 */
void sendoff_worker_close(struct sendoff_worker *worker);

/**
 * SENDOFF_RESPONDER, SENDOFF_AUTHORIZER or SENDOFF_FILTER: the role that the current request asks
 * for.
 */
unsigned int sendoff_role(const struct sendoff_worker *worker);

/**
 * FastCGI's id of the current request.
 */
unsigned int sendoff_request_id(const struct sendoff_worker *worker);

/**
 * 1 if another request may come on this connection, else 0: sendoff_accept() will then return 0.
 */
int sendoff_keeps_connection(const struct sendoff_worker *worker);

/**
 * Like sendoff_read(), for the file that a filter has to change (FCGI_DATA). Read the body to its
 * end first: bytes of the file that arrive before are kept in memory. Other roles have no such
 * file.
 */
ssize_t sendoff_read_data(struct sendoff_worker *worker, void *buf, size_t len);

/**
 * Queues bytes for the server's log unchanged, whereas sendoff_log() writes lines. Returns 0, or
 * -1 if the client has gone.
 */
int sendoff_write_stderr(struct sendoff_worker *worker, const void *data, size_t len);

/**
 * Holds a file under a read lease and maps it (private, read-only) at `addr`. `addr` is the
 * page-aligned start of address space that the caller has reserved, `size` rounded up to whole
 * pages; the worker owns it until sendoff_file_drop(). Takes ownership of `fd`, which is open for
 * reading on a regular file. Once the lease is held, its size must be `size` > 0, and its
 * modification and change times must be those given; otherwise the file has changed and the call
 * is refused. `file` receives its number. A file that is held is in use.
 *
 * If another process opens the file for writing later, the helper thread replaces the mapping by a
 * private copy before the writer goes on, so the bytes at `addr` never change while the file is in
 * use. The caller must not use file systems where a lease does not detect every process that
 * writes: FUSE, network file systems, overlayfs (docs/snapshot.md).
 *
 * Returns 0, or -1: errno EACCES (not the owner, no CAP_LEASE), EAGAIN (another process has it
 * open for writing), ESTALE (it changed), EMFILE (too many held), EOPNOTSUPP (no guard, or the
 * front has closed it), or an error of fcntl(2) or mmap(2). The address space is then PROT_NONE
 * again.
 */
int sendoff_file_hold(struct sendoff_worker *worker,
                      int fd,
                      void *addr,
                      uint64_t size,
                      const struct timespec *mtime,
                      const struct timespec *ctime,
                      uint32_t *file);

/**
 * Announces that the mapping is about to be used. 1: it is complete and the lease is intact. 0:
 * the lease has broken; the mapping must not be used any more and the file should be dropped.
 */
int sendoff_file_use(struct sendoff_worker *worker, uint32_t file);

/**
 * Ends the use of all files: a break may now discard their mappings instead of copying them, and
 * deleted files are released after some seconds, as if their lease had broken.
 */
void sendoff_files_unuse(struct sendoff_worker *worker);

/**
 * 1 if the lease is intact, else 0. Unlike sendoff_file_use() it changes nothing.
 */
int sendoff_file_intact(const struct sendoff_worker *worker, uint32_t file);

/**
 * Returns the address of a counter that changes when a lease breaks, when a file is dropped, and
 * in a forked child. If sendoff_file_intact() or sendoff_file_use() has returned 1 and the counter
 * still has its value from before that call, they would return 1 again; reading the counter takes
 * no lock. Read it with acquire ordering (__atomic_load_n()).
 */
const uint32_t *sendoff_file_epoch(void);

/**
 * Drops the mapping: the address space is PROT_NONE again. The lease ends when the front has
 * released the file.
 */
void sendoff_file_drop(struct sendoff_worker *worker, uint32_t file);

/**
 * Writes body bytes: `len` bytes of a held file or a blob, from `offset` on. If the lease has
 * broken, the bytes are copied from the mapping instead. The range must lie inside the mapping.
 * Returns 0, or -1 if the client has gone, or if the file is not held or is shorter.
 */
int sendoff_write_file(struct sendoff_worker *worker, uint32_t file, uint64_t offset, uint64_t len);

/**
 * Copies `len` > 0 bytes into a blob; `blob` receives its number. Blobs are for bytes that are
 * written repeatedly, such as constants of a program: they are stored once, in a sealed memory
 * file (memfd_create(2)) that no process can change, and then named in sendoff_write_file(). They
 * need no lease and no guard.
 *
 * `contents` (may be NULL) receives the address of the copy. Address and contents do not change
 * until sendoff_blob_drop(), so a caller can compare its bytes with the copy to find out whether
 * they are still the same.
 *
 * Returns 0, or -1: errno ENOSPC (more than SENDOFF_BLOBS, or SENDOFF_BLOB_BYTES in all of them),
 * EMFILE (too many held files), EINVAL (no bytes), EOPNOTSUPP (in a forked child), or an error of
 * memfd_create(2), write(2) or mmap(2).
 */
int sendoff_blob_store(struct sendoff_worker *worker,
                       const void *data,
                       size_t len,
                       uint32_t *blob,
                       const void **contents);

/**
 * Drops a blob. Output that names it is sent nevertheless.
 */
void sendoff_blob_drop(struct sendoff_worker *worker, uint32_t blob);

/**
 * Makes memory for fragments of `size` bytes in all, from 8 MiB to 4 GiB, which this process shares
 * with the children that it forks. It takes memory only as it is used. Returns NULL (errno) if there
 * is none.
 */
struct sendoff_fragments *sendoff_fragments_new(size_t size);

/**
 * The fragments of the pool that has started this process. Call it once: it takes descriptors that
 * the process has inherited. Returns NULL if the pool keeps none.
 */
struct sendoff_fragments *sendoff_fragments_of_pool(void);

/**
 * Asks for the fragment with this key. If it is not kept, the caller makes it, with these tags, and
 * others wait until sendoff_fragment_end(). If another process makes it, waits for at most
 * `patience` milliseconds, or returns the old fragment. Returns NULL if the key has more than 4096
 * bytes, or if there are more than 64 tags: such a fragment is made each time.
 */
struct sendoff_fragment *sendoff_fragment_ask(const struct sendoff_fragments *fragments,
                                              const char *key,
                                              size_t key_len,
                                              const struct sendoff_text *tags,
                                              size_t tag_count,
                                              unsigned int patience);

/**
 * The fragment with this key if it is kept and its time is not over, else NULL. The caller ends its
 * use by sendoff_fragment_end().
 */
struct sendoff_fragment *sendoff_fragment_fetch(const struct sendoff_fragments *fragments,
                                                const char *key,
                                                size_t key_len);

/**
 * The bytes of a kept fragment, valid until sendoff_fragment_end(); `len` receives their number, and
 * `place` (may be NULL) the place of the fragment for sendoff_send_parts(). Returns NULL if the
 * caller makes it.
 */
const char *sendoff_fragment_bytes(const struct sendoff_fragment *fragment,
                                   size_t *len,
                                   uint64_t *place);

/**
 * Ends the use of a fragment, in the thread that has asked for it. If the caller has made it, keeps
 * `len` bytes for `ttl` seconds; with `data` NULL nothing is kept. Returns 1 if it is kept; 0 if it
 * is not, because it has more than 1 MiB or was purged since the caller has asked for it.
 */
int sendoff_fragment_end(struct sendoff_fragment *fragment,
                         unsigned int ttl,
                         const char *data,
                         size_t len);

/**
 * The number of purges so far, for sendoff_fragment_store().
 */
uint64_t sendoff_fragments_purges(const struct sendoff_fragments *fragments);

/**
 * Keeps a fragment for `ttl` seconds. `purges` is the number of purges before the data was made.
 * Returns 1, or 0 if it is not kept: it does not fit, or something was purged since.
 */
int sendoff_fragment_store(const struct sendoff_fragments *fragments,
                           const char *key,
                           size_t key_len,
                           const struct sendoff_text *tags,
                           size_t tag_count,
                           unsigned int ttl,
                           const char *data,
                           size_t len,
                           uint64_t purges);

/**
 * Purges the fragments with this tag, for all processes; with `tag` NULL all fragments. The key of a
 * fragment is also its tag.
 */
void sendoff_fragments_purge(const struct sendoff_fragments *fragments,
                             const char *tag,
                             size_t len);

/**
 * Makes the worker of this process and opens its links to the front that announced them, which may
 * take up to a second. `announcement` is the value of the request parameter SENDOFF_CHANNEL. Call
 * it after the last fork: it starts a thread. Returns NULL (errno) if the front cannot be reached
 * from here or does not answer, or if a thread or a descriptor cannot be created.
 */
struct sendoff_worker *sendoff_channel_open(const char *announcement, size_t len);

/**
 * 1 if the front has gone, else 0. The worker must be freed then.
 */
int sendoff_channel_lost(const struct sendoff_worker *worker);

/**
 * Begins a request, with its own `announcement`: files may be held and used until its end.
 * `accept` is the value of its parameter SENDOFF_ACCEPT, or NULL. Returns 0, or -1 if the request
 * belongs to another front, or if the front has gone.
 */
int sendoff_channel_begin(struct sendoff_worker *worker,
                          const char *announcement,
                          size_t len,
                          const char *accept,
                          size_t accept_len);

/**
 * Tells the front that the rest of the body comes from this worker; once per request. Returns 0,
 * or -1 if the front could not be told: the body must then continue where it began.
 */
int sendoff_channel_claim(struct sendoff_worker *worker);

/**
 * Ends the request, and the response if it was claimed.
 */
void sendoff_channel_end(struct sendoff_worker *worker);

/**
 * Makes a sender that holds at most `most` files. Call it after the last fork: it starts a thread
 * when a front first announces that it accepts files.
 */
struct sendoff_sender *sendoff_sender_new(size_t most);

/**
 * Frees a sender, drops its files and closes its links. NULL is allowed.
 */
void sendoff_sender_free(struct sendoff_sender *sender);

/**
 * Announces once, for a worker of sendoff_worker_on(), that responses may be sent by
 * sendoff_send_file(). A Sendoff front then announces its channel with each request. Other web
 * servers are not affected.
 */
void sendoff_sends_files(struct sendoff_worker *worker);

/**
 * Sends the response of a worker of sendoff_worker_on(): a header block as for
 * sendoff_write_head(), and a body of `len` bytes of the open file `fd`, from `offset` on. Only
 * sendoff_finish() may follow. If the front accepts files and a lease can guard this one, the file
 * is handed over; a later change by another process does not change the response. Otherwise the
 * file is read and sent. If reading fails, or the file is too short, the connection is closed
 * without an end of the response, so that the client does not take the response as complete; the
 * log has the reason. `fd` may be closed afterwards; its position is not used.
 *
 * Returns 1: handed over. 0: copied (or the response has no body). -1: the client has gone, or the
 * connection was closed; sendoff_accept() will return 0.
 */
int sendoff_send_file(struct sendoff_worker *worker,
                      const struct sendoff_sender *sender,
                      const char *head,
                      size_t head_len,
                      int fd,
                      uint64_t offset,
                      uint64_t len);

/**
 * Sends a response on the connection of `worker`, with the header block `head` and a body of `count`
 * parts. Fragments of at least 16 KiB that are sent again are stored in memory files, which the
 * front sends, if all other bytes together have at most 16 KiB. The caller ends the response
 * afterwards. Returns 1 if the front has them, 0 if the bytes were sent, -1 if the client has gone.
 */
int sendoff_send_parts(struct sendoff_worker *worker,
                       const struct sendoff_sender *sender,
                       const char *head,
                       size_t head_len,
                       const struct sendoff_part *parts,
                       size_t count);

/**
 * 1 if the client asks for another protocol, such as WebSocket, and the application may answer on
 * a connection of its own, else 0.
 */
int sendoff_has_tunnel(const struct sendoff_worker *worker);

/**
 * Ends the request for this worker, as sendoff_finish() does, and returns the descriptor of a
 * connection to the client, which the caller owns: a UNIX stream socket that blocks. On it the
 * application sends a response in HTTP/1.1, of which the web server makes one in the client's
 * version of HTTP. If its status is 101, both sides then use the protocol that the client has
 * asked for. Returns -1 with errno ENOTSUP where sendoff_has_tunnel() returns 0, and with errno
 * EPIPE if the client has gone.
 */
int sendoff_tunnel(struct sendoff_worker *worker);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SENDOFF_H */
