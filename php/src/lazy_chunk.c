/*
 * Chunk loops: fread() of a stream whose file is held.
 *
 * What PHP would read is known: what it has read ahead, which is compared with the region, and then
 * what the file has where the descriptor stands, which the lease keeps equal to the region. So the
 * bytes come from the region, and the stream is moved as PHP moves it: in steps of its chunk size,
 * the last of which may leave something in its read buffer; at the end of the file only a read
 * that wants more sets eof.
 *
 * In `echo fread($f, 8192)` nobody but ECHO can ever see the result: it is the temporary of the
 * call and the operand of the next opcode. Such a call returns a token: a string that has a length
 * and no bytes, which the write hook replaces by the place in the region. The same goes for
 * `fwrite($out, fread($f, 8192))`, and our fwrite(). Everywhere else the result is a copy, and
 * lazy_match.c recognises it.
 *
 * A token is flagged interned, as the optimizer takes the result of fread() for the only reference
 * and its code may free it unasked. So nobody tells when one is lost (an exception, the end of the
 * script); its slot then stays taken until the request ends.
 */
#include "lazy.h"

#include "ext/standard/file.h"
#include "zend_observer.h"

#include <sys/stat.h>
#include <unistd.h>

/* PHP's own, unless the script asks for another. */
#define CHUNK 8192
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
	const char *in_region;
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
	uint32_t epoch = lazy_region_epoch();
	lazy_region *region = handle != hopeless ? lazy_stream_region(stream) : NULL;
	if (!region ||
		stream->ops->cast(stream, PHP_STREAM_AS_FD_FOR_SELECT, (void **)&fd) != SUCCESS) {
		hopeless = handle;
		return false;
	}
	bound.handle = handle;
	bound.fd = fd;
	bound.contents = ZSTR_VAL(lazy_region_string(region));
	bound.size = ZSTR_LEN(lazy_region_string(region));
	bound.epoch = epoch;
	return true;
}

static bool still_stands(void)
{
	uint32_t epoch = lazy_region_epoch(), file;
	uint64_t offset;

	if (epoch != bound.epoch && !lazy_region_find(bound.contents, bound.size, &file, &offset)) {
		return false;
	}
	bound.epoch = epoch;
	return true;
}

/* Whether PHP would read the stream in steps of its usual buffer, and nothing else goes on. */
static bool reads_as_usual(const php_stream *stream)
{
	return lazy_is_plain_file(stream) && !(stream->flags & PHP_STREAM_FLAG_NO_BUFFER) &&
		   stream->chunk_size == CHUNK && stream->readbuflen <= CHUNK && !stream->eof &&
		   stream->position >= 0;
}

/* The part of the region that the stream would read next; NULL if the region cannot tell. */
static const char *next_of(const php_stream *stream, size_t *left)
{
	size_t ahead = (size_t)(stream->writepos - stream->readpos);

	if (stream->res->handle != bound.handle || (size_t)stream->position >= bound.size) {
		return NULL;
	}
	const char *next = bound.contents + stream->position;
	*left = bound.size - (size_t)stream->position;
	if (!still_stands()) {
		bound.handle = 0;
		return NULL;
	}
	if (ahead > *left || (ahead && memcmp(stream->readbuf + stream->readpos, next, ahead) != 0)) {
		return NULL;
	}
	return next;
}

/*
 * Moves the descriptor; false if it did not stand where the stream believes it does: a process that
 * inherited it may have read.
 */
static bool skip(size_t from, size_t count)
{
	off_t expected = (off_t)(from + count);

	if (lseek(bound.fd, (off_t)count, SEEK_CUR) == expected) {
		return true;
	}
	lseek(bound.fd, -(off_t)count, SEEK_CUR);
	return false;
}

/*
 * Leaves the stream as a read of `wanted` bytes does, of which there are `left` before the end.
 * Returns how many it gives; 0: nothing has happened, PHP should read.
 */
static size_t pass_over(php_stream *stream, size_t wanted, size_t left)
{
	size_t ahead = (size_t)(stream->writepos - stream->readpos);
	size_t given = MIN(wanted, left);

	if (wanted > ahead) {
		size_t rest = given - ahead;
		size_t tail = wanted < left ? rest % CHUNK : 0;

		if (!skip((size_t)stream->position + ahead, rest - tail)) {
			return 0;
		}
		stream->readpos = stream->writepos;
		if (!stream->readbuf) {
			/* Its size has a say in how far PHP reads ahead, should the chunk size change. */
			stream->readbuf = pemalloc(CHUNK, stream->is_persistent);
			stream->readbuflen = CHUNK;
		}
		if (tail) {
			/* Reads a whole step, of which the script wants a part. */
			php_stream_fill_read_buffer(stream, tail);
			size_t got = MIN((size_t)(stream->writepos - stream->readpos), tail);
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

static bool is_call(const zend_op *op)
{
	return op->opcode == ZEND_DO_ICALL || op->opcode == ZEND_DO_FCALL ||
		   op->opcode == ZEND_DO_FCALL_BY_NAME;
}

static bool takes_result(const zend_op *op, const zend_op *call)
{
	return op->op1_type == call->result_type && op->op1.var == call->result.var;
}

/* The opcode that begins the call in whose arguments the call that ends with `op` stands. */
static const zend_op *enclosing_call(const zend_op_array *code, const zend_op *op)
{
	/* How many begin more than end. */
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

/* `fwrite($out, fread($f, 8192))`: all that happens to the result is that fwrite() gets it. */
static bool is_written(const zend_execute_data *caller, const zend_op *called)
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
		   caller->call && lazy_is_output_call(caller->call);
}

/*
 * Whether the bytes that the call returns go to the output and to nobody else. Every user of a
 * token is one that we know and have replaced.
 */
static bool is_output_only(const zend_execute_data *call, const zval *result)
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
	return (next->opcode == ZEND_ECHO && takes_result(next, called)) || is_written(caller, called);
}

/* Whether an extension could look at arguments and results of functions and opcodes. */
static bool is_watched(void)
{
	return zend_execute_internal || ZEND_OBSERVER_ENABLED ||
		   zend_get_user_opcode_handler(ZEND_ECHO) || zend_get_user_opcode_handler(ZEND_SEND_VAR) ||
		   zend_get_user_opcode_handler(ZEND_DO_ICALL) ||
		   zend_get_user_opcode_handler(ZEND_DO_FCALL) || !lazy_output_is_hooked();
}

/* A token for what lies there; NULL: all are taken. */
static zend_string *token(const char *in_region)
{
	for (size_t i = 0; i < TOKENS; i++) {
		if (!tokens[i].taken) {
			zend_string *string = &tokens[i].string;

			tokens[i].taken = true;
			tokens[i].in_region = in_region;
			GC_SET_REFCOUNT(string, 1);
			GC_TYPE_INFO(string) = GC_STRING | (IS_STR_INTERNED << GC_FLAGS_SHIFT);
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
	return tokens[distance / sizeof(tokens[0])].in_region;
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
		zend_string *lazy = (zend_string *)(next - _ZSTR_HEADER_SIZE);
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

bool lazy_chunk_read(php_stream *stream, size_t wanted, const zend_execute_data *call, zval *result)
{
	size_t left;

	if (wanted < LAZY_NOTED_MIN || !reads_as_usual(stream) || !lazy_worker()) {
		return false;
	}
	bool output_only = is_output_only(call, result) && !is_watched();
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
	len = pass_over(stream, wanted, left);
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
