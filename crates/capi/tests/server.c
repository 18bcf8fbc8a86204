/*
 * A FastCGI application in C, as any web server would start it: descriptor 0 listens. Arguments:
 * threads, connections per thread. Run with a sanitizer or under valgrind, it shows what the
 * library does to memory.
 */
#define _GNU_SOURCE
#include "sendoff.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(what)                                                                      \
	do {                                                                                 \
		if (!(what)) {                                                                   \
			fprintf(stderr, "server.c:%d: %s (%s)\n", __LINE__, #what, strerror(errno)); \
			exit(1);                                                                     \
		}                                                                                \
	} while (0)

static int connections;

/* Answers with all parameters of a request and with its body, which may be long. */
static void answer(sendoff_worker *worker)
{
	size_t count, i, size = 0, room = 1 << 16;
	const sendoff_param *params = sendoff_params(worker, &count);
	char *body = malloc(room);
	ssize_t n;

	CHECK(sendoff_request_id(worker) > 0);
	while ((n = sendoff_read(worker, body + size, room - size)) > 0) {
		size += (size_t)n;
		if (size == room) {
			body = realloc(body, room *= 2);
		}
	}
	CHECK(sendoff_write_head(worker, "\r\n", 2) == 0);
	for (i = 0; i < count; i++) {
		CHECK(strlen(params[i].name) == params[i].name_len);
		CHECK(strlen(params[i].value) == params[i].value_len);
		CHECK(sendoff_param_get(worker, params[i].name, params[i].name_len, NULL) != NULL);
		sendoff_write(worker, params[i].name, params[i].name_len);
		sendoff_write(worker, "=", 1);
		sendoff_write(worker, params[i].value, params[i].value_len);
	}
	sendoff_write(worker, body, size);
	if (sendoff_role(worker) == SENDOFF_FILTER) {
		while ((n = sendoff_read_data(worker, body, room)) > 0) {
			sendoff_write(worker, body, (size_t)n);
		}
	}
	free(body);
	sendoff_write_stderr(worker, "no newline", 10);
	sendoff_log(worker, "a line", 6);
	/* Half of the requests are ended here, the others by sendoff_accept(). */
	if (size % 2 == 0) {
		sendoff_finish(worker, 3, 0);
	}
}

static void *serve(void *unused)
{
	int i;

	for (i = 0; i < connections; i++) {
		sendoff_worker *worker;
		int fd = sendoff_accept_connection(0, "127.0.0.1");

		CHECK(fd >= 0);
		worker = sendoff_worker_on(fd, SENDOFF_RESPONDER | SENDOFF_FILTER);
		CHECK(worker != NULL);
		while (sendoff_accept(worker) == 1) {
			answer(worker);
			if (!sendoff_keeps_connection(worker)) {
				break;
			}
		}
		if (i % 2 == 0) {
			sendoff_worker_close(worker);
		} else {
			sendoff_finish(worker, 0, 0);
			sendoff_worker_free(worker);
		}
	}
	return unused;
}

static void refusals(void)
{
	sendoff_sender *sender;

	CHECK(sendoff_is_listener(0) == 1 && sendoff_is_listener(1) == 0 &&
		  sendoff_is_listener(-1) == 0);
	CHECK(sendoff_accept_connection(-1, NULL) == -1 && errno == EBADF);
	CHECK(sendoff_accept_connection(0, "\xff") == -1 && errno == EINVAL);
	CHECK(sendoff_worker_on(-1, SENDOFF_RESPONDER) == NULL && errno == EBADF);
	CHECK(sendoff_worker_on(dup(0), 0) == NULL && errno == EINVAL);
	CHECK(sendoff_worker_on(dup(0), 8) == NULL && errno == EINVAL);
	CHECK(sendoff_listen(NULL, 5) == -1 && errno == EINVAL);
	CHECK(sendoff_listen("/no/such/folder/socket", 5) == -1 && errno == ENOENT);
	CHECK(sendoff_accept(NULL) == 0 && sendoff_role(NULL) == 0 &&
		  sendoff_write(NULL, "x", 1) == -1);
	sendoff_worker_close(NULL);
	sender = sendoff_sender_new(1);
	CHECK(sendoff_send_file(NULL, sender, "\r\n", 2, 0, 0, 1) == -1);
	sendoff_sends_files(NULL);
	sendoff_sender_free(sender);
	sendoff_sender_free(NULL);
}

int main(int argc, char **argv)
{
	pthread_t threads[64];
	int count, i;

	CHECK(argc == 3);
	count = atoi(argv[1]);
	connections = atoi(argv[2]);
	refusals();
	for (i = 0; i < count; i++) {
		CHECK(pthread_create(&threads[i], NULL, serve, NULL) == 0);
	}
	for (i = 0; i < count; i++) {
		pthread_join(threads[i], NULL);
	}
	return 0;
}
