/* A FastCGI program that reports how it was started, and that can end in each of the usual ways. */

#include <fcgiapp.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

static void print_environment(FCGX_Stream *out)
{
	for (char **variable = environ; *variable; variable++) {
		FCGX_FPrintF(out, "%s\n", *variable);
	}
}

static void print_identity(FCGX_Stream *out)
{
	char folder[4096];
	mode_t mask = umask(0);

	umask(mask);
	FCGX_FPrintF(out, "uid %d gid %d groups %d umask %03o cwd %s", (int)getuid(), (int)getgid(),
				 getgroups(0, NULL), (unsigned)mask, getcwd(folder, sizeof folder));
}

static void print_limit(FCGX_Stream *out)
{
	struct rlimit limit;

	getrlimit(RLIMIT_DATA, &limit);
	FCGX_FPrintF(out, "%ld %s", (long)limit.rlim_cur, malloc(512 << 20) ? "enough" : "not enough");
}

static void print_descriptors(FCGX_Stream *out)
{
	DIR *folder = opendir("/proc/self/fd");
	struct dirent *entry;

	while ((entry = readdir(folder))) {
		char target[256];
		ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof target);

		if (length > 0 && atoi(entry->d_name) != dirfd(folder)) {
			FCGX_FPrintF(out, "%s %.*s\n", entry->d_name, (int)length, target);
		}
	}
	closedir(folder);
}

static void print_signals(FCGX_Stream *out)
{
	FILE *status = fopen("/proc/self/status", "r");
	char line[256];

	while (fgets(line, sizeof line, status)) {
		if (!strncmp(line, "SigBlk", 6) || !strncmp(line, "SigIgn", 6)) {
			FCGX_PutS(line, out);
		}
	}
	fclose(status);
}

static void print_lines(void)
{
	fputs("to standard output\nand no end of line", stdout);
	fflush(stdout);
	fputs("to standard \033[1merror\n", stderr);
}

/* Starts a child process, which would accept connections after the end of its parent. */
static void print_child(FCGX_Stream *out)
{
	pid_t child = fork();

	if (child == 0) {
		for (;;) {
			pause();
		}
	}
	FCGX_FPrintF(out, "%d", (int)child);
}

static void answer(const char *path, FCGX_Stream *out, char **arguments)
{
	if (!strcmp(path, "/pid")) {
		FCGX_FPrintF(out, "%d", (int)getpid());
	} else if (!strcmp(path, "/arguments")) {
		while (*arguments) {
			FCGX_FPrintF(out, "[%s]", *arguments++);
		}
	} else if (!strcmp(path, "/environment")) {
		print_environment(out);
	} else if (!strcmp(path, "/identity")) {
		print_identity(out);
	} else if (!strcmp(path, "/limit")) {
		print_limit(out);
	} else if (!strcmp(path, "/descriptors")) {
		print_descriptors(out);
	} else if (!strcmp(path, "/signals")) {
		print_signals(out);
	} else if (!strcmp(path, "/lines")) {
		print_lines();
	} else if (!strcmp(path, "/child")) {
		print_child(out);
	} else if (!strcmp(path, "/large")) {
		for (int i = 0; i < 200000; i++) {
			FCGX_FPrintF(out, "%07d\n", i);
		}
	} else if (!strcmp(path, "/crash")) {
		raise(SIGSEGV);
	} else if (!strcmp(path, "/exit")) {
		exit(3);
	} else if (!strcmp(path, "/hang")) {
		/* Waits for a signal. */
		fputs("hangs\n", stderr);
		pause();
	}
}

int main(int count, char **arguments)
{
	FCGX_Request request;

	if (count > 1 && !strcmp(arguments[1], "--fail")) {
		fputs("there is no database\n", stderr);
		return 4;
	}
	FCGX_Init();
	FCGX_InitRequest(&request, 0, 0);
	/* After FCGX_Init(), which installs a handler of its own. */
	if (count > 1 && !strcmp(arguments[1], "--stubborn")) {
		signal(SIGTERM, SIG_IGN);
	}
	while (FCGX_Accept_r(&request) >= 0) {
		const char *path = FCGX_GetParam("PATH_INFO", request.envp);

		int is_last = path && !strcmp(path, "/last");

		FCGX_PutS("Content-Type: text/plain\r\n\r\n", request.out);
		answer(path ? path : "", request.out, arguments);
		FCGX_Finish_r(&request);
		/* Ends like a program that serves a limited number of requests. */
		if (is_last) {
			return 0;
		}
	}
	return 0;
}
