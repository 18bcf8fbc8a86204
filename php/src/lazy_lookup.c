/*
 * From what a script names, a path or a stream, to a held file.
 */
#include "lazy.h"

/*
 * Whether `path` names a plain local file that PHP would open here and now. `resolved` receives the
 * path PHP would give to open(2): symbolic links are followed through the realpath cache, as PHP
 * does, so a link that just moved means the same file to both of us.
 */
static bool plain_path(zend_string *path, char resolved[MAXPATHLEN])
{
	LAZY_BECAUSE("not a plain local file");
	if (ZSTR_LEN(path) == 0 || zend_str_has_nul_byte(path)) {
		return false;
	}
	/* A URL, even file://: the look-up below may warn of it, and PHP would warn once more. */
	if (strstr(ZSTR_VAL(path), "://") || strncasecmp(ZSTR_VAL(path), "data:", 5) == 0) {
		return false;
	}
	/* A script can put a wrapper of its own in the place of plain files. */
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

	/* Who asks for the reason gets it, not that there was one a moment ago. */
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
	/* Opens the file itself, even if its name leads elsewhere by now. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", (int)fd);
	return mapped_file_open(path);
}
