/*
 * Settings per script: the [HOST=] and [PATH=] sections of php.ini, and the .user.ini files from
 * the document root down to the script's folder, read again after user_ini.cache_ttl seconds. The
 * parameter PHP_VALUE overrides them: lines in the format of php.ini, from php_value and php_flag
 * in .htaccess files.
 */
#include "php_sendoff.h"
#include "php_ini.h"
#include "zend_ini_scanner.h"

typedef struct {
	time_t expires;
	HashTable settings;
} folder_settings;

/* The key is the folder's path with a slash at its end. */
static HashTable folders;

static void free_folder(zval *element)
{
	folder_settings *folder = Z_PTR_P(element);
	zend_hash_destroy(&folder->settings);
	pefree(folder, 1);
}

void sendoff_user_ini_startup(void)
{
	zend_hash_init(&folders, 0, NULL, free_folder, 1);
}

void sendoff_user_ini_shutdown(void)
{
	zend_hash_destroy(&folders);
}

/*
 * Reads the .user.ini of the folder `path` (with a slash at its end). If it lies in the root, also
 * reads the files of the folders from the root down to it.
 */
static void read_files(char *path, size_t path_len, const char *root, size_t root_len,
					   HashTable *settings)
{
	zend_hash_clean(settings);
	if (strncmp(path, root, MIN(path_len, root_len)) != 0) {
		php_parse_user_ini_file(path, PG(user_ini_filename), settings);
		return;
	}
	if (root_len > path_len) {
		return;
	}
	for (char *slash = strchr(path + root_len, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		php_parse_user_ini_file(path, PG(user_ini_filename), settings);
		*slash = '/';
	}
}

static void activate_user_ini(char *path, size_t path_len)
{
	const char *root = SENDOFF_PARAM("DOCUMENT_ROOT");
	if (!root) {
		return;
	}
	size_t root_len = strlen(root);
	if (root_len > 0 && root[root_len - 1] == '/') {
		root_len--;
	}

	folder_settings *folder = zend_hash_str_find_ptr(&folders, path, path_len);
	if (!folder) {
		folder = pecalloc(1, sizeof(*folder), 1);
		zend_hash_init(&folder->settings, 0, NULL, config_zval_dtor, 1);
		zend_hash_str_update_ptr(&folders, path, path_len, folder);
	}
	time_t now = (time_t)sapi_get_request_time();
	if (now > folder->expires) {
		read_files(path, path_len, root, root_len, &folder->settings);
		folder->expires = now + PG(user_ini_cache_ttl);
	}
	php_ini_activate_config(&folder->settings, PHP_INI_PERDIR, PHP_INI_STAGE_HTACCESS);
}

/* As in mod_php, applies to this request only, and only to settings that may be set per directory.
 */
static void activate_value(zval *name, zval *value, zval *index, int kind, void *unused)
{
	(void)index;
	(void)unused;
	if (kind != ZEND_INI_PARSER_ENTRY || !name || !value || Z_TYPE_P(value) != IS_STRING) {
		return;
	}
	zend_alter_ini_entry(Z_STR_P(name), Z_STR_P(value), PHP_INI_PERDIR, PHP_INI_STAGE_HTACCESS);
}

static void activate_sent_values(void)
{
	char *sent = SENDOFF_PARAM("PHP_VALUE");
	if (sent && *sent) {
		zend_parse_ini_string(sent, 1, ZEND_INI_SCANNER_NORMAL, activate_value, NULL);
	}
}

int sendoff_activate(void)
{
	const char *script = SG(request_info).path_translated;
	if (!script) {
		return FAILURE;
	}
	if (sendoff_boot.state == SENDOFF_BOOT_HANDLES) {
		activate_sent_values();
		return SUCCESS;
	}
	if (php_ini_has_per_host_config()) {
		const char *name = SENDOFF_PARAM("SERVER_NAME");
		if (name) {
			size_t name_len = strlen(name);
			char *lower = zend_str_tolower_dup(name, name_len);
			php_ini_activate_per_host_config(lower, name_len);
			efree(lower);
		}
	}
	bool user_ini = PG(user_ini_filename) && *PG(user_ini_filename);
	if (user_ini || php_ini_has_per_dir_config()) {
		size_t len = strlen(script);
		char *path = emalloc(len + 2);
		memcpy(path, script, len + 1);
		len = zend_dirname(path, len);
		path[len++] = '/';
		path[len] = '\0';
		php_ini_activate_per_dir_config(path, len);
		if (user_ini) {
			activate_user_ini(path, len);
		}
		efree(path);
	}
	activate_sent_values();
	return SUCCESS;
}
