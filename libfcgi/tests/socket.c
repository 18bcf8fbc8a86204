/* Answers one request on the socket that its argument names. */
#include <fcgiapp.h>

int main(int argc, char **argv)
{
	FCGX_Request request;
	int fd;

	if (argc != 2 || FCGX_Init() != 0 || (fd = FCGX_OpenSocket(argv[1], 5)) < 0) {
		return 1;
	}
	FCGX_InitRequest(&request, fd, FCGI_FAIL_ACCEPT_ON_INTR);
	if (FCGX_Accept_r(&request) != 0) {
		return 2;
	}
	FCGX_FPrintF(request.out, "Content-Type: text/plain\r\n\r\n%s", "it listens");
	FCGX_Finish_r(&request);
	return 0;
}
