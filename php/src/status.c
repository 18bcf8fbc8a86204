/*
 * fpm_get_status(): the state of the pool, which only the front knows. A worker asks for it over a
 * socket that all workers of the pool share. The front answers through a pipe that the worker sends
 * with its question: on the shared socket another worker could take the answer. Reports of a worker
 * (report.c) use the same socket.
 */
#include "php_sendoff.h"
#include "ext/json/php_json.h"
#include "zend_smart_str.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Time limit for the front's answer, in milliseconds. */
#define LIMIT_MS 1000
/* An array of an array of arrays. */
#define DEPTH 4

static int front = -1;

void sendoff_status_start(int socket)
{
	front = socket;
}

void sendoff_status_tell(const char *message, size_t len)
{
	if (front >= 0) {
		php_ignore_value(send(front, message, len, MSG_DONTWAIT | MSG_NOSIGNAL));
	}
}

static bool ask(int answer)
{
	char byte = 's';
	struct iovec data = {.iov_base = &byte, .iov_len = 1};
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct msghdr message = {.msg_iov = &data,
							 .msg_iovlen = 1,
							 .msg_control = &control,
							 .msg_controllen = sizeof(control)};
	struct cmsghdr *part = CMSG_FIRSTHDR(&message);

	part->cmsg_level = SOL_SOCKET;
	part->cmsg_type = SCM_RIGHTS;
	part->cmsg_len = CMSG_LEN(sizeof(answer));
	memcpy(CMSG_DATA(part), &answer, sizeof(answer));
	return sendmsg(front, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}

static int64_t now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

/* Reads to the end. False: the time limit has passed. */
static bool read_all(int answer, smart_str *text)
{
	int64_t end = now_ms() + LIMIT_MS;
	char part[16384];
	ssize_t n;

	for (;;) {
		struct pollfd readable = {.fd = answer, .events = POLLIN};
		int64_t left = end - now_ms();
		int ready = left > 0 ? poll(&readable, 1, (int)left) : 0;
		if (ready < 0 && errno == EINTR) {
			continue;
		}
		if (ready <= 0) {
			return false;
		}
		n = read(answer, part, sizeof(part));
		if (n <= 0) {
			smart_str_0(text);
			return n == 0 && text->s;
		}
		smart_str_appendl(text, part, (size_t)n);
	}
}

PHP_FUNCTION(fpm_get_status)
{
	smart_str text = {0};
	int ends[2];

	ZEND_PARSE_PARAMETERS_NONE();
	if (front < 0 || pipe2(ends, O_CLOEXEC) != 0) {
		RETURN_FALSE;
	}
	bool asked = ask(ends[1]);
	close(ends[1]);
	bool came = asked && read_all(ends[0], &text);
	close(ends[0]);
	if (!came || php_json_decode_ex(return_value, ZSTR_VAL(text.s), ZSTR_LEN(text.s),
									PHP_JSON_OBJECT_AS_ARRAY, DEPTH) != SUCCESS) {
		RETVAL_FALSE;
	}
	smart_str_free(&text);
}
