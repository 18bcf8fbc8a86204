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
	/* Its first request has been received, and not returned yet. */
	bool has_first;
	/* Bytes of the current response that were queued when none could have been sent. */
	size_t queued;
} connection;

/* The result of sending a file. */
typedef enum file_result {
	/* Nothing was written: the caller must send the body in another way. */
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

/* The part of a file that a response contains. */
typedef struct file_part {
	/* The open file; -1: the file at `path`. */
	int fd;
	const char *path;
	/* The size that the file must have; -1: any. */
	off_t size;
	off_t start;
	/* -1: up to the end of the file. */
	off_t len;
} file_part;

/*
 * Sends the response that consists of `head`, a whole header block, and a part of a regular file.
 * Called without the GVL.
 */
file_result send_file(sendoff_worker *worker, const char *head, size_t head_len,
					  const file_part *part);

/* Sendoff.converts_newlines?(file) -> true if the file was opened in text mode */
VALUE native_converts_newlines(VALUE self, VALUE file);

/* A descriptor of the open file of a File object, for the caller to close; -1 if there is none. */
int duplicate_descriptor(VALUE file);

/* Defines the functions for fragments (fragments.c). */
void define_fragments(VALUE module);

#endif
