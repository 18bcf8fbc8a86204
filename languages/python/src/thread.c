/*
 * _sendoff.Thread: the state of one thread that serves requests, one after the other, on
 * connections that web servers open to a listening socket.
 *
 * The interpreter's lock is released while the thread waits, and around calls that may wait or
 * send. A request belongs to its thread: `busy` is set while the lock is released inside a call,
 * and a second thread that makes a call meanwhile gets an exception. Only stop() and wake() are for
 * other threads.
 */
#include "thread.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/*
 * libsendoff only queues up to this number of bytes of a response (it sends from 32 KiB on), which
 * is faster than releasing the interpreter's lock.
 */
#define QUEUED (16 * 1024)

/* Maximum number of bytes in one read of the request body, whatever the caller asks for. */
#define READ_MAX (1 << 20)

/* Parameters have the same names in the same order in most requests; this number of name strings is
 * kept. */
#define NAMES 48

/* A kept name. */
typedef struct name {
	/* NULL: none. */
	PyObject *text;
	/* Its bytes. */
	char bytes[32];
	size_t len;
} name;

typedef struct Thread {
	PyObject base;
	sendoff_sender *sender;
	/* The worker of the current connection; NULL without one. */
	sendoff_worker *worker;
	int listener;
	/* True if there is a request. */
	int has_request;
	/* A call is running without the interpreter's lock. */
	int busy;
	/* accept() refuses further requests. Read without the lock. */
	volatile int stopping;
	/* An eventfd(2), by which wake() ends read_within(). */
	int wake;
	/* Number of bytes written to the current response. */
	size_t written;
	name names[NAMES];
} Thread;

static Thread *self_of(PyObject *object)
{
	return (Thread *)object;
}

/* True if the request may be used now; sets an exception otherwise. */
static int has_request(Thread *self)
{
	if (self->busy) {
		PyErr_SetString(PyExc_RuntimeError, "another thread is at work on this request");
		return 0;
	}
	if (!self->has_request) {
		PyErr_SetString(PyExc_ValueError, "the request has ended");
		return 0;
	}
	return 1;
}

static PyThreadState *unlock(Thread *self)
{
	self->busy = 1;
	return PyEval_SaveThread();
}

static void lock(Thread *self, PyThreadState *state)
{
	PyEval_RestoreThread(state);
	self->busy = 0;
}

static PyObject *client_has_gone(void)
{
	PyErr_SetString(PyExc_BrokenPipeError, "the client has closed the connection");
	return NULL;
}

static PyObject *none_or_gone(int result)
{
	if (result < 0) {
		return client_has_gone();
	}
	Py_RETURN_NONE;
}

static PyObject *thread_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
	int listener;
	Py_ssize_t files;
	Thread *self;

	(void)names;
	if (!PyArg_ParseTuple(args, "in", &listener, &files)) {
		return NULL;
	}
	allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
	if ((self = (Thread *)allocate(type, 0)) != NULL) {
		self->listener = listener;
		if ((self->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0) {
			PyErr_SetFromErrno(PyExc_OSError);
			Py_DECREF(self);
			return NULL;
		}
		self->sender = sendoff_sender_new((size_t)files);
	}
	return (PyObject *)self;
}

static void thread_dealloc(PyObject *object)
{
	Thread *self = self_of(object);
	PyTypeObject *type = Py_TYPE(object);
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

	sendoff_worker_free(self->worker);
	sendoff_sender_free(self->sender);
	if (self->wake >= 0) {
		close(self->wake);
	}
	for (size_t i = 0; i < NAMES; i++) {
		Py_XDECREF(self->names[i].text);
	}
	release(object);
	Py_DECREF(type);
}

/* Waits for a request, without the lock. 1: there is a request. 0: a signal handler ran. -1: error
 * (errno). */
static int next_request(Thread *self)
{
	const char *servers = getenv("FCGI_WEB_SERVER_ADDRS");

	while (!self->stopping) {
		if (self->worker == NULL) {
			int connection = sendoff_accept_connection(self->listener, servers);

			if (connection < 0) {
				return errno == EINTR ? 0 : -1;
			}
			self->worker = sendoff_worker_on(connection, SENDOFF_RESPONDER);
			if (self->worker == NULL) {
				return -1;
			}
			sendoff_sends_files(self->worker);
		}
		int came = sendoff_accept(self->worker);
		if (came == 1) {
			return 1;
		}
		if (came < 0 && errno == EINTR) {
			return 0;
		}
		sendoff_worker_close(self->worker);
		self->worker = NULL;
	}
	return 0;
}

static PyObject *thread_accept(PyObject *object, PyObject *unused)
{
	Thread *self = self_of(object);
	PyThreadState *state;
	int came, error;

	(void)unused;
	if (self->busy) {
		has_request(self);
		return NULL;
	}
	self->has_request = 0;
	self->written = 0;
	state = unlock(self);
	came = next_request(self);
	error = errno;
	lock(self, state);
	if (came < 0) {
		errno = error;
		return PyErr_SetFromErrno(PyExc_OSError);
	}
	self->has_request = came;
	return PyBool_FromLong(came);
}

static PyObject *thread_stop(PyObject *object, PyObject *unused)
{
	(void)unused;
	self_of(object)->stopping = 1;
	Py_RETURN_NONE;
}

/* A new reference to the name of parameter `at`. */
static PyObject *name_of(Thread *self, size_t at, const sendoff_param *param)
{
	name *kept = at < NAMES ? &self->names[at] : NULL;
	PyObject *text;

	if (kept && kept->text && kept->len == param->name_len &&
		memcmp(kept->bytes, param->name, kept->len) == 0) {
		Py_INCREF(kept->text);
		return kept->text;
	}
	text = PyUnicode_DecodeLatin1(param->name, (Py_ssize_t)param->name_len, NULL);
	if (text && kept && param->name_len <= sizeof(kept->bytes)) {
		/* Applications look names up by constants, which are interned, too. */
		PyUnicode_InternInPlace(&text);
		Py_XDECREF(kept->text);
		Py_INCREF(text);
		kept->text = text;
		kept->len = param->name_len;
		memcpy(kept->bytes, param->name, kept->len);
	}
	return text;
}

/* Adds a parameter to the environment. An empty value does not replace an existing one. */
static int add(PyObject *environ, PyObject *name, const sendoff_param *param)
{
	if (name && param->value_len == 0 && PyDict_Contains(environ, name) == 1) {
		Py_DECREF(name);
		return 0;
	}
	PyObject *value = PyUnicode_DecodeLatin1(param->value, (Py_ssize_t)param->value_len, NULL);
	int result = name && value ? PyDict_SetItem(environ, name, value) : -1;

	Py_XDECREF(name);
	Py_XDECREF(value);
	return result;
}

/*
 * Web servers send these two fields of the client as CGI variables, and again as fields. PEP 3333
 * wants only the CGI variables.
 */
static int is_given_twice(const sendoff_param *param)
{
	static const char type[] = "HTTP_CONTENT_TYPE", length[] = "HTTP_CONTENT_LENGTH";

	return (param->name_len == sizeof(type) - 1 &&
			memcmp(param->name, type, sizeof(type) - 1) == 0) ||
		   (param->name_len == sizeof(length) - 1 &&
			memcmp(param->name, length, sizeof(length) - 1) == 0);
}

static PyObject *thread_environ(PyObject *object, PyObject *base)
{
	Thread *self = self_of(object);
	const sendoff_param *params;
	PyObject *environ;
	size_t count;

	if (!has_request(self) || (environ = PyDict_Copy(base)) == NULL) {
		return NULL;
	}
	params = sendoff_params(self->worker, &count);
	for (size_t i = 0; i < count; i++) {
		if (is_given_twice(&params[i])) {
			continue;
		}
		if (add(environ, name_of(self, i, &params[i]), &params[i]) != 0) {
			Py_DECREF(environ);
			return NULL;
		}
	}
	return environ;
}

/* Waits, without the lock, until the body can be read, but no longer than wake() and `timeout`
 * (milliseconds) permit. */
static int await_body(Thread *self, int timeout)
{
	uint64_t count;

	if (sendoff_await_body(self->worker, self->wake, timeout)) {
		return 1;
	}
	/* A wake-up counts once. */
	while (read(self->wake, &count, sizeof(count)) < 0 && errno == EINTR) {
	}
	return 0;
}

/* At most `len` bytes of the body. `timeout` in milliseconds; -1: it waits in any case. */
static PyObject *read_body(Thread *self, Py_ssize_t len, int timeout)
{
	PyThreadState *state;
	PyObject *data;
	ssize_t n = 0;
	int error, can_read;

	if (!has_request(self)) {
		return NULL;
	}
	len = len < 0 ? 0 : len > READ_MAX ? READ_MAX : len;
	if ((data = PyBytes_FromStringAndSize(NULL, len)) == NULL) {
		return NULL;
	}
	char *into = PyBytes_AsString(data);
	state = unlock(self);
	can_read = timeout < 0 || await_body(self, timeout);
	if (can_read) {
		n = sendoff_read(self->worker, into, (size_t)len);
	}
	error = errno;
	lock(self, state);
	if (!can_read) {
		Py_DECREF(data);
		Py_RETURN_NONE;
	}
	if (n < 0) {
		Py_DECREF(data);
		errno = error;
		return PyErr_SetFromErrno(PyExc_OSError);
	}
	if (n == len) {
		return data;
	}
	PyObject *less = PyBytes_FromStringAndSize(into, n);
	Py_DECREF(data);
	return less;
}

static PyObject *thread_read(PyObject *object, PyObject *most)
{
	Py_ssize_t len = PyLong_AsSsize_t(most);

	return len == -1 && PyErr_Occurred() ? NULL : read_body(self_of(object), len, -1);
}

static PyObject *thread_read_within(PyObject *object, PyObject *args)
{
	Py_ssize_t len;
	double seconds;

	if (!PyArg_ParseTuple(args, "nd", &len, &seconds)) {
		return NULL;
	}
	return read_body(self_of(object), len, (int)(seconds * 1000));
}

static PyObject *thread_wake(PyObject *object, PyObject *unused)
{
	const uint64_t one = 1;

	(void)unused;
	/* It fails only if the thread has not noticed earlier calls, which have the same effect. */
	while (write(self_of(object)->wake, &one, sizeof(one)) < 0 && errno == EINTR) {
	}
	Py_RETURN_NONE;
}

static PyObject *thread_write(PyObject *object, PyObject *args)
{
	Thread *self = self_of(object);
	PyThreadState *state = NULL;
	const char *data;
	Py_ssize_t len;
	int is_head, result;

	/* The caller's object cannot change while its bytes are used: bytes are immutable, and the
	 * caller holds a reference. */
	if (!PyArg_ParseTuple(args, "y#p", &data, &len, &is_head) || !has_request(self)) {
		return NULL;
	}
	self->written += (size_t)len;
	if (self->written > QUEUED) {
		state = unlock(self);
	}
	result = is_head ? sendoff_write_head(self->worker, data, (size_t)len)
					 : sendoff_write(self->worker, data, (size_t)len);
	if (state) {
		lock(self, state);
	}
	return none_or_gone(result);
}

static PyObject *thread_send_file(PyObject *object, PyObject *args)
{
	Thread *self = self_of(object);
	unsigned long long offset, len;
	PyThreadState *state;
	Py_ssize_t head_len;
	const char *head;
	int fd, way;

	if (!PyArg_ParseTuple(args, "y#iKK", &head, &head_len, &fd, &offset, &len) ||
		!has_request(self)) {
		return NULL;
	}
	state = unlock(self);
	way = sendoff_send_file(self->worker, self->sender, head, (size_t)head_len, fd, offset, len);
	lock(self, state);
	return way < 0 ? client_has_gone() : PyBool_FromLong(way);
}

/* The parts of a body, to be freed by PyMem_Free(); NULL after an exception. */
static sendoff_part *parts_of(PyObject *pairs, Py_ssize_t count)
{
	sendoff_part *parts = PyMem_Calloc((size_t)count + 1, sizeof(*parts));
	unsigned long long place;
	const char *data;
	Py_ssize_t len;

	if (!parts) {
		return (sendoff_part *)PyErr_NoMemory();
	}
	for (Py_ssize_t i = 0; i < count; i++) {
		/* The tuples hold the bytes, and the caller holds the tuples. */
		if (!PyArg_ParseTuple(PyTuple_GetItem(pairs, i), "y#K", &data, &len, &place)) {
			PyMem_Free(parts);
			return NULL;
		}
		parts[i] = (sendoff_part){data, (size_t)len, place};
	}
	return parts;
}

static PyObject *thread_send_parts(PyObject *object, PyObject *args)
{
	Thread *self = self_of(object);
	Py_ssize_t head_len, count;
	PyThreadState *state;
	const char *head;
	PyObject *pairs;
	int way;

	if (!PyArg_ParseTuple(args, "y#O!", &head, &head_len, &PyTuple_Type, &pairs) ||
		!has_request(self)) {
		return NULL;
	}
	count = PyTuple_Size(pairs);
	sendoff_part *parts = parts_of(pairs, count);
	if (!parts) {
		return NULL;
	}
	state = unlock(self);
	way = sendoff_send_parts(self->worker, self->sender, head, (size_t)head_len, parts,
							 (size_t)count);
	lock(self, state);
	PyMem_Free(parts);
	return way < 0 ? client_has_gone() : PyBool_FromLong(way);
}

static PyObject *thread_flush(PyObject *object, PyObject *unused)
{
	Thread *self = self_of(object);
	PyThreadState *state;
	int result;

	(void)unused;
	if (!has_request(self)) {
		return NULL;
	}
	state = unlock(self);
	result = sendoff_flush(self->worker);
	lock(self, state);
	return none_or_gone(result);
}

/* Ends the response. The work on the request ends, too, unless it goes on. False: there is no
 * request. */
static int finish(Thread *self, int goes_on)
{
	PyThreadState *state;

	if (!has_request(self)) {
		return 0;
	}
	state = unlock(self);
	sendoff_finish(self->worker, 0, goes_on);
	lock(self, state);
	return 1;
}

static PyObject *thread_finish(PyObject *object, PyObject *unused)
{
	Thread *self = self_of(object);

	(void)unused;
	if (!finish(self, 0)) {
		return NULL;
	}
	self->has_request = 0;
	Py_RETURN_NONE;
}

/* Ends the response; the work on the request goes on until the next one is accepted. */
static PyObject *thread_end(PyObject *object, PyObject *unused)
{
	(void)unused;
	if (!finish(self_of(object), 1)) {
		return NULL;
	}
	Py_RETURN_NONE;
}

/* Sends the written output without an end of the response: the connection is closed inside the
 * response. */
static PyObject *thread_cut(PyObject *object, PyObject *unused)
{
	Thread *self = self_of(object);
	PyThreadState *state;

	(void)unused;
	if (!self->busy && !self->has_request) {
		Py_RETURN_NONE;
	}
	if (!has_request(self)) {
		return NULL;
	}
	state = unlock(self);
	sendoff_flush(self->worker);
	sendoff_worker_free(self->worker);
	lock(self, state);
	self->worker = NULL;
	self->has_request = 0;
	Py_RETURN_NONE;
}

static PyObject *thread_close(PyObject *object, PyObject *unused)
{
	Thread *self = self_of(object);
	PyThreadState *state;

	(void)unused;
	if (self->busy) {
		has_request(self);
		return NULL;
	}
	state = unlock(self);
	sendoff_worker_close(self->worker);
	sendoff_sender_free(self->sender);
	lock(self, state);
	self->worker = NULL;
	self->sender = NULL;
	self->has_request = 0;
	self->stopping = 1;
	Py_RETURN_NONE;
}

/* Passes the bytes in the method's argument to `to`, without the lock. */
static PyObject *say(PyObject *object, PyObject *args,
					 void (*to)(sendoff_worker *, const char *, size_t))
{
	Thread *self = self_of(object);
	PyThreadState *state;
	Py_ssize_t len;
	const char *text;

	if (!PyArg_ParseTuple(args, "y#", &text, &len) || !has_request(self)) {
		return NULL;
	}
	state = unlock(self);
	to(self->worker, text, (size_t)len);
	lock(self, state);
	Py_RETURN_NONE;
}

static PyObject *thread_log(PyObject *object, PyObject *args)
{
	return say(object, args, sendoff_log);
}

static PyObject *thread_explains(PyObject *object, PyObject *unused)
{
	Thread *self = self_of(object);

	(void)unused;
	return has_request(self) ? PyBool_FromLong(sendoff_explains(self->worker)) : NULL;
}

static PyObject *thread_explain(PyObject *object, PyObject *args)
{
	return say(object, args, sendoff_explain);
}

static PyObject *thread_aborted(PyObject *object, PyObject *unused)
{
	Thread *self = self_of(object);

	(void)unused;
	return has_request(self) ? PyBool_FromLong(sendoff_aborted(self->worker)) : NULL;
}

static PyObject *thread_has_tunnel(PyObject *object, PyObject *unused)
{
	Thread *self = self_of(object);

	(void)unused;
	return has_request(self) ? PyBool_FromLong(sendoff_has_tunnel(self->worker)) : NULL;
}

/* Ends the request for this thread. */
static PyObject *thread_tunnel(PyObject *object, PyObject *unused)
{
	Thread *self = self_of(object);
	PyThreadState *state;
	int fd;

	(void)unused;
	if (!has_request(self)) {
		return NULL;
	}
	state = unlock(self);
	fd = sendoff_tunnel(self->worker);
	lock(self, state);
	if (fd < 0) {
		return PyErr_SetFromErrno(PyExc_OSError);
	}
	self->has_request = 0;
	return PyLong_FromLong(fd);
}

static PyMethodDef methods[] = {
	{"accept", thread_accept, METH_NOARGS,
	 "Ends the current request and waits for the next one. False: a signal handler ran, or "
	 "stop()."},
	{"stop", thread_stop, METH_NOARGS, "accept() takes no further request."},
	{"environ", thread_environ, METH_O, "A copy of a dict with the request's parameters in it."},
	{"read", thread_read, METH_O, "At most so many bytes of the request body; none at its end."},
	{"read_within", thread_read_within, METH_VARARGS,
	 "read_within(most, seconds): the same; None if none come in time, or after wake()."},
	{"wake", thread_wake, METH_NOARGS, "Ends read_within(), or the next one if none is running."},
	{"write", thread_write, METH_VARARGS,
	 "write(data, is_head): the header block, or body bytes, which are queued or sent."},
	{"send_file", thread_send_file, METH_VARARGS,
	 "send_file(head, fd, offset, length): a response that is a part of a file. Whether the file "
	 "was handed over."},
	{"send_parts", thread_send_parts, METH_VARARGS,
	 "send_parts(head, pairs): a response whose body is a tuple of pairs, of bytes and the place "
	 "of their fragment or 0. Whether it was handed over."},
	{"flush", thread_flush, METH_NOARGS, "Sends what is queued."},
	{"has_tunnel", thread_has_tunnel, METH_NOARGS,
	 "Whether the client asks for another protocol, for which tunnel() gives a connection."},
	{"tunnel", thread_tunnel, METH_NOARGS,
	 "Ends the request here. The descriptor of a socket for a response in HTTP/1.1."},
	{"finish", thread_finish, METH_NOARGS, "Ends the response."},
	{"end", thread_end, METH_NOARGS, "Ends the response; the work on the request goes on."},
	{"cut", thread_cut, METH_NOARGS, "Closes the connection inside the response, if there is one."},
	{"close", thread_close, METH_NOARGS, "Closes connection, links and files, for good."},
	{"log", thread_log, METH_VARARGS, "log(entry): an entry for the web server's log."},
	{"explains", thread_explains, METH_NOARGS, "Whether the response is to be explained."},
	{"explain", thread_explain, METH_VARARGS,
	 "explain(text): says something about the output that follows (docs/handover.md, EXPLAIN)."},
	{"aborted", thread_aborted, METH_NOARGS, "Whether the client has gone."},
	{NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
	{Py_tp_new, thread_new},
	{Py_tp_dealloc, thread_dealloc},
	{Py_tp_methods, methods},
	{Py_tp_doc,
	 "Thread(listener, files): serves requests on connections to a listening socket; holds at "
	 "most so many files."},
	{0, NULL},
};

static PyType_Spec spec = {"sendoff._sendoff.Thread", sizeof(Thread), 0, Py_TPFLAGS_DEFAULT, slots};

PyObject *thread_type(void)
{
	return PyType_FromSpec(&spec);
}
