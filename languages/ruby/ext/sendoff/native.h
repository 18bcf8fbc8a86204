/*
 * Sendoff::Connection on libsendoff (include/sendoff.h).
 *
 * Functions that may wait run without the GVL. A Ruby exception is a long jump, so none is raised
 * while a function of libsendoff is on the stack.
 */
#ifndef SENDOFF_RUBY_NATIVE_H
#define SENDOFF_RUBY_NATIVE_H

#include <ruby.h>
#include <ruby/thread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "sendoff.h"

/* A connection of a web server, used by one Ruby thread. */
typedef struct connection {
	/* NULL once it is closed. */
	sendoff_worker *worker;
	/* The worker's own descriptor. */
	int fd;
	/* The value of forks() in the process that accepted it: a child must not touch it. */
	unsigned forks;
	/* Its thread waits for a request. */
	bool idle;
	/* Its first request has been taken and not yet been returned. */
	bool has_first;
	/* Bytes of the current response that were queued while none could have been sent. */
	size_t queued;
} connection;

/* What became of a file. */
typedef enum file_result {
	/* Nothing was written: the caller sends the body its own way. */
	FILE_REFUSED,
	/* Its bytes were copied into the response. */
	FILE_COPIED,
	/* The file was handed over to the front. */
	FILE_HANDED_OVER,
	/* The client has gone. */
	FILE_FAILED,
} file_result;

/* Number of fork(2) calls between the first process and this one, from count_forks() on. */
unsigned forks(void);
void count_forks(void);

/*
 * Sends the response that consists of `head`, a whole header block, and the file at `path`, if the
 * file is regular and has `size` bytes; -1: any number. Called without the GVL.
 */
file_result send_file(sendoff_worker *worker, const char *head, size_t head_len, const char *path,
					  off_t size);

#endif
