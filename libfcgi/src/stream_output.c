/*
 * Writing to an FCGX_Stream and flushing it. Large writes to a request's output stream bypass its
 * buffer (request_streams.c).
 */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* True if the buffer has room for a byte; empties the buffer if it is full. */
static bool writable(FCGX_Stream *stream)
{
	if (stream->isReader) {
		return false;
	}
	if (stream->wrNext == stream->stop && !stream->isClosed) {
		stream->emptyBuffProc(stream, 0);
	}
	return stream->wrNext != stream->stop;
}

int FCGX_PutChar(int c, FCGX_Stream *stream)
{
	return writable(stream) ? (*stream->wrNext++ = (unsigned char)c) : EOF;
}

int FCGX_PutStr(const char *str, int n, FCGX_Stream *stream)
{
	int put = 0;

	if (n > 0 && out_takes(stream, str, (size_t)n)) {
		return n;
	}
	while (put < n) {
		ptrdiff_t room;
		int now;

		if (!writable(stream)) {
			return EOF;
		}
		room = stream->stop - stream->wrNext;
		now = room < n - put ? (int)room : n - put;
		memcpy(stream->wrNext, str + put, (size_t)now);
		stream->wrNext += now;
		put += now;
	}
	return n;
}

int FCGX_PutS(const char *str, FCGX_Stream *stream)
{
	size_t len = strlen(str);
	size_t put = 0;

	while (put < len) {
		size_t now = len - put < INT_MAX ? len - put : INT_MAX;

		if (FCGX_PutStr(str + put, (int)now, stream) < 0) {
			return EOF;
		}
		put += now;
	}
	return (int)len;
}

int FCGX_FPrintF(FCGX_Stream *stream, const char *format, ...)
{
	va_list args;
	int result;

	va_start(args, format);
	result = FCGX_VFPrintF(stream, format, args);
	va_end(args);
	return result;
}

int FCGX_VFPrintF(FCGX_Stream *stream, const char *format, va_list arg)
{
	size_t room;
	va_list again;
	char *text;
	int len;

	if (!writable(stream)) {
		return EOF;
	}
	/* The text usually fits into the buffer. */
	room = (size_t)(stream->stop - stream->wrNext);
	va_copy(again, arg);
	len = vsnprintf((char *)stream->wrNext, room, format, arg);
	if (len >= 0 && (size_t)len < room) {
		stream->wrNext += len;
	} else if (len >= 0) {
		len = vasprintf(&text, format, again);
		if (len >= 0) {
			len = FCGX_PutStr(text, len, stream);
			free(text);
		} else {
			stream_close(stream, ENOMEM);
		}
	}
	va_end(again);
	return len < 0 ? EOF : len;
}

int FCGX_FFlush(FCGX_Stream *stream)
{
	if (stream == NULL || stream->isClosed || stream->isReader) {
		return 0;
	}
	stream->emptyBuffProc(stream, 0);
	if (!stream->isClosed && !request_flush(stream)) {
		stream_close(stream, EPIPE);
	}
	return stream->isClosed ? EOF : 0;
}
