/* The module sendoff._sendoff: requests over FastCGI, and Linux functions for the master process.
 */
#include "thread.h"

#include <errno.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static PyObject *failed(void)
{
	return PyErr_SetFromErrno(PyExc_OSError);
}

static PyObject *listen_on(PyObject *module, PyObject *args)
{
	const char *address;
	int backlog, fd;

	(void)module;
	if (!PyArg_ParseTuple(args, "si", &address, &backlog)) {
		return NULL;
	}
	fd = sendoff_listen(address, backlog);
	return fd < 0 ? failed() : PyLong_FromLong(fd);
}

static PyObject *is_listener(PyObject *module, PyObject *fd)
{
	long number = PyLong_AsLong(fd);

	(void)module;
	if (number == -1 && PyErr_Occurred()) {
		return NULL;
	}
	return PyBool_FromLong(sendoff_is_listener((int)number));
}

/* os.fstat() and stat.S_ISREG() take ten times as long. */
static PyObject *regular_size(PyObject *module, PyObject *fd)
{
	int number = PyObject_AsFileDescriptor(fd);
	struct stat facts;

	(void)module;
	if (number < 0) {
		return NULL;
	}
	if (fstat(number, &facts) != 0) {
		return failed();
	}
	if (!S_ISREG(facts.st_mode)) {
		Py_RETURN_NONE;
	}
	return PyLong_FromLongLong(facts.st_size);
}

/* Keeps only these capabilities, given as bits of the first 32. */
static int keep(unsigned int capabilities)
{
	struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0, 0, 0}};

	data[0].permitted = data[0].effective = capabilities;
	return (int)syscall(SYS_capset, &head, data);
}

/*
 * Changes from root to another user. The process keeps the right to guard files of other users by
 * leases, unless it never had it, as in some containers.
 */
static PyObject *become(PyObject *module, PyObject *args)
{
	unsigned int user;

	(void)module;
	if (!PyArg_ParseTuple(args, "I", &user)) {
		return NULL;
	}
	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0 || setresuid(user, user, user) != 0) {
		return failed();
	}
	if (user != 0 && keep(CAP_TO_MASK(CAP_LEASE)) != 0 && keep(0) != 0) {
		return failed();
	}
	Py_RETURN_NONE;
}

/* Sets the signal that this process gets when its parent ends. */
static PyObject *die_with_parent(PyObject *module, PyObject *args)
{
	int number;

	(void)module;
	if (!PyArg_ParseTuple(args, "i", &number)) {
		return NULL;
	}
	if (prctl(PR_SET_PDEATHSIG, number, 0, 0, 0) != 0) {
		return failed();
	}
	Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
	{"listen", listen_on, METH_VARARGS,
	 "listen(address, backlog) -> descriptor of a listening socket at a path or host:port"},
	{"is_listener", is_listener, METH_O,
	 "is_listener(fd) -> whether the descriptor is a listening socket"},
	{"become", become, METH_VARARGS,
	 "become(uid): changes the user, and keeps CAP_LEASE alone of root's capabilities"},
	{"die_with_parent", die_with_parent, METH_VARARGS,
	 "die_with_parent(signal): which signal to get when the parent process ends"},
	{"regular_size", regular_size, METH_O,
	 "regular_size(fd) -> the size of a regular file; None: it is something else"},
	{"header_lines", header_lines, METH_VARARGS,
	 "header_lines(status, headers) -> the value of Content-Length or None, the lines of a header "
	 "block"},
	{"share_fragments", share_fragments, METH_VARARGS,
	 "share_fragments(size): keeps fragments in this process and those that it forks"},
	{"fragment_ask", fragment_ask, METH_VARARGS,
	 "fragment_ask(key, tags, milliseconds) -> bytes and place; a capsule: the caller makes it; "
	 "None: it is not kept"},
	{"fragment_fetch", fragment_fetch, METH_VARARGS,
	 "fragment_fetch(key) -> the bytes of a kept fragment, or None"},
	{"fragment_end", fragment_end, METH_VARARGS,
	 "fragment_end(capsule, ttl, data): keeps what the caller has made, unless it is None"},
	{"fragment_store", fragment_store, METH_VARARGS,
	 "fragment_store(key, tags, ttl, data, purges) -> whether it is kept"},
	{"fragment_purges", fragment_purges, METH_NOARGS, "The number of purges so far."},
	{"fragment_purge", fragment_purge, METH_VARARGS,
	 "fragment_purge(tag): purges the fragments with this tag; with None all"},
	{NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT,
	"_sendoff",
	"libsendoff for Python.",
	-1,
	functions,
	NULL,
	NULL,
	NULL,
	NULL,
};

PyMODINIT_FUNC PyInit__sendoff(void)
{
	PyObject *module = PyModule_Create(&definition);
	PyObject *type = module ? thread_type() : NULL;

	if (!type || PyModule_AddObject(module, "Thread", type) != 0) {
		Py_XDECREF(type);
		Py_XDECREF(module);
		return NULL;
	}
	return module;
}
