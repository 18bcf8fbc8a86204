/*
 * FCGI_*: stdio functions whose stdin, stdout and stderr may be the streams of a FastCGI request.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

FCGI_FILE _fcgi_sF[3];

static bool accepted_before;
static bool is_cgi;

int FCGI_Accept(void)
{
	FCGX_Stream *in, *out, *err;
	FCGX_ParamArray envp;
	int result;

	if (!accepted_before) {
		accepted_before = true;
		is_cgi = FCGX_IsCGI();
		/* If the program exits during a request, its response ends here. */
		atexit(FCGI_Finish);
	} else if (is_cgi) {
		/* A CGI program has one request. */
		return EOF;
	}
	if (is_cgi) {
		FCGI_stdin->stdio_stream = stdin;
		FCGI_stdout->stdio_stream = stdout;
		FCGI_stderr->stdio_stream = stderr;
		return 0;
	}
	result = FCGX_Accept(&in, &out, &err, &envp);
	FCGI_stdin->stdio_stream = FCGI_stdout->stdio_stream = FCGI_stderr->stdio_stream = NULL;
	FCGI_stdin->fcgx_stream = in;
	FCGI_stdout->fcgx_stream = out;
	FCGI_stderr->fcgx_stream = err;
	environ = envp;
	return result;
}

void FCGI_Finish(void)
{
	if (!accepted_before || is_cgi) {
		return;
	}
	FCGX_Finish();
	FCGI_stdin->fcgx_stream = FCGI_stdout->fcgx_stream = FCGI_stderr->fcgx_stream = NULL;
	environ = NULL;
}

int FCGI_StartFilterData(void)
{
	return FCGI_stdin->fcgx_stream != NULL ? FCGX_StartFilterData(FCGI_stdin->fcgx_stream) : -1;
}

void FCGI_SetExitStatus(int status)
{
	if (FCGI_stdout->fcgx_stream != NULL) {
		FCGX_SetExitStatus(status, FCGI_stdout->fcgx_stream);
	}
}

void FCGI_perror(const char *str)
{
	int error = errno;

	if (str != NULL && *str != '\0') {
		FCGI_fputs(str, FCGI_stderr);
		FCGI_fputs(": ", FCGI_stderr);
	}
	FCGI_fputs(strerror(error), FCGI_stderr);
}

static FCGI_FILE *wrapped(FILE *file, int (*closer)(FILE *))
{
	FCGI_FILE *result;

	if (file == NULL) {
		return NULL;
	}
	if ((result = calloc(1, sizeof *result)) == NULL) {
		closer(file);
		return NULL;
	}
	result->stdio_stream = file;
	return result;
}

FCGI_FILE *FCGI_fopen(const char *path, const char *mode)
{
	return wrapped(fopen(path, mode), fclose);
}

FCGI_FILE *FCGI_tmpfile(void)
{
	return wrapped(tmpfile(), fclose);
}

FCGI_FILE *FCGI_fdopen(int fd, const char *mode)
{
	return wrapped(fdopen(fd, mode), fclose);
}

FCGI_FILE *FCGI_popen(const char *cmd, const char *type)
{
	return wrapped(popen(cmd, type), pclose);
}

static int close_with(FCGI_FILE *fp, int (*closer)(FILE *))
{
	int result = EOF;

	if (fp->stdio_stream != NULL) {
		result = closer(fp->stdio_stream);
		fp->stdio_stream = NULL;
	} else if (fp->fcgx_stream != NULL) {
		result = FCGX_FClose(fp->fcgx_stream);
	}
	if (fp < _fcgi_sF || fp >= _fcgi_sF + 3) {
		free(fp);
	}
	return result;
}

int FCGI_fclose(FCGI_FILE *fp)
{
	return close_with(fp, fclose);
}

int FCGI_pclose(FCGI_FILE *fp)
{
	return close_with(fp, pclose);
}

int FCGI_fflush(FCGI_FILE *fp)
{
	if (fp == NULL || fp->stdio_stream != NULL) {
		return fflush(fp == NULL ? NULL : fp->stdio_stream);
	}
	return fp->fcgx_stream != NULL ? FCGX_FFlush(fp->fcgx_stream) : EOF;
}

FCGI_FILE *FCGI_freopen(const char *path, const char *mode, FCGI_FILE *fp)
{
	if (fp->stdio_stream != NULL) {
		return freopen(path, mode, fp->stdio_stream) != NULL ? fp : NULL;
	}
	if (fp->fcgx_stream == NULL) {
		return NULL;
	}
	FCGX_FClose(fp->fcgx_stream);
	fp->fcgx_stream = NULL;
	fp->stdio_stream = fopen(path, mode);
	return fp->stdio_stream != NULL ? fp : NULL;
}

/* Functions that fail on the streams of a request, which have no position. */

int FCGI_setvbuf(FCGI_FILE *fp, char *buf, int bufmode, size_t size)
{
	return fp->stdio_stream != NULL ? setvbuf(fp->stdio_stream, buf, bufmode, size) : -1;
}

void FCGI_setbuf(FCGI_FILE *fp, char *buf)
{
	if (fp->stdio_stream != NULL) {
		setbuf(fp->stdio_stream, buf);
	}
}

int FCGI_fseek(FCGI_FILE *fp, long offset, int whence)
{
	return fp->stdio_stream != NULL ? fseek(fp->stdio_stream, offset, whence) : -1;
}

int FCGI_ftell(FCGI_FILE *fp)
{
	return fp->stdio_stream != NULL ? (int)ftell(fp->stdio_stream) : -1;
}

void FCGI_rewind(FCGI_FILE *fp)
{
	if (fp->stdio_stream != NULL) {
		rewind(fp->stdio_stream);
	}
}

int FCGI_fgetpos(FCGI_FILE *fp, fpos_t *pos)
{
	return fp->stdio_stream != NULL ? fgetpos(fp->stdio_stream, pos) : -1;
}

int FCGI_fsetpos(FCGI_FILE *fp, const fpos_t *pos)
{
	return fp->stdio_stream != NULL ? fsetpos(fp->stdio_stream, pos) : -1;
}

int FCGI_fileno(FCGI_FILE *fp)
{
	return fp->stdio_stream != NULL ? fileno(fp->stdio_stream) : -1;
}

/* Reading. */

int FCGI_fgetc(FCGI_FILE *fp)
{
	if (fp->stdio_stream != NULL) {
		return fgetc(fp->stdio_stream);
	}
	return fp->fcgx_stream != NULL ? FCGX_GetChar(fp->fcgx_stream) : EOF;
}

int FCGI_getchar(void)
{
	return FCGI_fgetc(FCGI_stdin);
}

int FCGI_ungetc(int c, FCGI_FILE *fp)
{
	if (fp->stdio_stream != NULL) {
		return ungetc(c, fp->stdio_stream);
	}
	return fp->fcgx_stream != NULL ? FCGX_UnGetChar(c, fp->fcgx_stream) : EOF;
}

char *FCGI_fgets(char *str, int size, FCGI_FILE *fp)
{
	if (fp->stdio_stream != NULL) {
		return fgets(str, size, fp->stdio_stream);
	}
	return fp->fcgx_stream != NULL ? FCGX_GetLine(str, size, fp->fcgx_stream) : NULL;
}

/* Without a bound on the length, as gets(3). */
char *FCGI_gets(char *str)
{
	char *next = str;
	int c = EOF;

	while ((c = FCGI_getchar()) != EOF && c != '\n') {
		*next++ = (char)c;
	}
	if (c == EOF && next == str) {
		return NULL;
	}
	*next = '\0';
	return str;
}

size_t FCGI_fread(void *ptr, size_t size, size_t nmemb, FCGI_FILE *fp)
{
	size_t wanted, got = 0;

	if (fp->stdio_stream != NULL) {
		return fread(ptr, size, nmemb, fp->stdio_stream);
	}
	if (fp->fcgx_stream == NULL || __builtin_mul_overflow(size, nmemb, &wanted) || wanted == 0) {
		return 0;
	}
	while (got < wanted) {
		int now = wanted - got < INT_MAX ? (int)(wanted - got) : INT_MAX;
		int n = FCGX_GetStr((char *)ptr + got, now, fp->fcgx_stream);

		got += (size_t)n;
		if (n < now) {
			break;
		}
	}
	return got / size;
}

/* Writing. */

int FCGI_fputc(int c, FCGI_FILE *fp)
{
	if (fp->stdio_stream != NULL) {
		return fputc(c, fp->stdio_stream);
	}
	return fp->fcgx_stream != NULL ? FCGX_PutChar(c, fp->fcgx_stream) : EOF;
}

int FCGI_putchar(int c)
{
	return FCGI_fputc(c, FCGI_stdout);
}

int FCGI_fputs(const char *str, FCGI_FILE *fp)
{
	if (fp->stdio_stream != NULL) {
		return fputs(str, fp->stdio_stream);
	}
	return fp->fcgx_stream != NULL ? FCGX_PutS(str, fp->fcgx_stream) : EOF;
}

int FCGI_puts(const char *str)
{
	int n;

	if (FCGI_stdout->stdio_stream != NULL) {
		return fputs(str, stdout) < 0 ? EOF : fputc('\n', stdout);
	}
	if (FCGI_stdout->fcgx_stream == NULL || (n = FCGX_PutS(str, FCGI_stdout->fcgx_stream)) < 0) {
		return EOF;
	}
	return FCGX_PutChar('\n', FCGI_stdout->fcgx_stream) < 0 ? EOF : n + 1;
}

int FCGI_vfprintf(FCGI_FILE *fp, const char *format, va_list ap)
{
	if (fp->stdio_stream != NULL) {
		return vfprintf(fp->stdio_stream, format, ap);
	}
	return fp->fcgx_stream != NULL ? FCGX_VFPrintF(fp->fcgx_stream, format, ap) : EOF;
}

int FCGI_vprintf(const char *format, va_list ap)
{
	return FCGI_vfprintf(FCGI_stdout, format, ap);
}

int FCGI_fprintf(FCGI_FILE *fp, const char *format, ...)
{
	va_list ap;
	int result;

	va_start(ap, format);
	result = FCGI_vfprintf(fp, format, ap);
	va_end(ap);
	return result;
}

int FCGI_printf(const char *format, ...)
{
	va_list ap;
	int result;

	va_start(ap, format);
	result = FCGI_vfprintf(FCGI_stdout, format, ap);
	va_end(ap);
	return result;
}

size_t FCGI_fwrite(void *ptr, size_t size, size_t nmemb, FCGI_FILE *fp)
{
	size_t wanted, put = 0;

	if (fp->stdio_stream != NULL) {
		return fwrite(ptr, size, nmemb, fp->stdio_stream);
	}
	if (fp->fcgx_stream == NULL || __builtin_mul_overflow(size, nmemb, &wanted) || wanted == 0) {
		return 0;
	}
	while (put < wanted) {
		int now = wanted - put < INT_MAX ? (int)(wanted - put) : INT_MAX;

		if (FCGX_PutStr((char *)ptr + put, now, fp->fcgx_stream) < 0) {
			return put / size;
		}
		put += (size_t)now;
	}
	return nmemb;
}

/* End and error. */

int FCGI_feof(FCGI_FILE *fp)
{
	if (fp->stdio_stream != NULL) {
		return feof(fp->stdio_stream);
	}
	return fp->fcgx_stream != NULL ? FCGX_HasSeenEOF(fp->fcgx_stream) : -1;
}

int FCGI_ferror(FCGI_FILE *fp)
{
	if (fp->stdio_stream != NULL) {
		return ferror(fp->stdio_stream);
	}
	return fp->fcgx_stream != NULL ? FCGX_GetError(fp->fcgx_stream) : -1;
}

void FCGI_clearerr(FCGI_FILE *fp)
{
	if (fp->stdio_stream != NULL) {
		clearerr(fp->stdio_stream);
	} else if (fp->fcgx_stream != NULL) {
		FCGX_ClearError(fp->fcgx_stream);
	}
}
