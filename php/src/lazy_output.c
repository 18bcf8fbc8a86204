/*
 * The write hooks. Output passes zend_write (echo, print, ?>text<?php), PHP's output buffers, and
 * the SAPI's ub_write. A lazy string that reaches ub_write without being copied leaves as a file
 * segment.
 *
 * With output_buffering=4096, the value in every Debian php.ini, PHP would append the string to the
 * buffer, find it full, and write all of it to the SAPI at once. The hook has the same effect
 * without the copy: it writes the pending bytes, then the string.
 */
#include "lazy.h"

#include "SAPI.h"
#include "php_output.h"

/* Shorter pieces of a mapped file cost less as bytes than as a segment. (PHP's own tests run
 * with 1.) */
#ifndef SEGMENT_MIN
#define SEGMENT_MIN 4096
#endif

/* Bytes that may wait to be joined: 1/8 of what the worker joins before it sends (2 MiB). */
#define WAITING_MAX ((size_t)256 * 1024)

bool (*lazy_before_hand_over)(void);

static zend_write_func_t php_zend_write;
static size_t (*sapi_ub_write)(const char *str, size_t len);
static void (*sapi_flush_output)(void *server_context);
static int (*sapi_send_headers_now)(sapi_headers_struct *headers);

/*
 * A chunk loop hands a file over in many pieces, each of which continues the previous one. All but
 * the first wait here until they reach WAITING_MAX or anything else happens to the response; this
 * saves a loop a tenth of the worker's CPU time. The bytes lie in a mapped file that this request
 * uses: if the lease breaks they keep their contents, and the worker sends them as bytes.
 */
static struct {
	/* Start of the next piece, in a mapped file; NULL: nothing has been handed over. */
	const char *next;
	/* The end of that mapped file's contents. */
	const char *end;
	/* Number of bytes that wait, right before `next`. */
	size_t len;
	/* File and offset of `next`. */
	uint32_t file;
	uint64_t offset;
	/* mapped_file_epoch() before the last segment was handed over. */
	uint32_t epoch;
} waiting;

void lazy_output_settle(void)
{
	size_t len = waiting.len;

	waiting.len = 0;
	if (len && sendoff_write_file(lazy_attached(), waiting.file, waiting.offset - len, len) != 0) {
		/* The client has usually closed the connection; the SAPI handles the failed write. */
		sapi_ub_write(waiting.next - len, len);
	}
}

void lazy_output_end(void)
{
	zend_try
	{
		lazy_output_settle();
	}
	zend_end_try();
	waiting.next = NULL;
}

/* True if `len` bytes at `in_file` continue the waiting bytes and can wait with them. */
static bool waits(const char *in_file, size_t len)
{
	if (!waiting.next || in_file != waiting.next || len > (size_t)(waiting.end - in_file) ||
		waiting.len + len > WAITING_MAX || lazy_explaining ||
		waiting.epoch != mapped_file_epoch()) {
		return false;
	}
	waiting.len += len;
	waiting.next += len;
	waiting.offset += len;
	return true;
}

/* Hands over the waiting bytes, then this segment. */
static bool write_segment(uint32_t file, uint64_t offset, size_t len)
{
	lazy_output_settle();
	return (!lazy_before_hand_over || lazy_before_hand_over()) &&
		   sendoff_write_file(lazy_worker(), file, offset, len) == 0;
}

/* Hands over a range of a mapped file. A continuation of the previous range may wait. */
static bool write_file(const char *in_file, size_t len, uint32_t file, uint64_t offset)
{
	uint32_t epoch = mapped_file_epoch();

	if (!write_segment(file, offset, len)) {
		return false;
	}
	waiting.next = in_file + len;
	waiting.end = mapped_file_end(in_file);
	waiting.file = file;
	waiting.offset = offset + len;
	waiting.epoch = epoch;
	return true;
}

/*
 * Strings of at least LAZY_SEARCH_MIN bytes always bypass the buffer: they are searched in place,
 * not copied.
 */
static size_t lazy_zend_write(const char *str, size_t len)
{
	uint32_t file;
	uint64_t offset;
	const char *chunk = lazy_chunk_redeem(str);

	str = chunk ? chunk : str;
	if (len >= SEGMENT_MIN && OG(active) &&
		(chunk || len >= LAZY_SEARCH_MIN || mapped_file_find(str, len, &file, &offset) ||
		 lazy_blob_is_constant(str, len) || lazy_match_is_likely(str, len)) &&
		lazy_output_is_plain(len)) {
		php_output_handler *handler = OG(active);
		size_t size = size_after_append(handler, len);
		size_t written = write_past_buffer(handler, php_zend_write, str, len);

		grow(handler, size);
		return written;
	}
	if (UNEXPECTED(lazy_explaining)) {
		lazy_explain_write(str, len);
	}
	return php_zend_write(str, len);
}

/* The place of the bytes in a mapped file, by address or by comparison; NULL: there is none. */
static const char *in_file(const char *str, size_t len, uint32_t *file, uint64_t *offset)
{
	if (len >= SEGMENT_MIN && mapped_file_find(str, len, file, offset)) {
		return str;
	}
	php_stream *loop;
	const char *found = lazy_match(str, len, file, offset, &loop);
	if (loop) {
		lazy_chunk_bind(loop);
	}
	return found;
}

static bool hand_over_constant(const char *str, size_t len)
{
	uint32_t blob;

	if (len < SEGMENT_MIN || !lazy_blob_find(str, len, &blob)) {
		return false;
	}
	if (UNEXPECTED(lazy_explaining)) {
		lazy_explain_constant(lazy_blob_is_own(str, len) ? "a fragment" : "a constant");
	}
	if (!write_segment(blob, 0, len)) {
		return false;
	}
	SENDOFF_G(handed_over_bytes) += (zend_long)len;
	SENDOFF_G(segments)++;
	return true;
}

static bool hand_over(const char *str, size_t len)
{
	uint32_t file;
	uint64_t offset;
	const char *found = str;

	if (!waits(str, len)) {
		found = in_file(str, len, &file, &offset);
		if (UNEXPECTED(lazy_explaining) && found) {
			lazy_explain_file(file, found != str);
		}
		if (!found || (!waits(found, len) && !write_file(found, len, file, offset))) {
			return false;
		}
	}
	SENDOFF_G(handed_over_bytes) += (zend_long)len;
	SENDOFF_G(segments) += !lazy_match_sent(found, len);
	return true;
}

static size_t copy(const char *str, size_t len)
{
	if (UNEXPECTED(lazy_explaining)) {
		lazy_explain_bytes(str, len);
	}
	lazy_output_settle();
	SENDOFF_G(copied_bytes) += (zend_long)len;
	return sapi_ub_write(str, len);
}

static size_t lazy_ub_write(const char *str, size_t len)
{
	lazy_found found;
	size_t done = 0;

	/* The headers have not been sent, so this write bypassed the output layer. The SAPI handles
	 * that. */
	if (!SG(headers_sent)) {
		return copy(str, len);
	}
	if (hand_over_constant(str, len) || hand_over(str, len)) {
		return len;
	}
	/* If the client is gone or the response has ended, the handover fails and the SAPI handles the
	 * bytes. */
	while (lazy_search(str + done, len - done, &found)) {
		if (found.before) {
			copy(str + done, found.before);
		}
		done += found.before;
		if (!hand_over(found.in_file, found.len)) {
			copy(str + done, found.len);
		}
		done += found.len;
	}
	return done == 0 ? copy(str, len) : (len > done ? done + copy(str + done, len - done) : len);
}

static void lazy_flush(void *server_context)
{
	lazy_output_settle();
	sapi_flush_output(server_context);
}

/*
 * If a header callback writes, PHP sends the headers twice; the second block follows the first
 * output.
 */
static int lazy_send_headers(sapi_headers_struct *headers)
{
	lazy_output_settle();
	return sapi_send_headers_now(headers);
}

void lazy_output_startup(void)
{
	sapi_flush_output = sapi_module.flush;
	sapi_module.flush = lazy_flush;
	sapi_send_headers_now = sapi_module.send_headers;
	sapi_module.send_headers = lazy_send_headers;
	php_zend_write = zend_write;
	lazy_write_hook = zend_write = lazy_zend_write;
	sapi_ub_write = sapi_module.ub_write;
	sapi_module.ub_write = lazy_ub_write;
}
