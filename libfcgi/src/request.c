/* FCGX_Request: connections, requests, parameters. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Results of FCGX_Accept_r(): FCGX_Init() was not called, and no memory. (libfcgi's values.) */
#define NOT_INITIALISED (-9998)
#define NO_MEMORY (-9999)

/* Private data of an FCGX_Request. Lives as long as the connection. */
struct Params {
	request_streams streams;
	char **envp;
	size_t envp_room;
	char *text;
	size_t text_room;
};

static bool initialised;
static const char *welcome;
/* The request of FCGX_Accept(), which has no argument for one. */
static FCGX_Request the_request;

int FCGX_IsCGI(void)
{
	static int is_cgi = -1;

	if (is_cgi < 0) {
		is_cgi = !OS_IsFcgi(STDIN_FILENO);
	}
	return is_cgi;
}

int FCGX_Init(void)
{
	if (initialised) {
		return 0;
	}
	FCGX_InitRequest(&the_request, STDIN_FILENO, 0);
	if (OS_LibInit(NULL) < 0) {
		return errno ? errno : NO_MEMORY;
	}
	welcome = getenv("FCGI_WEB_SERVER_ADDRS");
	if (welcome != NULL) {
		/* FCGI_Accept() replaces `environ` at each request. */
		welcome = strdup(welcome);
	}
	initialised = true;
	return 0;
}

int FCGX_OpenSocket(const char *path, int backlog)
{
	return OS_CreateLocalIpcFd(path, backlog);
}

int FCGX_InitRequest(FCGX_Request *request, int sock, int flags)
{
	memset(request, 0, sizeof *request);
	request->listen_sock = sock;
	request->flags = flags;
	request->ipcFd = -1;
	return 0;
}

static void *grown(void *old, size_t *room, size_t wanted, size_t unit)
{
	void *new = old;

	if (wanted > *room) {
		new = realloc(old, wanted * unit);
		if (new != NULL) {
			*room = wanted;
		}
	}
	return new;
}

static const char *role_variable(unsigned role)
{
	switch (role) {
	case SENDOFF_AUTHORIZER:
		return "FCGI_ROLE=AUTHORIZER";
	case SENDOFF_FILTER:
		return "FCGI_ROLE=FILTER";
	default:
		return "FCGI_ROLE=RESPONDER";
	}
}

static bool set_environment(struct Params *own)
{
	const sendoff_worker *worker = own->streams.worker;
	const char *role = role_variable(sendoff_role(worker));
	size_t count, len = strlen(role) + 1, i;
	const sendoff_param *params = sendoff_params(worker, &count);
	void *memory;
	char *next;

	for (i = 0; i < count; i++) {
		len += params[i].name_len + params[i].value_len + 2;
	}
	if ((memory = grown(own->text, &own->text_room, len, 1)) == NULL) {
		return false;
	}
	own->text = next = memory;
	if ((memory = grown(own->envp, &own->envp_room, count + 2, sizeof *own->envp)) == NULL) {
		return false;
	}
	own->envp = memory;
	own->envp[0] = next;
	next = stpcpy(next, role) + 1;
	for (i = 0; i < count; i++) {
		own->envp[i + 1] = next;
		memcpy(next, params[i].name, params[i].name_len);
		next += params[i].name_len;
		*next++ = '=';
		memcpy(next, params[i].value, params[i].value_len + 1);
		next += params[i].value_len + 1;
	}
	own->envp[count + 1] = NULL;
	return true;
}

/* FastCGI's role number (1 to 3) of a SENDOFF_ bit (1, 2, 4). */
static int role_number(unsigned role)
{
	return role == SENDOFF_FILTER ? 3 : (int)role;
}

static void begin(FCGX_Request *request)
{
	struct Params *own = request->paramsPtr;
	request_streams *streams = &own->streams;

	request_streams_open(streams);
	request->requestId = (int)sendoff_request_id(streams->worker);
	request->role = role_number(sendoff_role(streams->worker));
	request->in = &streams->in;
	request->out = &streams->out;
	request->err = &streams->err;
	request->envp = own->envp;
	request->isBeginProcessed = 1;
	request->keepConnection = sendoff_keeps_connection(streams->worker);
	/* appStatus keeps its value: programs that set it once may rely on that. */
	request->nWriters = 2;
}

/* Closes the connection. */
static void disconnect(FCGX_Request *request)
{
	request_streams *streams = &request->paramsPtr->streams;

	if (streams->worker != NULL) {
		if (streams->finished) {
			sendoff_worker_close(streams->worker);
		} else {
			/* An unfinished response is dropped. If the request was detached, another process
			 * continues it, so the connection must not be shut down. */
			if (!request->detached) {
				shutdown(request->ipcFd, SHUT_WR);
			}
			sendoff_worker_free(streams->worker);
		}
	}
	streams->worker = NULL;
	request->ipcFd = -1;
	request->detached = 0;
}

/* Waits until the request has a connection; 0, or a negative errno. */
static int connection(FCGX_Request *request)
{
	request_streams *streams = &request->paramsPtr->streams;
	const unsigned roles = SENDOFF_RESPONDER | SENDOFF_AUTHORIZER | SENDOFF_FILTER;

	if (streams->worker != NULL) {
		return 0;
	}
	request->ipcFd =
		OS_Accept(request->listen_sock, request->flags & FCGI_FAIL_ACCEPT_ON_INTR, welcome);
	if (request->ipcFd < 0) {
		return errno > 0 ? -errno : NO_MEMORY;
	}
	streams->request = request;
	streams->finished = true;
	streams->worker = sendoff_worker_on(request->ipcFd, roles);
	return streams->worker != NULL ? 0 : NO_MEMORY;
}

static struct Params *new_params(void)
{
	struct Params *own = malloc(sizeof *own);

	if (own != NULL) {
		own->streams.worker = NULL;
		own->envp = NULL;
		own->text = NULL;
		own->envp_room = own->text_room = 0;
	}
	return own;
}

int FCGX_Accept_r(FCGX_Request *request)
{
	if (!initialised) {
		return NOT_INITIALISED;
	}
	FCGX_Finish_r(request);
	if (request->paramsPtr == NULL && (request->paramsPtr = new_params()) == NULL) {
		return NO_MEMORY;
	}
	for (;;) {
		int result = connection(request);

		if (result < 0) {
			FCGX_Free(request, 1);
			return result;
		}
		result = sendoff_accept(request->paramsPtr->streams.worker);
		if (result == 1 && set_environment(request->paramsPtr)) {
			begin(request);
			return 0;
		}
		if (result < 0 && !shutdown_is_pending()) {
			continue;
		}
		/* The connection has ended or cannot be used. connection() accepts the next one, or fails
		 * if shutdown is pending. */
		disconnect(request);
	}
}

void FCGX_Finish_r(FCGX_Request *request)
{
	int close;

	if (request == NULL || request->in == NULL) {
		return;
	}
	close = !request->keepConnection;
	close |= FCGX_FClose(request->err);
	close |= FCGX_FClose(request->out);
	close |= FCGX_GetError(request->in);
	FCGX_Free(request, close);
}

void FCGX_Free(FCGX_Request *request, int close)
{
	if (request == NULL) {
		return;
	}
	request->in = request->out = request->err = NULL;
	request->envp = NULL;
	request->isBeginProcessed = 0;
	if (request->paramsPtr == NULL || !close) {
		return;
	}
	/* The program may free `request` next, so nothing may refer to it. */
	disconnect(request);
	free(request->paramsPtr->envp);
	free(request->paramsPtr->text);
	free(request->paramsPtr);
	request->paramsPtr = NULL;
}

int FCGX_Accept(FCGX_Stream **in, FCGX_Stream **out, FCGX_Stream **err, FCGX_ParamArray *envp)
{
	int result;

	if (!initialised && (result = FCGX_Init()) != 0) {
		return result < 0 ? result : -result;
	}
	result = FCGX_Accept_r(&the_request);
	*in = the_request.in;
	*out = the_request.out;
	*err = the_request.err;
	*envp = the_request.envp;
	return result;
}

void FCGX_Finish(void)
{
	FCGX_Finish_r(&the_request);
}

int FCGX_Attach(FCGX_Request *request)
{
	request->detached = 0;
	return 0;
}

int FCGX_Detach(FCGX_Request *request)
{
	request->detached = 1;
	return 0;
}

char *FCGX_GetParam(const char *name, FCGX_ParamArray envp)
{
	size_t len;

	if (name == NULL || envp == NULL) {
		return NULL;
	}
	len = strlen(name);
	for (; *envp != NULL; envp++) {
		if (strncmp(*envp, name, len) == 0 && (*envp)[len] == '=') {
			return *envp + len + 1;
		}
	}
	return NULL;
}

void FCGX_ShutdownPending(void)
{
	OS_ShutdownPending();
}
