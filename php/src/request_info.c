/*
 * Fills SG(request_info) from the parameters: the script to run, and the division of the URL's path
 * into script and path info. It follows php-fpm's rules for a server that sends parameters as nginx
 * does; php-fpm's workarounds for Apache and IIS are left out.
 */
#include "php_sendoff.h"
#include "php_main.h"

#include <sys/stat.h>

/* True if no component of the path is "..". */
static bool path_is_plain(const char *path)
{
	for (const char *at = path; (at = strstr(at, "..")) != NULL; at++) {
		bool starts = at == path || at[-1] == '/';
		bool ends = at[2] == '\0' || at[2] == '/';
		if (starts && ends) {
			return false;
		}
	}
	return true;
}

/*
 * Shortens `path` at its slashes, from the right, until it names a regular file. False if it never
 * does.
 */
static bool strip_to_file(char *path)
{
	char *slash;
	while ((slash = strrchr(path, '/')) != NULL) {
		struct stat st;
		*slash = '\0';
		if (stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
			return true;
		}
	}
	return false;
}

/* Sets a parameter and keeps its previous value, if any, as ORIG_<name>. */
#define REPLACE_PARAM(name, value) replace_param(name, "ORIG_" name, value)

static char *replace_param(const char *name, const char *orig_name, const char *value)
{
	char *before = sendoff_params_get(name, strlen(name));
	if (before) {
		sendoff_params_set(orig_name, strlen(orig_name), before);
	}
	return sendoff_params_set(name, strlen(name), value);
}

static void set_path_translated(const char *folder, size_t folder_len, const char *path_info)
{
	char *joined;
	spprintf(&joined, 0, "%.*s%s", (int)folder_len, folder, path_info ? path_info : "");
	REPLACE_PARAM("PATH_TRANSLATED", joined);
	efree(joined);
}

/*
 * For a server that does not split the path, so that PATH_INFO contains the script too: its end is
 * the path info.
 */
static char *split_path_info(const char *path_info, size_t script_len, char *script_name)
{
	char *name = estrndup(path_info, script_len);
	/* Set first, because scripts see the order in $_SERVER. */
	SENDOFF_PARAM_SET("ORIG_PATH_INFO", path_info);
	if (script_name && !strcmp(script_name, name)) {
		SG(request_info).request_uri = script_name;
	} else {
		SG(request_info).request_uri = REPLACE_PARAM("SCRIPT_NAME", name);
	}
	efree(name);
	return SENDOFF_PARAM_SET("PATH_INFO", path_info + script_len);
}

/*
 * The path of the script had path info at its end, of length `stripped`; `script` is the file. Sets
 * the parameters accordingly.
 */
static char *use_stripped(const char *script, size_t stripped, char *script_name)
{
	char *path_info = SENDOFF_PARAM("PATH_INFO");
	size_t path_info_len = path_info ? strlen(path_info) : 0;

	if (path_info_len > stripped) {
		path_info = split_path_info(path_info, path_info_len - stripped, script_name);
	}
	char *kept = REPLACE_PARAM("SCRIPT_FILENAME", script);

	char *document_root = SENDOFF_PARAM("DOCUMENT_ROOT");
	if (document_root) {
		size_t len = strlen(document_root);
		bool slash = len && document_root[len - 1] == '/';
		set_path_translated(document_root, len - slash, path_info);
	} else if (script_name && strstr(script, script_name)) {
		set_path_translated(script, strlen(script) - strlen(script_name), path_info);
	}
	return kept;
}

/*
 * With cgi.fix_pathinfo: finds the script in `path`, which may have path info at its end. NULL: no
 * component of it is a regular file.
 */
static char *find_script(char *path, char *script_name)
{
	size_t len = strlen(path);
	char *real = NULL;

	if (len == 0 || (path[len - 1] != '/' && (real = tsrm_realpath(path, NULL)) != NULL)) {
		if (real) {
			efree(real);
		}
		SG(request_info).request_uri = script_name;
		return SENDOFF_PARAM("SCRIPT_FILENAME") ? path : SENDOFF_PARAM_SET("SCRIPT_FILENAME", path);
	}

	char *script = estrndup(path, len);
	char *found = NULL;
	if (strip_to_file(script)) {
		found = use_stripped(script, len - strlen(script), script_name);
	} else {
		REPLACE_PARAM("SCRIPT_FILENAME", NULL);
		SG(sapi_headers).http_response_code = 404;
	}
	efree(script);
	if (!SG(request_info).request_uri) {
		SG(request_info).request_uri = script_name;
	}
	return found;
}

void sendoff_request_info_init(void)
{
	sapi_request_info *info = &SG(request_info);
	char *path_translated = SENDOFF_PARAM("PATH_TRANSLATED");
	char *script = SENDOFF_PARAM("SCRIPT_FILENAME");

	info->path_translated = NULL;
	info->request_method = SENDOFF_PARAM("REQUEST_METHOD");
	info->proto_num = 1000;
	info->query_string = NULL;
	info->request_uri = NULL;
	info->content_type = NULL;
	info->content_length = 0;
	SG(sapi_headers).http_response_code = 200;

	if (!script) {
		script = path_translated;
	}
	if (!script) {
		return;
	}

	char *script_name = SENDOFF_PARAM("SCRIPT_NAME");
	if (sendoff_php_settings.fix_pathinfo) {
		if (PG(doc_root) && !SENDOFF_PARAM("DOCUMENT_ROOT")) {
			SENDOFF_PARAM_SET("DOCUMENT_ROOT", PG(doc_root));
		}
		script = find_script(script, script_name);
	} else {
		char *path_info = SENDOFF_PARAM("PATH_INFO");
		info->request_uri = path_info ? path_info : script_name;
		if (path_translated) {
			script = path_translated;
		}
	}
	if (script && path_is_plain(script)) {
		info->path_translated = estrdup(script);
	}

	char *content_type = SENDOFF_PARAM("CONTENT_TYPE");
	char *content_length = SENDOFF_PARAM("CONTENT_LENGTH");
	info->query_string = SENDOFF_PARAM("QUERY_STRING");
	info->content_type = content_type ? content_type : "";
	info->content_length = content_length ? atol(content_length) : 0;
	php_handle_auth_data(SENDOFF_PARAM("HTTP_AUTHORIZATION"));
}
