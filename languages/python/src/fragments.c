/*
 * Fragments: parts of pages that one process makes and all of its pool send (docs/fragments.md).
 *
 * The interpreter's lock is released while a thread waits for another process. A fragment that is
 * being made is a capsule, which ends it if Python code forgets to.
 */
#include "thread.h"

#define MAKING "sendoff._sendoff.making"

/* Made or inherited by the master, before it forks. NULL: none. */
static sendoff_fragments *fragments;

/* share_fragments(size): keeps fragments from now on, in this process and those that it forks. */
PyObject *share_fragments(PyObject *module, PyObject *args)
{
	Py_ssize_t size;

	(void)module;
	if (!PyArg_ParseTuple(args, "n", &size)) {
		return NULL;
	}
	if (!fragments && (fragments = sendoff_fragments_of_pool()) == NULL && size > 0) {
		fragments = sendoff_fragments_new((size_t)size);
	}
	return PyBool_FromLong(fragments != NULL);
}

static void forget(PyObject *capsule)
{
	sendoff_fragment_end(PyCapsule_GetPointer(capsule, MAKING), 0, NULL, 0);
}

/* The texts of a tuple of bytes, to be freed by PyMem_Free(); NULL after an exception. */
static sendoff_text *texts_of(PyObject *tags, size_t *count)
{
	Py_ssize_t number = PyTuple_Size(tags), len;
	sendoff_text *texts = number < 0 ? NULL : PyMem_Calloc((size_t)number + 1, sizeof(*texts));
	char *data;

	if (!texts) {
		return number < 0 ? NULL : (sendoff_text *)PyErr_NoMemory();
	}
	for (Py_ssize_t i = 0; i < number; i++) {
		if (PyBytes_AsStringAndSize(PyTuple_GetItem(tags, i), &data, &len) != 0) {
			PyMem_Free(texts);
			return NULL;
		}
		texts[i] = (sendoff_text){data, (size_t)len};
	}
	*count = (size_t)number;
	return texts;
}

/* fragment_ask(key, tags, milliseconds): the bytes of a kept fragment, and its place; a capsule:
 * the caller makes it; None: it is not kept. */
PyObject *fragment_ask(PyObject *module, PyObject *args)
{
	PyObject *tags, *result;
	sendoff_fragment *asked;
	unsigned int patience;
	size_t count, size;
	uint64_t place;
	Py_ssize_t len;
	const char *key;

	(void)module;
	if (!PyArg_ParseTuple(args, "y#OI", &key, &len, &tags, &patience)) {
		return NULL;
	}
	sendoff_text *texts = texts_of(tags, &count);
	if (!texts) {
		return NULL;
	}
	/* The caller holds the bytes of the key and the tags. */
	PyThreadState *state = PyEval_SaveThread();
	asked = sendoff_fragment_ask(fragments, key, (size_t)len, texts, count, patience);
	PyEval_RestoreThread(state);
	PyMem_Free(texts);
	if (!asked) {
		Py_RETURN_NONE;
	}
	const char *kept = sendoff_fragment_bytes(asked, &size, &place);
	if (!kept) {
		if ((result = PyCapsule_New(asked, MAKING, forget)) == NULL) {
			sendoff_fragment_end(asked, 0, NULL, 0);
		}
		return result;
	}
	result = Py_BuildValue("y#K", kept, (Py_ssize_t)size, (unsigned long long)place);
	sendoff_fragment_end(asked, 0, NULL, 0);
	return result;
}

/* fragment_fetch(key): the bytes of a kept fragment; None: there is none. */
PyObject *fragment_fetch(PyObject *module, PyObject *args)
{
	const char *key;
	Py_ssize_t len;
	size_t size;

	(void)module;
	if (!PyArg_ParseTuple(args, "y#", &key, &len)) {
		return NULL;
	}
	sendoff_fragment *kept = sendoff_fragment_fetch(fragments, key, (size_t)len);
	if (!kept) {
		Py_RETURN_NONE;
	}
	const char *bytes = sendoff_fragment_bytes(kept, &size, NULL);
	PyObject *result = PyBytes_FromStringAndSize(bytes, (Py_ssize_t)size);
	sendoff_fragment_end(kept, 0, NULL, 0);
	return result;
}

/* fragment_end(capsule, ttl, data): keeps what the caller has made; nothing if it is None. */
PyObject *fragment_end(PyObject *module, PyObject *args)
{
	PyObject *capsule;
	const char *data;
	unsigned int ttl;
	Py_ssize_t len;

	(void)module;
	if (!PyArg_ParseTuple(args, "OIz#", &capsule, &ttl, &data, &len)) {
		return NULL;
	}
	sendoff_fragment *asked = PyCapsule_GetPointer(capsule, MAKING);
	if (!asked || PyCapsule_SetDestructor(capsule, NULL) != 0 ||
		PyCapsule_SetName(capsule, NULL) != 0) {
		return NULL;
	}
	return PyBool_FromLong(sendoff_fragment_end(asked, ttl, data, (size_t)len));
}

/* fragment_store(key, tags, ttl, data, purges) */
PyObject *fragment_store(PyObject *module, PyObject *args)
{
	unsigned long long purges;
	const char *key, *data;
	Py_ssize_t len, size;
	unsigned int ttl;
	PyObject *tags;
	size_t count;

	(void)module;
	if (!PyArg_ParseTuple(args, "y#OIy#K", &key, &len, &tags, &ttl, &data, &size, &purges)) {
		return NULL;
	}
	sendoff_text *texts = texts_of(tags, &count);
	if (!texts) {
		return NULL;
	}
	int is_kept = sendoff_fragment_store(fragments, key, (size_t)len, texts, count, ttl, data,
										 (size_t)size, purges);
	PyMem_Free(texts);
	return PyBool_FromLong(is_kept);
}

PyObject *fragment_purges(PyObject *module, PyObject *unused)
{
	(void)module, (void)unused;
	return PyLong_FromUnsignedLongLong(sendoff_fragments_purges(fragments));
}

/* fragment_purge(tag): with None all fragments. */
PyObject *fragment_purge(PyObject *module, PyObject *args)
{
	const char *tag;
	Py_ssize_t len;

	(void)module;
	if (!PyArg_ParseTuple(args, "z#", &tag, &len)) {
		return NULL;
	}
	sendoff_fragments_purge(fragments, tag, (size_t)len);
	Py_RETURN_NONE;
}
