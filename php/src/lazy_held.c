/*
 * Worker mode: finds the lazy strings that the application still holds. Lazy strings have no
 * reference count, because PHP's compiled code may free the result of a function without testing
 * the count. So the memory of the process is searched for their addresses, rarely. A word that
 * equals an address by chance only keeps a file for longer.
 *
 * The memory is copied by process_vm_readv(2), which fails where another thread has unmapped it.
 */
#include "lazy.h"

#include <stdio.h>
#include <sys/uio.h>
#include <unistd.h>

#define PIECE ((size_t)256 * 1024)

typedef struct {
	uintptr_t first;
	size_t distance;
	size_t count;
	bool *found;
} search;

static void search_words(const search *wanted, const uintptr_t *words, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		uintptr_t from_first = words[i] - wanted->first;

		if (from_first < wanted->distance * wanted->count && from_first % wanted->distance == 0) {
			wanted->found[from_first / wanted->distance] = true;
		}
	}
}

static void search_mapping(const search *wanted, uintptr_t start, uintptr_t end, uintptr_t *piece)
{
	while (start < end) {
		struct iovec into = {.iov_base = piece, .iov_len = MIN(PIECE, end - start)};
		struct iovec from = {.iov_base = (void *)start, .iov_len = into.iov_len};
		ssize_t got = process_vm_readv(getpid(), &into, 1, &from, 1, 0);

		if (got <= 0) {
			return;
		}
		search_words(wanted, piece, (size_t)got / sizeof(*piece));
		start += (size_t)got;
	}
}

/* Variables lie in writable private memory. */
static bool is_searched(const char *line, uintptr_t *start, uintptr_t *end)
{
	unsigned long from, to;
	char access[5];

	if (sscanf(line, "%lx-%lx %4s", &from, &to, access) != 3 || strcmp(access, "rw-p") != 0) {
		return false;
	}
	*start = from;
	*end = to;
	return true;
}

bool lazy_held(const char *first, size_t distance, size_t count, bool *found)
{
	const search wanted = {(uintptr_t)first, distance, count, found};
	FILE *maps = fopen("/proc/self/maps", "re");
	uintptr_t *piece = malloc(PIECE);
	char line[256];
	bool whole = true;

	while (maps && piece && fgets(line, sizeof(line), maps)) {
		uintptr_t start, end;
		/* A path longer than `line` splits the line. The rest of it is not parsed. */
		if (whole && is_searched(line, &start, &end)) {
			search_mapping(&wanted, start, end, piece);
		}
		whole = strchr(line, '\n') != NULL;
	}
	if (maps) {
		fclose(maps);
	}
	bool searched = maps && piece;
	free(piece);
	return searched;
}
