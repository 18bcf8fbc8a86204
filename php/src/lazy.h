/*
 * Lazy strings: a PHP string that stands for a whole file and is read only where the script looks
 * inside.
 *
 * Each file calls only files below it in this list.
 *
 * extension.c    for php-fpm and php-cgi: how they get a worker
 * lazy_module.c         the module, and the replaced file_get_contents() and readfile()
 * lazy_stream.c  the replaced functions on open files
 * lazy_output.c  the write hooks: what is written from a mapped file leaves as a file segment
 * lazy_chunk.c   fread() of a stream whose file is held
 * lazy_match.c   recognises the bytes of a file that PHP has read itself
 * lazy_search.c  finds files inside long output
 * lazy_blob.c    recognises constant strings, which are stored with the front
 * lazy_explain.c what `sendoff explain` is told: where output comes from, and why it was copied
 * lazy_lookup.c  from a path or a stream to a held file
 * lazy_file.c  mapped files, kept between requests under the worker's leases
 * lazy_open.c    which files may be held
 * lazy_because.c why a file is read by PHP
 * lazy_globals.c settings, counters, the write hook, the clock
 *
 * One process serves one request at a time. What depends on the version of PHP is in
 * php_versions.h.
 */
#ifndef SENDOFF_LAZY_H
#define SENDOFF_LAZY_H

#include "php_versions.h"
#include "sendoff.h"

/* What the SAPI calls. */

/* Goes to php_module_startup(). Everything stays PHP's own until a worker is attached. */
extern zend_module_entry sendoff_module_entry;

/*
 * Gives this process its worker (borrowed), after the last fork. NULL takes it away, between
 * requests, and gives its files back.
 */
void sendoff_lazy_attach(sendoff_worker *worker);

/*
 * After php_request_shutdown() and before the next sendoff_accept(): no script holds a lazy
 * string any more, so the mapped files are made ready for the next request and those not worth
 * keeping go.
 */
void sendoff_lazy_end_request(void);

/* Between these files. */

/* A file in memory with a zend_string header in front: one slot of the arena. */
typedef struct mapped_file mapped_file;

ZEND_BEGIN_MODULE_GLOBALS(sendoff)
/* Files and constants below this many bytes are PHP's own business; 0 turns lazy strings off. */
zend_long threshold;
/* Files on overlayfs are held too, although a process may have an old mapping for writing. */
bool overlayfs;
/*
 * Between our start and our end of a request. Another module's end may still run scripts (a
 * session's handlers), and what they did would be noted for the next request.
 */
bool in_request;
/* About the output of this request. */
zend_long handed_over_bytes;
zend_long copied_bytes;
zend_long segments;
ZEND_END_MODULE_GLOBALS(sendoff)

ZEND_EXTERN_MODULE_GLOBALS(sendoff)
#define SENDOFF_G(v) ZEND_MODULE_GLOBALS_ACCESSOR(sendoff, v)

/* lazy_file.c's part of sendoff_lazy_attach() and sendoff_lazy_end_request(); false: there is no
 * worker, so nothing was done. */
void mapped_files_attach(sendoff_worker *worker);
bool mapped_files_end_request(void);

/* Reserves the arena's address space. FAILURE leaves lazy strings off. */
zend_result mapped_files_startup(void);

/* The worker, if there is one. */
sendoff_worker *lazy_attached(void);

/* The worker, if this request may use lazy strings and file segments; else NULL. */
sendoff_worker *lazy_worker(void);

/* Seconds on a clock that only goes forward, cheaply. */
time_t lazy_now(void);

/*
 * The mapped file that holds what `path` (resolved, absolute) contains now, marked as used in this
 * request; NULL if PHP should read the file itself. Valid until the request ends.
 */
mapped_file *mapped_file_open(const char *path);

/* Whether this path, as the script gave it, led to no mapped file just now; and: it did not. */
bool mapped_file_is_hopeless(zend_string *path);
void mapped_file_give_up(zend_string *path);

/* The mapped file's contents as a string. It is flagged interned: the engine does not count,
 * write or free it. */
zend_string *mapped_file_string(mapped_file *mapped);

/*
 * If `len` bytes at `ptr` lie in a mapped file whose lease stands: true, and where they are in the
 * file.
 */
bool mapped_file_find(const char *ptr, size_t len, uint32_t *file, uint64_t *offset);

/*
 * As long as this is what it was before, all leases stand that stood then. Without a lock, so what
 * it says may just have become untrue, as with mapped_file_find().
 */
uint32_t mapped_file_epoch(void);

/* Where the contents of the mapped file end in which this lies, or just behind which. */
const char *mapped_file_end(const char *in_file);

/*
 * Opens what stat(2) has seen at `path`; -1 if it is not there any more, if opening it would wait
 * for another process, or if a lease does not guard it against every writer.
 */
int lazy_open(const char *path, const struct stat *seen);

/* As mapped_file_open(), for a path as a script gives it. */
mapped_file *lazy_path_file(zend_string *path);

/* As mapped_file_open(), for the file that a stream reads, if it is a plain one without filters. */
mapped_file *lazy_stream_file(php_stream *stream);

/* Shorter reads are not worth noting. (PHP's own tests run with 1.) */
#ifndef LAZY_NOTED_MIN
#define LAZY_NOTED_MIN 4096
#endif

/* From now on the file of this stream is held, if it can be. */
bool lazy_chunk_bind(php_stream *stream);

/*
 * fread() of `wanted` bytes, `call` being the call of it. `is_output_call` tells whether another
 * call, about to be made, is of the replaced fwrite() for php://output. True: `result` is set, and
 * the stream stands where PHP's own read would have left it. False: nothing has happened.
 */
bool lazy_chunk_read(php_stream *stream, size_t wanted, const zend_execute_data *call, zval *result,
					 bool (*is_output_call)(const zend_execute_data *call));

/*
 * If what is written is a token of lazy_chunk_read(): where in a mapped file the bytes are that it
 * stands for, once. Else NULL.
 */
const char *lazy_chunk_redeem(const char *str);

/* Forgets the request's stream and tokens. */
void lazy_chunk_reset(void);

/*
 * Notes that a script got `len` bytes at `at` (NULL: PHP has them) from this offset of a stream or
 * path. Only the last note is kept.
 */
void lazy_match_stream_read(zend_resource *stream, zend_off_t offset, const char *at, size_t len);
void lazy_match_path_read(zend_string *path, zend_off_t offset, const char *at, size_t len);

/* Whether lazy_match() may well find these bytes. It proves nothing. */
bool lazy_match_is_likely(const char *str, size_t len);

/*
 * If the `len` bytes at `str` equal those of a held file that come next or were read last: where
 * these lie in its mapped file, and in the file. Else NULL. `loop` receives the stream that they
 * were read from, if a loop may read on there, else NULL.
 */
const char *lazy_match(const char *str, size_t len, uint32_t *file, uint64_t *offset,
					   php_stream **loop);

/* A script got this lazy string: it may be written next, perhaps a copy of its beginning. */
void lazy_match_expect(const zend_string *lazy);

/* Bytes of a mapped file have been handed over. Returns whether they continued those before. */
bool lazy_match_sent(const char *str, size_t len);

/* Forgets the request's notes. */
void lazy_match_reset(void);

/* With a worker: looks where this process has shared memory. Without: forgets what that worker
 * stored. */
void lazy_blob_attach(void);
void lazy_blob_detach(void);

/* Whether `len` bytes at `str` are, by all appearances, a constant that is worth a segment. */
bool lazy_blob_is_constant(const char *str, size_t len);

/*
 * If they are, and have been seen before: true, and the blob that holds the same bytes. Call it
 * once for each time that they are written.
 */
bool lazy_blob_find(const char *str, size_t len, uint32_t *blob);

/* Forgets what has not been written for long. */
void lazy_blob_end_request(void);
/* Shorter output is not searched. (PHP's own tests run with less.) */
#ifndef LAZY_SEARCH_MIN
#define LAZY_SEARCH_MIN ((size_t)64 * 1024)
#endif

/* Where bytes of a mapped file stand in output. */
typedef struct lazy_found {
	/* Bytes of the output before them. */
	size_t before;
	const char *in_file;
	size_t len;
} lazy_found;

/* Whether a good part of `str` is, byte for byte, a part of a lazy string of this request. */
bool lazy_search(const char *str, size_t len, lazy_found *found);

/* A script got this lazy string. */
void lazy_search_note(const zend_string *lazy);

/* Forgets the request's lazy strings. */
void lazy_search_reset(void);

/* Replaces the functions on open files. */
void lazy_stream_startup(void);

/* Whether to replace anything at all. Before the module starts. */
extern bool lazy_is_wanted;

/* Asked before a segment is handed over, if set; false: it must leave as bytes. */
extern bool (*lazy_before_hand_over)(void);

/* Our zend_write. */
extern zend_write_func_t lazy_write_hook;

/* Hooks zend_write and the SAPI's ub_write. */
void lazy_output_startup(void);

/*
 * Hands over what waits to be handed over with more. To be called before anything is done to the
 * response that does not come through the hooks. May end the script, as a write does.
 */
void lazy_output_settle(void);

/* The same before the response ends, which it cannot keep from ending. */
void lazy_output_end(void);

/*
 * lazy_explain.c. Whether `sendoff explain` asked how this response leaves; nothing else may depend
 * on it. All calls but LAZY_BECAUSE() are made behind this flag.
 */
extern bool lazy_explaining;

/* Why the file looked at last is read by PHP. A constant, or text that lives until the next one. */
extern const char *lazy_because;
#define LAZY_BECAUSE(why) (lazy_because = (why))
#define LAZY_BECAUSE_ERRNO(what) LAZY_BECAUSE(lazy_explaining ? lazy_explain_errno(what) : NULL)

const char *lazy_explain_errno(const char *what);

/* Forgets what was said of the request before. */
void lazy_because_begin(void);

/* Whether any file was given to the script; and the path that one was given under. */
bool lazy_was_given(void);
const char *lazy_given_path(uint32_t file);

/* At the start of a request; the worker may be NULL. */
void lazy_explain_begin(sendoff_worker *worker);

/* A mapped file was given to the script, or written for it, under this path. */
void lazy_explain_given(uint32_t file, const char *path);

/* The function at work has read a file in PHP's own way, into `got` (NULL: into no string). */
void lazy_explain_read(const char *path, const zval *got);

/* `len` bytes at `str` go into PHP's buffers, or through them. */
void lazy_explain_write(const char *str, size_t len);

/* What leaves next: bytes; or a part of a file, handed over as it is or recognised. */
void lazy_explain_bytes(const char *str, size_t len);
void lazy_explain_file(uint32_t file, bool recognised);
void lazy_explain_constant(void);
/* Whether our hook is in place: what is echoed comes to it first. */
bool lazy_output_is_hooked(void);

#endif /* SENDOFF_LAZY_H */
