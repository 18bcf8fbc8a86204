/*
 * Preloaded library that counts the allocations of the front: two longs in the file that ALLOCATIONS_FILE
 * names, the number of allocations so far and the bytes that are allocated now. Other processes of the
 * server count nothing.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *block);

/* A block has a header of this size in glibc. */
#define HEADER sizeof(size_t)

struct counts {
	atomic_long allocations;
	atomic_long bytes;
};

static struct counts *counts;

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
	void *mapped = mmap(NULL, sizeof(struct counts), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (mapped != MAP_FAILED) {
		counts = mapped;
	}
	close(file);
}

static void note_bytes(void *block, int sign)
{
	if (counts && block) {
		atomic_fetch_add(&counts->bytes, sign * (long)(malloc_usable_size(block) + HEADER));
	}
}

static void *count(void *block)
{
	if (counts) {
		atomic_fetch_add(&counts->allocations, 1);
	}
	note_bytes(block, 1);
	return block;
}

void *malloc(size_t size)
{
	return count(__libc_malloc(size));
}

void *calloc(size_t number, size_t size)
{
	return count(__libc_calloc(number, size));
}

void *realloc(void *block, size_t size)
{
	note_bytes(block, -1);
	void *moved = __libc_realloc(block, size);
	if (!moved && size) {
		note_bytes(block, 1);
	}
	return count(moved);
}

int posix_memalign(void **block, size_t alignment, size_t size)
{
	*block = count(__libc_memalign(alignment, size));
	return *block ? 0 : ENOMEM;
}

void free(void *block)
{
	note_bytes(block, -1);
	__libc_free(block);
}
