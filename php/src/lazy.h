/*
 * Lazy strings: a PHP string that stands for a whole file and is read only where the script looks
 * inside.
 *
 * Each file calls only files below it in this list:
 *
 * extension.c    a worker handle for php-fpm and php-cgi
 * lazy_module.c  the module, and the replaced file_get_contents() and readfile()
 * lazy_stream.c  the replaced functions on open files
 * lazy_output.c  the write hooks: output from a mapped file leaves as a file segment
 * lazy_chunk.c   fread() of a stream whose file is held
 * lazy_match.c   recognises the bytes of a file that PHP has read itself
 * lazy_search.c  finds files inside long output
 * lazy_blob.c    recognises constant strings, which are stored with the front
 * lazy_explain.c notes for `sendoff explain`: the origin of output, and the reasons for copies
 * lazy_lookup.c  from a path or a stream to a held file
 * lazy_file.c    mapped files, kept between requests under the worker's leases
 * lazy_open.c    which files may be held
 * lazy_because.c the reason why PHP reads a file itself
 * hints.c        headers_send()
 * lazy_globals.c settings, counters, the write hook, the clock
 *
 * A process serves one request at a time. Everything that depends on the version of PHP is in
 * php_versions.h.
 */
#ifndef SENDOFF_LAZY_H
#define SENDOFF_LAZY_H

#include "php_versions.h"
#include "sendoff.h"

/* Called by the SAPI. */

/*
 * Passed to php_module_startup(). Without an attached worker all functions behave as in stock PHP.
 */
extern zend_module_entry sendoff_module_entry;

/*
 * Attaches the worker of this process after the last fork; the caller keeps ownership. NULL,
 * between requests, detaches the worker and releases its files.
 */
void sendoff_lazy_attach(sendoff_worker *worker);

/*
 * Call it after php_request_shutdown() and before the next sendoff_accept(), when no script holds a
 * lazy string any more, unless lazy_outlives_requests is set. Prepares the mapped files for the
 * next request and releases those that are stale or idle.
 */
void sendoff_lazy_end_request(void);

/*
 * Set it before the first request if scripts run on from one request to the next. The application
 * may then keep lazy strings: they stay valid as long as the process lives.
 */
extern bool lazy_outlives_requests;

/* Shared by the files of the module. */

/* A file mapped into one slot of the arena, with a zend_string header before its bytes. */
typedef struct mapped_file mapped_file;

ZEND_BEGIN_MODULE_GLOBALS(sendoff)
/*
 * sendoff.threshold: files and constants of fewer bytes take PHP's own path; 0 turns lazy strings
 * off.
 */
zend_long threshold;
/*
 * sendoff.overlayfs: files on overlayfs are held too, although a process may still have one mapped
 * for writing (lazy_open.c).
 */
bool overlayfs;
/*
 * True from this module's RINIT to its RSHUTDOWN. Another module's RSHUTDOWN may still run scripts
 * (a session handler), whose reads must not be noted for the next request.
 */
bool in_request;
/* Output of this request, for sendoff_stats(). `segments` counts segments, not bytes. */
zend_long handed_over_bytes;
zend_long copied_bytes;
zend_long segments;
ZEND_END_MODULE_GLOBALS(sendoff)

ZEND_EXTERN_MODULE_GLOBALS(sendoff)
#define SENDOFF_G(v) ZEND_MODULE_GLOBALS_ACCESSOR(sendoff, v)

/*
 * The parts of sendoff_lazy_attach() and sendoff_lazy_end_request() that are in lazy_file.c. The
 * latter returns false, and does nothing, without a worker.
 */
void mapped_files_attach(sendoff_worker *worker);
bool mapped_files_end_request(void);

/* Reserves the address space of the arena. After FAILURE lazy strings stay off. */
zend_result mapped_files_startup(void);

/* Bytes of a page of memory. PHP's streams map files from multiples of it on. */
extern size_t lazy_page;

/*
 * Sets `found[i]` for each of the `count` addresses `first`, `first + distance`, ... that stands in
 * the memory of this process, i.e. to which a variable may refer. False: the memory cannot be read.
 */
bool lazy_held(const char *first, size_t distance, size_t count, bool *found);

/* The attached worker, or NULL. */
sendoff_worker *lazy_attached(void);

/* The attached worker if this request may use lazy strings and file segments, else NULL. */
sendoff_worker *lazy_worker(void);

/* Seconds of CLOCK_MONOTONIC_COARSE, which is cheap to read. */
time_t lazy_now(void);

/*
 * The mapped file with the current contents of `path` (absolute, resolved), marked as used in this
 * request; NULL: PHP must read the file. Valid until the request ends.
 */
mapped_file *mapped_file_open(const char *path);

/*
 * A negative cache of paths as scripts give them. mapped_file_is_hopeless(): whether `path` led to
 * no mapped file within the last 2 s. mapped_file_give_up(): records that it led to none.
 */
bool mapped_file_is_hopeless(zend_string *path);
void mapped_file_give_up(zend_string *path);

/*
 * The contents as a string. It is flagged interned, so the engine neither counts, writes nor frees
 * it.
 */
zend_string *mapped_file_string(mapped_file *mapped);

/*
 * True if `len` bytes at `ptr` lie in a mapped file whose lease is intact. If so, `file` and
 * `offset` receive their place.
 */
bool mapped_file_find(const char *ptr, size_t len, uint32_t *file, uint64_t *offset);

/*
 * A counter: while it is unchanged, every lease that was intact is still intact. Read without a
 * lock, so a lease may break right after the call, as after mapped_file_find().
 */
uint32_t mapped_file_epoch(void);

/*
 * The end of the contents of the mapped file in which `in_file` lies; `in_file` may be that end
 * itself.
 */
const char *mapped_file_end(const char *in_file);

/*
 * Opens the file that stat(2) saw at `path`. -1: the path names another file by now, open(2) fails,
 * or a lease does not guard the file against every writer.
 */
int lazy_open(const char *path, const struct stat *seen);

/* Like mapped_file_open(), for a path as a script gives it. */
mapped_file *lazy_path_file(zend_string *path);

/*
 * Like mapped_file_open(), for the file of a stream; NULL also if the stream is not a plain file or
 * has a read filter.
 */
mapped_file *lazy_stream_file(php_stream *stream);

/* Shorter reads are not noted, in bytes. (PHP's own tests run with 1.) */
#ifndef LAZY_NOTED_MIN
#define LAZY_NOTED_MIN 4096
#endif

/* Holds the file of this stream for its further reads. False: the file cannot be held. */
bool lazy_chunk_bind(php_stream *stream);

/*
 * Performs fread() of `wanted` bytes for the call frame `call`. `is_output_call` tells whether
 * another frame, whose arguments are being passed, is a call of the replaced fwrite() on
 * php://output. True: `result` is set, and the stream is in the state in which PHP's read would
 * leave it. False: nothing has changed.
 */
bool lazy_chunk_read(php_stream *stream, size_t wanted, const zend_execute_data *call, zval *result,
					 bool (*is_output_call)(const zend_execute_data *call));

/*
 * If `str` is a token of lazy_chunk_read(): the bytes that it stands for, in a mapped file. The
 * token is free afterwards. Else NULL.
 */
const char *lazy_chunk_redeem(const char *str);

/* At the end of a request: unbinds the stream and frees all tokens. */
void lazy_chunk_reset(void);

/*
 * Notes that a script read `len` bytes from this offset of a stream or path into `at` (NULL: into a
 * buffer of PHP). Only the last note is kept.
 */
void lazy_match_stream_read(zend_resource *stream, zend_off_t offset, const char *at, size_t len);
void lazy_match_path_read(zend_string *path, zend_off_t offset, const char *at, size_t len);

/* A cheap test whether lazy_match() will probably find these bytes. */
bool lazy_match_is_likely(const char *str, size_t len);

/*
 * If `len` bytes at `str` equal the expected bytes of a held file or those read last: returns their
 * address in the mapped file and sets `file` and `offset`. Else NULL. `loop` receives the stream
 * that they were read from, if a loop may read on there, else NULL.
 */
const char *lazy_match(const char *str, size_t len, uint32_t *file, uint64_t *offset,
					   php_stream **loop);

/* A script got this lazy string, so its bytes, or a copy of its beginning, are expected next. */
void lazy_match_expect(const zend_string *lazy);

/* Bytes of a mapped file have been handed over. Returns whether they continue the previous ones. */
bool lazy_match_sent(const char *str, size_t len);

/* At the end of a request: drops the notes. */
void lazy_match_reset(void);

/*
 * lazy_blob_attach(): lists the shared mappings of this process. lazy_blob_detach(): drops the
 * blobs of the attached worker.
 */
void lazy_blob_attach(void);
void lazy_blob_detach(void);

/* True if `len` bytes at `str` look like a constant string that is long enough for a segment. */
bool lazy_blob_is_constant(const char *str, size_t len);

/*
 * True if `len` bytes at `str` are a stored constant, which `blob` then receives; stores them if
 * they have been written often enough. Call it once per write, since it counts.
 */
bool lazy_blob_find(const char *str, size_t len, uint32_t *blob);

/*
 * Stores bytes as a blob, among the constants, and returns the address of the blob's bytes. NULL:
 * they are too short, or there is no room. Give it up when it is not needed any more.
 */
const char *lazy_blob_keep(const char *bytes, size_t len, uint32_t *blob);
void lazy_blob_give_up(uint32_t blob, size_t len);

/* Writes such a blob by zend_write. */
void lazy_blob_write(const char *contents, size_t len, uint32_t blob);

/* True if lazy_blob_write() writes this string. */
bool lazy_blob_is_own(const char *str, size_t len);

/* At the end of a request: drops constants that have been idle for long. */
void lazy_blob_end_request(void);

/* Shorter output is not searched, in bytes. (PHP's own tests run with less.) */
#ifndef LAZY_SEARCH_MIN
#define LAZY_SEARCH_MIN ((size_t)64 * 1024)
#endif

/* A range of output that equals bytes of a mapped file. */
typedef struct lazy_found {
	/* Offset of the range in the output. */
	size_t before;
	const char *in_file;
	size_t len;
} lazy_found;

/* True if a long enough range of `str` equals bytes of one of the request's last lazy strings. */
bool lazy_search(const char *str, size_t len, lazy_found *found);

/* A script got this lazy string: output is searched for it. */
void lazy_search_note(const zend_string *lazy);

/* At the end of a request: drops the noted lazy strings. */
void lazy_search_reset(void);

/* Replaces the functions on open files. */
void lazy_stream_startup(void);

/* True if functions and write hooks are replaced at all. Set it before the module starts. */
extern bool lazy_is_wanted;

/* If set, called before the worker is asked for anything in a request. */
extern void (*lazy_before_use)(void);

/* If set, called at the end of a request, before its response ends. */
extern void (*lazy_before_end)(void);

/* If set, called before a segment is handed over; false: it must leave as bytes. */
extern bool (*lazy_before_hand_over)(void);

/*
 * hints.c. The function that sends an interim response with the headers so far; NULL if the SAPI
 * cannot send one. It returns false if the response was not sent. May end the script by a long jump
 * if the client has gone.
 */
extern bool (*hints_send)(int status);
PHP_FUNCTION(headers_send);

/* The hook that this module puts into zend_write. */
extern zend_write_func_t lazy_write_hook;

/* Hooks zend_write and the SAPI's ub_write. */
void lazy_output_startup(void);

/*
 * Hands over the bytes that wait to be joined with further ones. Call it before any action on the
 * response that bypasses the hooks. Like a write, it may end the script.
 */
void lazy_output_settle(void);

/* The same before the end of the response; does not end the script. */
void lazy_output_end(void);

/*
 * lazy_explain.c: whether `sendoff explain` sent this request. The response must not depend on it.
 * All calls except LAZY_BECAUSE() are made only if it is set.
 */
extern bool lazy_explaining;

/*
 * The reason why PHP reads the file that was looked up last: a constant, or text that is valid
 * until the next reason.
 */
extern const char *lazy_because;
#define LAZY_BECAUSE(why) (lazy_because = (why))
#define LAZY_BECAUSE_ERRNO(what) LAZY_BECAUSE(lazy_explaining ? lazy_explain_errno(what) : NULL)

const char *lazy_explain_errno(const char *what);

/* Clears the reason and the paths of the previous request. */
void lazy_because_begin(void);

/*
 * True if the script got any mapped file; true if it got one of this size; and the path under which
 * it got this one.
 */
bool lazy_was_given(void);
bool lazy_was_given_of(size_t size);
const char *lazy_given_path(uint32_t file);

/* At the start of a request; the worker may be NULL. */
void lazy_explain_begin(sendoff_worker *worker);

/* A mapped file with this size and path was returned to the script, or written for it. */
void lazy_explain_given(uint32_t file, size_t size, const char *path);

/* PHP's handler of the current function read a file into `got` (NULL: not into a string). */
void lazy_explain_read(const char *path, const zval *got);

/* `len` bytes at `str` are written to PHP's output buffers, or past them. */
void lazy_explain_write(const char *str, size_t len);

/* The next output: bytes, a range of a file (recognised by comparison or not), or a constant. */
void lazy_explain_bytes(const char *str, size_t len);
void lazy_explain_file(uint32_t file, bool recognised);
void lazy_explain_constant(const char *what);
/* At the end of a request that has sent fragments: their numbers, and the time in ms for those
 * made. */
void lazy_explain_fragments(unsigned int kept, unsigned int made, long time);
/* True if zend_write is this module's hook, so that it sees all echoed bytes first. */
bool lazy_output_is_hooked(void);

#endif /* SENDOFF_LAZY_H */
