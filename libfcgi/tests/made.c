/* Answers with the number of bytes in the query, in pieces: "n=BYTES&piece=BYTES&flush=1&length=1".
 */
#include <fcgiapp.h>
#include <stdlib.h>
#include <string.h>

static const char line[] = "sixty-three bytes and a line feed are what this line is made of\n";

static size_t number(const char *query, const char *name)
{
	const char *found = query ? strstr(query, name) : NULL;

	return found ? strtoul(found + strlen(name), NULL, 10) : 0;
}

int main(void)
{
	FCGX_Request request;

	if (FCGX_Init() != 0 || FCGX_InitRequest(&request, 0, 0) != 0) {
		return 1;
	}
	while (FCGX_Accept_r(&request) == 0) {
		const char *query = FCGX_GetParam("QUERY_STRING", request.envp);
		size_t n = number(query, "n="), piece = number(query, "piece=");
		char *body = malloc(n + sizeof line);

		for (size_t at = 0; at < n; at += sizeof line - 1) {
			memcpy(body + at, line, sizeof line);
		}
		piece = piece > 0 ? piece : n + 1;
		FCGX_PutS("Content-Type: text/plain\r\nX-Test: made\r\n", request.out);
		if (number(query, "length=") > 0) {
			FCGX_FPrintF(request.out, "Content-Length: %lu\r\n", (unsigned long)n);
		}
		FCGX_PutS("\r\n", request.out);
		for (size_t at = 0; at < n; at += piece) {
			FCGX_PutStr(body + at, (int)(n - at < piece ? n - at : piece), request.out);
			if (number(query, "flush=") > 0) {
				FCGX_FFlush(request.out);
			}
		}
		free(body);
	}
	return 0;
}
