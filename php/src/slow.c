/*
 * The slow log: backtraces of scripts that run for long, in php-fpm's format.
 *
 * A separate thread reads PHP's structures while PHP's thread runs on. A signal to PHP's thread
 * would be simpler, but would interrupt its sleep(), poll() and recv(), which the script can
 * observe. The structures may change or be freed while the thread reads them. So it copies them by
 * process_vm_readv(2), which fails for unmapped memory instead of crashing, and repeats the whole
 * backtrace until two in a row are equal.
 */
#include "php_sendoff.h"
#include "zend_execute.h"

#include <pthread.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Default of php-fpm's request_slowlog_trace_depth. */
#define MAX_FRAMES 20
/* Attempts to get two equal backtraces. */
#define MAX_LOOKS 3
#define NAME_LEN 1024

typedef struct {
	char text[32768];
	size_t len;
} report;

static const char *pool_name;

static void ZEND_ATTRIBUTE_FORMAT(printf, 2, 3) add(report *to, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	int len = vsnprintf(to->text + to->len, sizeof(to->text) - to->len, format, args);
	va_end(args);
	if (len > 0) {
		to->len = MIN(to->len + (size_t)len, sizeof(to->text) - 1);
	}
}

/*
 * Copies memory of this process. Returns the bytes copied, fewer than `len` if a page is not
 * mapped.
 */
static size_t peek_some(void *to, const void *from, size_t len)
{
	struct iovec into = {.iov_base = to, .iov_len = len};
	struct iovec out = {.iov_base = (void *)from, .iov_len = len};
	ssize_t n = from ? process_vm_readv(getpid(), &into, 1, &out, 1, 0) : -1;
	return n > 0 ? (size_t)n : 0;
}

static bool peek(void *to, const void *from, size_t len)
{
	return peek_some(to, from, len) == len;
}

/* Copies a NUL-terminated text. Replaces control characters, which could forge lines of the log. */
static void peek_text(char to[NAME_LEN], const char *from)
{
	size_t len = peek_some(to, from, NAME_LEN - 1);
	to[len] = '\0';
	for (char *c = to; *c; c++) {
		if ((unsigned char)*c < ' ' || *c == 0x7f) {
			*c = '?';
		}
	}
}

static bool peek_function(zend_function *to, const zend_function *from)
{
	/* The common part first: an internal function is smaller than a zend_function. */
	return peek(&to->common, &from->common, sizeof(to->common)) &&
		   (!ZEND_USER_CODE(to->type) || peek(&to->op_array, from, sizeof(to->op_array)));
}

/* The file and the line that the nearest frame of the script is at. */
static void add_place(report *to, const zend_execute_data *from)
{
	zend_execute_data frame;
	zend_function function;
	char file[NAME_LEN] = "unknown";
	uint32_t line = 0;

	for (int i = 0; i < MAX_FRAMES && peek(&frame, from, sizeof(frame)); i++) {
		if (!frame.func || !peek_function(&function, frame.func)) {
			break;
		}
		if (ZEND_USER_CODE(function.type)) {
			zend_op instruction;
			peek_text(file, ZSTR_VAL(function.op_array.filename));
			if (peek(&instruction, frame.opline, sizeof(instruction))) {
				line = instruction.lineno;
			}
			break;
		}
		from = frame.prev_execute_data;
	}
	add(to, " %s:%u\n", file, line);
}

static void add_frames(report *to)
{
	const zend_execute_data *at = EG(current_execute_data);
	zend_execute_data frame;
	zend_function function;

	for (int i = 0; i < MAX_FRAMES && peek(&frame, at, sizeof(frame)); i++) {
		char name[NAME_LEN] = "???";
		if (frame.func && peek_function(&function, frame.func)) {
			if (function.common.function_name) {
				peek_text(name, ZSTR_VAL(function.common.function_name));
			} else if (ZEND_CALL_KIND(&frame) == ZEND_CALL_TOP_CODE) {
				return;
			} else {
				strcpy(name, "[INCLUDE_OR_EVAL]");
			}
		}
		add(to, "[0x%016lx] %s()", (unsigned long)at, name);
		at = frame.prev_execute_data;
		add_place(to, at);
	}
}

static void look(report *to)
{
	char date[64], path[NAME_LEN];
	time_t now = time(NULL);
	struct tm local;

	to->len = 0;
	localtime_r(&now, &local);
	strftime(date, sizeof(date), "%d-%b-%Y %H:%M:%S", &local);
	peek_text(path, SG(request_info).path_translated);
	add(to, "\n[%s]  [pool %s] pid %d\nscript_filename = %s\n", date, pool_name, (int)getpid(),
		path);
	add_frames(to);
}

static void write_report(int file)
{
	static report seen[2];

	look(&seen[0]);
	for (int i = 1; i < MAX_LOOKS; i++) {
		look(&seen[i % 2]);
		if (seen[0].len == seen[1].len && !memcmp(seen[0].text, seen[1].text, seen[0].len)) {
			break;
		}
	}
	/* One write(2), because other workers append to the same file. */
	php_ignore_value(write(file, seen[0].text, seen[0].len));
}

/* Receives the next file that the master sends; -1: the master has closed the socket. */
static int receive_file(int socket)
{
	char byte;
	struct iovec data = {.iov_base = &byte, .iov_len = 1};
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct msghdr message = {.msg_iov = &data,
							 .msg_iovlen = 1,
							 .msg_control = &control,
							 .msg_controllen = sizeof(control)};
	int file = -1;

	if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) > 0) {
		struct cmsghdr *part = CMSG_FIRSTHDR(&message);
		if (part && part->cmsg_type == SCM_RIGHTS) {
			memcpy(&file, CMSG_DATA(part), sizeof(file));
		}
	}
	return file;
}

static void *serve(void *argument)
{
	int socket = (int)(intptr_t)argument;
	int file;

	while ((file = receive_file(socket)) >= 0) {
		write_report(file);
		close(file);
	}
	return NULL;
}

void sendoff_slow_startup(const char *pool)
{
	pool_name = pestrdup(pool, 1);
}

bool sendoff_slow_start(int socket)
{
	pthread_attr_t attributes;
	pthread_t thread;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 128 * 1024);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	int failed = pthread_create(&thread, &attributes, serve, (void *)(intptr_t)socket);
	pthread_attr_destroy(&attributes);
	return failed == 0;
}
