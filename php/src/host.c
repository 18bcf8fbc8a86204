/*
 * Takes over a stock PHP program (php-fpm, php-cgi), whose process becomes the master of a
 * pool. The supervisor runs it as `php-fpm -d zend_extension=THIS_MODULE ... -i`:
 *
 *   load        the program loads this module before its extensions and before any of them starts:
 *               check_build() puts our SAPI in the place of the program's own
 *   start       PHP starts its extensions and opcache, and preloads scripts, as for php-fpm
 *   take over   PHP has started, and the program begins a request in order to print phpinfo():
 *               take_over() ends that request before a module learns of it, and then keeps workers
 *               until the process ends
 *
 * The program's own code runs before and between these steps only.
 */
#include "php_sendoff.h"
#include "php_main.h"
#include "zend_extensions.h"

#include <signal.h>
#include <unistd.h>

/* host.rs */

/* Reads what the supervisor has left to this process. Ends the process after an error. */
const sendoff_php_start *sendoff_host_prepare(void);
/* Keeps workers, and ends the process. */
ZEND_NORETURN void sendoff_host_run(bool has_started);

/* The exit status of a master whose PHP does not start, as in failure.rs. */
#define CANNOT_START 2

#define NAME "Sendoff"

static const sendoff_php_start *start;
static int (*activate)(void);

static int is_ours(void *extension, void *unused)
{
	(void)unused;
	return strcmp(((zend_extension *)extension)->name, NAME) == 0;
}

static zend_result do_nothing(void)
{
	return SUCCESS;
}

/*
 * Ends a request that has not begun for the modules. PHP skips their RSHUTDOWN functions then, and
 * calls their post_deactivate functions, which in Xdebug and Excimer rely on RINIT. Modules see no
 * request here, as in php-fpm's own master.
 */
static void end_begun_request(void)
{
	size_t count = 0;
	zend_module_entry *module;
	zend_result (**ends)(void) =
		safe_pemalloc(zend_hash_num_elements(&module_registry), sizeof(*ends), 0, 1);

	ZEND_HASH_FOREACH_PTR(&module_registry, module)
	{
		ends[count++] = module->post_deactivate_func;
		if (module->post_deactivate_func) {
			module->post_deactivate_func = do_nothing;
		}
	}
	ZEND_HASH_FOREACH_END();
	php_request_shutdown(NULL);
	count = 0;
	ZEND_HASH_FOREACH_PTR(&module_registry, module)
	{
		module->post_deactivate_func = ends[count++];
	}
	ZEND_HASH_FOREACH_END();
	pefree(ends, 1);
}

/* Called in place of the SAPI's function at the beginning of the first request. */
static int take_over(void)
{
	/*
	 * opcache activates the SAPI once more after the request in which it has preloaded scripts.
	 * That request has been shut down; the program's begins later.
	 */
	if (EG(flags) & EG_FLAGS_IN_SHUTDOWN) {
		return SUCCESS;
	}
	sapi_module.activate = activate;
	/* No header is due. */
	SG(headers_sent) = 1;
	end_begun_request();
	PG(during_request_startup) = false;
	memset(&SG(request_info), 0, sizeof(SG(request_info)));
	/* get_loaded_extensions() would show it. The module stays loaded (-z nodelete). */
	zend_llist_del_element(&zend_extensions, NULL, is_ours);
	sendoff_host_run(sendoff_php_finish(start) == 0);
}

/* Takes the modules of the program's own SAPI out: ours has the same functions and settings. */
static void remove_module(const char *name)
{
	zend_module_entry *module = zend_hash_str_find_ptr(&module_registry, name, strlen(name));

	if (module) {
		zend_unregister_functions(module->functions, -1, CG(function_table));
		zend_hash_str_del(&module_registry, name, strlen(name));
	}
}

static void set_constant(const char *name, const char *value)
{
	zend_constant *constant = zend_hash_str_find_ptr(EG(zend_constants), name, strlen(name));

	if (constant) {
		zval_ptr_dtor_nogc(&constant->value);
		ZVAL_INTERNED_STR(&constant->value, zend_string_init_interned(value, strlen(value), 1));
	}
}

/* The constants that PHP has defined by the program's SAPI. */
static void set_constants(void)
{
	char path[MAXPATHLEN];
	ssize_t len = readlink("/proc/self/exe", path, sizeof(path) - 1);

	set_constant("PHP_SAPI", sapi_module.name);
	if (len > 0) {
		path[len] = '\0';
		set_constant("PHP_BINARY", path);
	}
}

static void take_sapi(void)
{
	sigset_t none;

	/* php-fpm blocks signals until its own master is ready. */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	sendoff_php_begin(start);
	sendoff_sapi_use(&sapi_module);
	activate = sapi_module.activate;
	sapi_module.activate = take_over;
	remove_module("cgi-fcgi");
	set_constants();
	sendoff_sapi_tell(start->said);
	if (sendoff_sapi_register() == FAILURE) {
		_exit(CANNOT_START);
	}
}

/*
 * PHP calls these two functions, in this order, because the numbers below fit no PHP. Nothing of
 * the engine may be used before both have found it to be the right one.
 */
static int check_api(int api)
{
	if (api != ZEND_EXTENSION_API_NO) {
		fprintf(stderr,
				"sendoff-php: the module is for the API %d of PHP, and the program has %d\n",
				ZEND_EXTENSION_API_NO, api);
		_exit(CANNOT_START);
	}
	return SUCCESS;
}

static int check_build(const char *build)
{
	if (strcmp(build, ZEND_EXTENSION_BUILD_ID) != 0) {
		fprintf(stderr, "sendoff-php: the module is for %s, and the program is %s\n",
				ZEND_EXTENSION_BUILD_ID, build);
		_exit(CANNOT_START);
	}
	if (strcmp(sapi_module.name, "cli") == 0) {
		/* It puts settings of its own over php.ini. */
		fprintf(stderr,
				"sendoff-php: the command line's php hosts no workers: name php-fpm or php-cgi\n");
		_exit(CANNOT_START);
	}
	start = sendoff_host_prepare();
	unsetenv("SENDOFF_HOST");
	take_sapi();
	return SUCCESS;
}

ZEND_DLEXPORT zend_extension_version_info extension_version_info = {0, ""};

ZEND_DLEXPORT zend_extension zend_extension_entry = {
	.name = NAME,
	.version = "0.1.0",
	.author = "Sendoff",
	.URL = "",
	.copyright = "",
	.api_no_check = check_api,
	.build_id_check = check_build,
};
