/*
 * Replaced functions on open files: fpassthru(), stream_copy_to_stream(), copy(),
 * stream_get_contents(), fread() and fwrite() on php://output.
 *
 * Each function handles only the plain case and passes every other call to PHP's own handler (see
 * lazy_module.c). After the plain case the stream is in the state in which PHP would leave it, and
 * the output is divided into the same writes: from a page-aligned position PHP maps the file and
 * writes it in one call; from any other position it reads and writes 8 KiB at a time.
 */
#include "lazy.h"

#include "ext/spl/spl_directory.h"
#include "ext/standard/file.h"
#include "ext/standard/php_fopen_wrappers.h"
#include "php_output.h"

#include <unistd.h>

/* Constants of PHP's stream layer: its read buffer, and the largest range it maps. */
#define PASSTHRU_CHUNK 8192
#define MAPPED_MAX PHP_STREAM_MMAP_MAX

static zif_handler php_fpassthru;
static zif_handler php_spl_fpassthru;
static zif_handler php_copy_to_stream;
static zif_handler php_get_contents;
static zif_handler php_copy;
static zif_handler php_fread;
static zif_handler php_spl_fread;
static zif_handler php_fwrite;

static ZEND_NAMED_FUNCTION(lazy_fwrite);

/* True if `call`, whose arguments are being passed, will run lazy_fwrite() on php://output. */
static bool is_output_call(const zend_execute_data *call)
{
	zval *to = ZEND_CALL_ARG(call, 1);

	return call->func->type == ZEND_INTERNAL_FUNCTION &&
		   call->func->internal_function.handler == lazy_fwrite && Z_TYPE_P(to) == IS_RESOURCE &&
		   Z_RES_P(to)->type == php_file_le_stream() && is_output(Z_RES_P(to)->ptr);
}

/*
 * The stream in argument `n`; NULL if the argument is missing or no stream. PHP's handler then
 * reports the error.
 */
static php_stream *stream_arg(zend_execute_data *execute_data, uint32_t n)
{
	if (ZEND_NUM_ARGS() < n || Z_TYPE_P(ZEND_CALL_ARG(execute_data, n)) != IS_RESOURCE) {
		return NULL;
	}
	zend_resource *resource = Z_RES_P(ZEND_CALL_ARG(execute_data, n));
	return resource->type == php_file_le_stream() ? resource->ptr : NULL;
}

/*
 * Updates the stream as fwrite() does, but writes through zend_write: PHP's php://output calls
 * php_output_write() and so bypasses the hook.
 */
static void write_to_output(php_stream *output, const char *str, size_t len)
{
	zend_write(str, len);
	output->position += (zend_off_t)len;
	output->flags |= PHP_STREAM_FLAG_WAS_WRITTEN;
}

/*
 * The bytes of the stream's held file from `offset` to its end; NULL if they cannot be handed over.
 */
static const char *rest_of(php_stream *stream, zend_off_t offset, size_t *len)
{
	LAZY_BECAUSE("begins behind the end of the file");
	mapped_file *mapped = lazy_worker() && offset >= 0 ? lazy_stream_file(stream) : NULL;

	if (!mapped) {
		return NULL;
	}
	zend_string *contents = mapped_file_string(mapped);
	if ((size_t)offset >= ZSTR_LEN(contents)) {
		return NULL;
	}
	*len = ZSTR_LEN(contents) - (size_t)offset;
	LAZY_BECAUSE("PHP has read ahead what is different by now");
	return ZSTR_VAL(contents) + offset;
}

/*
 * PHP delivers its read-ahead buffer first, even if the file has changed since. True if that buffer
 * equals the start of `rest`.
 */
static bool read_ahead_agrees(const php_stream *stream, const char *rest, size_t len)
{
	size_t ahead = read_ahead(stream);

	return ahead == 0 || (ahead <= len && memcmp(read_ahead_bytes(stream), rest, ahead) == 0);
}

/*
 * True if the descriptor is where the stream expects it. A process that inherited the descriptor
 * may have moved it, and PHP would read from the new position.
 */
static bool descriptor_agrees(php_stream *stream)
{
	php_socket_t fd;

	return stream->ops->cast(stream, PHP_STREAM_AS_FD_FOR_SELECT, (void **)&fd) == SUCCESS &&
		   lseek(fd, 0, SEEK_CUR) == stream->position + (zend_off_t)read_ahead(stream);
}

/* Leaves the stream as PHP does after it has read `len` bytes to the end of the file. */
static void read_to_end(php_stream *stream, size_t len)
{
	php_stream_seek(stream, (zend_off_t)len, SEEK_CUR);
	stream->eof = 1;
}

/* For `sendoff explain`: records why PHP's own handler serves the call. */
static void explain_call(const php_stream *stream, const zval *got)
{
	if (UNEXPECTED(lazy_explaining) && stream) {
		lazy_explain_read(stream->orig_path, got);
	}
}

/* Writes the rest of the stream. Returns the bytes written; 0: PHP's handler must do it. */
static size_t pass_through(php_stream *stream)
{
	size_t len, written = 0;

	/* PHP writes to an output buffer in pieces of its own sizes, which a callback can observe. */
	LAZY_BECAUSE("written into an output buffer");
	if (!lazy_output_is_plain(SIZE_MAX / 2)) {
		return 0;
	}
	const char *rest = rest_of(stream, stream->position, &len);
	bool mapped = stream->position % lazy_page == 0;
	if (!rest ||
		(!mapped && (!read_ahead_agrees(stream, rest, len) || !descriptor_agrees(stream))) ||
		!lazy_output_is_plain(mapped ? len : MIN(len, PASSTHRU_CHUNK))) {
		return 0;
	}
	if (mapped) {
		zend_write(rest, len);
		php_stream_seek(stream, (zend_off_t)len, SEEK_CUR);
		return len;
	}
	while (written < len) {
		/* Without an output buffer the script cannot observe the sizes of the writes. */
		size_t chunk = OG(active) ? MIN(len - written, PASSTHRU_CHUNK) : len;
		zend_write(rest + written, chunk);
		written += chunk;
	}
	read_to_end(stream, len);
	return len;
}

static ZEND_NAMED_FUNCTION(lazy_fpassthru)
{
	php_stream *stream = ZEND_NUM_ARGS() == 1 ? stream_arg(execute_data, 1) : NULL;
	size_t len = stream ? pass_through(stream) : 0;

	if (len) {
		RETURN_LONG((zend_long)len);
	}
	explain_call(stream, NULL);
	php_fpassthru(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

static php_stream *spl_stream(zval *object)
{
	zend_object *std = Z_OBJ_P(object);
	spl_filesystem_object *file = (void *)((char *)std - XtOffsetOf(spl_filesystem_object, std));

	return file->type == SPL_FS_FILE ? file->u.file.stream : NULL;
}

static ZEND_NAMED_FUNCTION(lazy_spl_fpassthru)
{
	php_stream *stream = ZEND_NUM_ARGS() == 0 ? spl_stream(ZEND_THIS) : NULL;
	size_t len = stream ? pass_through(stream) : 0;

	if (len) {
		RETURN_LONG((zend_long)len);
	}
	explain_call(stream, NULL);
	php_spl_fpassthru(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

/*
 * Writes to php://output a range that PHP would map and write in one call. Returns the bytes
 * written; 0: PHP's handler must do it.
 */
static size_t copy_mapped(php_stream *from, zend_off_t offset, php_stream *to, size_t most)
{
	size_t len;
	const char *rest = offset % lazy_page == 0 ? rest_of(from, offset, &len) : NULL;

	len = rest ? MIN(len, most) : 0;
	if (!len || len >= MAPPED_MAX || !lazy_output_is_plain(len)) {
		return 0;
	}
	if (from->position != offset) {
		php_stream_seek(from, offset, SEEK_SET);
	}
	php_stream_seek(from, (zend_off_t)len, SEEK_CUR);
	write_to_output(to, rest, len);
	return len;
}

static ZEND_NAMED_FUNCTION(lazy_copy_to_stream)
{
	php_stream *from = stream_arg(execute_data, 1);
	php_stream *to = stream_arg(execute_data, 2);
	uint32_t given = ZEND_NUM_ARGS();
	zval *most = given >= 3 ? ZEND_CALL_ARG(execute_data, 3) : NULL;
	zval *at = given >= 4 ? ZEND_CALL_ARG(execute_data, 4) : NULL;

	if (!lazy_worker() || !from || !to || given > 4 || !lazy_is_plain_file(from) ||
		!is_output(to) ||
		(most && Z_TYPE_P(most) != IS_NULL && (Z_TYPE_P(most) != IS_LONG || Z_LVAL_P(most) <= 0)) ||
		(at && Z_TYPE_P(at) != IS_LONG)) {
		php_copy_to_stream(INTERNAL_FUNCTION_PARAM_PASSTHRU);
		return;
	}
	size_t wanted = most && Z_TYPE_P(most) == IS_LONG ? (size_t)Z_LVAL_P(most) : SIZE_MAX;
	zend_off_t offset = at && Z_LVAL_P(at) > 0 ? Z_LVAL_P(at) : from->position;
	size_t len = copy_mapped(from, offset, to, wanted);
	if (len) {
		RETURN_LONG((zend_long)len);
	}
	/* PHP reads and writes piece by piece. This notes the first piece, so that its write is
	 * recognised. */
	lazy_match_stream_read(from->res, offset, NULL, MIN(wanted, PASSTHRU_CHUNK));
	php_copy_to_stream(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

static bool is_php_output(zval *path)
{
	/* A script can register its own wrapper for php://. */
	return Z_TYPE_P(path) == IS_STRING &&
		   zend_string_equals_literal_ci(Z_STR_P(path), "php://output") &&
		   php_stream_locate_url_wrapper("php://output", NULL, 0) == &php_stream_php_wrapper;
}

static ZEND_NAMED_FUNCTION(lazy_copy)
{
	mapped_file *mapped = NULL;
	bool to_output = lazy_worker() && ZEND_NUM_ARGS() == 2 &&
					 Z_TYPE_P(ZEND_CALL_ARG(execute_data, 1)) == IS_STRING &&
					 is_php_output(ZEND_CALL_ARG(execute_data, 2));

	LAZY_BECAUSE("written into an output buffer");
	if (to_output && lazy_output_is_plain(SIZE_MAX / 2)) {
		mapped = lazy_path_file(Z_STR_P(ZEND_CALL_ARG(execute_data, 1)));
	}
	zend_string *contents = mapped ? mapped_file_string(mapped) : NULL;
	if (!mapped || ZSTR_LEN(contents) >= MAPPED_MAX || !lazy_output_is_plain(ZSTR_LEN(contents))) {
		if (UNEXPECTED(lazy_explaining) && to_output) {
			lazy_explain_read(Z_STRVAL_P(ZEND_CALL_ARG(execute_data, 1)), NULL);
		}
		php_copy(INTERNAL_FUNCTION_PARAM_PASSTHRU);
		return;
	}
	/* PHP opens two streams: the file and php://output. */
	lazy_imitate_stream();
	lazy_imitate_stream();
	zend_write(ZSTR_VAL(contents), ZSTR_LEN(contents));
	RETURN_TRUE;
}

/* Notes the result of a read, if it is long enough to be handed over when it is written. */
static void note_read(php_stream *stream, zval *got)
{
	if (stream && Z_TYPE_P(got) == IS_STRING && Z_STRLEN_P(got) >= LAZY_NOTED_MIN &&
		lazy_worker()) {
		lazy_match_stream_read(stream->res, stream->position - (zend_off_t)Z_STRLEN_P(got),
							   Z_STRVAL_P(got), Z_STRLEN_P(got));
	}
}

/* fread() whose length is argument `n`; false: PHP's handler must do it. */
static bool read_chunk(php_stream *stream, uint32_t n, zend_execute_data *execute_data,
					   zval *return_value)
{
	if (!stream || ZEND_NUM_ARGS() != n || Z_TYPE_P(ZEND_CALL_ARG(execute_data, n)) != IS_LONG ||
		Z_LVAL_P(ZEND_CALL_ARG(execute_data, n)) <= 0) {
		return false;
	}
	return lazy_chunk_read(stream, (size_t)Z_LVAL_P(ZEND_CALL_ARG(execute_data, n)), execute_data,
						   return_value, is_output_call);
}

static ZEND_NAMED_FUNCTION(lazy_fread)
{
	if (!read_chunk(stream_arg(execute_data, 1), 2, execute_data, return_value)) {
		php_fread(INTERNAL_FUNCTION_PARAM_PASSTHRU);
		note_read(stream_arg(execute_data, 1), return_value);
	}
}

static ZEND_NAMED_FUNCTION(lazy_get_contents)
{
	php_stream *stream = stream_arg(execute_data, 1);
	size_t len;

	LAZY_BECAUSE("a part, not the whole file");
	if (stream && ZEND_NUM_ARGS() == 1 && stream->position == 0) {
		const char *whole = rest_of(stream, 0, &len);
		if (whole && read_ahead_agrees(stream, whole, len) && descriptor_agrees(stream)) {
			read_to_end(stream, len);
			zend_string *lazy = string_before(whole);
			lazy_match_expect(lazy);
			RETURN_INTERNED_STR(lazy);
		}
	}
	php_get_contents(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	note_read(stream, return_value);
	explain_call(stream, return_value);
}

static ZEND_NAMED_FUNCTION(lazy_spl_fread)
{
	if (!read_chunk(spl_stream(ZEND_THIS), 1, execute_data, return_value)) {
		php_spl_fread(INTERNAL_FUNCTION_PARAM_PASSTHRU);
		note_read(spl_stream(ZEND_THIS), return_value);
	}
}

/* True if these bytes lie in a mapped file, or probably equal bytes of one. */
static bool may_be_handed_over(const char *str, size_t len)
{
	uint32_t file;
	uint64_t offset;

	return len >= LAZY_NOTED_MIN &&
		   (lazy_match_is_likely(str, len) || mapped_file_find(str, len, &file, &offset));
}

static ZEND_NAMED_FUNCTION(lazy_fwrite)
{
	zval *data = ZEND_NUM_ARGS() == 2 ? ZEND_CALL_ARG(execute_data, 2) : NULL;

	if (data && Z_TYPE_P(data) == IS_STRING) {
		const char *chunk = lazy_chunk_redeem(Z_STRVAL_P(data));
		const char *str = chunk ? chunk : Z_STRVAL_P(data);
		size_t len = Z_STRLEN_P(data);

		if (chunk || may_be_handed_over(str, len)) {
			php_stream *to = stream_arg(execute_data, 1);
			if (to && is_output(to)) {
				if (chunk && !lazy_output_is_quiet(len)) {
					/* A callback may run and take a backtrace, which contains our arguments. A
					 * token has no bytes to show. */
					ZVAL_STRINGL(data, chunk, len);
				}
				write_to_output(to, str, len);
				RETURN_LONG((zend_long)len);
			}
		}
		if (chunk) {
			/* The target is no longer php://output: the stream was closed after fread() returned
			 * the token. */
			ZVAL_STRINGL(data, chunk, len);
		}
	}
	php_fwrite(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

void lazy_stream_startup(void)
{
	HashTable *functions = CG(function_table);
	HashTable *methods = &spl_ce_SplFileObject->function_table;

	php_fpassthru = lazy_replace(functions, "fpassthru", lazy_fpassthru);
	php_spl_fpassthru = lazy_replace(methods, "fpassthru", lazy_spl_fpassthru);
	php_copy_to_stream = lazy_replace(functions, "stream_copy_to_stream", lazy_copy_to_stream);
	php_get_contents = lazy_replace(functions, "stream_get_contents", lazy_get_contents);
	php_copy = lazy_replace(functions, "copy", lazy_copy);
	php_fread = lazy_replace(functions, "fread", lazy_fread);
	php_spl_fread = lazy_replace(methods, "fread", lazy_spl_fread);
	php_fwrite = lazy_replace(functions, "fwrite", lazy_fwrite);
	/* PHP declares fputs() as an alias of fwrite(). */
	lazy_replace(functions, "fputs", lazy_fwrite);
}
