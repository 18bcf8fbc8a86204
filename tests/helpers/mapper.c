/*
 * Writes to files through shared mappings, after closing the descriptor that they were made with.
 * Takes a line "LETTER PATH" from standard input for each, and answers with a line when it is done.
 * "+ PATH" only maps the file; each "LETTER" alone writes there then.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096

/*
 * The kernel stores the bytes, read from a pipe: if another process has truncated the file
 * meanwhile, read(2) fails, while a store by this process would raise SIGBUS.
 */
static const char *store(char *page, char letter, size_t len)
{
	char bytes[PAGE];
	int ends[2];

	if (pipe(ends) != 0) {
		return "no pipe";
	}
	memset(bytes, letter, len);
	int failed = write(ends[1], bytes, len) != (ssize_t)len || read(ends[0], page, len) < 0;
	close(ends[0]);
	close(ends[1]);
	return failed ? "cut" : "done";
}

/* The page that "+" has mapped; MAP_FAILED: none. */
static char *kept = MAP_FAILED;

static const char *write_through_mapping(const char *path, char letter)
{
	struct stat st;
	int fd = open(path, O_RDWR | O_CLOEXEC);

	if (fd < 0) {
		return "gone";
	}
	char *page = MAP_FAILED;
	if (fstat(fd, &st) == 0 && st.st_size > 0) {
		page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	}
	close(fd);
	if (page == MAP_FAILED) {
		return "empty";
	}
	if (letter == '+') {
		kept = page;
		return "done";
	}
	const char *result = store(page, letter, st.st_size < PAGE ? (size_t)st.st_size : PAGE);
	munmap(page, PAGE);
	return result;
}

int main(void)
{
	char line[4096];

	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = 0;
		puts(line[1] ? write_through_mapping(line + 2, line[0]) : store(kept, line[0], PAGE));
		fflush(stdout);
	}
	return 0;
}
