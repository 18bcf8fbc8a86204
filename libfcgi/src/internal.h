/* Declarations that the files of this library share. */
#ifndef LIBFCGI_INTERNAL_H
#define LIBFCGI_INTERNAL_H

#include "libfcgi.h"
#include "sendoff.h"

#include <stdbool.h>
#include <stddef.h>

/* stream.c */

/*
 * Sets the buffer of a reader to the `len` bytes at `start`. The byte before `start` must be
 * writable, for FCGX_UnGetChar().
 */
void reader_refill(FCGX_Stream *stream, unsigned char *start, size_t len);
/* Sets the buffer of a writer to the `len` bytes at `start`, all of them free. */
void writer_reset(FCGX_Stream *stream, unsigned char *start, size_t len);
/* Closes a stream for reading and writing. `error` 0: end of the stream. */
void stream_close(FCGX_Stream *stream, int error);

/* request_streams.c: the streams of one request. */

#define READ_BUFFER (8 * 1024)
/*
 * In bytes. From 16 KiB on the worker sends from this buffer instead of copying it. A response that
 * fits leaves in one message on the link, or by one write to the client.
 */
#define WRITE_BUFFER (128 * 1024)
#define ERROR_BUFFER (4 * 1024)
/* Writes of at least this length (bytes) bypass the buffer. */
#define DIRECT (64 * 1024)

typedef struct request_streams {
	FCGX_Request *request;
	sendoff_worker *worker;
	FCGX_Stream in, out, err;
	/* The response head has not been passed to the worker. */
	bool head_awaited;
	/* `in` reads the data stream of a filter (FastCGI: FCGI_DATA). */
	bool reads_data;
	bool finished;
	unsigned char in_buffer[1 + READ_BUFFER];
	unsigned char out_buffer[WRITE_BUFFER];
	unsigned char err_buffer[ERROR_BUFFER];
} request_streams;

void request_streams_open(request_streams *streams);
/*
 * Sends `len` bytes without buffering if the stream is a request's output and `len` is at least
 * DIRECT. `false`: not sent.
 */
bool out_takes(FCGX_Stream *stream, const char *str, size_t len);
/*
 * Flushes the worker's queue if the stream belongs to a request. `false`: the client has closed the
 * connection.
 */
bool request_flush(FCGX_Stream *stream);

/* os.c */
bool shutdown_is_pending(void);

#endif /* LIBFCGI_INTERNAL_H */
