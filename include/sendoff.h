/*
 * libsendoff: take requests from Sendoff's front or from any web server that speaks FastCGI,
 * answer with bytes and files.
 *
 * Conventions
 * - There are two kinds of worker. One of sendoff_worker_new() serves the links that a front made
 *   for this process; one of sendoff_worker_on() serves a connection that a web server opened to
 *   a listening socket. A process may have any number of either.
 * - A `sendoff_worker` serves one request at a time and is used by one thread at a time;
 *   different workers know nothing of each other, so threads with a worker each need no locks.
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
 *   it no output is taken, no file is held or in use, sendoff_accept() returns 0. What was mapped
 *   when it was forked may change when another process writes to the file. A worker of
 *   sendoff_worker_on() may be used by the child if the parent only frees it.
 * - "Whether" is 1 or 0. What fails returns -1 or NULL; errno says why where the function names
 *   it. No function raises signals, calls back, or jumps. An internal failure is reported as a
 *   lost link.
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
 * Files of such applications leave by sendoff_send_file() without being read, if the front can take
 * them. The process makes a sender, or each thread one, and says sendoff_sends_files() of its workers.
 *
 * Response, in order: perhaps sendoff_write_interim(), then sendoff_write_head() once, then any
 * mixture of sendoff_write() and sendoff_write_file(), then sendoff_finish(). What they are given
 * is queued; the queue is sent when it is large, at sendoff_flush() and at the end. Once the client
 * has gone, what follows is discarded; the request must still be finished.
 *
 * A process that gets its requests elsewhere (php-fpm: over FastCGI) and answers on a link what
 * it would not copy; docs/handover.md, section 8. Instead of sendoff_worker_new() and
 * sendoff_accept() it calls sendoff_channel_open() and, for each request,
 * sendoff_channel_begin(), perhaps sendoff_channel_claim() and then the functions of a response
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
 * The application is asked whether a client may have a response (section 6.3).
 */
#define SENDOFF_AUTHORIZER 2u

/**
 * The application is asked to change a file (section 6.4).
 */
#define SENDOFF_FILTER 4u

/**
 * How many blobs a worker may have at a time.
 */
#define SENDOFF_BLOBS 64

/**
 * How many bytes they may have together.
 */
#define SENDOFF_BLOB_BYTES (8u << 20)

/**
 * A worker serves requests, one at a time. Made by sendoff_worker_new(), sendoff_worker_on() or
 * sendoff_channel_open(), and freed by sendoff_worker_free() or sendoff_worker_close().
 */
typedef struct sendoff_worker sendoff_worker;

/**
 * Hands over files on connections. Made by sendoff_sender_new(). Any number of threads may share one
 * until it is freed: it holds a file once for all of them.
 */
typedef struct sendoff_sender sendoff_sender;

/**
 * One request parameter. Both strings are followed by a NUL byte that their length does not count.
 */
typedef struct sendoff_param {
    /**
     * Such as `REQUEST_METHOD`.
     */
    const char *name;
    /**
     * Its length in bytes.
     */
    size_t name_len;
    /**
     * Such as `POST`.
     */
    const char *value;
    /**
     * Its length in bytes.
     */
    size_t value_len;
} sendoff_param;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Makes the worker of this process, for links that a front made. Takes ownership of `link_count`
 * connected UNIX stream sockets (at most 255) and of the guard socket (UNIX, SOCK_SEQPACKET; -1:
 * no guard, every sendoff_file_hold() is refused). Call it after the last fork: it starts a
 * thread. NULL if a thread or descriptor could not be had; errno says which.
 */
struct sendoff_worker *sendoff_worker_new(const int *links, size_t link_count, int guard);

/**
 * Frees the worker, drops its files and closes its sockets. NULL is allowed.
 */
void sendoff_worker_free(struct sendoff_worker *worker);

/**
 * Ends the current request and waits for the next one. 1: there is a request. 0: the front closed
 * a link or asked the process to end, or wrote something that is no request (logged to stderr);
 * the process should exit. On a connection, 0: no other request will come on it, and it should be
 * closed; -1 with errno EINTR: a signal handler ran before a request began.
 */
int sendoff_accept(struct sendoff_worker *worker);

/**
 * Makes sendoff_accept() return 0 once no request waits any more. May be called from a signal
 * handler, also while another call on the worker is running, and does nothing in a child that the
 * process forked. On a connection it cuts a request body that is still arriving, too.
 */
void sendoff_stop(const struct sendoff_worker *worker);

/**
 * The request's parameters, in the order the front sent them, without SENDOFF_ACCEPT. `count`
 * receives their number.
 */
const struct sendoff_param *sendoff_params(const struct sendoff_worker *worker, size_t *count);

/**
 * The value of one parameter, NUL-terminated, or NULL if there is none of that name. `len`
 * receives its length and may be NULL.
 */
const char *sendoff_param_get(const struct sendoff_worker *worker,
                              const char *name,
                              size_t name_len,
                              size_t *len);

/**
 * Reads the request body. Returns the bytes read, 0 at its end, -1 if it cannot be read (errno).
 */
ssize_t sendoff_read(struct sendoff_worker *worker, void *buf, size_t len);

/**
 * The CGI header block (RFC 3875 section 6), with the empty line that ends it. 0, or -1 if the
 * client has gone.
 */
int sendoff_write_head(struct sendoff_worker *worker, const char *block, size_t len);

/**
 * The head of an interim response (103 Early Hints; RFC 9110 section 15.2), any number of times before
 * sendoff_write_head(): a CGI header block whose Status is 1xx, with the empty line that ends it.
 * It is sent before the call returns. 1, or 0 if it was not sent, because the final head was
 * written before or the server has not said that it knows such heads, or -1 if the client has
 * gone.
 */
int sendoff_write_interim(struct sendoff_worker *worker,
                          const char *block,
                          size_t len);

/**
 * Body bytes. They are copied, or sent before the call returns: `data` may be used for something
 * else then. 0, or -1 if the client has gone.
 */
int sendoff_write(struct sendoff_worker *worker, const void *data, size_t len);

/**
 * An entry for the server's log, about this request; it may have several lines. A newline is added
 * where one lacks. Also between sendoff_finish() with `detach` and sendoff_ready().
 */
void sendoff_log(struct sendoff_worker *worker, const char *line, size_t len);

/**
 * Sends what is queued. 0, or -1 if the client has gone.
 */
int sendoff_flush(struct sendoff_worker *worker);

/**
 * Whether the client has gone. Looks at the link without waiting.
 */
int sendoff_aborted(struct sendoff_worker *worker);

/**
 * Ends the response. With `detach` nonzero the process goes on working on the request (no output
 * is taken any more) and calls sendoff_ready() when it can take another. A second call is ignored.
 * An `app_status` other than 0 says that the response may be cut short; it is not kept for others.
 */
void sendoff_finish(struct sendoff_worker *worker, int app_status, int detach);

/**
 * Says that a process that went on working after sendoff_finish() can take another request.
 * sendoff_accept() says so, too.
 */
void sendoff_ready(struct sendoff_worker *worker);

/**
 * Whether the front takes file segments in this request (the request announced it).
 */
int sendoff_accepts_files(const struct sendoff_worker *worker);

/**
 * Whether the front takes the file that a header block names (X-Sendfile, X-Accel-Redirect).
 */
int sendoff_takes_named(const struct sendoff_worker *worker);

/**
 * Sends the file that the header block names, open for reading, right before the header block is
 * written. Takes ownership of `fd`. 0, or -1 if the client has gone.
 */
int sendoff_named(struct sendoff_worker *worker, int fd);

/**
 * Whether the front wants this response explained (`sendoff explain`).
 */
int sendoff_explains(const struct sendoff_worker *worker);

/**
 * Explains the output that follows, in the form of docs/handover.md (EXPLAIN). At most 1024 bytes
 * count. Nothing happens unless sendoff_explains().
 */
void sendoff_explain(struct sendoff_worker *worker, const char *text, size_t len);

/**
 * Opens a listening socket: `address`, NUL-terminated, is a path or `:port`, `host:port`,
 * `[v6]:port`. A socket that lies at the path is replaced; any other file makes it fail. The
 * descriptor, or -1 (errno).
 */
int sendoff_listen(const char *address, int backlog);

/**
 * Whether the descriptor is a listening socket. A FastCGI application is started with one as
 * descriptor 0, a CGI program is not.
 */
int sendoff_is_listener(int fd);

/**
 * Waits for a connection on a listening socket, blocking or not. Its descriptor, which is never 0,
 * 1 or 2, or -1: errno EINTR if a signal handler ran (one installed without SA_RESTART), or others
 * of accept(2). `peers`, NUL-terminated or NULL, is a list of IP addresses with commas, as servers
 * give it in the environment variable FCGI_WEB_SERVER_ADDRS: TCP connections from others are
 * closed. UNIX connections that stay silent for 2 s are closed, too. Several threads and processes
 * may wait on one socket.
 */
int sendoff_accept_connection(int listener, const char *peers);

/**
 * Makes a worker for a connection, of which it takes ownership. `roles`: what the application can
 * be, SENDOFF_RESPONDER and so on, joined by `|`; servers that ask for another are refused.
 * sendoff_accept() on it returns as soon as the parameters have arrived; the body is read as it
 * comes. It has no guard and starts no thread. NULL: errno EINVAL, EBADF.
 */
struct sendoff_worker *sendoff_worker_on(int connection, unsigned int roles);

/**
 * Ends the response, closes the connection and frees a worker of sendoff_worker_on(). If the
 * server is still sending, its request is read first (until it is silent for 2 s): otherwise it
 * might lose the response. NULL is allowed. (sendoff_worker_free() only closes the descriptor: right
 * for a parent that leaves the connection to its child, and, after sendoff_flush(), for a response
 * that fails after its head: without an end the client does not take it for a whole one.)
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
 * Whether another request may come on this connection. If not, sendoff_accept() will return 0.
 */
int sendoff_keeps_connection(const struct sendoff_worker *worker);

/**
 * As sendoff_read(), of the file that a filter is to change (FCGI_DATA). Read the body to its end
 * first: what arrives of it meanwhile is kept in memory. Other roles have none.
 */
ssize_t sendoff_read_data(struct sendoff_worker *worker, void *buf, size_t len);

/**
 * Queues bytes for the server's log as they are, where sendoff_log() writes lines. 0, or -1 if the
 * client has gone.
 */
int sendoff_write_stderr(struct sendoff_worker *worker, const void *data, size_t len);

/**
 * Holds a file under a read lease and maps it (private, read-only) at `addr`, which must be the
 * page-aligned start of `size` rounded up to a page of address space that the caller reserved and
 * gives to the worker until sendoff_file_drop(). Takes ownership of `fd`, open for reading on a
 * regular file whose size must be `size` > 0 once the lease is held, and whose modification and
 * change times must be those given; otherwise the file has changed and the call is refused. `file`
 * receives its number. A file that is held is in use.
 *
 * If another process opens the file for writing later, the helper thread replaces the mapping by a
 * private copy before the writer goes on, so what lies at `addr` never changes while the file is
 * in use. The caller keeps away from file systems where a lease does not tell of every process
 * that writes: FUSE, network file systems, overlayfs (docs/snapshot.md).
 *
 * 0, or -1: errno EACCES (not the owner, no CAP_LEASE), EAGAIN (a writer has it open), ESTALE (it
 * changed), EMFILE (too many held), EOPNOTSUPP (no guard, or the front has closed it), others from
 * fcntl(2) and mmap(2). The address space is then PROT_NONE again.
 */
int sendoff_file_hold(struct sendoff_worker *worker,
                      int fd,
                      void *addr,
                      uint64_t size,
                      const struct timespec *mtime,
                      const struct timespec *ctime,
                      uint32_t *file);

/**
 * Says that the mapping is about to be used. 1: it is whole and the lease stands. 0: the lease has
 * broken; the mapping must not be used any more and the file should be dropped.
 */
int sendoff_file_use(struct sendoff_worker *worker, uint32_t file);

/**
 * All files in use are no longer: a break may now discard their mappings instead of copying them,
 * and those that have been deleted are given up after some seconds, as if their lease had broken.
 */
void sendoff_files_unuse(struct sendoff_worker *worker);

/**
 * Whether the lease still stands. Unlike sendoff_file_use() it changes nothing.
 */
int sendoff_file_intact(const struct sendoff_worker *worker, uint32_t file);

/**
 * Address of a counter that changes when a lease breaks or a file is given back, and in a forked
 * child. While it has the value it had before sendoff_file_intact() or sendoff_file_use() returned
 * 1, they would return 1 again; reading it takes no lock. Read it with acquire ordering
 * (__atomic_load_n()).
 */
const uint32_t *sendoff_file_epoch(void);

/**
 * Gives the mapping back: the address space is PROT_NONE again. The lease ends when the front has
 * released the file.
 */
void sendoff_file_drop(struct sendoff_worker *worker, uint32_t file);

/**
 * Body bytes that are `len` bytes of a held file or a blob from `offset` on. Falls back to bytes
 * by itself if the lease has broken, reading them from the mapping. The range must lie inside the
 * mapping. 0, or -1 if the client has gone, or the file is not held or shorter.
 */
int sendoff_write_file(struct sendoff_worker *worker, uint32_t file, uint64_t offset, uint64_t len);

/**
 * Copies `len` > 0 bytes into a blob, whose number `blob` receives. Blobs are for bytes that are
 * written repeatedly, such as constants of a program: they are stored once, in a sealed memory file
 * (memfd_create(2)) that no process can change, and then named in sendoff_write_file(). They need
 * no lease and no guard.
 *
 * `contents` (may be NULL) receives the address of the copy, which stays and never changes until
 * sendoff_blob_drop(): a caller that does not know whether its bytes are still the same can
 * compare them.
 *
 * 0, or -1: errno ENOSPC (more than SENDOFF_BLOBS, or SENDOFF_BLOB_BYTES in all of them), EMFILE
 * (too many held), EINVAL (nothing to copy), EOPNOTSUPP (in a forked child), others from
 * memfd_create(2), write(2) and mmap(2).
 */
int sendoff_blob_store(struct sendoff_worker *worker,
                       const void *data,
                       size_t len,
                       uint32_t *blob,
                       const void **contents);

/**
 * Forgets a blob. What was written of it is sent all the same.
 */
void sendoff_blob_drop(struct sendoff_worker *worker, uint32_t blob);

/**
 * Makes the worker of this process and opens its links to the front that announced them, which may
 * take up to a second. `announcement` is the value of the request parameter SENDOFF_CHANNEL. Call
 * it after the last fork: it starts a thread. NULL if the front cannot be reached from here, or
 * answers nothing, or a thread or descriptor could not be had (errno).
 */
struct sendoff_worker *sendoff_channel_open(const char *announcement, size_t len);

/**
 * Whether the front has gone. The worker must then be freed.
 */
int sendoff_channel_lost(const struct sendoff_worker *worker);

/**
 * Begins a request, with its own `announcement`: files may be held and used until its end.
 * `accept` is the value of its parameter SENDOFF_ACCEPT, or NULL. 0, or -1: it is another front's,
 * or the front has gone.
 */
int sendoff_channel_begin(struct sendoff_worker *worker,
                          const char *announcement,
                          size_t len,
                          const char *accept,
                          size_t accept_len);

/**
 * Tells the front that the rest of the body comes from this worker. Once per request. 0, or -1:
 * the front has not heard it; the body must go on where it went.
 */
int sendoff_channel_claim(struct sendoff_worker *worker);

/**
 * Ends the request, and the response if it was claimed.
 */
void sendoff_channel_end(struct sendoff_worker *worker);

/**
 * Makes a sender that holds at most `most` files. Call it after the last fork. It starts a thread
 * when a front first announces that it takes files.
 */
struct sendoff_sender *sendoff_sender_new(size_t most);

/**
 * Frees a sender, drops its files and closes its links. NULL is allowed.
 */
void sendoff_sender_free(struct sendoff_sender *sender);

/**
 * Says once, for a worker of sendoff_worker_on(), that responses may come by sendoff_send_file():
 * a Sendoff front then announces what is needed for it. Other web servers notice nothing.
 */
void sendoff_sends_files(struct sendoff_worker *worker);

/**
 * A response of a worker of sendoff_worker_on(): a header block as for sendoff_write_head(), and a
 * body that is `len` bytes of the open file `fd` from `offset` on. Only sendoff_finish() may
 * follow. If the front takes files and a lease can guard this one, the file is handed over; what
 * another process writes to it later does not change the response. Otherwise it is read and sent.
 * If reading fails, or the file is too short, the connection is closed without an end of the
 * response, so that the client does not take it for a whole one; the log says why. `fd` may be
 * closed afterwards; its position is not used.
 *
 * 1: handed over. 0: copied (or no body was wanted). -1: the client has gone, or the connection
 * was closed; sendoff_accept() will return 0.
 */
int sendoff_send_file(struct sendoff_worker *worker,
                      const struct sendoff_sender *sender,
                      const char *head,
                      size_t head_len,
                      int fd,
                      uint64_t offset,
                      uint64_t len);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SENDOFF_H */
