/*
 * OS_*: sockets, signals, processes. Debian's libfcgi exports these functions, and its cgi-fcgi
 * uses them.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/*
 * OS_Close() closes the socket after this time without input from a peer that has not closed its
 * side.
 */
#define LINGER_MS 2000

static bool initialised;
static volatile sig_atomic_t shutdown_pending;

bool shutdown_is_pending(void)
{
	return shutdown_pending;
}

void OS_ShutdownPending(void)
{
	shutdown_pending = 1;
}

static void on_stop(int number)
{
	(void)number;
	OS_ShutdownPending();
}

/* An empty handler instead of SIG_IGN, because programs inherit SIG_IGN across exec(3). */
static void on_pipe(int number)
{
	(void)number;
}

static void handle(int number, void (*handler)(int))
{
	struct sigaction action;

	/* A handler or SIG_IGN that the program or its parent has set stays in place. */
	if (sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_DFL) {
		memset(&action, 0, sizeof action);
		action.sa_handler = handler;
		/* No SA_RESTART: accept(2) must return with EINTR. */
		sigaction(number, &action, NULL);
	}
}

int OS_LibInit(int stdioFds[3])
{
	/* The argument is used on Windows only. */
	(void)stdioFds;
	if (!initialised) {
		handle(SIGPIPE, on_pipe);
		handle(SIGUSR1, on_stop);
		handle(SIGTERM, on_stop);
		initialised = true;
	}
	return 0;
}

int OS_CreateLocalIpcFd(const char *bindPath, int backlog)
{
	return sendoff_listen(bindPath, backlog);
}

static int connect_unix(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd;

	if (strlen(path) >= sizeof address.sun_path) {
		errno = ENAMETOOLONG;
		return -1;
	}
	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static int connect_tcp(const char *host, const char *port)
{
	struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
	struct addrinfo *all, *one;
	int fd = -1;

	if (getaddrinfo(*host ? host : "localhost", port, &hints, &all) != 0) {
		errno = EADDRNOTAVAIL;
		return -1;
	}
	for (one = all; one != NULL && fd < 0; one = one->ai_next) {
		fd = socket(one->ai_family, one->ai_socktype, one->ai_protocol);
		if (fd >= 0 && connect(fd, one->ai_addr, one->ai_addrlen) < 0) {
			close(fd);
			fd = -1;
		}
	}
	freeaddrinfo(all);
	return fd;
}

int OS_FcgiConnect(char *bindPath)
{
	const char *colon = strrchr(bindPath, ':');
	char *host;
	int fd;

	if (colon == NULL || atoi(colon + 1) <= 0) {
		return connect_unix(bindPath);
	}
	if ((host = strndup(bindPath, (size_t)(colon - bindPath))) == NULL) {
		return -1;
	}
	fd = connect_tcp(host, colon + 1);
	free(host);
	return fd;
}

int OS_Read(int fd, char *buf, size_t len)
{
	return shutdown_pending ? -1 : (int)read(fd, buf, len);
}

int OS_Write(int fd, char *buf, size_t len)
{
	return shutdown_pending ? -1 : (int)write(fd, buf, len);
}

int OS_SpawnChild(char *execPath, int listenFd)
{
	pid_t child = fork();

	if (child != 0) {
		return child < 0 ? -1 : 0;
	}
	/* A FastCGI application expects its listening socket as descriptor 0, and 1 and 2 closed
	 * (FastCGI 1.0, section 2.2). */
	close(STDIN_FILENO);
	if (listenFd != STDIN_FILENO) {
		dup2(listenFd, STDIN_FILENO);
		close(listenFd);
	}
	close(STDOUT_FILENO);
	close(STDERR_FILENO);
	execl(execPath, execPath, (char *)NULL);
	_exit(errno);
}

int OS_Close(int fd, int shutdown_first)
{
	char trash[4096];
	struct pollfd polled = {.fd = fd, .events = POLLIN};

	/* close(2) with unread input would reset the connection, and the peer could lose output that it
	 * has not read. So this sends FIN first and reads until the peer closes. */
	if (shutdown_first && shutdown(fd, SHUT_WR) == 0) {
		while (poll(&polled, 1, LINGER_MS) > 0 && read(fd, trash, sizeof trash) > 0) {
		}
	}
	return close(fd);
}

int OS_CloseRead(int fd)
{
	return shutdown(fd, SHUT_RD);
}

int OS_Accept(int listen_sock, int fail_on_intr, const char *webServerAddrs)
{
	for (;;) {
		int fd;

		if (shutdown_pending) {
			errno = EINTR;
			return -1;
		}
		fd = sendoff_accept_connection(listen_sock, webServerAddrs);
		if (fd >= 0 || errno != EINTR || fail_on_intr) {
			return fd;
		}
	}
}

int OS_IpcClose(int ipcFd, int shutdown_first)
{
	return OS_Close(ipcFd, shutdown_first);
}

int OS_IsFcgi(int sock)
{
	return sendoff_is_listener(sock);
}

void OS_SetFlags(int fd, int flags)
{
	int now = fcntl(fd, F_GETFL, 0);

	if (now < 0 || fcntl(fd, F_SETFL, now | flags) < 0) {
		exit(errno);
	}
}
