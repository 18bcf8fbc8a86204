/* What the files of this library share. */
#ifndef LIBFCGI_INTERNAL_H
#define LIBFCGI_INTERNAL_H

#include "libfcgi.h"
#include "sendoff.h"

#include <stdbool.h>
#include <stddef.h>

/* stream.c */

/* Makes `len` bytes at `start` the buffer of a reader. The byte before them must be writable, for
 * ungetc. */
void reader_refill(FCGX_Stream *stream, unsigned char *start, size_t len);
/* Makes the whole buffer of a writer free. */
void writer_reset(FCGX_Stream *stream, unsigned char *start, size_t len);
/* Nothing can be read or written any more. `error` 0: the end. */
void stream_close(FCGX_Stream *stream, int error);

/* request_streams.c: the streams of one request. */

#define READ_BUFFER (8 * 1024)
/* From 16 KiB on the worker sends from here instead of copying. A response that fits leaves in one
 * message, or by one write to the client. */
#define WRITE_BUFFER (128 * 1024)
#define ERROR_BUFFER (4 * 1024)
/* From here on, bytes are not copied into the buffer. */
#define DIRECT (64 * 1024)

typedef struct request_streams {
	FCGX_Request *request;
	sendoff_worker *worker;
	FCGX_Stream in, out, err;
	/* The response head may still lie in the buffer of `out`. */
	bool head_awaited;
	/* `in` stands at the file of a filter. */
	bool reads_data;
	bool finished;
	unsigned char in_buffer[1 + READ_BUFFER];
	unsigned char out_buffer[WRITE_BUFFER];
	unsigned char err_buffer[ERROR_BUFFER];
} request_streams;

void request_streams_open(request_streams *streams);
/* Writes `len` bytes past the buffer, if the stream is a request's output and they are many. */
bool out_takes(FCGX_Stream *stream, const char *str, size_t len);
/* Sends what the stream has passed on, if it is a request's. `false`: the client has gone. */
bool request_flush(FCGX_Stream *stream);

/* os.c */
bool shutdown_is_pending(void);

#endif /* LIBFCGI_INTERNAL_H */
