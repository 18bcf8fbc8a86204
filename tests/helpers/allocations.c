/*
 * Preloaded library that counts the allocations of the front: a long in the file that ALLOCATIONS_FILE
 * names. Other processes of the server count nothing.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static atomic_long *allocations;

__attribute__((constructor)) static void map_file(void)
{
	char arguments[4096] = "";
	int command_line = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t length = read(command_line, arguments, sizeof arguments - 1);
	const char *name = getenv("ALLOCATIONS_FILE");

	close(command_line);
	if (length <= 0 || !name || strcmp(arguments + strlen(arguments) + 1, "front") != 0) {
		return;
	}
	int file = open(name, O_RDWR | O_CLOEXEC);
	void *mapped = mmap(NULL, sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (mapped != MAP_FAILED) {
		allocations = mapped;
	}
	close(file);
}

static void count(void)
{
	if (allocations) {
		atomic_fetch_add(allocations, 1);
	}
}

void *malloc(size_t size)
{
	count();
	return __libc_malloc(size);
}

void *calloc(size_t number, size_t size)
{
	count();
	return __libc_calloc(number, size);
}

void *realloc(void *block, size_t size)
{
	count();
	return __libc_realloc(block, size);
}

int posix_memalign(void **block, size_t alignment, size_t size)
{
	count();
	*block = __libc_memalign(alignment, size);
	return *block ? 0 : ENOMEM;
}
