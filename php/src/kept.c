/*
 * Worker mode: restores the application's state after each request, as it was before the request.
 * In ordinary mode PHP does this by starting anew.
 *
 * boot.c and renew.c handle the state of PHP itself (superglobals, output, headers); this file
 * handles the state that belongs to the application.
 */
#include "boot.h"
#include "php_ini.h"
#include "ext/date/php_date.h"
#include "ext/session/php_session.h"
#include "ext/standard/basic_functions.h"
#include "ext/standard/file.h"

#include <locale.h>
#include <sys/stat.h>

/* A setting that the application has changed by ini_set() or the like. */
typedef struct {
	zend_ini_entry *entry;
	zend_string *value;
} setting;

static struct {
	setting *settings;
	size_t setting_count, setting_capacity;
	HashTable *shutdown_functions;
	HashTable environment;
	bool locale_changed;
	/* Result of setlocale(LC_ALL, NULL). */
	char *locale;
	zend_string *ctype;
	int umask;
	char *timezone;
	php_stream_context *context;
	zval context_options;
	HashTable *wrappers, *filters, *user_filters;
	zval error_handler, exception_handler;
	int error_handler_reporting;
	int error_handlers, exception_handlers;
	/* Set by session_set_save_handler(). */
	zval session_handlers[SESSION_HANDLERS];
	bool session_implemented;
	zend_string *session_class;
	/* Functions of register_tick_function(). */
	size_t ticks;
	zval env;
} kept;

static void keep_settings(void)
{
	zend_ini_entry *entry;

	kept.setting_count = 0;
	if (!EG(modified_ini_directives)) {
		return;
	}
	ZEND_HASH_FOREACH_PTR(EG(modified_ini_directives), entry)
	{
		if (kept.setting_count == kept.setting_capacity) {
			kept.setting_capacity = kept.setting_capacity ? kept.setting_capacity * 2 : 16;
			kept.settings =
				safe_perealloc(kept.settings, kept.setting_capacity, sizeof(setting), 0, 1);
		}
		kept.settings[kept.setting_count].value =
			entry->value ? zend_string_copy(entry->value) : NULL;
		kept.settings[kept.setting_count++].entry = entry;
	}
	ZEND_HASH_FOREACH_END();
}

static bool is_kept_setting(const zend_ini_entry *entry)
{
	for (size_t i = 0; i < kept.setting_count; i++) {
		if (kept.settings[i].entry == entry) {
			return true;
		}
	}
	return false;
}

/*
 * Uses the stage of a request's end, at which sessions and limits accept every value.
 */
static void restore_settings(void)
{
	zend_ini_entry *entry;

	if (EG(modified_ini_directives)) {
		ZEND_HASH_FOREACH_PTR(EG(modified_ini_directives), entry)
		{
			if (!is_kept_setting(entry)) {
				zend_restore_ini_entry(entry->name, PHP_INI_STAGE_DEACTIVATE);
			}
		}
		ZEND_HASH_FOREACH_END();
	}
	for (size_t i = 0; i < kept.setting_count; i++) {
		setting *one = &kept.settings[i];
		if (!one->value) {
			continue;
		}
		if (!one->entry->modified || !one->entry->value ||
			!zend_string_equals(one->entry->value, one->value)) {
			zend_alter_ini_entry_ex(one->entry->name, one->value, PHP_INI_SYSTEM,
									PHP_INI_STAGE_DEACTIVATE, true);
		}
		zend_string_release(one->value);
	}
	kept.setting_count = 0;
}

/* Shutdown functions of the application run when its script ends, the request's at its end. */
static void keep_shutdown_functions(void)
{
	kept.shutdown_functions = BG(user_shutdown_function_names);
	BG(user_shutdown_function_names) = NULL;
}

void sendoff_kept_join(void)
{
	HashTable *of_request = BG(user_shutdown_function_names);
	zval *function;

	if (!kept.shutdown_functions) {
		return;
	}
	BG(user_shutdown_function_names) = kept.shutdown_functions;
	kept.shutdown_functions = NULL;
	if (of_request) {
		ZEND_HASH_FOREACH_VAL(of_request, function)
		{
			zend_hash_next_index_insert(BG(user_shutdown_function_names), function);
		}
		ZEND_HASH_FOREACH_END();
		/* The functions now belong to the other table. */
		of_request->pDestructor = NULL;
		zend_hash_destroy(of_request);
		FREE_HASHTABLE(of_request);
	}
}

/* The destructor of an entry of this table restores the variable's value from before putenv(). */
static void keep_environment(void)
{
	kept.environment = BG(putenv_ht);
	zend_hash_init(&BG(putenv_ht), 1, NULL, kept.environment.pDestructor, 0);
}

static void restore_environment(void)
{
	zend_hash_destroy(&BG(putenv_ht));
	BG(putenv_ht) = kept.environment;
}

static void keep_locale(void)
{
	const char *now = setlocale(LC_ALL, NULL);

	if (now && (!kept.locale || strcmp(now, kept.locale) != 0)) {
		free(kept.locale);
		kept.locale = strdup(now);
	}
	kept.locale_changed = BG(locale_changed);
	kept.ctype = BG(ctype_string);
	BG(locale_changed) = false;
	BG(ctype_string) = NULL;
}

static void restore_locale(void)
{
	if (BG(ctype_string)) {
		zend_string_release(BG(ctype_string));
	}
	if (BG(locale_changed) && kept.locale) {
		setlocale(LC_ALL, kept.locale);
		zend_update_current_locale();
	}
	BG(locale_changed) = kept.locale_changed;
	BG(ctype_string) = kept.ctype;
}

static void keep_umask(void)
{
	kept.umask = BG(umask);
	BG(umask) = -1;
}

static void restore_umask(void)
{
	if (BG(umask) != -1) {
		umask((mode_t)BG(umask));
	}
	BG(umask) = kept.umask;
}

static zend_date_globals *date(void)
{
	static zend_module_entry *module;

	if (!module) {
		module = sendoff_module("date");
	}
	return module->globals_ptr;
}

static void keep_timezone(void)
{
	kept.timezone = date()->timezone ? estrdup(date()->timezone) : NULL;
}

static void restore_timezone(void)
{
	if (date()->timezone) {
		efree(date()->timezone);
	}
	date()->timezone = kept.timezone;
}

/* The default stream context, wrappers and filters. Filters of the application are not copied. */
static void keep_streams(void)
{
	kept.context = FG(default_context);
	if (kept.context) {
		ZVAL_ARR(&kept.context_options, zend_array_dup(Z_ARRVAL(kept.context->options)));
	}
	kept.wrappers = FG(stream_wrappers);
	if (kept.wrappers) {
		ALLOC_HASHTABLE(FG(stream_wrappers));
		zend_hash_init(FG(stream_wrappers), 0, NULL, NULL, 0);
		zend_hash_copy(FG(stream_wrappers), kept.wrappers, NULL);
	}
	kept.filters = FG(stream_filters);
	kept.user_filters = BG(user_filter_map);
}

static void free_table(HashTable *table)
{
	zend_hash_destroy(table);
	efree(table);
}

static void restore_streams(void)
{
	php_stream_context *context = FG(default_context);

	if (kept.context) {
		zval_ptr_dtor(&kept.context->options);
		ZVAL_COPY_VALUE(&kept.context->options, &kept.context_options);
	} else if (context) {
		zend_list_delete(context->res);
	}
	FG(default_context) = kept.context;
	if (FG(stream_wrappers)) {
		free_table(FG(stream_wrappers));
	}
	FG(stream_wrappers) = kept.wrappers;
	if (!kept.filters && FG(stream_filters)) {
		free_table(FG(stream_filters));
		FG(stream_filters) = NULL;
	}
	if (!kept.user_filters && BG(user_filter_map)) {
		free_table(BG(user_filter_map));
		BG(user_filter_map) = NULL;
	}
}

/* The handler in use is not on its stack; the stack has the previous handlers. */
static void restore_handler(zval *in_use, zval *kept_handler, zend_stack *before, int depth)
{
	zval *top;

	while (zend_stack_count(before) > depth && (top = zend_stack_top(before)) != NULL) {
		zval_ptr_dtor(top);
		zend_stack_del_top(before);
	}
	zval_ptr_dtor(in_use);
	ZVAL_COPY_VALUE(in_use, kept_handler);
}

static void keep_handlers(void)
{
	ZVAL_COPY(&kept.error_handler, &EG(user_error_handler));
	ZVAL_COPY(&kept.exception_handler, &EG(user_exception_handler));
	kept.error_handler_reporting = EG(user_error_handler_error_reporting);
	kept.error_handlers = zend_stack_count(&EG(user_error_handlers));
	kept.exception_handlers = zend_stack_count(&EG(user_exception_handlers));
}

static void restore_handlers(void)
{
	zend_stack *reporting = &EG(user_error_handlers_error_reporting);

	while (zend_stack_count(reporting) > kept.error_handlers) {
		zend_stack_del_top(reporting);
	}
	restore_handler(&EG(user_error_handler), &kept.error_handler, &EG(user_error_handlers),
					kept.error_handlers);
	restore_handler(&EG(user_exception_handler), &kept.exception_handler,
					&EG(user_exception_handlers), kept.exception_handlers);
	EG(user_error_handler_error_reporting) = kept.error_handler_reporting;
}

static size_t ticks(void)
{
	return BG(user_tick_functions) ? zend_llist_count(BG(user_tick_functions)) : 0;
}

static void keep_ticks(void)
{
	kept.ticks = ticks();
}

/* Functions that the request has added are the last ones. */
static void restore_ticks(void)
{
	while (ticks() > kept.ticks) {
		zend_llist_remove_tail(BG(user_tick_functions));
	}
}

void sendoff_kept_session_handlers(void)
{
	memcpy(kept.session_handlers, session_handlers(), sizeof(kept.session_handlers));
	kept.session_implemented = PS(mod_user_implemented);
	kept.session_class = PS(mod_user_class_name);
	for (size_t i = 0; i < SESSION_HANDLERS; i++) {
		ZVAL_UNDEF(&session_handlers()[i]);
	}
	PS(mod_user_class_name) = NULL;
}

void sendoff_kept_use_session_handlers(void)
{
	for (size_t i = 0; i < SESSION_HANDLERS; i++) {
		ZVAL_COPY(&session_handlers()[i], &kept.session_handlers[i]);
	}
	if (kept.session_class) {
		PS(mod_user_implemented) = kept.session_implemented;
		PS(mod_user_class_name) = zend_string_copy(kept.session_class);
	}
}

/* Keeps the application's $_ENV; a request gets a copy of it, and the request's changes are lost.
 */
static void keep_env(void)
{
	zval *env = zend_hash_find(&EG(symbol_table), ZSTR_KNOWN(ZEND_STR_AUTOGLOBAL_ENV));

	ZVAL_UNDEF(&kept.env);
	if (env && !sendoff_php_settings.reset_env) {
		ZVAL_DEREF(env);
		ZVAL_COPY(&kept.env, env);
	}
}

static void restore_env(void)
{
	if (!Z_ISUNDEF(kept.env)) {
		zend_hash_update(&EG(symbol_table), ZSTR_KNOWN(ZEND_STR_AUTOGLOBAL_ENV), &kept.env);
	}
}

void sendoff_kept_before(void)
{
	keep_settings();
	keep_shutdown_functions();
	keep_environment();
	keep_locale();
	keep_umask();
	keep_timezone();
	keep_streams();
	keep_handlers();
	keep_ticks();
	keep_env();
}

void sendoff_kept_after(void)
{
	/* The application's functions have already run. */
	BG(user_shutdown_function_names) = kept.shutdown_functions;
	kept.shutdown_functions = NULL;
	restore_env();
	restore_ticks();
	restore_handlers();
	restore_streams();
	restore_timezone();
	restore_umask();
	restore_locale();
	restore_environment();
	if (EG(modified_ini_directives)) {
		sendoff_modules_follow_settings();
	}
	restore_settings();
	sendoff_modules_restore();
}
