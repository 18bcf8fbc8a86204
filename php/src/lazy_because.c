/*
 * Data for lazy_explain.c that other files provide: the reason why PHP reads a file, and the path
 * under which the script got a file.
 */
#include "lazy.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Bound on the files whose paths are remembered. */
#define REMEMBERED 64
#define NAME_MAX_LEN 256

bool lazy_explaining;
const char *lazy_because;

static struct {
	uint32_t file;
	size_t size;
	char path[NAME_MAX_LEN];
} given[REMEMBERED];
static size_t given_count;

const char *lazy_explain_errno(const char *what)
{
	static char text[128];
	const char *name = strerrorname_np(errno);

	snprintf(text, sizeof(text), "%s: %s", what, name ? name : "unknown error");
	return text;
}

void lazy_because_begin(void)
{
	lazy_because = NULL;
	given_count = 0;
}

void lazy_explain_given(uint32_t file, size_t size, const char *path)
{
	char name[NAME_MAX_LEN];
	/* lazy_stream_file() opens the file of a stream by its descriptor number. */
	ssize_t len = strncmp(path, "/proc/self/fd/", 14) ? -1 : readlink(path, name, sizeof(name) - 1);

	if (len > 0) {
		name[len] = '\0';
		path = name;
	}
	for (size_t i = 0; i < given_count; i++) {
		if (given[i].file == file) {
			return;
		}
	}
	if (given_count < REMEMBERED) {
		given[given_count].file = file;
		given[given_count].size = size;
		snprintf(given[given_count++].path, NAME_MAX_LEN, "%s", path);
	}
}

bool lazy_was_given(void)
{
	return given_count > 0;
}

bool lazy_was_given_of(size_t size)
{
	for (size_t i = 0; i < given_count; i++) {
		if (given[i].size == size) {
			return true;
		}
	}
	return false;
}

const char *lazy_given_path(uint32_t file)
{
	for (size_t i = 0; i < given_count; i++) {
		if (given[i].file == file) {
			return given[i].path;
		}
	}
	return "a file";
}
