/*
 * PHP by libphp: starts it in the master.
 */
#include "php_sendoff.h"
#include "php_main.h"
#include "php_ini.h"
#include "php_ini_builder.h"
#include "zend_signal.h"

static int said = -1;

/* php_module_startup() takes one module from a SAPI; Sendoff has two. */
static int register_extensions(void)
{
	/* The engine has been started, and extensions are loaded next. */
	sendoff_sapi_tell(said);
	if (php_register_internal_extensions() == FAILURE) {
		return FAILURE;
	}
	return sendoff_sapi_register();
}

static int startup(sapi_module_struct *module)
{
	php_register_internal_extensions_func = register_extensions;
	return php_module_startup(module, NULL);
}

static sapi_module_struct sendoff_sapi_module = {
	.startup = startup,
	.shutdown = php_module_shutdown_wrapper,
	.php_ini_ignore_cwd = 1,
};

/*
 * Sets the paths of php.ini and conf.d, which libphp would otherwise take from its build. PHPRC and
 * PHP_INI_SCAN_DIR take precedence.
 */
static void use_ini_dir(const char *dir)
{
	char path[MAXPATHLEN];
	if (!getenv("PHPRC") && snprintf(path, sizeof(path), "%s/php.ini", dir) < (int)sizeof(path)) {
		sendoff_sapi_module.php_ini_path_override = strdup(path);
	}
	if (snprintf(path, sizeof(path), "%s/conf.d", dir) < (int)sizeof(path)) {
		setenv("PHP_INI_SCAN_DIR", path, 0);
	}
}

/* PHP 8.4 has this function, PHP 8.2 has not; nothing else tells the version before the start. */
extern unsigned int php_version_id(void) __attribute__((weak));

/*
 * Returns true if libphp.so has the version of the headers at compile time; prints a message
 * otherwise. The libraries of all versions have the same SONAME.
 */
static bool is_right_library(void)
{
	unsigned int found = php_version_id ? php_version_id() : 0;
	bool is_same = found ? found / 100 == PHP_VERSION_ID / 100 : PHP_VERSION_ID < 80400;

	if (!is_same) {
		char version[32] = "older than 8.4";
		if (found) {
			snprintf(version, sizeof(version), "%u.%u", found / 10000, found / 100 % 100);
		}
		fprintf(stderr,
				"sendoff-php: it was built for PHP %d.%d, but libphp.so is PHP %s: install "
				"libphp%d.%d-embed, or build Sendoff again\n",
				PHP_MAJOR_VERSION, PHP_MINOR_VERSION, version, PHP_MAJOR_VERSION,
				PHP_MINOR_VERSION);
	}
	return is_same;
}

int sendoff_php_startup(const sendoff_php_start *start, const char *ini_dir)
{
	struct php_ini_builder entries;

	if (!is_right_library()) {
		return -1;
	}
	sendoff_php_begin(start);
	sendoff_limit_prepare();
	zend_signal_startup();
	sendoff_sapi_use(&sendoff_sapi_module);
	sapi_startup(&sendoff_sapi_module);
	use_ini_dir(ini_dir);
	php_ini_builder_init(&entries);
	for (size_t i = 0; i < start->define_count; i++) {
		php_ini_builder_define(&entries, start->defines[i]);
	}
	/* Never freed: PHP reads it again when it reports its configuration. */
	sendoff_sapi_module.ini_entries = php_ini_builder_finish(&entries);
	said = start->said;
	if (sendoff_sapi_module.startup(&sendoff_sapi_module) == FAILURE) {
		return -1;
	}
	if (sendoff_php_finish(start) != 0) {
		return -1;
	}
	sendoff_limit_startup();
	return 0;
}
