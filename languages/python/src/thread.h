/* Declarations that the files of the module share. */
#ifndef SENDOFF_PYTHON_THREAD_H
#define SENDOFF_PYTHON_THREAD_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "sendoff.h"

/* The class _sendoff.Thread; a new reference, or NULL. */
PyObject *thread_type(void);

/* The function _sendoff.header_lines(). */
PyObject *header_lines(PyObject *module, PyObject *args);

/* Functions for fragments (fragments.c). */
PyObject *share_fragments(PyObject *module, PyObject *args);
PyObject *fragment_ask(PyObject *module, PyObject *args);
PyObject *fragment_fetch(PyObject *module, PyObject *args);
PyObject *fragment_end(PyObject *module, PyObject *args);
PyObject *fragment_store(PyObject *module, PyObject *args);
PyObject *fragment_purges(PyObject *module, PyObject *unused);
PyObject *fragment_purge(PyObject *module, PyObject *args);

#endif
