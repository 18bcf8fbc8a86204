/*
 * Files that a script names in the headers X-Sendfile and X-Accel-Redirect for the front to send.
 *
 * A file is opened when the header is set, so that the script may remove or replace it afterwards
 * (Symfony's deleteFileAfterSend). The descriptor goes to the front with the header block. The
 * front decides what may be sent; without a descriptor it opens the file by its name.
 */
#include "php_sendoff.h"
#include "ext/standard/url.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct named {
	const char *field;
	size_t field_len;
	/* Value of the header; NULL: not set. */
	char *value;
	/* -1: not open. */
	int fd;
} named;

/* In the order in which the front looks for them. */
static named fields[] = {
	{"X-Sendfile", sizeof("X-Sendfile") - 1, NULL, -1},
	{"X-Accel-Redirect", sizeof("X-Accel-Redirect") - 1, NULL, -1},
};

#define FIELDS (sizeof(fields) / sizeof(fields[0]))

static void forget(named *field)
{
	if (field->value) {
		free(field->value);
		field->value = NULL;
	}
	if (field->fd >= 0) {
		close(field->fd);
		field->fd = -1;
	}
}

void sendoff_named_forget(void)
{
	for (size_t i = 0; i < FIELDS; i++) {
		forget(&fields[i]);
	}
}

/*
 * Opens a regular file. O_PATH first: opening another kind of file (a FIFO, a device) could block
 * or have effects.
 */
static int open_regular(const char *path)
{
	char self[sizeof("/proc/self/fd/-2147483648")];
	struct stat st;
	int place = *path == '/' ? open(path, O_PATH | O_CLOEXEC) : -1;
	int fd = -1;

	if (place >= 0 && fstat(place, &st) == 0 && S_ISREG(st.st_mode)) {
		snprintf(self, sizeof(self), "/proc/self/fd/%d", place);
		fd = open(self, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	}
	if (place >= 0) {
		close(place);
	}
	return fd;
}

/*
 * The folder in which a decoded URI is looked up; `uri` is advanced to the part after the prefix.
 */
static const char *accel_folder(const char **uri)
{
	size_t len = 0;
	const char *at =
		sendoff_param_get(sendoff_php_worker, SENDOFF_ACCEL, sizeof(SENDOFF_ACCEL) - 1, &len);
	const char *end = at ? at + len : NULL;

	while (at < end) {
		const char *prefix = at;
		size_t prefix_len = strlen(prefix);
		const char *folder = prefix + prefix_len + 1;

		if (folder >= end) {
			break;
		}
		if (!strncmp(*uri, prefix, prefix_len) &&
			(prefix[prefix_len - 1] == '/' || (*uri)[prefix_len] == '/')) {
			*uri += prefix_len;
			return folder;
		}
		at = folder + strlen(folder) + 1;
	}
	return SENDOFF_PARAM("DOCUMENT_ROOT");
}

static int open_uri(const char *value)
{
	char *uri = estrndup(value, strcspn(value, "?"));
	size_t uri_len = php_raw_url_decode(uri, strlen(uri));
	const char *rest = uri;
	char *path;
	int fd = -1;
	const char *folder = *uri == '/' && strlen(uri) == uri_len ? accel_folder(&rest) : NULL;

	if (folder) {
		spprintf(&path, 0, "%s/%s", folder, rest);
		fd = open_regular(path);
		efree(path);
	}
	efree(uri);
	return fd;
}

static named *field_of(const sapi_header_struct *header)
{
	if (header->header_len < 2 || strncasecmp(header->header, "X-", 2)) {
		return NULL;
	}
	for (size_t i = 0; i < FIELDS; i++) {
		size_t len = fields[i].field_len;
		if (header->header_len >= len && !strncasecmp(header->header, fields[i].field, len) &&
			(header->header_len == len || header->header[len] == ':')) {
			return &fields[i];
		}
	}
	return NULL;
}

/* The value after the colon, NUL-terminated as PHP's headers are. */
static const char *value_of(const named *field, const sapi_header_struct *header)
{
	const char *value = header->header + field->field_len;

	return *value == ':' ? value + 1 + strspn(value + 1, " \t") : "";
}

static void name_file(named *field, const char *value)
{
	field->value = strdup(value);
	field->fd = field == &fields[0] ? open_regular(value) : open_uri(value);
}

int sendoff_header_handler(sapi_header_struct *header, sapi_header_op_enum op,
						   sapi_headers_struct *headers)
{
	(void)headers;
	if (op == SAPI_HEADER_DELETE_ALL) {
		sendoff_named_forget();
		return SAPI_HEADER_ADD;
	}
	named *field = field_of(header);
	if (!field || !sendoff_php_worker || sendoff_php_finished) {
		return SAPI_HEADER_ADD;
	}
	if (op == SAPI_HEADER_REPLACE || op == SAPI_HEADER_DELETE) {
		forget(field);
	}
	/* If a header is set several times, its first value counts. */
	if (op != SAPI_HEADER_DELETE && !field->value && *value_of(field, header) &&
		sendoff_takes_named(sendoff_php_worker)) {
		name_file(field, value_of(field, header));
	}
	return SAPI_HEADER_ADD;
}

/*
 * The header that the front will use, if its file is open: the first field of the table that is
 * set.
 */
static named *effective(sapi_headers_struct *headers)
{
	for (size_t i = 0; i < FIELDS; i++) {
		zend_llist_position at;
		sapi_header_struct *header = zend_llist_get_first_ex(&headers->headers, &at);
		for (; header; header = zend_llist_get_next_ex(&headers->headers, &at)) {
			if (field_of(header) == &fields[i] && *value_of(&fields[i], header)) {
				bool same =
					fields[i].value && !strcmp(fields[i].value, value_of(&fields[i], header));
				return same && fields[i].fd >= 0 ? &fields[i] : NULL;
			}
		}
	}
	return NULL;
}

void sendoff_named_send(sapi_headers_struct *headers)
{
	named *field = effective(headers);

	if (field) {
		sendoff_named(sendoff_php_worker, field->fd);
		field->fd = -1;
	}
	sendoff_named_forget();
}
