/*
 * A FastCGI responder that prints one line repeatedly, up to the number of bytes in its query.
 * `sendoff-bench --thesis c` measures how the bytes reach the client. Most programs print their
 * page piece by piece, as this one does; with "&whole" it builds the page in memory and prints it
 * at once.
 */
#include <fcgiapp.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST (64 * 1024 * 1024)
#define PIECE 4096

static const char line[] = "sixty-three bytes and a line feed are what this line is made of\n";

/* Fills `text` with lines. Its size is a multiple of the line's. */
static void make(char *text, size_t size)
{
	for (size_t at = 0; at < size; at += sizeof line - 1) {
		memcpy(text + at, line, sizeof line - 1);
	}
}

int main(void)
{
	static char piece[PIECE];
	FCGX_Request request;
	char *page = malloc(LARGEST);

	if (!page || FCGX_Init() != 0 || FCGX_InitRequest(&request, 0, 0) != 0) {
		return 1;
	}
	while (FCGX_Accept_r(&request) == 0) {
		const char *query = FCGX_GetParam("QUERY_STRING", request.envp);
		size_t size = query ? strtoul(query, NULL, 10) : 0;

		size = size < LARGEST ? size : LARGEST;
		FCGX_PutS("Content-Type: text/plain\r\n\r\n", request.out);
		if (query && strstr(query, "&whole")) {
			make(page, size);
			FCGX_PutStr(page, (int)size, request.out);
			continue;
		}
		while (size > 0) {
			size_t now = size < PIECE ? size : PIECE;

			make(piece, now);
			FCGX_PutStr(piece, (int)now, request.out);
			size -= now;
		}
	}
	return 0;
}
