/*
 * FCGX_CreateWriter(): a stream whose bytes leave as FastCGI records on a socket, for programs that
 * act as the web server.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEADER 8
#define MAX_CONTENT 65528
#define MIN_CONTENT 32

typedef struct record_writer {
	FCGX_Stream stream;
	int socket;
	int id;
	int type;
	size_t room;
	unsigned char buffer[];
} record_writer;

static bool write_all(int fd, const unsigned char *bytes, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, bytes, len);

		if (n < 0 && errno != EINTR) {
			return false;
		}
		if (n > 0) {
			bytes += n;
			len -= (size_t)n;
		}
	}
	return true;
}

/*
 * Sends one record, padded to a multiple of 8 bytes. Its content already stands after the space for
 * the header.
 */
static bool send_record(record_writer *writer, size_t len)
{
	size_t padding = -len & 7;
	unsigned char *head = writer->buffer;

	head[0] = 1;
	head[1] = (unsigned char)writer->type;
	head[2] = (unsigned char)(writer->id >> 8);
	head[3] = (unsigned char)writer->id;
	head[4] = (unsigned char)(len >> 8);
	head[5] = (unsigned char)len;
	head[6] = (unsigned char)padding;
	head[7] = 0;
	memset(head + HEADER + len, 0, padding);
	return write_all(writer->socket, head, HEADER + len + padding);
}

static void empty(FCGX_Stream *stream, int close)
{
	record_writer *writer = stream->data;
	size_t len = (size_t)(stream->wrNext - writer->buffer - HEADER);
	bool good = len == 0 || send_record(writer, len);

	/* An empty record ends a stream. */
	if (good && close) {
		good = send_record(writer, 0);
	}
	writer_reset(stream, writer->buffer + HEADER, writer->room);
	if (!good) {
		stream_close(stream, errno);
	}
}

FCGX_Stream *FCGX_CreateWriter(int socket, int requestId, int bufflen, int streamType)
{
	size_t room = bufflen < MIN_CONTENT ? MIN_CONTENT : (size_t)bufflen;
	record_writer *writer;

	room = (room > MAX_CONTENT ? MAX_CONTENT : room) & ~(size_t)7;
	writer = calloc(1, sizeof *writer + HEADER + room);
	if (writer == NULL) {
		return NULL;
	}
	writer->socket = socket;
	writer->id = requestId;
	writer->type = streamType;
	writer->room = room;
	writer->stream.emptyBuffProc = empty;
	writer->stream.data = writer;
	writer_reset(&writer->stream, writer->buffer + HEADER, room);
	return &writer->stream;
}

void FCGX_FreeStream(FCGX_Stream **stream)
{
	if (stream == NULL || *stream == NULL) {
		return;
	}
	/* The streams of a request are freed with the request. */
	if ((*stream)->emptyBuffProc == empty) {
		free((*stream)->data);
	}
	*stream = NULL;
}
