/* Checks the response head of an application and makes a header block of it. */
#include "thread.h"

#include <string.h>
#include <strings.h>

#define NAME(text) text, sizeof(text) - 1

/*
 * Fields that are removed. The first ones belong to the web server, which speaks to the client (RFC
 * 2616, section 13.5.1). The last two have a meaning for the server that reads the header block,
 * which the application cannot have intended.
 */
static const struct {
	const char *text;
	size_t len;
} left_out[] = {
	{NAME("connection")},
	{NAME("keep-alive")},
	{NAME("proxy-authenticate")},
	{NAME("proxy-authorization")},
	{NAME("te")},
	{NAME("trailer")},
	{NAME("trailers")},
	{NAME("transfer-encoding")},
	{NAME("upgrade")},
	{NAME("status")},
	{NAME("x-sendoff")},
};

enum { TOKEN = 1, CONTROL = 2 };

/* TOKEN: a character of a field name (RFC 9110, section 5.6.2). */
static const unsigned char kinds[256] = {
	[0 ... 8] = CONTROL,   [10 ... 31] = CONTROL, [127] = CONTROL, ['a' ... 'z'] = TOKEN,
	['A' ... 'Z'] = TOKEN, ['0' ... '9'] = TOKEN, ['!'] = TOKEN,   ['#'] = TOKEN,
	['$'] = TOKEN,         ['%'] = TOKEN,         ['&'] = TOKEN,   ['\''] = TOKEN,
	['*'] = TOKEN,         ['+'] = TOKEN,         ['-'] = TOKEN,   ['.'] = TOKEN,
	['^'] = TOKEN,         ['_'] = TOKEN,         ['`'] = TOKEN,   ['|'] = TOKEN,
	['~'] = TOKEN,
};

#define LENGTH "content-length"

/* A buffer for text. */
typedef struct text {
	char *bytes;
	size_t len;
	size_t room;
} text;

static int append(text *text, const char *bytes, size_t len)
{
	if (len > text->room - text->len) {
		size_t room = 2 * (text->len + len) + 1024;
		char *more = PyMem_Realloc(text->bytes, room);

		if (more == NULL) {
			PyErr_NoMemory();
			return -1;
		}
		text->bytes = more;
		text->room = room;
	}
	memcpy(text->bytes + text->len, bytes, len);
	text->len += len;
	return 0;
}

static int are_tokens(const char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (kinds[(unsigned char)bytes[i]] != TOKEN) {
			return 0;
		}
	}
	return 1;
}

static int has_control(const char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (kinds[(unsigned char)bytes[i]] == CONTROL) {
			return 1;
		}
	}
	return 0;
}

/* Three digits, and perhaps a space and a reason. */
static int is_status(const char *bytes, size_t len)
{
	return len >= 3 && bytes[0] >= '1' && bytes[0] <= '9' && bytes[1] >= '0' && bytes[1] <= '9' &&
		   bytes[2] >= '0' && bytes[2] <= '9' && (len == 3 || bytes[3] == ' ') &&
		   !has_control(bytes + 3, len - 3);
}

static int is_left_out(const char *name, size_t len)
{
	for (size_t i = 0; i < sizeof(left_out) / sizeof(left_out[0]); i++) {
		if (left_out[i].len == len && strncasecmp(name, left_out[i].text, len) == 0) {
			return 1;
		}
	}
	return 0;
}

/* A new reference to the bytes of a str. `bytes` and `len` receive their place and length. */
static PyObject *latin1(PyObject *string, const char *what, char **bytes, size_t *len)
{
	PyObject *encoded;
	Py_ssize_t size;

	if (!PyUnicode_Check(string)) {
		PyErr_Format(PyExc_TypeError, "%s must be str, not %R", what, Py_TYPE(string));
		return NULL;
	}
	encoded = PyUnicode_AsLatin1String(string);
	if (encoded && PyBytes_AsStringAndSize(encoded, bytes, &size) == 0) {
		*len = (size_t)size;
		return encoded;
	}
	Py_XDECREF(encoded);
	return NULL;
}

static int add_status(text *text, PyObject *status)
{
	char *bytes;
	size_t len;
	PyObject *encoded = latin1(status, "the status", &bytes, &len);
	int result = -1;

	if (encoded == NULL) {
		return -1;
	}
	if (!is_status(bytes, len)) {
		PyErr_Format(PyExc_ValueError, "%R is no status: three digits, a space, a reason", status);
	} else if (append(text, "Status: ", 8) == 0 && append(text, bytes, len) == 0) {
		result = append(text, "\r\n", 2);
	}
	Py_DECREF(encoded);
	return result;
}

/* If the field is Content-Length, `length` receives its value (borrowed). */
static int add_field(text *text, PyObject *name, PyObject *value, PyObject **length)
{
	char *name_bytes, *bytes;
	size_t name_len, len;
	PyObject *encoded_name = latin1(name, "a header name", &name_bytes, &name_len);
	PyObject *encoded = encoded_name ? latin1(value, "a header value", &bytes, &len) : NULL;
	int result = -1;

	if (encoded == NULL) {
		;
	} else if (name_len == 0 || !are_tokens(name_bytes, name_len)) {
		PyErr_Format(PyExc_ValueError, "%R is no header name", name);
	} else if (has_control(bytes, len)) {
		PyErr_Format(PyExc_ValueError, "%U contains a control character: %R", name, value);
	} else if (is_left_out(name_bytes, name_len)) {
		result = 0;
	} else if (append(text, name_bytes, name_len) == 0 && append(text, ": ", 2) == 0 &&
			   append(text, bytes, len) == 0) {
		result = append(text, "\r\n", 2);
		if (name_len == strlen(LENGTH) && strncasecmp(name_bytes, LENGTH, name_len) == 0) {
			*length = value;
		}
	}
	Py_XDECREF(encoded_name);
	Py_XDECREF(encoded);
	return result;
}

/* `length` receives a new reference to the value of Content-Length. */
static int add_pair(text *text, PyObject *pair, PyObject **length)
{
	/* The pair itself, unless the application uses a list. */
	PyObject *both = PySequence_Tuple(pair);
	PyObject *value = NULL;
	int result = -1;

	if (both && PyTuple_Size(both) != 2) {
		PyErr_Format(PyExc_ValueError, "a header must be a name and a value, not %R", pair);
	} else if (both) {
		result = add_field(text, PyTuple_GetItem(both, 0), PyTuple_GetItem(both, 1), &value);
	}
	if (value) {
		Py_INCREF(value);
		Py_XDECREF(*length);
		*length = value;
	}
	Py_XDECREF(both);
	return result;
}

PyObject *header_lines(PyObject *module, PyObject *args)
{
	text text = {NULL, 0, 0};
	PyObject *status, *headers, *fields, *length = NULL, *made = NULL;
	int result;

	(void)module;
	if (!PyArg_ParseTuple(args, "OO", &status, &headers)) {
		return NULL;
	}
	/* The application may change its list while an error message is made. */
	fields = PySequence_Tuple(headers);
	if (fields == NULL) {
		return NULL;
	}
	result = add_status(&text, status);
	for (Py_ssize_t i = 0; result == 0 && i < PyTuple_Size(fields); i++) {
		result = add_pair(&text, PyTuple_GetItem(fields, i), &length);
	}
	if (result == 0) {
		made = Py_BuildValue("Oy#", length ? length : Py_None, text.bytes, (Py_ssize_t)text.len);
	}
	Py_XDECREF(length);
	Py_DECREF(fields);
	PyMem_Free(text.bytes);
	return made;
}
