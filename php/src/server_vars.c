/*
 * $_SERVER, $_ENV, getenv() and cookies, from the request's parameters.
 */
#include "php_sendoff.h"
#include "php_variables.h"

static void (*import_process_environment)(zval *array);

char *sendoff_getenv(const char *name, size_t name_len)
{
	return sendoff_php_worker ? sendoff_params_get(name, name_len) : getenv(name);
}

char *sendoff_read_cookies(void)
{
	return SENDOFF_PARAM("HTTP_COOKIE");
}

static void register_param(const char *name, unsigned int name_len, char *value,
						   unsigned int value_len, void *arg)
{
	zval *array = arg;
	zval *env = &PG(http_globals)[TRACK_VARS_ENV];
	int source =
		Z_TYPE_P(env) == IS_ARRAY && Z_ARR_P(array) == Z_ARR_P(env) ? PARSE_ENV : PARSE_SERVER;
	size_t filtered_len;
	(void)name_len;
	(void)value_len;

	/* A value ends at its first NUL, as for every CGI variable. */
	if (sapi_module.input_filter(source, name, &value, strlen(value), &filtered_len)) {
		php_register_variable_safe(name, value, filtered_len, array);
	}
}

static void load_param(const char *name, unsigned int name_len, char *value, unsigned int value_len,
					   void *arg)
{
	(void)name_len;
	php_register_variable_safe(name, value, value_len, arg);
}

/* For getenv() without a name: all parameters, unfiltered. */
static void load_environment(zval *array)
{
	import_process_environment(array);
	sendoff_params_each(load_param, array);
}

/*
 * Replaces `array` by a copy of a superglobal. False if the superglobal is empty, is `array`
 * itself, or is not an array yet.
 */
static bool copy_superglobal(int which, zval *array)
{
	zval *made = &PG(http_globals)[which];
	if (Z_TYPE_P(made) != IS_ARRAY || Z_ARR_P(made) == Z_ARR_P(array) ||
		zend_hash_num_elements(Z_ARRVAL_P(made)) == 0) {
		return false;
	}
	zend_array_destroy(Z_ARR_P(array));
	Z_ARR_P(array) = zend_array_dup(Z_ARR_P(made));
	return true;
}

/*
 * Fills $_ENV or $_SERVER. Both contain the process environment and the parameters, so the second
 * one to be filled is a copy of the first.
 */
static void import_environment(zval *array)
{
	if (!copy_superglobal(TRACK_VARS_ENV, array) && !copy_superglobal(TRACK_VARS_SERVER, array)) {
		import_process_environment(array);
		sendoff_params_each(register_param, array);
	}
}

void sendoff_server_vars_init(void)
{
	import_process_environment = php_import_environment_variables;
	php_import_environment_variables = import_environment;
	php_load_environment_variables = load_environment;
}

void sendoff_register_variables(zval *array)
{
	const char *script_name = SG(request_info).request_uri ? SG(request_info).request_uri : "";
	const char *path_info = sendoff_php_settings.fix_pathinfo ? SENDOFF_PARAM("PATH_INFO") : NULL;
	char *self;

	php_import_environment_variables(array);
	size_t self_len = spprintf(&self, 0, "%s%s", script_name, path_info ? path_info : "");
	if (sapi_module.input_filter(PARSE_SERVER, "PHP_SELF", &self, self_len, &self_len)) {
		php_register_variable_safe("PHP_SELF", self, self_len, array);
	}
	efree(self);
}
