/*
 * Chunk loops: fread() of a stream whose file is held.
 *
 * What PHP would read is known: what it has read ahead, which is compared with the mapped file, and
 * then what the file has where the descriptor stands, which the lease keeps equal to the mapped
 * file. So the bytes come from the mapped file, and the stream is moved as PHP moves it: in steps
 * of its chunk size, the last of which may leave something in its read buffer; at the end of the
 * file only a read that wants more sets eof.
 *
 * In `echo fread($f, 8192)` only ECHO can see the result: it is the temporary of the call and the
 * operand of the next opcode. Such a call returns a token: a string that has a length
 * and no bytes, which the write hook replaces by the place in the mapped file. The same goes for
 * `fwrite($out, fread($f, 8192))`, and our fwrite(). Everywhere else the result is a copy, and
 * lazy_match.c recognises it.
 *
 * A token is flagged interned, as the optimizer takes the result of fread() for the only reference
 * and its code may free it unasked. So a token can be lost unnoticed (an exception, the end of
 * the script); its slot then stays taken until the request ends.
 */
#include "lazy.h"

#include "ext/standard/file.h"

#include <sys/stat.h>
#include <unistd.h>

/* Copies above this are left to PHP, which asks memory_limit for what the script wants. */
#define COPY_MAX (1 << 20)
#define TOKENS 16

/* The stream whose file is held; 0: none. */
static struct {
	zend_long handle;
	int fd;
	const char *contents;
	size_t size;
	/* The lease stood then. */
	uint32_t epoch;
} bound;

/* The file of this stream cannot be held. */
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

/* The part of the mapped file that the stream would read next; NULL if the mapped file cannot tell.
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

/* A token for what lies there; NULL: all are taken. */
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

/* Whether a read of `wanted` bytes from the start takes all there is, and that can be held. */
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

/* The result without its length: a token, the lazy string, or room for a copy. */
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
	/* PHP asks memory_limit for all that is wanted, however little there is. */
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
