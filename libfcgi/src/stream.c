/* FCGX_Stream: buffered bytes, whatever they come from or go to. */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

void reader_refill(FCGX_Stream *stream, unsigned char *start, size_t len)
{
	stream->rdNext = stream->stopUnget = start;
	stream->stop = stream->wrNext = start + len;
}

void writer_reset(FCGX_Stream *stream, unsigned char *start, size_t len)
{
	stream->wrNext = start;
	stream->stop = stream->rdNext = start + len;
}

void stream_close(FCGX_Stream *stream, int error)
{
	if (stream->FCGI_errno == 0) {
		stream->FCGI_errno = error;
	}
	stream->isClosed = 1;
	if (stream->isReader) {
		stream->stop = stream->wrNext = stream->rdNext;
	} else {
		stream->stop = stream->rdNext = stream->wrNext;
	}
}

/* Whether there is a byte to read. */
static bool readable(FCGX_Stream *stream)
{
	if (!stream->isReader) {
		return false;
	}
	if (stream->rdNext == stream->stop && !stream->isClosed) {
		stream->fillBuffProc(stream);
	}
	return stream->rdNext != stream->stop;
}

/* Whether there is room for a byte. */
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

int FCGX_GetChar(FCGX_Stream *stream)
{
	return readable(stream) ? *stream->rdNext++ : EOF;
}

int FCGX_UnGetChar(int c, FCGX_Stream *stream)
{
	if (c == EOF || stream->isClosed || !stream->isReader || stream->rdNext == stream->stopUnget) {
		return EOF;
	}
	*--stream->rdNext = (unsigned char)c;
	return c;
}

int FCGX_GetStr(char *str, int n, FCGX_Stream *stream)
{
	int got = 0;

	while (got < n && readable(stream)) {
		ptrdiff_t there = stream->stop - stream->rdNext;
		int now = there < n - got ? (int)there : n - got;

		memcpy(str + got, stream->rdNext, (size_t)now);
		stream->rdNext += now;
		got += now;
	}
	return got;
}

char *FCGX_GetLine(char *str, int n, FCGX_Stream *stream)
{
	char *next = str;

	while (--n > 0) {
		int c = FCGX_GetChar(stream);

		if (c == EOF) {
			if (next == str) {
				return NULL;
			}
			break;
		}
		*next++ = (char)c;
		if (c == '\n') {
			break;
		}
	}
	*next = '\0';
	return str;
}

int FCGX_HasSeenEOF(FCGX_Stream *stream)
{
	return stream->isClosed ? EOF : 0;
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
	/* Mostly it fits where it belongs. */
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

int FCGX_FClose(FCGX_Stream *stream)
{
	if (stream == NULL) {
		return 0;
	}
	if (!stream->wasFCloseCalled) {
		if (!stream->isReader) {
			stream->emptyBuffProc(stream, 1);
		}
		stream->wasFCloseCalled = 1;
		stream_close(stream, 0);
	}
	return stream->FCGI_errno == 0 ? 0 : EOF;
}

int FCGX_GetError(FCGX_Stream *stream)
{
	return stream->FCGI_errno;
}

/* It says "and the end", but has only ever cleared the error. */
void FCGX_ClearError(FCGX_Stream *stream)
{
	stream->FCGI_errno = 0;
}
