/* An application in all three roles. The authorizer allows requests with the cookie "user=NAME",
 * and sends others the parameters that it got; the responder shows the user named by the
 * authorizer; the filter sends its file in capitals, or follows the query. */
#include <ctype.h>
#include <fcgiapp.h>
#include <string.h>

static const char *param(FCGX_Request *request, const char *name)
{
	const char *value = FCGX_GetParam(name, request->envp);

	return value ? value : "none";
}

static int rest(FCGX_Stream *in)
{
	int count = 0;

	while (FCGX_GetChar(in) >= 0) {
		count++;
	}
	return count;
}

static void authorize(FCGX_Request *request)
{
	const char *cookie = FCGX_GetParam("HTTP_COOKIE", request->envp);

	if (cookie && !strncmp(cookie, "user=", 5)) {
		FCGX_FPrintF(request->out,
					 "Status: 200 OK\r\nContent-Type: text/plain\r\nSet-Cookie: never=sent\r\n"
					 "Variable-REMOTE_USER: %s\r\nVariable-AUTH_TYPE: cookie\r\n"
					 "Variable-HTTP_PROXY: http://evil\r\n\r\nnever sent either",
					 cookie + 5);
		return;
	}
	FCGX_FPrintF(request->out,
				 "Status: 401 Who are you\r\nContent-Type: text/plain\r\nX-From: authorizer\r\n\r\n"
				 "%s %s uri %s file %s length %s name %s info %s body %d",
				 param(request, "FCGI_ROLE"), param(request, "REQUEST_METHOD"),
				 param(request, "REQUEST_URI"), strrchr(param(request, "SCRIPT_FILENAME"), '/'),
				 param(request, "CONTENT_LENGTH"), param(request, "SCRIPT_NAME"),
				 param(request, "PATH_INFO"), rest(request->in));
}

static void respond(FCGX_Request *request)
{
	FCGX_FPrintF(request->out, "Content-Type: text/plain\r\n\r\n%s user %s by %s proxy %s body %d",
				 param(request, "FCGI_ROLE"), param(request, "REMOTE_USER"),
				 param(request, "AUTH_TYPE"), param(request, "HTTP_PROXY"), rest(request->in));
}

static void filter(FCGX_Request *request)
{
	const char *query = FCGX_GetParam("QUERY_STRING", request->envp);
	int c;

	if (!strcmp(query, "unchanged")) {
		FCGX_FPrintF(request->out, "Status: 304\r\n\r\n");
		return;
	}
	FCGX_FPrintF(request->out,
				 "Content-Type: text/plain\r\nX-Data: %s modified %s\r\n"
				 "X-Request: %s %s file %s\r\n",
				 param(request, "FCGI_DATA_LENGTH"), param(request, "FCGI_DATA_LAST_MOD"),
				 param(request, "REQUEST_METHOD"), param(request, "SCRIPT_NAME"),
				 param(request, "SCRIPT_FILENAME"));
	if (!strcmp(query, "head")) {
		FCGX_FPrintF(request->out, "\r\nnot read");
		return;
	}
	FCGX_FPrintF(request->out, "X-Body: %d\r\n\r\n", rest(request->in));
	FCGX_StartFilterData(request->in);
	while ((c = FCGX_GetChar(request->in)) >= 0) {
		FCGX_PutChar(toupper(c), request->out);
	}
}

int main(void)
{
	FCGX_Request request;

	FCGX_Init();
	FCGX_InitRequest(&request, 0, 0);
	while (FCGX_Accept_r(&request) == 0) {
		if (!strcmp(param(&request, "FCGI_ROLE"), "AUTHORIZER")) {
			authorize(&request);
		} else if (!strcmp(param(&request, "FCGI_ROLE"), "FILTER")) {
			filter(&request);
		} else {
			respond(&request);
		}
		FCGX_Finish_r(&request);
	}
	return 0;
}
