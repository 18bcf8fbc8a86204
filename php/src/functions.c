/*
 * The functions and settings that php-fpm adds to PHP, in a module of the same name as php-fpm's.
 */
#include "fragments.h"
#include "php_ini.h"
#include "php_output.h"
#include "ext/standard/head.h"
#include "ext/standard/info.h"

PHP_FUNCTION(fastcgi_finish_request)
{
	ZEND_PARSE_PARAMETERS_NONE();

	if (sendoff_php_finished) {
		RETURN_FALSE;
	}
	php_output_end_all();
	php_header();
	sendoff_end_response(true);
	RETURN_TRUE;
}

PHP_FUNCTION(apache_request_headers)
{
	ZEND_PARSE_PARAMETERS_NONE();

	array_init(return_value);
	sendoff_params_each(sapi_add_request_header, return_value);
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_fastcgi_finish_request, 0, 0, _IS_BOOL, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_handle_request, 0, 1, _IS_BOOL, 0)
ZEND_ARG_TYPE_INFO(0, callback, IS_CALLABLE, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_fragment, 0, 3, IS_VOID, 0)
ZEND_ARG_TYPE_INFO(0, key, IS_STRING, 0)
ZEND_ARG_TYPE_INFO(0, ttl, IS_LONG, 0)
ZEND_ARG_TYPE_INFO(0, make, IS_CALLABLE, 0)
ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, tags, IS_ARRAY, 0, "[]")
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_fragment_string, 0, 3, IS_STRING, 0)
ZEND_ARG_TYPE_INFO(0, key, IS_STRING, 0)
ZEND_ARG_TYPE_INFO(0, ttl, IS_LONG, 1)
ZEND_ARG_TYPE_INFO(0, make, IS_CALLABLE, 0)
ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, tags, IS_ARRAY, 0, "[]")
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_fragment_fetch, 0, 1, IS_STRING, 1)
ZEND_ARG_TYPE_INFO(0, key, IS_STRING, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_fragment_store, 0, 3, _IS_BOOL, 0)
ZEND_ARG_TYPE_INFO(0, key, IS_STRING, 0)
ZEND_ARG_TYPE_INFO(0, ttl, IS_LONG, 0)
ZEND_ARG_TYPE_INFO(0, value, IS_STRING, 0)
ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, tags, IS_ARRAY, 0, "[]")
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_fragment_delete, 0, 1, IS_VOID, 0)
ZEND_ARG_TYPE_INFO(0, key, IS_STRING, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_fragment_purge, 0, 0, IS_VOID, 0)
ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, tags, IS_ARRAY, 1, "null")
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_MASK_EX(arginfo_fpm_get_status, 0, 0, MAY_BE_ARRAY | MAY_BE_FALSE)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_apache_request_headers, 0, 0, IS_ARRAY, 0)
ZEND_END_ARG_INFO()

/* Macros that clang-format takes for expressions. */
/* clang-format off */
static const zend_function_entry functions[] = {
	PHP_FE(fastcgi_finish_request, arginfo_fastcgi_finish_request)
	PHP_FE(fpm_get_status, arginfo_fpm_get_status)
	PHP_FE(apache_request_headers, arginfo_apache_request_headers)
	PHP_FE(sendoff_fragment, arginfo_fragment)
	PHP_FE(sendoff_fragment_string, arginfo_fragment_string)
	PHP_FE(sendoff_fragment_fetch, arginfo_fragment_fetch)
	PHP_FE(sendoff_fragment_store, arginfo_fragment_store)
	PHP_FE(sendoff_fragment_delete, arginfo_fragment_delete)
	PHP_FE(sendoff_fragment_purge, arginfo_fragment_purge)
	PHP_FALIAS(getallheaders, apache_request_headers, arginfo_apache_request_headers)
	PHP_FE_END
};

/* Functions of worker mode; packages know them by the names from FrankenPHP. */
static const zend_function_entry worker_functions[] = {
	PHP_FE(sendoff_handle_request, arginfo_handle_request)
	PHP_FALIAS(frankenphp_handle_request, sendoff_handle_request, arginfo_handle_request)
	PHP_FALIAS(frankenphp_finish_request, fastcgi_finish_request, arginfo_fastcgi_finish_request)
	PHP_FE_END
};

#define SETTING(key, standard, who, handler, field) \
	STD_PHP_INI_ENTRY(key, standard, who, handler, field, sendoff_php_ini, sendoff_php_settings)
#define SWITCH(key, standard, who, field) \
	STD_PHP_INI_BOOLEAN(key, standard, who, OnUpdateBool, field, sendoff_php_ini, \
		sendoff_php_settings)

PHP_INI_BEGIN()
	SWITCH("cgi.rfc2616_headers", "0", PHP_INI_ALL, rfc2616_headers)
	SWITCH("cgi.nph", "0", PHP_INI_ALL, nph)
	SWITCH("cgi.fix_pathinfo", "1", PHP_INI_SYSTEM, fix_pathinfo)
	SWITCH("fastcgi.logging", "1", PHP_INI_SYSTEM, fcgi_logging)
	SWITCH("sendoff.reset_env", "0", PHP_INI_SYSTEM, reset_env)
	SETTING("sendoff.fragments", "32M", PHP_INI_SYSTEM, OnUpdateLong, fragments)
	SETTING("fastcgi.error_header", NULL, PHP_INI_SYSTEM, OnUpdateString, error_header)
PHP_INI_END()
/* clang-format on */

static PHP_MINIT_FUNCTION(sendoff_sapi)
{
	REGISTER_INI_ENTRIES();
	sendoff_user_ini_startup();
	fragments_startup(sendoff_php_settings.fragments);
	fragment_startup();
	if (sendoff_boot.script) {
		return zend_register_functions(NULL, worker_functions, NULL, type);
	}
	return SUCCESS;
}

static PHP_MSHUTDOWN_FUNCTION(sendoff_sapi)
{
	sendoff_user_ini_shutdown();
	UNREGISTER_INI_ENTRIES();
	return SUCCESS;
}

static PHP_MINFO_FUNCTION(sendoff_sapi)
{
	DISPLAY_INI_ENTRIES();
}

zend_module_entry sendoff_sapi_entry = {
	STANDARD_MODULE_HEADER,
	"cgi-fcgi",
	functions,
	PHP_MINIT(sendoff_sapi),
	PHP_MSHUTDOWN(sendoff_sapi),
	NULL,
	NULL,
	PHP_MINFO(sendoff_sapi),
	PHP_VERSION,
	STANDARD_MODULE_PROPERTIES,
};
