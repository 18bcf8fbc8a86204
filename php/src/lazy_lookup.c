/*
 * Finds the held file for a path or a stream that a script names.
 */
#include "lazy.h"

/*
 * True if PHP would open `path` as a plain local file. `resolved` receives the path that PHP would
 * pass to open(2). Symbolic links are resolved through the realpath cache, so a link that was
 * changed just now leads to the same file as in PHP.
 */
static bool plain_path(zend_string *path, char resolved[MAXPATHLEN])
{
	LAZY_BECAUSE("not a plain local file");
	if (ZSTR_LEN(path) == 0 || zend_str_has_nul_byte(path)) {
		return false;
	}
	/* A URL, even file://. The look-up below may raise a warning, and PHP's handler would raise it
	 * again. */
	if (strstr(ZSTR_VAL(path), "://") || strncasecmp(ZSTR_VAL(path), "data:", 5) == 0) {
		return false;
	}
	/* A script can register its own wrapper for plain files. */
	const char *local;
	if (php_stream_locate_url_wrapper(ZSTR_VAL(path), &local, 0) != &php_plain_files_wrapper) {
		return false;
	}
	if (php_check_open_basedir_ex(local, 0) != 0) {
		LAZY_BECAUSE("outside open_basedir");
		return false;
	}
	return expand_filepath(local, resolved) != NULL;
}

mapped_file *lazy_path_file(zend_string *path)
{
	char resolved[MAXPATHLEN];

	/* `sendoff explain` looks the file up again, for the actual reason. */
	if ((!lazy_explaining && mapped_file_is_hopeless(path)) || !plain_path(path, resolved)) {
		return NULL;
	}
	mapped_file *mapped = mapped_file_open(resolved);
	if (!mapped) {
		mapped_file_give_up(path);
	}
	return mapped;
}

mapped_file *lazy_stream_file(php_stream *stream)
{
	char path[sizeof("/proc/self/fd/-2147483648")];
	php_socket_t fd;

	if (!lazy_is_plain_file(stream) ||
		stream->ops->cast(stream, PHP_STREAM_AS_FD_FOR_SELECT, (void **)&fd) != SUCCESS) {
		LAZY_BECAUSE("not a plain file, or with a filter");
		return NULL;
	}
	/* Opens the stream's own file, even if its path names another file by now. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", (int)fd);
	return mapped_file_open(path);
}
