/*
 * Worker mode: the state of PHP that php_request_startup() and php_request_shutdown() make new, for
 * a request inside a script that goes on. The order is theirs.
 */
#include "boot.h"
#include "lazy.h"
#include "php_main.h"
#include "php_output.h"
#include "php_variables.h"
#include "rfc1867.h"
#include "ext/json/php_json.h"
#include "ext/pcre/php_pcre.h"
#include "ext/session/php_session.h"
#include "ext/standard/basic_functions.h"
#include "ext/standard/url_scanner_ex.h"

/* The session module leaves $_SESSION to the end of the script. */
static void forget_session(void)
{
	zend_hash_str_del(&EG(symbol_table), "_SESSION", sizeof("_SESSION") - 1);
}

/* Resets output_add_rewrite_var() and session.use_trans_sid, whose output handlers are gone. */
static void reset_url_rewriting(void)
{
	if (BG(url_adapt_session_ex).active) {
		php_url_scanner_reset_session_vars();
		BG(url_adapt_session_ex).active = 0;
	}
	if (BG(url_adapt_output_ex).active) {
		php_url_scanner_reset_vars();
		BG(url_adapt_output_ex).active = 0;
	}
}

/*
 * Closes the request body. Streams of php://input read from it, and so are closed before it.
 */
static void close_body(void)
{
	php_stream *body = SG(request_info).request_body;
	zend_resource *resource;

	if (!body) {
		return;
	}
	ZEND_HASH_FOREACH_PTR(&EG(regular_list), resource)
	{
		if (resource && resource->type == php_file_le_stream() && resource->ptr) {
			const php_stream *stream = resource->ptr;
			if (strcmp(stream->ops->label, "Input") == 0) {
				zend_list_close(resource);
			}
		}
	}
	ZEND_HASH_FOREACH_END();
	SG(request_info).request_body = NULL;
	php_stream_close(body);
}

static void forget_errors(void)
{
	if (PG(last_error_message)) {
		zend_string_release(PG(last_error_message));
		PG(last_error_message) = NULL;
	}
	if (PG(last_error_file)) {
		zend_string_release(PG(last_error_file));
		PG(last_error_file) = NULL;
	}
	PG(last_error_type) = 0;
	PG(last_error_lineno) = 0;
	JSON_G(error_code) = PHP_JSON_ERROR_NONE;
	PCRE_G(error_code) = PHP_PCRE_NO_ERROR;
}

void sendoff_renew_between(void)
{
	if (BG(strtok_string)) {
		zend_string_release(BG(strtok_string));
		BG(strtok_string) = NULL;
	}
	BG(strtok_last) = NULL;
	BG(page_uid) = -1;
	BG(page_gid) = -1;
	php_clear_stat_cache(0, NULL, 0);
	forget_errors();
	reset_url_rewriting();
	EG(exit_status) = 0;
	sendoff_modules_renew();
}

/*
 * Ends the response. Older releases of PHP, such as 8.3.6, free the list of uploaded files and keep
 * the pointer to it: php_request_startup() resets it before anything reads it again.
 */
static void end_response(void)
{
	sapi_deactivate_destroy();
	SG(rfc1867_uploaded_files) = NULL;
}

/*
 * Ends the output layers, the modules, the headers and the response, in PHP's order. What the
 * script outputs between requests is dropped by sendoff_ub_write().
 */
static void end_output_and_headers(void)
{
	sendoff_modules_end();
	forget_session();
	php_output_deactivate();
	close_body();
	sapi_deactivate_module();
	end_response();
	php_output_activate();
}

void sendoff_boot_no_session(bool booting)
{
	static bool auto_start;

	if (booting) {
		auto_start = PS(auto_start);
		PS(auto_start) = false;
	} else {
		PS(auto_start) = auto_start;
	}
}

void sendoff_renew_after_boot(void)
{
	/* If a request filled $_ENV at its first use, later requests would see its parameters there. */
	zend_is_auto_global(ZSTR_KNOWN(ZEND_STR_AUTOGLOBAL_ENV));
	sendoff_kept_session_handlers();
	zend_unset_timeout();
	php_output_end_all();
	sendoff_modules_keep();
	end_output_and_headers();
}

/* False if an exception left by a callback of the request, or a bailout, must end the script. */
static bool goes_on(void)
{
	if (CG(unclean_shutdown)) {
		zend_bailout();
	}
	return !EG(exception);
}

/*
 * Flushes all output buffers. If a callback ends the script, no further callback is called: PHP
 * does the same, and a buffer whose callback was left by a long jump would refuse it.
 */
static void end_buffers(void)
{
	zend_try
	{
		php_output_end_all();
	}
	zend_catch
	{
		php_output_deactivate();
		php_output_activate();
		zend_bailout();
	}
	zend_end_try();
}

bool sendoff_renew_after(void)
{
	php_call_shutdown_functions();
	/* Shutdown functions are not called again if one of them ends the script. */
	php_free_shutdown_functions();
	if (!goes_on()) {
		return false;
	}
	end_buffers();
	if (!goes_on()) {
		return false;
	}
	zend_unset_timeout();
	end_output_and_headers();
	return goes_on();
}

/*
 * Frees the superglobals of the previous request, which the script could use until now. $_ENV
 * stays, unless it is to be filled anew.
 */
static void free_superglobals(void)
{
	for (size_t i = 0; i < sizeof(PG(http_globals)) / sizeof(PG(http_globals)[0]); i++) {
		zval_ptr_dtor_nogc(&PG(http_globals)[i]);
		ZVAL_UNDEF(&PG(http_globals)[i]);
	}
}

static void fill(zend_string *name)
{
	if (zend_hash_exists(&EG(symbol_table), name)) {
		zend_is_auto_global(name);
	}
}

/*
 * Fills the superglobals. With auto_globals_jit PHP fills $_SERVER, $_REQUEST and $_ENV when it
 * compiles code that names them; such code has been compiled if the variable exists.
 */
static void fill_superglobals(void)
{
	zval env;
	zval *before = zend_hash_find(&EG(symbol_table), ZSTR_KNOWN(ZEND_STR_AUTOGLOBAL_ENV));

	ZVAL_UNDEF(&env);
	if (before && !sendoff_php_settings.reset_env) {
		ZVAL_COPY(&env, before);
	}
	php_hash_environment();
	fill(ZSTR_KNOWN(ZEND_STR_AUTOGLOBAL_SERVER));
	fill(ZSTR_KNOWN(ZEND_STR_AUTOGLOBAL_REQUEST));
	if (Z_ISUNDEF(env)) {
		fill(ZSTR_KNOWN(ZEND_STR_AUTOGLOBAL_ENV));
		return;
	}
	/* Code that is compiled in this request must not fill it. */
	zend_auto_global *global =
		zend_hash_find_ptr(CG(auto_globals), ZSTR_KNOWN(ZEND_STR_AUTOGLOBAL_ENV));
	if (global) {
		global->armed = false;
	}
	/* php_hash_environment() has filled it if auto_globals_jit is off. */
	zend_hash_update(&EG(symbol_table), ZSTR_KNOWN(ZEND_STR_AUTOGLOBAL_ENV), &env);
}

/* Drops output and headers that a script has made between requests. */
static void drop_leftovers(void)
{
	php_output_end_all();
	php_output_deactivate();
	zend_llist_destroy(&SG(sapi_headers).headers);
	end_response();
}

static void start_output(void)
{
	php_output_activate();
	if (PG(expose_php)) {
		sapi_add_header(SAPI_PHP_VERSION_HEADER, sizeof(SAPI_PHP_VERSION_HEADER) - 1, 1);
	}
	if (PG(output_handler) && PG(output_handler)[0]) {
		zval handler;

		ZVAL_STRING(&handler, PG(output_handler));
		php_output_start_user(&handler, 0, PHP_OUTPUT_HANDLER_STDFLAGS);
		zval_ptr_dtor(&handler);
	} else if (PG(output_buffering)) {
		php_output_start_user(NULL, PG(output_buffering) > 1 ? (size_t)PG(output_buffering) : 0,
							  PHP_OUTPUT_HANDLER_STDFLAGS);
	} else if (PG(implicit_flush)) {
		php_output_set_implicit_flush(1);
	}
}

void sendoff_renew_before(void)
{
	free_superglobals();
	drop_leftovers();
	sendoff_php_finished = false;
	PG(header_is_being_sent) = 0;
	PG(connection_status) = PHP_CONNECTION_NORMAL;
	PG(in_user_include) = 0;
	PG(during_request_startup) = true;
	sapi_activate();
	zend_set_timeout(PG(max_input_time) == -1 ? EG(timeout_seconds) : PG(max_input_time), 1);
	start_output();
	fill_superglobals();
	sendoff_modules_start();
	sendoff_kept_use_session_handlers();
	PG(during_request_startup) = false;
	SG(sapi_started) = true;
	zend_memory_reset_peak_usage();
	if (PG(max_input_time) != -1) {
		zend_set_timeout(zend_ini_long("max_execution_time", sizeof("max_execution_time") - 1, 0),
						 0);
	}
}
