/*
 * Recognises bytes of a file that PHP has read itself: chunk loops, parts, ranges.
 *
 * A part of a file cannot be a lazy string: the header of a string stands right before its bytes,
 * and there the file has bytes of its own. So fread() and similar functions read as in stock PHP,
 * and the module only notes what they read. When a script writes bytes that may be these, they are
 * compared with the held file. Only this comparison decides; notes are hints, and a wrong note
 * costs time, never correctness.
 *
 * The bytes after the last segment are expected next, so a loop looks up its file only once. The
 * beginning of a lazy string is expected too, because a script may write it in parts.
 */
#include "lazy.h"

#include "ext/standard/file.h"

/*
 * Shorter pieces that continue a file cost less as bytes than as a segment, unless they are its
 * end.
 */
#define CONTINUE_MIN 512

/* Length of the comparison that decides whether a full one is worthwhile. */
#define GLANCE 64

/* The note about the last read. */
static struct {
	/* The resource handle of the stream; 0: none. */
	zend_long stream;
	/* The path, if PHP closed the stream before the call returned. Holds a reference. */
	zend_string *path;
	/* In the file; a negative offset counts from its end. */
	zend_off_t offset;
	/* Address of the result. A hint only: the script may have freed or changed it. */
	const char *at;
	size_t len;
} last_read;

/* The expected bytes, in a mapped file; NULL: unknown. */
static const char *next;
/*
 * Handle of a stream whose bytes the script changes before it writes them, or whose file cannot be
 * held.
 */
static zend_long hopeless_stream;

static void forget_read(void)
{
	if (last_read.path) {
		zend_string_release(last_read.path);
	}
	memset(&last_read, 0, sizeof(last_read));
}

void lazy_match_reset(void)
{
	forget_read();
	next = NULL;
	hopeless_stream = 0;
}

void lazy_match_stream_read(zend_resource *resource, zend_off_t offset, const char *at, size_t len)
{
	forget_read();
	if (resource->handle != hopeless_stream) {
		last_read.stream = resource->handle;
		last_read.offset = offset;
		last_read.at = at;
		last_read.len = len;
	}
}

void lazy_match_path_read(zend_string *path, zend_off_t offset, const char *at, size_t len)
{
	forget_read();
	last_read.path = zend_string_copy(path);
	last_read.offset = offset;
	last_read.at = at;
	last_read.len = len;
}

void lazy_match_expect(const zend_string *lazy)
{
	next = ZSTR_VAL(lazy);
	lazy_search_note(lazy);
}

bool lazy_match_sent(const char *str, size_t len)
{
	bool continued = str == next;

	next = str + len;
	return continued;
}

bool lazy_match_is_likely(const char *str, size_t len)
{
	uint32_t file;
	uint64_t offset;

	if (str == last_read.at && len == last_read.len) {
		return true;
	}
	return next && len >= GLANCE && mapped_file_find(next, len, &file, &offset) &&
		   memcmp(next, str, GLANCE) == 0;
}

/*
 * True if `len` bytes at `str` equal those at `in_file`, and these lie in a mapped file whose lease
 * is intact.
 */
static bool same(const char *str, size_t len, const char *in_file, uint32_t *file, uint64_t *offset)
{
	return mapped_file_find(in_file, len, file, offset) && memcmp(in_file, str, len) == 0;
}

static bool continues(const char *str, size_t len, uint32_t *file, uint64_t *offset)
{
	uint32_t ignored;
	uint64_t also;

	if (!next || (len < CONTINUE_MIN && mapped_file_find(next, len + 1, &ignored, &also))) {
		return false;
	}
	return same(str, len, next, file, offset);
}

static mapped_file *file_of_last_read(php_stream *stream)
{
	if (last_read.path) {
		return lazy_path_file(last_read.path);
	}
	return stream ? lazy_stream_file(stream) : NULL;
}

static php_stream *stream_of_last_read(void)
{
	zval *found = zend_hash_index_find(&EG(regular_list), (zend_ulong)last_read.stream);

	return found && Z_RES_P(found)->type == php_file_le_stream() ? Z_RES_P(found)->ptr : NULL;
}

const char *lazy_match(const char *str, size_t len, uint32_t *file, uint64_t *offset,
					   php_stream **loop)
{
	*loop = NULL;
	if (continues(str, len, file, offset)) {
		return next;
	}
	if (!last_read.len || len != last_read.len || !lazy_worker()) {
		return NULL;
	}
	php_stream *stream = stream_of_last_read();
	mapped_file *mapped = file_of_last_read(stream);
	if (mapped) {
		zend_string *contents = mapped_file_string(mapped);
		zend_off_t start = last_read.offset;
		if (start < 0) {
			start += (zend_off_t)ZSTR_LEN(contents);
		}
		if (start >= 0 && (size_t)start < ZSTR_LEN(contents) &&
			same(str, len, ZSTR_VAL(contents) + start, file, offset)) {
			*loop = stream;
			return ZSTR_VAL(contents) + start;
		}
	}
	hopeless_stream = last_read.stream;
	forget_read();
	return NULL;
}
