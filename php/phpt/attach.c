/*
 * Makes of php/src/lazy*.c an extension for php-cli and php-cgi, for PHP's own tests only.
 *
 * Mapped files and leases are the real ones: the worker library is linked in, with its helper
 * thread. Only the front is missing. The link's other end stays silent, and a segment goes where
 * the SAPI writes: its bytes are read from the file, as the front would, and must be those the
 * script saw.
 */
#include "lazy.h"
#include "SAPI.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#define FILES 256
/* Out of the way of scripts that look at descriptor numbers. */
#define LOWEST_FD 700

typedef struct held {
	uint32_t id;
	int fd;
	char *contents;
} held;

static held files[FILES];
static size_t (*sapi_ub_write)(const char *str, size_t len);
static sendoff_worker *worker;
static pid_t owner;
static int link_peer, guard_peer;
static unsigned long mappings, refusals, segments;
static zend_result (*lazy_request_startup)(INIT_FUNC_ARGS);
static zend_result (*lazy_module_shutdown)(SHUTDOWN_FUNC_ARGS);

/* BEGIN_REQUEST, PARAMS (SENDOFF_ACCEPT=file), end of PARAMS, end of STDIN. */
static const char request[] = "\1\1\0\1\0\10\0\0\0\1\1\0\0\0\0\0"
							  "\1\4\0\1\0\24\0\0\16\4SENDOFF_ACCEPTfile"
							  "\1\4\0\1\0\0\0\0"
							  "\1\5\0\1\0\0\0\0";

static void socket_pair(int type, int *ours, int *peer)
{
	int pair[2];

	if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, pair) != 0) {
		perror("sendoff phpt: socketpair");
		abort();
	}
	*ours = fcntl(pair[0], F_DUPFD_CLOEXEC, LOWEST_FD);
	*peer = fcntl(pair[1], F_DUPFD_CLOEXEC, LOWEST_FD);
	close(pair[0]);
	close(pair[1]);
}

static void attach(void)
{
	int link, guard;
	sigset_t all, before;

	socket_pair(SOCK_STREAM, &link, &link_peer);
	socket_pair(SOCK_SEQPACKET, &guard, &guard_peer);
	if (write(link_peer, request, sizeof(request) - 1) != sizeof(request) - 1) {
		abort();
	}
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	worker = sendoff_worker_new(&link, 1, guard);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!worker || sendoff_accept(worker) != 1 || !sendoff_accepts_files(worker)) {
		fputs("sendoff phpt: no worker\n", stderr);
		abort();
	}
	owner = getpid();
	sendoff_lazy_attach(worker);
}

int phpt_file_hold(sendoff_worker *to, int fd, void *addr, uint64_t size,
				   const struct timespec *mtime, const struct timespec *ctime, uint32_t *file);
int phpt_write_file(sendoff_worker *to, uint32_t file, uint64_t offset, uint64_t len);
void phpt_file_drop(sendoff_worker *to, uint32_t file);
int phpt_blob_store(sendoff_worker *to, const void *data, size_t len, uint32_t *blob,
					const void **contents);
void phpt_blob_drop(sendoff_worker *to, uint32_t blob);

static held *find(uint32_t id)
{
	for (held *file = files; file < files + FILES; file++) {
		if (file->id == id) {
			return file;
		}
	}
	fputs("sendoff phpt: no such file\n", stderr);
	abort();
}

int phpt_file_hold(sendoff_worker *to, int fd, void *addr, uint64_t size,
				   const struct timespec *mtime, const struct timespec *ctime, uint32_t *file)
{
	char path[64];

	/* A new open file description, since the lease ends with the last descriptor of the other one.
	 */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int opened = open(path, O_RDONLY | O_CLOEXEC);
	int again = opened < 0 ? -1 : fcntl(opened, F_DUPFD_CLOEXEC, LOWEST_FD);
	if (opened >= 0) {
		close(opened);
	}
	if (sendoff_file_hold(to, fd, addr, size, mtime, ctime, file) != 0) {
		int error = errno;
		refusals++;
		close(again);
		errno = error;
		return -1;
	}
	mappings++;
	*find(0) = (held){.id = *file, .fd = again, .contents = addr};
	return 0;
}

void phpt_file_drop(sendoff_worker *to, uint32_t id)
{
	held *file = find(id);

	close(file->fd);
	file->id = 0;
	sendoff_file_drop(to, id);
}

int phpt_blob_store(sendoff_worker *to, const void *data, size_t len, uint32_t *blob,
					const void **contents)
{
	if (sendoff_blob_store(to, data, len, blob, contents) != 0) {
		refusals++;
		return -1;
	}
	mappings++;
	*find(0) = (held){.id = *blob, .fd = -1, .contents = (char *)*contents};
	return 0;
}

void phpt_blob_drop(sendoff_worker *to, uint32_t id)
{
	find(id)->id = 0;
	sendoff_blob_drop(to, id);
}

int phpt_write_file(sendoff_worker *to, uint32_t id, uint64_t offset, uint64_t len)
{
	held *file = find(id);

	if (file->fd < 0) {
		segments++;
		sapi_ub_write(file->contents + offset, len);
		return 0;
	}
	char *copy = malloc(len);
	ssize_t n = pread(file->fd, copy, len, (off_t)offset);
	bool same = n == (ssize_t)len && memcmp(copy, file->contents + offset, len) == 0;

	free(copy);
	/* The lease may have broken between its check and this read. */
	if (!same && sendoff_file_intact(to, id)) {
		fputs("sendoff phpt: the file is not what the script saw\n", stderr);
		abort();
	}
	segments++;
	sapi_ub_write(file->contents + offset, len);
	return 0;
}

static PHP_RINIT_FUNCTION(phpt)
{
	if (!worker && SENDOFF_G(threshold)) {
		attach();
	}
	return lazy_request_startup(INIT_FUNC_ARGS_PASSTHRU);
}

static zend_result end_request(void)
{
	sendoff_lazy_end_request();
	return SUCCESS;
}

/* Prints one line per process that used lazy strings, with the counters of the run. */
static PHP_MSHUTDOWN_FUNCTION(phpt)
{
	char line[100];
	int fd = owner == getpid() && mappings + refusals ? open(COVERAGE, O_WRONLY | O_APPEND) : -1;

	if (fd >= 0) {
		int n = snprintf(line, sizeof(line), "%lu %lu %lu\n", mappings, refusals, segments);
		if (write(fd, line, (size_t)n) != n) {
			perror(COVERAGE);
		}
		close(fd);
	}
	return lazy_module_shutdown(SHUTDOWN_FUNC_ARGS_PASSTHRU);
}

ZEND_DLEXPORT zend_module_entry *get_module(void)
{
	sapi_ub_write = sapi_module.ub_write;
	lazy_request_startup = sendoff_module_entry.request_startup_func;
	lazy_module_shutdown = sendoff_module_entry.module_shutdown_func;
	sendoff_module_entry.request_startup_func = PHP_RINIT(phpt);
	sendoff_module_entry.module_shutdown_func = PHP_MSHUTDOWN(phpt);
	sendoff_module_entry.post_deactivate_func = end_request;
	return &sendoff_module_entry;
}
