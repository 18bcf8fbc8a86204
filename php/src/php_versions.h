/*
 * Everything that depends on PHP's version: engine structures that no API covers. To support
 * another version, read each section against its sources, change it here only, and then widen the
 * version check.
 *
 * In addition, the SAPI and the hooks use function pointers and structures whose types the compiler
 * checks: zend_write, the members of sapi_module, php_import_environment_variables,
 * php_load_environment_variables, php_register_internal_extensions_func, php_ini_builder.
 */
#ifndef SENDOFF_PHP_VERSIONS_H
#define SENDOFF_PHP_VERSIONS_H

#include "php.h"

#include "SAPI.h"
#include "ext/standard/file.h"
#include "ext/standard/php_fopen_wrappers.h"
#include "php_output.h"
#include "zend_observer.h"

#include <unistd.h>

#if PHP_VERSION_ID < 80200 || PHP_VERSION_ID >= 80600 || defined(ZTS)
#error "Sendoff is made for PHP 8.2, 8.3, 8.4 and 8.5 without thread safety (NTS)"
#endif

/* True if flush() sends the headers before the first byte of the body, as php-fpm does since 8.4.
 */
#define FLUSH_SENDS_HEADERS (PHP_VERSION_ID >= 80400)

/*
 * Strings. A string that the engine must not count, write or free is flagged interned, but not
 * permanent: the pcre cache, for example, keeps permanent strings beyond the request. The header of
 * a zend_string (count, flags, hash, length) stands right before its bytes.
 */
static inline void make_untouchable(zend_string *string, size_t len)
{
	memset(string, 0, _ZSTR_HEADER_SIZE);
	GC_SET_REFCOUNT(string, 1);
	GC_TYPE_INFO(string) = GC_STRING | (IS_STR_INTERNED << GC_FLAGS_SHIFT);
	ZSTR_LEN(string) = len;
}

/* The string whose bytes begin at `contents`. */
static inline zend_string *string_before(const char *contents)
{
	return (zend_string *)(contents - _ZSTR_HEADER_SIZE);
}

/* True if opcache or the engine keeps the string, so that it is not freed while the request runs.
 */
static inline bool is_kept_by_engine(const zend_string *string)
{
	return GC_FLAGS(string) & IS_STR_INTERNED;
}

/*
 * Streams. The read-ahead bytes of a stream lie between readpos and writepos of its buffer; fread()
 * fills the buffer in steps of the chunk size and advances `position`, the script's offset,
 * separately.
 */
static inline size_t read_ahead(const php_stream *stream)
{
	return (size_t)(stream->writepos - stream->readpos);
}

static inline const unsigned char *read_ahead_bytes(const php_stream *stream)
{
	return stream->readbuf + stream->readpos;
}

/* True if this is an open local file that PHP reads without filters. */
static inline bool lazy_is_plain_file(const php_stream *stream)
{
	return stream->ops == &php_stream_stdio_ops && stream->wrapper == &php_plain_files_wrapper &&
		   !stream->readfilters.head && !(stream->flags & PHP_STREAM_FLAG_NO_SEEK);
}

/* PHP's default chunk size, in bytes. */
#define STREAM_CHUNK 8192

/* True if PHP would read the stream through its read buffer in steps of STREAM_CHUNK. */
static inline bool reads_as_usual(const php_stream *stream)
{
	return lazy_is_plain_file(stream) && !(stream->flags & PHP_STREAM_FLAG_NO_BUFFER) &&
		   stream->chunk_size == STREAM_CHUNK && stream->readbuflen <= STREAM_CHUNK &&
		   !stream->eof && stream->position >= 0;
}

/*
 * Advances the descriptor from `from` by `count` bytes. False, and the descriptor is where it was,
 * if it was not at `from`: a process that inherited it may have read.
 */
static inline bool skip(int fd, size_t from, size_t count)
{
	off_t expected = (off_t)(from + count);

	if (lseek(fd, (off_t)count, SEEK_CUR) == expected) {
		return true;
	}
	lseek(fd, -(off_t)count, SEEK_CUR);
	return false;
}

/*
 * Advances the stream as PHP's read of `wanted` bytes would, `left` bytes before the end of the
 * file. Returns the bytes that this read returns; 0: nothing has changed, PHP must read.
 */
static inline size_t pass_over(php_stream *stream, int fd, size_t wanted, size_t left)
{
	size_t ahead = read_ahead(stream);
	size_t given = MIN(wanted, left);

	if (wanted > ahead) {
		size_t rest = given - ahead;
		size_t tail = wanted < left ? rest % STREAM_CHUNK : 0;

		if (!skip(fd, (size_t)stream->position + ahead, rest - tail)) {
			return 0;
		}
		stream->readpos = stream->writepos;
		if (!stream->readbuf) {
			/* If the script changes the chunk size, PHP's read-ahead depends on the size of this
			 * buffer. */
			stream->readbuf = pemalloc(STREAM_CHUNK, stream->is_persistent);
			stream->readbuflen = STREAM_CHUNK;
		}
		if (tail) {
			/* PHP reads a whole chunk here; the rest of it stays in the read buffer. */
			php_stream_fill_read_buffer(stream, tail);
			size_t got = MIN(read_ahead(stream), tail);
			stream->readpos += (zend_off_t)got;
			given -= tail - got;
		}
		stream->eof = wanted > left;
	} else {
		stream->readpos += (zend_off_t)wanted;
	}
	stream->position += (zend_off_t)given;
	return given;
}

/* True if this is a php://output stream without write filters. */
static inline bool is_output(const php_stream *stream)
{
	return stream->wrapper == &php_stream_php_wrapper &&
		   strcmp(stream->ops->label, "Output") == 0 && !stream->writefilters.head;
}

/*
 * Has the visible effects of opening and closing a stream: the default context is created, and a
 * resource number is used, which shows in the next resource that the script opens.
 */
static inline void lazy_imitate_stream(void)
{
	zend_long next = EG(regular_list).nNextFreeElement;

	if (!FG(default_context)) {
		FG(default_context) = php_stream_context_alloc();
		next = EG(regular_list).nNextFreeElement;
	}
	EG(regular_list).nNextFreeElement = (next > 0 ? next : 1) + 1;
}

/* Functions. The handler of an internal function receives all calls of it. */

/* Replaces the handler of a function. Returns the original; NULL if there is no such function. */
static inline zif_handler lazy_replace(HashTable *functions, const char *name, zif_handler handler)
{
	zend_function *function = zend_hash_str_find_ptr(functions, name, strlen(name));

	if (!function || function->type != ZEND_INTERNAL_FUNCTION) {
		return NULL;
	}
	zif_handler original = function->internal_function.handler;
	function->internal_function.handler = handler;
	return original;
}

/*
 * Opcodes. The instructions that begin and end a call and pass its arguments, and their operands.
 * PHP calls fread() by DO_ICALL, DO_FCALL or DO_FCALL_BY_NAME, echoes its result by ECHO, and
 * passes it to a function by SEND_VAR. An opcode that a new version adds for calls must be added to
 * enclosing_call().
 */

static inline bool is_call(const zend_op *op)
{
	return op->opcode == ZEND_DO_ICALL || op->opcode == ZEND_DO_FCALL ||
		   op->opcode == ZEND_DO_FCALL_BY_NAME;
}

static inline bool takes_result(const zend_op *op, const zend_op *call)
{
	return op->op1_type == call->result_type && op->op1.var == call->result.var;
}

/* The opcode that begins the innermost call around the call that ends at `op`. */
static inline const zend_op *enclosing_call(const zend_op_array *code, const zend_op *op)
{
	/* Calls begun minus calls ended. */
	int depth = -1;

	while (op > code->opcodes && depth < 1) {
		switch ((--op)->opcode) {
		case ZEND_DO_FCALL:
		case ZEND_DO_ICALL:
		case ZEND_DO_UCALL:
		case ZEND_DO_FCALL_BY_NAME:
		case ZEND_CALLABLE_CONVERT:
			depth--;
			break;
		case ZEND_INIT_FCALL:
		case ZEND_INIT_FCALL_BY_NAME:
		case ZEND_INIT_NS_FCALL_BY_NAME:
		case ZEND_INIT_DYNAMIC_CALL:
		case ZEND_INIT_USER_CALL:
		case ZEND_INIT_METHOD_CALL:
		case ZEND_INIT_STATIC_METHOD_CALL:
		case ZEND_NEW:
			depth++;
		}
	}
	return depth == 1 ? op : NULL;
}

/* `fwrite($out, fread($f, 8192))`: whether the result is only passed to fwrite(). */
static inline bool is_written(const zend_execute_data *caller, const zend_op *called,
							  bool (*is_output_call)(const zend_execute_data *call))
{
	const zend_op *send = called + 1;

	if (send->opcode != ZEND_SEND_VAR || !takes_result(send, called) ||
		send->op2_type == IS_CONST || send->op2.num != 2 || !is_call(send + 1)) {
		return false;
	}
	const zend_op *init = enclosing_call(&caller->func->op_array, called);
	if (!init || init->opcode != ZEND_INIT_FCALL || init->extended_value != 2) {
		return false;
	}
	zend_string *name = Z_STR_P(RT_CONSTANT(init, init->op2));
	return (zend_string_equals_literal(name, "fwrite") ||
			zend_string_equals_literal(name, "fputs")) &&
		   caller->call && is_output_call(caller->call);
}

/*
 * True if the call's result is only written to the output, by ECHO or the replaced fwrite(). These
 * are the only users of a result that know tokens.
 */
static inline bool is_output_only(const zend_execute_data *call, const zval *result,
								  bool (*is_output_call)(const zend_execute_data *call))
{
	const zend_execute_data *caller = call->prev_execute_data;

	if (!caller || !caller->func || !ZEND_USER_CODE(caller->func->type)) {
		return false;
	}
	const zend_op *called = caller->opline, *next = called + 1;
	if (!is_call(called) || !(called->result_type & (IS_TMP_VAR | IS_VAR)) ||
		result != ZEND_CALL_VAR(caller, called->result.var)) {
		return false;
	}
	return (next->opcode == ZEND_ECHO && takes_result(next, called)) ||
		   is_written(caller, called, is_output_call);
}

/*
 * True if an extension may observe arguments and results of calls, or the opcodes that tokens pass
 * through.
 */
static inline bool is_watched(void)
{
	return zend_execute_internal || ZEND_OBSERVER_ENABLED ||
		   zend_get_user_opcode_handler(ZEND_ECHO) || zend_get_user_opcode_handler(ZEND_SEND_VAR) ||
		   zend_get_user_opcode_handler(ZEND_DO_ICALL) ||
		   zend_get_user_opcode_handler(ZEND_DO_FCALL);
}

/*
 * Output buffers: the layout of php_output_handler, the flags that php_output_write() tests, the
 * name of the buffer that output_buffering starts, and how buffers grow.
 */

/*
 * The buffer that php.ini's output_buffering starts, if it is the only one, has no callback, and is
 * not in use by a running handler; else NULL.
 */
static inline php_output_handler *default_buffer(void)
{
	php_output_handler *handler = OG(active);

	if (!handler || zend_stack_count(&OG(handlers)) != 1 || OG(running)) {
		return NULL;
	}
	if ((handler->flags & (PHP_OUTPUT_HANDLER_USER | PHP_OUTPUT_HANDLER_DISABLED)) ||
		!(handler->flags & PHP_OUTPUT_HANDLER_FLUSHABLE)) {
		return NULL;
	}
	/* PHP does not export the name. */
	if (!zend_string_equals_literal(handler->name, "default output handler")) {
		return NULL;
	}
	return handler;
}

/* True if PHP would flush the buffer when `len` bytes are appended. */
static inline bool would_overflow(const php_output_handler *handler, size_t len)
{
	return handler->size > 0 && handler->buffer.used + len >= handler->size;
}

/*
 * True if a header callback is yet to run. It may write, and must find the buffer in the state that
 * PHP would leave.
 */
static inline bool header_callback_pending(void)
{
	return !SG(headers_sent) && !Z_ISUNDEF(SG(callback_func));
}

/*
 * True if PHP would pass a write of `len` bytes to the SAPI at once, so that bypassing the output
 * buffer has the same effect.
 */
static inline bool lazy_output_is_plain(size_t len)
{
	if (!(OG(flags) & PHP_OUTPUT_ACTIVATED) || zend_write == NULL) {
		return false;
	}
	if (!OG(active)) {
		return true;
	}
	php_output_handler *handler = default_buffer();
	return handler && would_overflow(handler, len) && !header_callback_pending();
}

/* True if no callback of the script runs while `len` bytes are written. */
static inline bool lazy_output_is_quiet(size_t len)
{
	return lazy_output_is_plain(len) && !header_callback_pending();
}

/* True if the client accepts an encoding that PHP's compression produces. */
static inline bool client_takes_compression(void)
{
	char *accepted = sapi_getenv(ZEND_STRL("HTTP_ACCEPT_ENCODING"));
	bool takes = accepted && (strstr(accepted, "gzip") || strstr(accepted, "deflate"));

	if (accepted) {
		efree(accepted);
	}
	return takes;
}

static inline const char *buffer_with_callback(const php_output_handler *handler)
{
	static char text[512];
	const zend_function *callback =
		handler->flags & PHP_OUTPUT_HANDLER_USER ? handler->func.user->fcc.function_handler : NULL;

	if (callback && callback->type == ZEND_USER_FUNCTION) {
		snprintf(text, sizeof(text), "passes the output callback %s at %s:%u",
				 ZSTR_VAL(handler->name), ZSTR_VAL(callback->op_array.filename),
				 callback->op_array.line_start);
	} else if (strstr(ZSTR_VAL(handler->name), "zlib") ||
			   strstr(ZSTR_VAL(handler->name), "gzhandler")) {
		snprintf(text, sizeof(text),
				 client_takes_compression()
					 ? "compressed by PHP (%s)"
					 : "collected by %s, which does not compress: the client accepts no gzip",
				 ZSTR_VAL(handler->name));
	} else {
		snprintf(text, sizeof(text), "passes the output callback %s", ZSTR_VAL(handler->name));
	}
	return text;
}

/* For `sendoff explain`: which output buffer keeps bytes from the SAPI; NULL: none is known. */
static inline const char *lazy_output_obstacle(void)
{
	int count = zend_stack_count(&OG(handlers));

	/* With an empty stack, write_past_buffer() is bypassing the buffer. */
	if (!OG(active) || count == 0 || default_buffer()) {
		return NULL;
	}
	php_output_handler **all = zend_stack_base(&OG(handlers));
	for (int i = 0; i < count; i++) {
		if (!zend_string_equals_literal(all[i]->name, "default output handler")) {
			return buffer_with_callback(all[i]);
		}
	}
	return "collected in an output buffer (ob_start())";
}

/* The size that the buffer would keep after appending `len` bytes; ob_get_status() shows it. */
static inline size_t size_after_append(const php_output_handler *handler, size_t len)
{
	size_t room = handler->buffer.size - handler->buffer.used;

	if (room > len) {
		return handler->buffer.size;
	}
	size_t by_chunk = PHP_OUTPUT_HANDLER_INITBUF_SIZE(handler->size);
	size_t by_need = PHP_OUTPUT_HANDLER_INITBUF_SIZE(len - room);
	return handler->buffer.size + MAX(by_chunk, by_need);
}

/*
 * Grows the buffer to that size unless memory_limit forbids it. The added memory is not written, so
 * the kernel provides no pages for it.
 */
static inline void grow(php_output_handler *handler, size_t size)
{
	if (size > handler->buffer.size &&
		size < (size_t)PG(memory_limit) - MIN(zend_memory_usage(1), (size_t)PG(memory_limit))) {
		handler->buffer.data = erealloc(handler->buffer.data, size);
		handler->buffer.size = size;
	}
}

/*
 * Flushes the buffer, then writes with the handler off the stack, as php_output_flush() does, so
 * that the bytes go to the SAPI. If the client is gone, the write ends by a long jump. The handler
 * must be back on the stack by then: shutdown functions may start other buffers, and PHP pops the
 * handler that it expects on the stack.
 */
static inline size_t write_past_buffer(php_output_handler *handler, zend_write_func_t write,
									   const char *str, size_t len)
{
	size_t written = 0;

	OG(flags) |= PHP_OUTPUT_WRITTEN;
	zend_try
	{
		php_output_flush();
		zend_stack_del_top(&OG(handlers));
		written = write(str, len);
		zend_stack_push(&OG(handlers), &handler);
	}
	zend_catch
	{
		if (zend_stack_is_empty(&OG(handlers))) {
			zend_stack_push(&OG(handlers), &handler);
		}
		zend_bailout();
	}
	zend_end_try();
	return written;
}

/*
 * Session handlers that a script has set: a union in PHP 8.2 and 8.3, a structure since 8.4, of as
 * many values.
 */
#define SESSION_HANDLERS (sizeof(PS(mod_user_names)) / sizeof(zval))

#define session_handlers() ((zval *)&PS(mod_user_names))

#endif /* SENDOFF_PHP_VERSIONS_H */
