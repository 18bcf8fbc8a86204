/*
 * A FastCGI responder that makes as many bytes as its query says: one line, again and again. What a
 * program does that computes its page; `benchmark --thesis` measures how the bytes get out.
 */
#include <fcgiapp.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST (64 * 1024 * 1024)

static const char line[] = "sixty-three bytes and a line feed are what this line is made of\n";

int main(void)
{
	FCGX_Request request;
	char *page = malloc(LARGEST);

	if (!page || FCGX_Init() != 0 || FCGX_InitRequest(&request, 0, 0) != 0) {
		return 1;
	}
	while (FCGX_Accept_r(&request) == 0) {
		const char *query = FCGX_GetParam("QUERY_STRING", request.envp);
		size_t size = query ? strtoul(query, NULL, 10) : 0;

		size = size < LARGEST ? size : LARGEST;
		for (size_t at = 0; at < size; at += sizeof(line) - 1) {
			memcpy(page + at, line, sizeof(line) - 1);
		}
		FCGX_PutS("Content-Type: text/plain\r\n\r\n", request.out);
		FCGX_PutStr(page, (int)size, request.out);
	}
	return 0;
}
