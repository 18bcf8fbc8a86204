/* FCGX_Stream: the buffer, reading, closing. stream_output.c has writing. */
#include "internal.h"

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

/* True if the buffer has a byte to read; fills the buffer if it is empty. */
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

/* libfcgi documents that this clears end-of-file too, but it only ever cleared the error. */
void FCGX_ClearError(FCGX_Stream *stream)
{
	stream->FCGI_errno = 0;
}
