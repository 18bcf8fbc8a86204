/*
 * OS_Async*: reads and writes that OS_DoIo() performs as soon as they do not block; it then calls
 * their callbacks.
 */
#include "internal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

/* At most one operation per descriptor and direction is pending. */
typedef struct operation {
	struct operation *next;
	int fd;
	short event;
	void *buf;
	size_t len;
	OS_AsyncProc done;
	void *data;
} operation;

static operation *waiting;
static nfds_t count;

static int add(int fd, short event, void *buf, int len, OS_AsyncProc done, void *data)
{
	operation **place = &waiting, *new;

	if (len < 0) {
		errno = EINVAL;
		return -1;
	}
	while (*place != NULL && ((*place)->fd != fd || (*place)->event != event)) {
		place = &(*place)->next;
	}
	if (*place == NULL) {
		if ((*place = calloc(1, sizeof **place)) == NULL) {
			return -1;
		}
		count++;
	}
	new = *place;
	new->fd = fd;
	new->event = event;
	new->buf = buf;
	new->len = (size_t)len;
	new->done = done;
	new->data = data;
	return 0;
}

static void drop(operation **place)
{
	operation *gone = *place;

	*place = gone->next;
	free(gone);
	count--;
}

int OS_AsyncReadStdin(void *buf, int len, OS_AsyncProc procPtr, void *clientData)
{
	return add(STDIN_FILENO, POLLIN, buf, len, procPtr, clientData);
}

/* The offset is ignored: reads continue where the descriptor is. */
int OS_AsyncRead(int fd, int offset, void *buf, int len, OS_AsyncProc procPtr, void *clientData)
{
	(void)offset;
	return add(fd, POLLIN, buf, len, procPtr, clientData);
}

int OS_AsyncWrite(int fd, int offset, void *buf, int len, OS_AsyncProc procPtr, void *clientData)
{
	(void)offset;
	return add(fd, POLLOUT, buf, len, procPtr, clientData);
}

/* Performs one operation and calls its callback, which may add operations. */
static void perform(int fd, short event)
{
	operation **place = &waiting, now;
	ssize_t n;

	while (*place != NULL && ((*place)->fd != fd || (*place)->event != event)) {
		place = &(*place)->next;
	}
	if (*place == NULL) {
		return;
	}
	now = **place;
	drop(place);
	n = event == POLLIN ? read(fd, now.buf, now.len) : write(fd, now.buf, now.len);
	now.done(now.data, (int)n);
}

int OS_DoIo(struct timeval *tmo)
{
	nfds_t all = count, i = 0;
	struct pollfd *polled = calloc(all + 1, sizeof *polled);
	int timeout = tmo == NULL ? -1 : (int)(tmo->tv_sec * 1000 + tmo->tv_usec / 1000), ready;

	if (polled == NULL) {
		return -1;
	}
	for (operation *one = waiting; one != NULL; one = one->next, i++) {
		polled[i].fd = one->fd;
		polled[i].events = one->event;
	}
	ready = poll(polled, all, timeout);
	for (i = 0; ready > 0 && i < all; i++) {
		if (polled[i].revents != 0) {
			perform(polled[i].fd, polled[i].events);
		}
	}
	free(polled);
	return ready < 0 ? -1 : 0;
}

void OS_LibShutdown(void)
{
	while (waiting != NULL) {
		drop(&waiting);
	}
}
