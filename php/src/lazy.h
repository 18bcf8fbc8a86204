/*
 * Lazy strings: a PHP string that stands for a whole file and is read only where somebody looks.
 *
 * lazy.c         the module, and the replaced file_get_contents() and readfile()
 * lazy_stream.c  the replaced functions on open files
 * lazy_region.c  mapped files, kept between requests under the worker's leases
 * lazy_match.c   recognises the bytes of a file that PHP has read itself
 * lazy_output.c  the write hooks: what is written from a region leaves as a file segment
 * extension.c    for php-fpm and php-cgi: how they get a worker
 *
 * For PHP 8.2, not thread-safe builds (NTS): one request at a time in a process.
 */
#ifndef SENDOFF_LAZY_H
#define SENDOFF_LAZY_H

#include "php.h"
#include "sendoff.h"

#if PHP_VERSION_ID < 80200 || PHP_VERSION_ID >= 80300 || defined(ZTS)
#error "for PHP 8.2, not thread-safe"
#endif

/* What the SAPI calls. */

/* Goes to php_module_startup(). Everything stays PHP's own until a worker is attached. */
extern zend_module_entry sendoff_module_entry;

/*
 * Gives this process its worker (borrowed), after the last fork. NULL takes it away, between
 * requests, and gives its files back.
 */
void sendoff_lazy_attach(sendoff_worker *worker);

/*
 * After php_request_shutdown() and before the next sendoff_accept(): nobody can hold a lazy string
 * any more, so the regions are made ready for the next request and those not worth keeping go.
 */
void sendoff_lazy_end_request(void);

/* Between these files. */

/* A file in memory with a zend_string header in front: one slot of the arena. */
typedef struct lazy_region lazy_region;

ZEND_BEGIN_MODULE_GLOBALS(sendoff)
/* Files below this many bytes are read as PHP reads them; 0 turns lazy strings off. */
zend_long threshold;
/* About the output of this request. */
zend_long handed_over_bytes;
zend_long copied_bytes;
zend_long segments;
ZEND_END_MODULE_GLOBALS(sendoff)

ZEND_EXTERN_MODULE_GLOBALS(sendoff)
#define SENDOFF_G(v) ZEND_MODULE_GLOBALS_ACCESSOR(sendoff, v)

/* Reserves the arena's address space. FAILURE leaves lazy strings off. */
zend_result lazy_region_startup(void);

/* The worker, if this request may use lazy strings and file segments; else NULL. */
sendoff_worker *lazy_worker(void);

/*
 * The region that holds what `path` (resolved, absolute) contains now, marked as used in this
 * request; NULL if PHP should read the file itself. Valid until the request ends.
 */
lazy_region *lazy_region_open(const char *path);

/* Whether this path, as the script gave it, led to no region just now; and: it did not. */
bool lazy_region_is_hopeless(zend_string *path);
void lazy_region_give_up(zend_string *path);

/* The region's contents as a string. It is flagged interned: nobody counts, writes or frees it. */
zend_string *lazy_region_string(lazy_region *region);

/*
 * If `len` bytes at `ptr` lie in a region whose lease stands: true, and where they are in the file.
 */
bool lazy_region_find(const char *ptr, size_t len, uint32_t *file, uint64_t *offset);

/* As lazy_region_open(), for a path as a script gives it. */
lazy_region *lazy_path_region(zend_string *path);

/* As lazy_region_open(), for the file that a stream reads, if it is a plain one without filters. */
lazy_region *lazy_stream_region(php_stream *stream);

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
 * these lie in its region, and in the file. Else NULL.
 */
const char *lazy_match(const char *str, size_t len, uint32_t *file, uint64_t *offset);

/* What begins at `in_region` may be written next, perhaps a copy of it. */
void lazy_match_expect(const char *in_region);

/* Bytes of a region have been handed over. Returns whether they continued those before. */
bool lazy_match_sent(const char *str, size_t len);

/* Forgets the request's notes. */
void lazy_match_reset(void);

/* Puts `handler` in the place of a function's own, which it returns; NULL if there is none. */
zif_handler lazy_replace(HashTable *functions, const char *name, zif_handler handler);

/* Replaces the functions on open files. */
void lazy_stream_startup(void);

/*
 * PHP would have opened a stream and closed it: that makes the default context, and takes a
 * resource number, which a script can see in the next resource it opens.
 */
void lazy_imitate_stream(void);

/* Whether to replace anything at all. Before the module starts. */
extern bool lazy_is_wanted;

/* Asked before a segment is handed over, if set; false: it must leave as bytes. */
extern bool (*lazy_before_hand_over)(void);

/* Hooks zend_write and the SAPI's ub_write. */
void lazy_output_startup(void);

/* Whether writing `len` lazy bytes now would reach the SAPI without passing through a buffer. */
bool lazy_output_is_plain(size_t len);

#endif /* SENDOFF_LAZY_H */
