/*
 * The public interface of libfcgi 2.4, as programs were compiled against it: fcgiapp.h,
 * fcgi_stdio.h, fcgios.h. Names, order and types are the ABI and must not change; the meaning of
 * private members may.
 */
#ifndef LIBFCGI_H
#define LIBFCGI_H

#include <stdarg.h>
#include <stdio.h>
#include <sys/time.h>

/* fcgiapp.h: values of FCGX_Stream.FCGI_errno; positive values are errno values. */
#define FCGX_PROTOCOL_ERROR (-3)
#define FCGX_CALL_SEQ_ERROR (-5)

typedef struct FCGX_Stream {
	/* Reader: the unread bytes are rdNext..stop, the buffer begins at stopUnget, and wrNext equals
	 * stop. */
	unsigned char *rdNext;
	/* Writer: the free space is wrNext..stop, and rdNext equals stop. */
	unsigned char *wrNext;
	unsigned char *stop;
	unsigned char *stopUnget;
	int isReader;
	/* Reader: the end was reached. Reader and writer: an error occurred. */
	int isClosed;
	int wasFCloseCalled;
	int FCGI_errno;
	void (*fillBuffProc)(struct FCGX_Stream *stream);
	void (*emptyBuffProc)(struct FCGX_Stream *stream, int close);
	void *data;
} FCGX_Stream;

typedef char **FCGX_ParamArray;

#define FCGI_FAIL_ACCEPT_ON_INTR 1

typedef struct FCGX_Request {
	int requestId;
	int role;
	FCGX_Stream *in;
	FCGX_Stream *out;
	FCGX_Stream *err;
	char **envp;
	/* Private from here on. */
	struct Params *paramsPtr;
	int ipcFd;
	int isBeginProcessed;
	int keepConnection;
	int appStatus;
	int nWriters;
	int flags;
	int listen_sock;
	int detached;
} FCGX_Request;

int FCGX_IsCGI(void);
int FCGX_Init(void);
int FCGX_OpenSocket(const char *path, int backlog);
int FCGX_InitRequest(FCGX_Request *request, int sock, int flags);
int FCGX_Accept_r(FCGX_Request *request);
void FCGX_Finish_r(FCGX_Request *request);
void FCGX_Free(FCGX_Request *request, int close);
int FCGX_Accept(FCGX_Stream **in, FCGX_Stream **out, FCGX_Stream **err, FCGX_ParamArray *envp);
void FCGX_Finish(void);
int FCGX_StartFilterData(FCGX_Stream *stream);
void FCGX_SetExitStatus(int status, FCGX_Stream *stream);
char *FCGX_GetParam(const char *name, FCGX_ParamArray envp);
int FCGX_GetChar(FCGX_Stream *stream);
int FCGX_UnGetChar(int c, FCGX_Stream *stream);
int FCGX_GetStr(char *str, int n, FCGX_Stream *stream);
char *FCGX_GetLine(char *str, int n, FCGX_Stream *stream);
int FCGX_HasSeenEOF(FCGX_Stream *stream);
int FCGX_PutChar(int c, FCGX_Stream *stream);
int FCGX_PutStr(const char *str, int n, FCGX_Stream *stream);
int FCGX_PutS(const char *str, FCGX_Stream *stream);
int FCGX_FPrintF(FCGX_Stream *stream, const char *format, ...);
int FCGX_VFPrintF(FCGX_Stream *stream, const char *format, va_list arg);
int FCGX_FFlush(FCGX_Stream *stream);
int FCGX_FClose(FCGX_Stream *stream);
int FCGX_GetError(FCGX_Stream *stream);
void FCGX_ClearError(FCGX_Stream *stream);
FCGX_Stream *FCGX_CreateWriter(int socket, int requestId, int bufflen, int streamType);
void FCGX_FreeStream(FCGX_Stream **stream);
void FCGX_ShutdownPending(void);
int FCGX_Attach(FCGX_Request *request);
int FCGX_Detach(FCGX_Request *request);

/* fcgi_stdio.h */
typedef struct {
	FILE *stdio_stream;
	FCGX_Stream *fcgx_stream;
} FCGI_FILE;

extern FCGI_FILE _fcgi_sF[3];
#define FCGI_stdin (&_fcgi_sF[0])
#define FCGI_stdout (&_fcgi_sF[1])
#define FCGI_stderr (&_fcgi_sF[2])

int FCGI_Accept(void);
void FCGI_Finish(void);
int FCGI_StartFilterData(void);
void FCGI_SetExitStatus(int status);
void FCGI_perror(const char *str);
FCGI_FILE *FCGI_fopen(const char *path, const char *mode);
int FCGI_fclose(FCGI_FILE *fp);
int FCGI_fflush(FCGI_FILE *fp);
FCGI_FILE *FCGI_freopen(const char *path, const char *mode, FCGI_FILE *fp);
int FCGI_setvbuf(FCGI_FILE *fp, char *buf, int bufmode, size_t size);
void FCGI_setbuf(FCGI_FILE *fp, char *buf);
int FCGI_fseek(FCGI_FILE *fp, long offset, int whence);
int FCGI_ftell(FCGI_FILE *fp);
void FCGI_rewind(FCGI_FILE *fp);
int FCGI_fgetpos(FCGI_FILE *fp, fpos_t *pos);
int FCGI_fsetpos(FCGI_FILE *fp, const fpos_t *pos);
int FCGI_fgetc(FCGI_FILE *fp);
int FCGI_getchar(void);
int FCGI_ungetc(int c, FCGI_FILE *fp);
char *FCGI_fgets(char *str, int size, FCGI_FILE *fp);
char *FCGI_gets(char *str);
int FCGI_fputc(int c, FCGI_FILE *fp);
int FCGI_putchar(int c);
int FCGI_fputs(const char *str, FCGI_FILE *fp);
int FCGI_puts(const char *str);
int FCGI_fprintf(FCGI_FILE *fp, const char *format, ...);
int FCGI_printf(const char *format, ...);
int FCGI_vfprintf(FCGI_FILE *fp, const char *format, va_list ap);
int FCGI_vprintf(const char *format, va_list ap);
size_t FCGI_fread(void *ptr, size_t size, size_t nmemb, FCGI_FILE *fp);
size_t FCGI_fwrite(void *ptr, size_t size, size_t nmemb, FCGI_FILE *fp);
int FCGI_feof(FCGI_FILE *fp);
int FCGI_ferror(FCGI_FILE *fp);
void FCGI_clearerr(FCGI_FILE *fp);
FCGI_FILE *FCGI_tmpfile(void);
int FCGI_fileno(FCGI_FILE *fp);
FCGI_FILE *FCGI_fdopen(int fd, const char *mode);
FCGI_FILE *FCGI_popen(const char *cmd, const char *type);
int FCGI_pclose(FCGI_FILE *fp);

/* fcgios.h */
typedef void (*OS_AsyncProc)(void *clientData, int len);

int OS_LibInit(int stdioFds[3]);
void OS_LibShutdown(void);
int OS_CreateLocalIpcFd(const char *bindPath, int backlog);
int OS_FcgiConnect(char *bindPath);
int OS_Read(int fd, char *buf, size_t len);
int OS_Write(int fd, char *buf, size_t len);
int OS_SpawnChild(char *execPath, int listenFd);
int OS_AsyncReadStdin(void *buf, int len, OS_AsyncProc procPtr, void *clientData);
int OS_AsyncRead(int fd, int offset, void *buf, int len, OS_AsyncProc procPtr, void *clientData);
int OS_AsyncWrite(int fd, int offset, void *buf, int len, OS_AsyncProc procPtr, void *clientData);
int OS_Close(int fd, int shutdown);
int OS_CloseRead(int fd);
int OS_DoIo(struct timeval *tmo);
int OS_Accept(int listen_sock, int fail_on_intr, const char *webServerAddrs);
int OS_IpcClose(int ipcFd, int shutdown);
int OS_IsFcgi(int sock);
void OS_SetFlags(int fd, int flags);
void OS_ShutdownPending(void);

#endif /* LIBFCGI_H */
