/* An application in two roles. The authorizer allows requests with the cookie "user=NAME", and
 * shows others what it was asked; the responder shows whom the authorizer has named. */
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

int main(void)
{
	FCGX_Request request;

	FCGX_Init();
	FCGX_InitRequest(&request, 0, 0);
	while (FCGX_Accept_r(&request) == 0) {
		if (!strcmp(param(&request, "FCGI_ROLE"), "AUTHORIZER")) {
			authorize(&request);
		} else {
			respond(&request);
		}
		FCGX_Finish_r(&request);
	}
	return 0;
}
