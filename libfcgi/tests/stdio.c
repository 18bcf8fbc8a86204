/* The same for fcgi_stdio.h, and for CGI: the view of a program that was written for stdio. */
#include <fcgi_stdio.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

static void read_all(void)
{
	char line[30], buf[64];
	size_t n;

	printf("getc %d ", getchar());
	printf("unget %d ", ungetc('U', stdin));
	printf("eof %d error %d\n", feof(stdin), ferror(stdin));
	if (fgets(line, sizeof line, stdin) != NULL) {
		printf("line <%s>\n", line);
	}
	while ((n = fread(buf, 3, 21, stdin)) > 0) {
		printf("%lu:", (unsigned long)n);
		fwrite(buf, 3, n, stdout);
	}
	printf("\nend %d %d", feof(stdin) != 0, getchar());
	clearerr(stdin);
	printf(" %d", ferror(stdin));
}

static void files(void)
{
	char line[100];
	FILE *file = tmpfile();

	fprintf(file, "%s %d\n", "in a file", 42);
	fputs("second\n", file);
	fputc('x', file);
	printf("at %ld ", (long)ftell(file));
	fflush(file);
	rewind(file);
	while (fgets(line, sizeof line, file) != NULL) {
		printf("<%s>", line);
	}
	printf("eof %d, seek %d, got %c, back %d, fd %d\n", feof(file) != 0, fseek(file, 3, SEEK_SET),
		   fgetc(file), ungetc('q', file), fileno(file) > 2);
	printf("close %d\n", fclose(file));
	file = popen("echo from a pipe; exit 3", "r");
	while (fgets(line, sizeof line, file) != NULL) {
		printf("<%s>", line);
	}
	printf("status %d\n", pclose(file) >> 8);
	printf("none %d\n", fopen("/no/such/file", "r") == NULL);
	errno = ENOENT;
	perror("why");
	printf("fileno %d, seek %d, tell %ld", fileno(stdout), fseek(stdin, 0, SEEK_SET),
		   (long)ftell(stdout));
}

static void environment(void)
{
	char **env;

	/* Variables of the test's process must not appear in the request. */
	for (env = environ; env != NULL && *env != NULL; env++) {
		puts(*env);
	}
	putchar('.');
}

int main(void)
{
	int count = 0;

	while (FCGI_Accept() >= 0) {
		const char *query = getenv("QUERY_STRING");

		count++;
		printf("Content-Type: text/plain\r\nX-Count: %d\r\n\r\n", count);
		if (strcmp(query, "read") == 0) {
			read_all();
		} else if (strcmp(query, "files") == 0) {
			files();
		} else if (strcmp(query, "environment") == 0) {
			environment();
		} else if (strcmp(query, "error") == 0) {
			fprintf(stderr, "to the log\n");
			FCGI_SetExitStatus(4);
		} else if (strcmp(query, "finish") == 0) {
			printf("finished");
			FCGI_Finish();
			printf("never seen");
			/* The environment must be gone, too. */
			count += getenv("QUERY_STRING") == NULL ? 100 : 200;
		} else if (strcmp(query, "exit") == 0) {
			printf("last words");
			exit(9);
		}
	}
	return 0;
}
