/*
 * Chunk loops: fread() of a stream whose file is held.
 *
 * The result of PHP's read is known in advance: first the read-ahead buffer, which is compared with
 * the mapped file, then the file from the descriptor's position on, which the lease keeps equal to
 * the mapped file. So the bytes are taken from the mapped file, and the stream is advanced as PHP
 * does it: in steps of the chunk size, of which the last may leave bytes in the read buffer. At the
 * end of the file eof is set only by a read that wants more bytes than are left.
 *
 * In `echo fread($f, 8192)` only ECHO sees the result: it is the temporary of the call and the
 * operand of the next opcode. Such a call returns a token: a string with a length and no bytes,
 * which the write hook replaces by the range of the mapped file. The same applies to `fwrite($out,
 * fread($f, 8192))` and the replaced fwrite(). In all other cases the result is a copy, which
 * lazy_match.c recognises.
 *
 * A token is flagged interned, so that freeing it has no effect: the optimizer assumes that the
 * result of fread() has one reference, and compiled code may free it without a look at the count. A
 * token that is never written (exception, end of the script) therefore keeps its slot until the
 * request ends.
 */
#include "lazy.h"

#include "ext/standard/file.h"

#include <sys/stat.h>
#include <unistd.h>

/* Larger copies are left to PHP, which checks the requested length against memory_limit. */
#define COPY_MAX (1 << 20)
#define TOKENS 16

/* The stream whose file is held. */
static struct {
	zend_long handle;
	int fd;
	const char *contents;
	size_t size;
	/* mapped_file_epoch() when the lease was last known to be intact. */
	uint32_t epoch;
} bound;

/* Handle of the last stream whose file could not be held. */
static zend_long hopeless;

static struct {
	zend_string string;
	const char *in_file;
	bool taken;
} tokens[TOKENS];

void lazy_chunk_reset(void)
{
	bound.handle = 0;
	hopeless = 0;
	for (size_t i = 0; i < TOKENS; i++) {
		tokens[i].taken = false;
	}
}

bool lazy_chunk_bind(php_stream *stream)
{
	zend_long handle = stream->res->handle;
	php_socket_t fd;

	if (handle == bound.handle) {
		return true;
	}
	uint32_t epoch = mapped_file_epoch();
	mapped_file *mapped = handle != hopeless ? lazy_stream_file(stream) : NULL;
	if (!mapped ||
		stream->ops->cast(stream, PHP_STREAM_AS_FD_FOR_SELECT, (void **)&fd) != SUCCESS) {
		hopeless = handle;
		return false;
	}
	bound.handle = handle;
	bound.fd = fd;
	bound.contents = ZSTR_VAL(mapped_file_string(mapped));
	bound.size = ZSTR_LEN(mapped_file_string(mapped));
	bound.epoch = epoch;
	return true;
}

static bool still_stands(void)
{
	uint32_t epoch = mapped_file_epoch(), file;
	uint64_t offset;

	if (epoch != bound.epoch && !mapped_file_find(bound.contents, bound.size, &file, &offset)) {
		return false;
	}
	bound.epoch = epoch;
	return true;
}

/*
 * The bytes that the stream would read next, in the mapped file; `left` receives the length up to
 * its end. NULL if the stream is not bound, is at the end, has lost its lease, or has other bytes
 * in its read buffer.
 */
static const char *next_of(const php_stream *stream, size_t *left)
{
	size_t ahead = read_ahead(stream);

	if (stream->res->handle != bound.handle || (size_t)stream->position >= bound.size) {
		return NULL;
	}
	const char *next = bound.contents + stream->position;
	*left = bound.size - (size_t)stream->position;
	if (!still_stands()) {
		bound.handle = 0;
		return NULL;
	}
	if (ahead > *left || (ahead && memcmp(read_ahead_bytes(stream), next, ahead) != 0)) {
		return NULL;
	}
	return next;
}

/* A token for the bytes at `in_file`; NULL: all are in use. */
static zend_string *token(const char *in_file)
{
	for (size_t i = 0; i < TOKENS; i++) {
		if (!tokens[i].taken) {
			zend_string *string = &tokens[i].string;

			tokens[i].taken = true;
			tokens[i].in_file = in_file;
			make_untouchable(string, 0);
			return string;
		}
	}
	return NULL;
}

const char *lazy_chunk_redeem(const char *str)
{
	uintptr_t distance = (uintptr_t)str - (uintptr_t)tokens;

	if (distance >= sizeof(tokens)) {
		return NULL;
	}
	tokens[distance / sizeof(tokens[0])].taken = false;
	return tokens[distance / sizeof(tokens[0])].in_file;
}

/*
 * True if a read of `wanted` bytes returns the whole file, and the file is long enough to be held.
 */
static bool takes_all(php_stream *stream, size_t wanted)
{
	struct stat st;
	php_socket_t fd;

	return stream->position == 0 && SENDOFF_G(threshold) &&
		   wanted >= (size_t)SENDOFF_G(threshold) &&
		   stream->ops->cast(stream, PHP_STREAM_AS_FD_FOR_SELECT, (void **)&fd) == SUCCESS &&
		   fstat(fd, &st) == 0 && st.st_size >= SENDOFF_G(threshold) &&
		   (size_t)st.st_size <= wanted;
}

/* The result, its length not set yet: a token, the lazy string, or memory for a copy. */
static zend_string *result_for(const char *next, size_t len, size_t left, bool output_only)
{
	if (output_only) {
		return token(next);
	}
	if (next == bound.contents && len == left) {
		zend_string *lazy = string_before(next);
		lazy_match_expect(lazy);
		return lazy;
	}
	return len <= COPY_MAX ? zend_string_alloc(len, 0) : NULL;
}

static void give_up(zend_string *string)
{
	if (!ZSTR_IS_INTERNED(string)) {
		zend_string_efree(string);
	} else {
		lazy_chunk_redeem(ZSTR_VAL(string));
	}
}

bool lazy_chunk_read(php_stream *stream, size_t wanted, const zend_execute_data *call, zval *result,
					 bool (*is_output_call)(const zend_execute_data *call))
{
	size_t left;

	if (wanted < LAZY_NOTED_MIN || !reads_as_usual(stream) || !lazy_worker()) {
		return false;
	}
	bool output_only =
		is_output_only(call, result, is_output_call) && !is_watched() && lazy_output_is_hooked();
	if ((output_only || takes_all(stream, wanted)) && !lazy_chunk_bind(stream)) {
		return false;
	}
	const char *next = next_of(stream, &left);
	/* PHP allocates `wanted` bytes, even if fewer are left, and may run into memory_limit. */
	if (!next || wanted > MAX(COPY_MAX, left)) {
		return false;
	}
	size_t len = MIN(wanted, left);
	zend_string *string = result_for(next, len, left, output_only);
	if (!string) {
		return false;
	}
	len = pass_over(stream, bound.fd, wanted, left);
	if (len == 0) {
		give_up(string);
		return false;
	}
	if (ZSTR_IS_INTERNED(string)) {
		ZSTR_LEN(string) = len;
		ZVAL_INTERNED_STR(result, string);
		return true;
	}
	memcpy(ZSTR_VAL(string), next, len);
	ZSTR_VAL(string)[len] = 0;
	ZSTR_LEN(string) = len;
	ZVAL_NEW_STR(result, string);
	lazy_match_stream_read(stream->res, stream->position - (zend_off_t)len, ZSTR_VAL(string), len);
	return true;
}
