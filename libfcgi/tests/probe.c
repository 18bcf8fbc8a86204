/*
 * Follows the instructions in a request's QUERY_STRING, with the functions of fcgiapp.h. Compiled
 * against Debian's headers, run with Debian's library and with ours: the answers must be the same.
 *
 *     probe [THREADS [REQUESTS]]      each thread ends after REQUESTS; 0: never
 */
#include <fcgiapp.h>

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static long limit;

static void head(FCGX_Request *request)
{
	FCGX_PutS("Content-Type: text/plain\r\n\r\n", request->out);
}

static void show_environment(FCGX_Request *request)
{
	char **env;

	head(request);
	for (env = request->envp; *env != NULL; env++) {
		FCGX_FPrintF(request->out, "%s\n", *env);
	}
	FCGX_FPrintF(request->out, "role %d, id %d, %s\n", request->role, request->requestId,
				 FCGX_GetParam("NO_SUCH", request->envp) == NULL ? "none" : "some");
	FCGX_FPrintF(request->out, "%s", FCGX_GetParam("QUERY", request->envp) ? "prefix" : "whole");
}

static void echo(FCGX_Request *request)
{
	char buf[5000];
	int n, total = 0;

	head(request);
	do {
		n = FCGX_GetStr(buf, sizeof buf, request->in);
		FCGX_PutStr(buf, n, request->out);
		total += n;
	} while (n == (int)sizeof buf);
	FCGX_FPrintF(request->out, "%d bytes, eof %d, error %d, then %d", total,
				 FCGX_HasSeenEOF(request->in), FCGX_GetError(request->in),
				 FCGX_GetChar(request->in));
}

/* Reads the whole body before the first byte of the answer. */
static void keep(FCGX_Request *request)
{
	char *body = malloc(8 << 20);
	int n = FCGX_GetStr(body, 8 << 20, request->in);

	head(request);
	FCGX_PutStr(body, n, request->out);
	free(body);
}

static void lines(FCGX_Request *request)
{
	char line[20];
	int count = 0;

	head(request);
	while (FCGX_GetLine(line, sizeof line, request->in) != NULL) {
		FCGX_FPrintF(request->out, "%d <%s>\n", ++count, line);
	}
}

static void characters(FCGX_Request *request)
{
	int c, back = -2;
	long sum = 0;

	head(request);
	FCGX_FPrintF(request->out, "first %d, eof %d ", FCGX_UnGetChar('x', request->in),
				 FCGX_HasSeenEOF(request->in));
	while ((c = FCGX_GetChar(request->in)) != EOF) {
		sum = sum * 31 + c;
		if (c == 'u' && back != c) {
			/* Any character may be put back, even a different one. */
			back = FCGX_UnGetChar('u', request->in);
		} else {
			back = -2;
		}
	}
	FCGX_FPrintF(request->out, "sum %ld, put back %d, at the end %d, EOF %d", sum, back,
				 FCGX_UnGetChar('x', request->in), FCGX_UnGetChar(EOF, request->in));
}

static void conversions(FCGX_Request *request)
{
	FCGX_Stream *out = request->out;
	int n = 0, written;
	long ln = 0;
	short hn = 0;

	head(request);
	written = FCGX_FPrintF(out, "%d|%i|%5d|%-5d|%05d|%+d|% d|%.3d|%*d|%-*d|%.*d|%n\n", 1, -2, 3, 4,
						   5, 6, 7, 8, 9, 10, 6, 11, 4, 12, &n);
	FCGX_FPrintF(out, "%d %d\n", written, n);
	FCGX_FPrintF(out, "%u|%o|%x|%X|%#o|%#x|%#X|%08x\n", UINT_MAX, 8u, 255u, 255u, 8u, 255u, 255u,
				 0xabcu);
	FCGX_FPrintF(out, "%ld|%li|%lu|%lx|%lo|%12ld|%-12ld|\n", LONG_MIN, LONG_MAX, ULONG_MAX,
				 ULONG_MAX, 8ul, 1L, 2L);
	FCGX_FPrintF(out, "%hd|%hu|%hx|%ho|%ln%hn\n", (short)-5, (unsigned short)65535,
				 (unsigned short)0xabc, (unsigned short)8, &ln, &hn);
	FCGX_FPrintF(out, "%ld %d\n", ln, hn);
	FCGX_FPrintF(out, "%c|%5c|%-5c|%c\n", 'a', 'b', 'c', 255);
	FCGX_FPrintF(out, "%s|%10s|%-10s|%.3s|%10.3s|%-10.3s|%*s|%.*s|\n", "str", "right", "left",
				 "abcdef", "abcdef", "abcdef", 6, "x", 2, "xyz");
	FCGX_FPrintF(out, "%f|%e|%E|%g|%G|%10.3f|%-10.3f|%+.2e|%#g|%.0f|%#.0f|%*.*f\n", 3.14159,
				 31415.9, 31415.9, 0.00001, 1e10, 2.5, 2.5, 123.456, 1.0, 2.5, 3.0, 12, 4, 1.0 / 3);
	FCGX_FPrintF(out, "%f|%f|%e|%g|%f\n", (double)INFINITY, -(double)INFINITY, 0.0, 1e300, 1e300);
	FCGX_FPrintF(out, "%Lf|%Le|%Lg|%15.5Lf|%*.*Lf\n", 3.14159L, 1e100L, 1e-100L, 2.5L, 10, 2, 1.5L);
	FCGX_FPrintF(out, "%p|%p|%%|100%%\n", (void *)0x1234, (void *)out == NULL ? out : (void *)0x99);
	FCGX_FPrintF(out, "%s%s%s", "", "no ", "newline");
	FCGX_FPrintF(out, "");
	written = FCGX_FPrintF(out, "%s", "");
	FCGX_FPrintF(out, "%d", written);
}

/* Writes strings of every length around the buffers' sizes. */
static void sizes(FCGX_Request *request)
{
	static const int at[] = {0,     1,     500,   511,   512,   513,    4096,
							 8183,  8184,  8191,  8192,  8193,  32767,  32768,
							 32769, 65527, 65528, 65535, 65536, 100000, 200000};
	char *text = malloc(200001);
	size_t i;

	memset(text, 'z', 200000);
	head(request);
	for (i = 0; i < sizeof at / sizeof *at; i++) {
		int put, printed;

		text[0] = (char)('A' + i);
		put = FCGX_PutStr(text, at[i], request->out);
		text[at[i]] = '\0';
		printed = FCGX_FPrintF(request->out, "[%d:%s]", put, text);
		FCGX_FPrintF(request->out, " %d %d\n", printed, FCGX_PutS(text, request->out));
		text[at[i]] = 'z';
	}
	free(text);
}

static void large(FCGX_Request *request)
{
	char block[10007];
	long left = 8 << 20, i;

	head(request);
	for (i = 0; left > 0; i++, left -= (long)sizeof block) {
		memset(block, 'a' + (int)(i % 26), sizeof block);
		if (FCGX_PutStr(block, sizeof block, request->out) < 0) {
			break;
		}
		if (i % 100 == 0) {
			FCGX_PutChar((int)i, request->out);
		}
	}
}

/* Writes until the peer has gone; then prints the stream's state on its own stderr. */
static void endless(FCGX_Request *request)
{
	char block[4096] = {'e'};
	int put;

	head(request);
	while ((put = FCGX_PutStr(block, sizeof block, request->out)) == (int)sizeof block) {
	}
	fprintf(stderr, "ended: %d, error %d, eof %d, char %d, printf %d, flush %d\n", put,
			FCGX_GetError(request->out) > 0, FCGX_HasSeenEOF(request->out),
			FCGX_PutChar('x', request->out), FCGX_FPrintF(request->out, "x"),
			FCGX_FFlush(request->out));
}

static void errors(FCGX_Request *request)
{
	int i;

	FCGX_PutS("noted", request->err);
	FCGX_FFlush(request->err);
	FCGX_PutS("\nand not\n", request->err);
	head(request);
	for (i = 0; i < 1000; i++) {
		FCGX_FPrintF(request->err, "line %d of the log\n", i);
		FCGX_FPrintF(request->out, "line %d of the page\n", i);
	}
	FCGX_SetExitStatus(3, request->err);
	FCGX_SetExitStatus(-7, request->out);
}

static void crash(FCGX_Request *request)
{
	int i;

	for (i = 0; i < 300; i++) {
		FCGX_FPrintF(request->err, "line %d before the crash\n", i);
	}
	abort();
}

static void misuse(FCGX_Request *request)
{
	char buf[10];
	char *result;

	head(request);
	FCGX_FPrintF(request->out, "%d %d ", FCGX_PutChar('x', request->in),
				 FCGX_PutStr("x", 1, request->in));
	FCGX_FPrintF(request->out, "%d %d ", FCGX_GetChar(request->out),
				 FCGX_GetStr(buf, 5, request->out));
	result = FCGX_GetLine(buf, 5, request->out);
	FCGX_FPrintF(request->out, "%d ", result == NULL);
	FCGX_FPrintF(request->out, "%d %d ", FCGX_UnGetChar('x', request->out),
				 FCGX_FFlush(request->in));
	FCGX_FPrintF(request->out, "filter %d ", FCGX_StartFilterData(request->in));
	FCGX_FPrintF(request->out, "%d %d ", FCGX_GetError(request->in), FCGX_HasSeenEOF(request->in));
	FCGX_ClearError(request->in);
	FCGX_FPrintF(request->out, "%d %d ", FCGX_GetError(request->in), FCGX_HasSeenEOF(request->in));
	FCGX_FPrintF(request->out, "close %d %d", FCGX_FClose(request->in), FCGX_FClose(request->in));
	FCGX_FPrintF(request->out, " then %d", FCGX_GetChar(request->in));
	FCGX_FClose(request->out);
	FCGX_FPrintF(request->err, "late %d %d %d", FCGX_PutChar('x', request->out),
				 FCGX_FPrintF(request->out, "x"), FCGX_FClose(request->out));
}

static void flushes(FCGX_Request *request)
{
	FCGX_PutS("Content-", request->out);
	FCGX_FFlush(request->out);
	FCGX_PutS("Type: text/plain\r\n", request->out);
	FCGX_FFlush(request->out);
	FCGX_PutS("\r\none ", request->out);
	FCGX_FPrintF(request->out, "flush %d ", FCGX_FFlush(request->out));
	FCGX_FFlush(request->out);
	FCGX_PutS("two", request->out);
}

static void filter(FCGX_Request *request)
{
	char buf[777];
	int n, i;

	head(request);
	while ((n = FCGX_GetStr(buf, sizeof buf, request->in)) > 0) {
		FCGX_FPrintF(request->out, "body %d ", n);
	}
	FCGX_FPrintF(request->out, "start %d\n", FCGX_StartFilterData(request->in));
	while ((n = FCGX_GetStr(buf, sizeof buf, request->in)) > 0) {
		for (i = 0; i < n; i++) {
			FCGX_PutChar(buf[i] ^ 32, request->out);
		}
	}
	FCGX_FPrintF(request->out, "\nend %d %d", FCGX_HasSeenEOF(request->in),
				 FCGX_GetChar(request->in));
}

static void authorize(FCGX_Request *request)
{
	const char *user = FCGX_GetParam("REMOTE_USER", request->envp);

	if (user != NULL && strcmp(user, "friend") == 0) {
		FCGX_FPrintF(request->out, "Status: 200\r\nVariable-GROUP: %d\r\n\r\n", 12);
	} else {
		FCGX_FPrintF(request->out, "Status: 403 Stranger\r\n\r\nno");
	}
}

/* A child answers; the parent only drops the connection. */
static void hand_to_child(FCGX_Request *request)
{
	pid_t child;

	FCGX_Detach(request);
	child = fork();
	if (child == 0) {
		head(request);
		FCGX_PutS("from a child", request->out);
		FCGX_Finish_r(request);
		_exit(0);
	}
	FCGX_Free(request, 1);
	waitpid(child, NULL, 0);
}

static void write_many(FCGX_Request *request)
{
	long i;

	head(request);
	for (i = 0; i < 100000; i++) {
		FCGX_PutChar("0123456789\n"[i % 11], request -> out);
	}
}

static void nothing(FCGX_Request *request)
{
	(void)request;
}

static void close_both(FCGX_Request *request)
{
	head(request);
	FCGX_PutS("closed", request->out);
	FCGX_SetExitStatus(5, request->out);
	FCGX_FClose(request->out);
	FCGX_PutS("err after out", request->err);
	FCGX_FClose(request->err);
}

/* Closes the page long before the request is finished. */
static void close_early(FCGX_Request *request)
{
	head(request);
	FCGX_PutS("early", request->out);
	FCGX_FClose(request->out);
	FCGX_GetChar(request->in);
}

static void free_unfinished(FCGX_Request *request)
{
	head(request);
	FCGX_Free(request, 1);
}

/* Writes to descriptors 1 and 2, which other programs use as stdout and stderr. */
static void shout(FCGX_Request *request)
{
	ssize_t done = write(1, "shouted", 7) + write(2, "shouted", 7);

	head(request);
	FCGX_PutS(done == 14 ? "open" : "closed", request->out);
}

static void usr1(FCGX_Request *request)
{
	raise(SIGUSR1);
	echo(request);
}

static const struct {
	const char *name;
	void (*answer)(FCGX_Request *request);
} actions[] = {
	{"environment", show_environment},
	{"echo", echo},
	{"keep", keep},
	{"lines", lines},
	{"characters", characters},
	{"conversions", conversions},
	{"sizes", sizes},
	{"large", large},
	{"endless", endless},
	{"errors", errors},
	{"misuse", misuse},
	{"flushes", flushes},
	{"filter", filter},
	{"authorize", authorize},
	{"child", hand_to_child},
	{"many", write_many},
	{"nothing", nothing},
	{"head", head},
	{"closed", close_both},
	{"early", close_early},
	{"freed", free_unfinished},
	{"shout", shout},
	{"usr1", usr1},
	{"crash", crash},
};

static void *serve(void *unused)
{
	FCGX_Request request;
	const char *wanted;
	int result = 0;
	long served;
	size_t i;

	FCGX_InitRequest(&request, 0, 0);
	for (served = 0; limit == 0 || served < limit; served++) {
		if ((result = FCGX_Accept_r(&request)) != 0) {
			break;
		}
		wanted = FCGX_GetParam("QUERY_STRING", request.envp);
		for (i = 0; i < sizeof actions / sizeof *actions; i++) {
			if (wanted != NULL && strcmp(wanted, actions[i].name) == 0) {
				actions[i].answer(&request);
				break;
			}
		}
		/* Half of the requests are left to accept. */
		if (served % 2 == 0) {
			FCGX_Finish_r(&request);
		}
	}
	FCGX_Finish_r(&request);
	FCGX_Free(&request, 1);
	fprintf(stderr, "accept: %d\n", result < 0 ? -1 : result);
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t threads[64];
	int count = argc > 1 ? atoi(argv[1]) : 1, i;

	limit = argc > 2 ? atol(argv[2]) : 0;
	if (FCGX_IsCGI()) {
		fprintf(stderr, "this is CGI\n");
		return 2;
	}
	if (FCGX_Init() != 0) {
		return 1;
	}
	for (i = 1; i < count; i++) {
		pthread_create(&threads[i], NULL, serve, NULL);
	}
	serve(NULL);
	for (i = 1; i < count; i++) {
		pthread_join(threads[i], NULL);
	}
	return 0;
}
