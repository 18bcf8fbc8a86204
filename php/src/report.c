/*
 * PHP's state for `sendoff status`: opcache, its compiler, preloading, APCu, extensions. Only PHP
 * knows it, and only within a request; so each worker reports it once, at the end of its first
 * request, on the socket of status.c. The front keeps the latest report.
 */
#include "php_sendoff.h"
#include "php_ini.h"
#include "ext/json/php_json.h"
#include "zend_smart_str.h"

/* Maximum size of a report in bytes, as the front reads it (`PhpReport::MAX`). */
#define REPORT_MAX 4096

/* Calls a function with one boolean. False: there is no such function, or it returns no array. */
static bool call(const char *name, bool argument, zval *array)
{
	zval function, value;

	if (!zend_hash_str_exists(CG(function_table), name, strlen(name))) {
		return false;
	}
	ZVAL_STRING(&function, name);
	ZVAL_BOOL(&value, argument);
	ZVAL_UNDEF(array);
	call_user_function(NULL, NULL, &function, array, 1, &value);
	zval_ptr_dtor(&function);
	if (Z_TYPE_P(array) == IS_ARRAY) {
		return true;
	}
	zval_ptr_dtor(array);
	return false;
}

static zval *find(zval *array, const char *key)
{
	return array && Z_TYPE_P(array) == IS_ARRAY
			   ? zend_hash_str_find(Z_ARRVAL_P(array), key, strlen(key))
			   : NULL;
}

static bool is_on(zval *array, const char *key)
{
	zval *value = find(array, key);

	return value && zend_is_true(value);
}

static zend_long number(zval *array, const char *key)
{
	zval *value = find(array, key);

	return value ? zval_get_long(value) : 0;
}

static void add_setting(zval *report, const char *key, char *setting)
{
	char *value = zend_ini_string(setting, strlen(setting), 0);

	if (value && *value) {
		add_assoc_string(report, key, value);
	}
}

static void add_opcache(zval *report)
{
	zval status, part;
	char restricted[] = "opcache.restrict_api";
	char *to = zend_ini_string(restricted, strlen(restricted), 0);

	/* With opcache.restrict_api the call would warn, and the script's error handler would see that.
	 */
	if ((to && *to) || !call("opcache_get_status", false, &status)) {
		return;
	}
	zval *memory = find(&status, "memory_usage"), *jit = find(&status, "jit");
	array_init(&part);
	add_assoc_bool(&part, "enabled", is_on(&status, "opcache_enabled"));
	add_assoc_long(&part, "memory",
				   number(memory, "used_memory") + number(memory, "free_memory") +
					   number(memory, "wasted_memory"));
	if (is_on(jit, "on")) {
		add_assoc_long(&part, "jit", number(jit, "buffer_size"));
	}
	if (find(&status, "preload_statistics")) {
		add_setting(&part, "preload", "opcache.preload");
	}
	add_setting(&part, "file_cache", "opcache.file_cache");
	add_assoc_zval(report, "opcache", &part);
	zval_ptr_dtor(&status);
}

static void add_apcu(zval *report)
{
	zval memory;
	char enabled[] = "apc.enabled";

	/* Without APCu enabled the call would warn. */
	if (!zend_ini_long(enabled, strlen(enabled), 0)) {
		return;
	}
	if (call("apcu_sma_info", true, &memory)) {
		add_assoc_long(report, "apcu", number(&memory, "num_seg") * number(&memory, "seg_size"));
		zval_ptr_dtor(&memory);
	}
}

static void add_extensions(zval *report)
{
	zend_module_entry *module;
	zval names;

	array_init(&names);
	ZEND_HASH_FOREACH_PTR(&module_registry, module)
	{
		add_next_index_string(&names, module->name);
	}
	ZEND_HASH_FOREACH_END();
	add_assoc_zval(report, "extensions", &names);
}

static void encode(smart_str *text, zval *report)
{
	smart_str_appendc(text, 'p');
	php_json_encode(text, report, PHP_JSON_INVALID_UTF8_SUBSTITUTE);
}

static void tell(void)
{
	zval report;
	smart_str text = {0};

	array_init(&report);
	/* The version of the library, which may be newer than the headers at compile time. */
	zval *version = zend_get_constant_str("PHP_VERSION", strlen("PHP_VERSION"));
	add_assoc_string(&report, "version", version ? Z_STRVAL_P(version) : PHP_VERSION);
	add_opcache(&report);
	add_apcu(&report);
	add_extensions(&report);
	encode(&text, &report);
	if (ZSTR_LEN(text.s) > REPORT_MAX) {
		/* The rest fits. */
		zend_hash_str_del(Z_ARRVAL(report), "extensions", strlen("extensions"));
		smart_str_free(&text);
		encode(&text, &report);
	}
	zval_ptr_dtor(&report);
	if (ZSTR_LEN(text.s) <= REPORT_MAX) {
		sendoff_status_tell(ZSTR_VAL(text.s), ZSTR_LEN(text.s));
	}
	smart_str_free(&text);
}

void sendoff_report(void)
{
	static bool is_told;

	if (is_told || CG(unclean_shutdown) || EG(exception)) {
		return;
	}
	is_told = true;
	zend_try
	{
		tell();
	}
	zend_end_try();
}
