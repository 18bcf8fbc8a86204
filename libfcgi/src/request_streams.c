/* The three streams of a request: stdin, stdout and stderr of a libsendoff worker. */
#include "internal.h"

#include <errno.h>
#include <string.h>

static void fill(FCGX_Stream *stream)
{
	request_streams *streams = stream->data;
	unsigned char *start = streams->in_buffer + 1;
	ssize_t n = streams->reads_data ? sendoff_read_data(streams->worker, start, READ_BUFFER)
									: sendoff_read(streams->worker, start, READ_BUFFER);

	if (n > 0) {
		reader_refill(stream, start, (size_t)n);
	} else {
		stream_close(stream, n == 0 ? 0 : FCGX_PROTOCOL_ERROR);
	}
}

/* Length of the header block at the start of `text`, including its empty line; 0: incomplete. */
static size_t head_end(const unsigned char *text, size_t len)
{
	const unsigned char *line = text, *end;

	while ((end = memchr(line, '\n', len - (size_t)(line - text))) != NULL) {
		if (end == line || (end == line + 1 && *line == '\r')) {
			return (size_t)(end + 1 - text);
		}
		line = end + 1;
	}
	return 0;
}

/* Passes bytes to the worker. `false`: the client has closed the connection. */
static bool pass_on(request_streams *streams, const unsigned char *bytes, size_t len)
{
	size_t head;

	if (streams->head_awaited) {
		/* A header block that is complete in the first piece is passed on separately: then the
		 * worker can announce the length of the body. */
		streams->head_awaited = false;
		head = head_end(bytes, len);
		if (head > 0 && sendoff_write_head(streams->worker, (const char *)bytes, head) < 0) {
			return false;
		}
		bytes += head;
		len -= head;
	}
	return len == 0 || sendoff_write(streams->worker, bytes, len) == 0;
}

static void writer_closed(request_streams *streams)
{
	if (--streams->request->nWriters == 0) {
		streams->finished = true;
		sendoff_finish(streams->worker, streams->request->appStatus, 0);
	}
}

/*
 * Called when the buffer has been passed on (`good`) or could not be: frees the buffer, closes the
 * stream on an error, and counts a closed writer.
 */
static void emptied(FCGX_Stream *stream, unsigned char *buffer, size_t size, bool good, int close)
{
	writer_reset(stream, buffer, size);
	if (!good) {
		stream_close(stream, EPIPE);
	}
	if (close) {
		writer_closed(stream->data);
	}
}

static void empty_out(FCGX_Stream *stream, int close)
{
	request_streams *streams = stream->data;
	size_t len = (size_t)(stream->wrNext - streams->out_buffer);
	bool good = len == 0 || pass_on(streams, streams->out_buffer, len);

	/* Output is closed before stderr. Flush it now, so that the client does not wait for the
	 * program's work in between. */
	if (good && close && streams->request->nWriters > 1) {
		good = sendoff_flush(streams->worker) == 0;
	}
	emptied(stream, streams->out_buffer, sizeof streams->out_buffer, good, close);
}

bool out_takes(FCGX_Stream *stream, const char *str, size_t len)
{
	request_streams *streams = stream->data;
	size_t before;
	bool good;

	if (stream->emptyBuffProc != empty_out || len < DIRECT || stream->isClosed) {
		return false;
	}
	before = (size_t)(stream->wrNext - streams->out_buffer);
	good = before == 0 || pass_on(streams, streams->out_buffer, before);
	good = good && pass_on(streams, (const unsigned char *)str, len);
	emptied(stream, streams->out_buffer, sizeof streams->out_buffer, good, 0);
	return good;
}

static void empty_err(FCGX_Stream *stream, int close)
{
	request_streams *streams = stream->data;
	size_t len = (size_t)(stream->wrNext - streams->err_buffer);
	bool good = len == 0 || sendoff_write_stderr(streams->worker, streams->err_buffer, len) == 0;

	/* Flush log output at once, so that a crash of the program does not lose it. */
	if (good && !close) {
		good = sendoff_flush(streams->worker) == 0;
	}
	emptied(stream, streams->err_buffer, sizeof streams->err_buffer, good, close);
}

bool request_flush(FCGX_Stream *stream)
{
	request_streams *streams = stream->data;
	bool is_requests = stream->emptyBuffProc == empty_out || stream->emptyBuffProc == empty_err;

	return !is_requests || sendoff_flush(streams->worker) == 0;
}

void request_streams_open(request_streams *streams)
{
	FCGX_Stream in = {.isReader = 1, .fillBuffProc = fill, .data = streams};
	FCGX_Stream out = {.emptyBuffProc = empty_out, .data = streams};
	FCGX_Stream err = {.emptyBuffProc = empty_err, .data = streams};

	reader_refill(&in, streams->in_buffer + 1, 0);
	/* FCGX_UnGetChar() may put back one byte before the first read. */
	in.stopUnget--;
	writer_reset(&out, streams->out_buffer, sizeof streams->out_buffer);
	writer_reset(&err, streams->err_buffer, sizeof streams->err_buffer);
	streams->in = in;
	streams->out = out;
	streams->err = err;
	streams->head_awaited = true;
	streams->reads_data = false;
	streams->finished = false;
}

int FCGX_StartFilterData(FCGX_Stream *stream)
{
	request_streams *streams = stream->data;

	if (sendoff_role(streams->worker) != SENDOFF_FILTER || !stream->isReader || !stream->isClosed) {
		stream_close(stream, FCGX_CALL_SEQ_ERROR);
		return -1;
	}
	streams->reads_data = true;
	stream->isClosed = 0;
	reader_refill(stream, streams->in_buffer + 1, 0);
	return 0;
}

void FCGX_SetExitStatus(int status, FCGX_Stream *stream)
{
	request_streams *streams = stream->data;

	streams->request->appStatus = status;
}
