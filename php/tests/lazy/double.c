/*
 * A stand-in for the worker, so that lazy strings can be tried in php-cli: a held file is a copy of
 * its contents, which nobody can change, and a segment is written to standard output.
 * With SENDOFF_DOUBLE_LOG set, segments are reported on standard error.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sendoff.h"

void sendoff_lazy_attach(sendoff_worker *worker);

struct sendoff_worker {
	uint32_t files;
	const char *addr[65536];
	uint64_t size[65536];
};

static sendoff_worker only;

__attribute__((constructor)) static void attach(void)
{
	sendoff_lazy_attach(&only);
}

int sendoff_accepts_files(const sendoff_worker *worker)
{
	(void) worker;
	return 1;
}

int sendoff_file_hold(sendoff_worker *worker, int fd, void *addr, uint64_t size,
	const struct timespec *mtime, const struct timespec *ctime, uint32_t *file)
{
	struct stat st;

	if (fstat(fd, &st) != 0 || (uint64_t)st.st_size != size ||
		st.st_mtim.tv_nsec != mtime->tv_nsec || st.st_ctim.tv_nsec != ctime->tv_nsec ||
		worker->files == 65535) {
		close(fd);
		errno = ESTALE;
		return -1;
	}
	size_t whole = (size + 4095) & ~(uint64_t)4095;
	if (mmap(addr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
			MAP_FAILED ||
		pread(fd, addr, size, 0) != (ssize_t)size || mprotect(addr, whole, PROT_READ) != 0) {
		abort();
	}
	close(fd);
	*file = ++worker->files;
	worker->addr[*file] = addr;
	worker->size[*file] = size;
	return 0;
}

int sendoff_file_use(sendoff_worker *worker, uint32_t file)
{
	return worker->addr[file] != NULL;
}

int sendoff_file_intact(const sendoff_worker *worker, uint32_t file)
{
	return worker->addr[file] != NULL;
}

void sendoff_files_unuse(sendoff_worker *worker)
{
	(void) worker;
}

void sendoff_file_drop(sendoff_worker *worker, uint32_t file)
{
	mmap((void *)worker->addr[file], (worker->size[file] + 4095) & ~(uint64_t)4095, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	worker->addr[file] = NULL;
}

int sendoff_write_file(sendoff_worker *worker, uint32_t file, uint64_t offset, uint64_t len)
{
	if (getenv("SENDOFF_DOUBLE_LOG")) {
		fprintf(stderr, "segment %u %lu+%lu\n", file, (unsigned long) offset, (unsigned long) len);
	}
	if (offset + len > worker->size[file]) {
		abort();
	}
	while (len > 0) {
		ssize_t written = write(1, worker->addr[file] + offset, len);
		if (written < 0) {
			return -1;
		}
		offset += (uint64_t)written;
		len -= (uint64_t)written;
	}
	return 0;
}
