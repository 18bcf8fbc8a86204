/*
 * Worker mode: the state of PHP's extensions between requests. In ordinary mode PHP ends and starts
 * all of them with each request (RSHUTDOWN, RINIT). Here an extension is one of:
 *
 *   of_request  It ends after the response and starts with the next request.
 *   renewed     It ends and starts again before the worker waits for a request, so that the script
 *               can use it at any time. Settings that the application made while it booted are
 *               made again.
 *   kept        All others. What their RSHUTDOWN would free or close belongs to objects that the
 *               application keeps (time zones of date, types of FFI, archives of Phar, the default
 *               connection of pgsql), is a cache (fonts of gd), or is unknown to us.
 *
 * kept.c and renew.c handle single parts of the modules standard and date, forget_last_errors() the
 * last errors of openssl and sockets. Autoloaders (SPL) stay, because the classes and included
 * files do: frameworks register some while they handle their first request.
 */
#include "boot.h"
#include "ext/date/php_date.h"

/* In the order of their start. */
static const char *const of_request_names[] = {"random", "filter", "zlib", "session", "sendoff"};
static const char *const renewed_names[] = {"libxml", "mbstring", "mysqli", "intl"};

#define OF_REQUEST (sizeof(of_request_names) / sizeof(of_request_names[0]))
#define RENEWED (sizeof(renewed_names) / sizeof(renewed_names[0]))

static zend_module_entry *of_request[OF_REQUEST], *renewed[RENEWED], *mbstring;

zend_module_entry *sendoff_module(const char *name)
{
	return zend_hash_str_find_ptr(&module_registry, name, strlen(name));
}

static void start(zend_module_entry *module)
{
	if (module && module->request_startup_func) {
		module->request_startup_func(module->type, module->module_number);
	}
}

static void end(zend_module_entry *module)
{
	if (module && module->request_shutdown_func) {
		module->request_shutdown_func(module->type, module->module_number);
	}
}

void sendoff_modules_start(void)
{
	for (size_t i = 0; i < OF_REQUEST; i++) {
		start(of_request[i]);
	}
}

void sendoff_modules_end(void)
{
	for (size_t i = OF_REQUEST; i-- > 0;) {
		end(of_request[i]);
	}
}

/*
 * Functions of extensions. They are copies: calls of an original whose name is deprecated would be
 * reported. Without a handler: the extension is not loaded, or the function is disabled.
 */
static zend_internal_function find_function(const char *name)
{
	const zend_function *found = zend_hash_str_find_ptr(CG(function_table), name, strlen(name));
	zend_internal_function copy = {0};

	if (found && found->type == ZEND_INTERNAL_FUNCTION) {
		copy = found->internal_function;
		copy.fn_flags &= ~ZEND_ACC_DEPRECATED;
	}
	return copy;
}

static void call(const zend_internal_function *function, zval *result, uint32_t count,
				 zval *arguments)
{
	ZVAL_UNDEF(result);
	if (function->handler) {
		zend_call_known_function((zend_function *)function, NULL, NULL, result, count, arguments,
								 NULL);
	}
}

/* A setting of an extension that is no INI setting. */
typedef struct setting setting;

struct setting {
	/* The result is undefined if the extension is not loaded. */
	void (*get)(const setting *one, zval *result);
	void (*set)(const setting *one, zval *to);
	/* For call_getter() and call_setter(); without a setter the getter sets, too. */
	const char *getter, *setter;
	/* The first argument of both, or 0: there is none. */
	zend_long option;
	zend_internal_function getting, setting;
	/* The application's, when it had booted. */
	zval kept;
	/* The extension starts with another value. */
	bool differs;
};

static void call_getter(const setting *one, zval *result)
{
	zval option;

	ZVAL_LONG(&option, one->option);
	call(&one->getting, result, one->option ? 1 : 0, &option);
}

static void call_setter(const setting *one, zval *to)
{
	zval arguments[2], result;
	uint32_t count = 0;

	if (one->option) {
		ZVAL_LONG(&arguments[count++], one->option);
	}
	ZVAL_COPY_VALUE(&arguments[count++], to);
	call(&one->setting, &result, count, arguments);
	zval_ptr_dtor(&result);
}

/* PHP exports it unless it is built without libxml. */
__attribute__((weak)) void php_libxml_switch_context(zval *context, zval *old);

/* The context of libxml_set_streams_context(); null: none. */
static void get_xml_context(const setting *one, zval *result)
{
	(void)one;
	ZVAL_UNDEF(result);
	if (php_libxml_switch_context) {
		php_libxml_switch_context(NULL, result);
		if (Z_ISUNDEF_P(result)) {
			ZVAL_NULL(result);
		}
		Z_TRY_ADDREF_P(result);
	}
}

static void set_xml_context(const setting *one, zval *to)
{
	zval context, old;

	(void)one;
	ZVAL_UNDEF(&context);
	if (Z_TYPE_P(to) != IS_NULL) {
		ZVAL_COPY(&context, to);
	}
	php_libxml_switch_context(&context, &old);
	zval_ptr_dtor(&old);
}

static zend_class_entry *mysqli_driver;

/*
 * The mode of mysqli_report() is a property of every object of this class. The object is freed at
 * once, so that the application's objects keep their numbers.
 */
static void get_mysqli_report(const setting *one, zval *result)
{
	zval driver, room;

	(void)one;
	ZVAL_UNDEF(result);
	if (mysqli_driver) {
		object_init_ex(&driver, mysqli_driver);
		ZVAL_COPY(result, zend_read_property(mysqli_driver, Z_OBJ(driver), ZEND_STRL("report_mode"),
											 false, &room));
		zval_ptr_dtor(&driver);
	}
}

static void set_mysqli_report(const setting *one, zval *to)
{
	zval driver;

	(void)one;
	object_init_ex(&driver, mysqli_driver);
	zend_update_property(mysqli_driver, Z_OBJ(driver), ZEND_STRL("report_mode"), to);
	zval_ptr_dtor(&driver);
}

/* PHP's ASSERT_CALLBACK, which is in no header. */
#define CALLBACK_OPTION 2

#define BY_FUNCTION .get = call_getter, .set = call_setter

static setting settings[] = {
	{BY_FUNCTION, .getter = "mb_internal_encoding"},
	{BY_FUNCTION, .getter = "mb_http_output"},
	{BY_FUNCTION, .getter = "mb_substitute_character"},
	{BY_FUNCTION, .getter = "mb_detect_order"},
	{BY_FUNCTION, .getter = "mb_regex_encoding"},
	{BY_FUNCTION, .getter = "mb_regex_set_options"},
	{BY_FUNCTION, .getter = "libxml_use_internal_errors"},
	{BY_FUNCTION, .getter = "libxml_get_external_entity_loader",
	 .setter = "libxml_set_external_entity_loader"},
	{BY_FUNCTION, .getter = "spl_autoload_extensions"},
	{BY_FUNCTION, .getter = "assert_options", .option = CALLBACK_OPTION},
	{.get = get_xml_context, .set = set_xml_context},
	{.get = get_mysqli_report, .set = set_mysqli_report},
};

#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

/* Sets the kept value. True if there was another one. */
static bool restore(setting *one)
{
	zval now;

	if (Z_ISUNDEF(one->kept)) {
		return false;
	}
	one->get(one, &now);
	bool differed = !zend_is_identical(&now, &one->kept);
	if (differed) {
		one->set(one, &one->kept);
	}
	zval_ptr_dtor(&now);
	return differed;
}

void sendoff_modules_restore(void)
{
	for (size_t i = 0; i < SETTINGS; i++) {
		restore(&settings[i]);
	}
}

/*
 * mbstring takes its encodings from PHP's settings, such as default_charset, while no function has
 * set others. PHP forgets these at the end of a request, before it restores settings.
 */
void sendoff_modules_follow_settings(void)
{
	end(mbstring);
	start(mbstring);
}

/* Functions by which last errors can be forgotten. */
static zend_internal_function socket_clear_error, openssl_error_string, date_create;
static zend_date_globals *date;

/* openssl keeps 16 errors, and OpenSSL's library as many. */
#define OPENSSL_ERRORS 32

/* Last errors: PHP itself leaves them to the next request (sockets, openssl), or date is kept. */
static void forget_last_errors(void)
{
	zval result;
	bool more = true;

	call(&socket_clear_error, &result, 0, NULL);
	for (int i = 0; more && i < OPENSSL_ERRORS; i++) {
		call(&openssl_error_string, &result, 0, NULL);
		more = Z_TYPE(result) == IS_STRING;
		zval_ptr_dtor(&result);
	}
	if (date->last_errors) {
		/* A date without errors takes their place. */
		call(&date_create, &result, 0, NULL);
		zval_ptr_dtor(&result);
	}
}

static void renew(void)
{
	zval none;

	if (php_libxml_switch_context) {
		/* PHP frees all resources before libxml ends, so libxml would not release it. */
		ZVAL_NULL(&none);
		set_xml_context(NULL, &none);
	}
	for (size_t i = RENEWED; i-- > 0;) {
		end(renewed[i]);
		if (renewed[i] && renewed[i]->post_deactivate_func) {
			renewed[i]->post_deactivate_func();
		}
	}
	for (size_t i = 0; i < RENEWED; i++) {
		start(renewed[i]);
	}
}

void sendoff_modules_renew(void)
{
	renew();
	for (size_t i = 0; i < SETTINGS; i++) {
		if (settings[i].differs) {
			settings[i].set(&settings[i], &settings[i].kept);
		}
	}
	forget_last_errors();
}

static void find_modules(void)
{
	for (size_t i = 0; i < OF_REQUEST; i++) {
		of_request[i] = sendoff_module(of_request_names[i]);
	}
	for (size_t i = 0; i < RENEWED; i++) {
		renewed[i] = sendoff_module(renewed_names[i]);
	}
	mbstring = sendoff_module("mbstring");
	date = sendoff_module("date")->globals_ptr;
}

static void find_functions(void)
{
	for (size_t i = 0; i < SETTINGS; i++) {
		setting *one = &settings[i];
		if (one->getter) {
			one->getting = find_function(one->getter);
			one->setting = one->setter ? find_function(one->setter) : one->getting;
		}
	}
	socket_clear_error = find_function("socket_clear_error");
	openssl_error_string = find_function("openssl_error_string");
	date_create = find_function("date_create");
	mysqli_driver = zend_hash_str_find_ptr(CG(class_table), ZEND_STRL("mysqli_driver"));
}

void sendoff_modules_keep(void)
{
	find_modules();
	find_functions();
	for (size_t i = 0; i < SETTINGS; i++) {
		settings[i].get(&settings[i], &settings[i].kept);
	}
	renew();
	for (size_t i = 0; i < SETTINGS; i++) {
		settings[i].differs = restore(&settings[i]);
	}
}
