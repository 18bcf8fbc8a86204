/*
 * The PHP module "sendoff", and its file_get_contents() and readfile() for whole local files.
 *
 * Each function replaced here and in lazy_stream.c keeps PHP's own handler and passes it every call
 * that is not the plain case. So argument errors, warnings, wrappers, contexts and special files
 * are handled by PHP, unchanged.
 */
#include "lazy.h"

#include "SAPI.h"
#include "ext/standard/file.h"
#include "ext/standard/info.h"
#include "php_ini.h"

bool lazy_is_wanted = true;

static zif_handler php_file_get_contents;
static zif_handler php_readfile;

/*
 * True if the arguments after the path are absent or have their default values. `defaults` has one
 * letter per argument: f for false, n for null, 0 for the number.
 */
static bool rest_is_default(zend_execute_data *execute_data, const char *defaults)
{
	uint32_t given = ZEND_NUM_ARGS();

	if (given > 1 + strlen(defaults)) {
		return false;
	}
	for (uint32_t n = 2; n <= given; n++) {
		zval *arg = ZEND_CALL_ARG(execute_data, n);
		bool same;

		switch (defaults[n - 2]) {
		case 'f':
			same = Z_TYPE_P(arg) == IS_FALSE;
			break;
		case 'n':
			same = Z_TYPE_P(arg) == IS_NULL;
			break;
		default:
			same = Z_TYPE_P(arg) == IS_LONG && Z_LVAL_P(arg) == 0;
		}
		if (!same) {
			return false;
		}
	}
	return true;
}

/* The mapped file of the path in the first argument; NULL: PHP's handler must serve the call. */
static mapped_file *file_of_call(zend_execute_data *execute_data, const char *defaults)
{
	LAZY_BECAUSE("called with more than a path");
	/* A [HOST=] or [PATH=] section of php.ini can set the threshold to 0. */
	if (SENDOFF_G(threshold) == 0 || !lazy_worker() || ZEND_NUM_ARGS() < 1 ||
		Z_TYPE_P(ZEND_CALL_ARG(execute_data, 1)) != IS_STRING ||
		!rest_is_default(execute_data, defaults)) {
		return NULL;
	}
	return lazy_path_file(Z_STR_P(ZEND_CALL_ARG(execute_data, 1)));
}

/* Notes the result if PHP has read a part of a file, by offset or length. */
static void note_part(zend_execute_data *execute_data, const zval *got)
{
	uint32_t given = ZEND_NUM_ARGS();

	if (given < 4 || !lazy_worker() || Z_TYPE_P(got) != IS_STRING ||
		(zend_long)Z_STRLEN_P(got) < SENDOFF_G(threshold)) {
		return;
	}
	zval *path = ZEND_CALL_ARG(execute_data, 1);
	zval *offset = ZEND_CALL_ARG(execute_data, 4);
	if (Z_TYPE_P(path) == IS_STRING && Z_TYPE_P(offset) == IS_LONG) {
		lazy_match_path_read(Z_STR_P(path), Z_LVAL_P(offset), Z_STRVAL_P(got), Z_STRLEN_P(got));
	}
}

/* For `sendoff explain`: records why PHP's own handler serves the call. */
static void explain_call(zend_execute_data *execute_data, const zval *got)
{
	if (UNEXPECTED(lazy_explaining) && ZEND_NUM_ARGS() >= 1 &&
		Z_TYPE_P(ZEND_CALL_ARG(execute_data, 1)) == IS_STRING) {
		lazy_explain_read(Z_STRVAL_P(ZEND_CALL_ARG(execute_data, 1)), got);
	}
}

static ZEND_NAMED_FUNCTION(lazy_file_get_contents)
{
	mapped_file *mapped = file_of_call(execute_data, "fn0n");

	if (!mapped) {
		php_file_get_contents(INTERNAL_FUNCTION_PARAM_PASSTHRU);
		note_part(execute_data, return_value);
		explain_call(execute_data, return_value);
		return;
	}
	lazy_imitate_stream();
	lazy_match_expect(mapped_file_string(mapped));
	RETURN_INTERNED_STR(mapped_file_string(mapped));
}

static ZEND_NAMED_FUNCTION(lazy_readfile)
{
	/* PHP writes to an output buffer in pieces of its own sizes, which a callback can observe. */
	mapped_file *mapped = NULL;
	LAZY_BECAUSE("written into an output buffer");
	if (lazy_output_is_plain(SIZE_MAX / 2)) {
		mapped = file_of_call(execute_data, "fn");
	}
	zend_string *contents = mapped ? mapped_file_string(mapped) : NULL;
	if (!mapped || !lazy_output_is_plain(ZSTR_LEN(contents))) {
		if (mapped) {
			LAZY_BECAUSE("written into an output buffer");
		}
		explain_call(execute_data, NULL);
		php_readfile(INTERNAL_FUNCTION_PARAM_PASSTHRU);
		return;
	}
	lazy_imitate_stream();
	zend_write(ZSTR_VAL(contents), ZSTR_LEN(contents));
	RETURN_LONG((zend_long)ZSTR_LEN(contents));
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_sendoff_stats, 0, 0, IS_ARRAY, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_headers_send, 0, 0, IS_LONG, 0)
ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, status, IS_LONG, 0, "200")
ZEND_END_ARG_INFO()

/*
 * sendoff_stats(): array. Bytes that this request has handed over and copied so far, and segments.
 */
static PHP_FUNCTION(sendoff_stats)
{
	ZEND_PARSE_PARAMETERS_NONE();
	array_init_size(return_value, 3);
	add_assoc_long(return_value, "handed_over_bytes", SENDOFF_G(handed_over_bytes));
	add_assoc_long(return_value, "copied_bytes", SENDOFF_G(copied_bytes));
	add_assoc_long(return_value, "segments", SENDOFF_G(segments));
}

/* Tables of macros. */
/* clang-format off */
static const zend_function_entry functions[] = {
	PHP_FE(sendoff_stats, arginfo_sendoff_stats)
	PHP_FE(headers_send, arginfo_headers_send)
	PHP_FE_END
};
/* clang-format on */

/* A file below 16 KiB costs less to copy than to hand over. */
PHP_INI_BEGIN()
STD_PHP_INI_ENTRY("sendoff.threshold", "16384", PHP_INI_SYSTEM, OnUpdateLongGEZero, threshold,
				  zend_sendoff_globals, sendoff_globals)
STD_PHP_INI_BOOLEAN("sendoff.overlayfs", "0", PHP_INI_SYSTEM, OnUpdateBool, overlayfs,
					zend_sendoff_globals, sendoff_globals)
PHP_INI_END()

void sendoff_lazy_attach(sendoff_worker *worker)
{
	/* The blobs belong to the previous worker. */
	lazy_blob_detach();
	mapped_files_attach(worker);
	if (worker) {
		lazy_blob_attach();
	}
}

void sendoff_lazy_end_request(void)
{
	if (mapped_files_end_request()) {
		lazy_blob_end_request();
	}
}

static PHP_MINIT_FUNCTION(sendoff)
{
	REGISTER_INI_ENTRIES();
	if (SENDOFF_G(threshold) == 0 || !lazy_is_wanted || mapped_files_startup() == FAILURE) {
		return SUCCESS;
	}
	lazy_output_startup();
	lazy_stream_startup();
	HashTable *functions = CG(function_table);
	php_file_get_contents = lazy_replace(functions, "file_get_contents", lazy_file_get_contents);
	php_readfile = lazy_replace(functions, "readfile", lazy_readfile);
	return SUCCESS;
}

static PHP_MSHUTDOWN_FUNCTION(sendoff)
{
	UNREGISTER_INI_ENTRIES();
	return SUCCESS;
}

static PHP_RINIT_FUNCTION(sendoff)
{
	SENDOFF_G(handed_over_bytes) = 0;
	SENDOFF_G(copied_bytes) = 0;
	SENDOFF_G(segments) = 0;
	SENDOFF_G(in_request) = true;
	lazy_explain_begin(lazy_attached());
	return SUCCESS;
}

static PHP_RSHUTDOWN_FUNCTION(sendoff)
{
	if (lazy_before_end) {
		lazy_before_end();
	}
	lazy_output_end();
	SENDOFF_G(in_request) = false;
	lazy_match_reset();
	lazy_chunk_reset();
	lazy_search_reset();
	return SUCCESS;
}

static PHP_MINFO_FUNCTION(sendoff)
{
	php_info_print_table_start();
	bool enabled = SENDOFF_G(threshold) && lazy_is_wanted;
	php_info_print_table_row(2, "Lazy strings", enabled ? "enabled" : "disabled");
	php_info_print_table_end();
	DISPLAY_INI_ENTRIES();
}

static PHP_GINIT_FUNCTION(sendoff)
{
	memset(sendoff_globals, 0, sizeof(*sendoff_globals));
}

/* Tables of macros. */
/* clang-format off */
/* The replaced functions must be there before this module's start. */
static const zend_module_dep dependencies[] = {
	ZEND_MOD_REQUIRED("standard")
	ZEND_MOD_REQUIRED("spl")
	ZEND_MOD_END
};

zend_module_entry sendoff_module_entry = {
	STANDARD_MODULE_HEADER_EX,
	NULL,
	dependencies,
	"sendoff",
	functions,
	PHP_MINIT(sendoff),
	PHP_MSHUTDOWN(sendoff),
	PHP_RINIT(sendoff),
	PHP_RSHUTDOWN(sendoff),
	PHP_MINFO(sendoff),
	"0.1.0",
	PHP_MODULE_GLOBALS(sendoff),
	PHP_GINIT(sendoff),
	NULL,
	NULL,
	STANDARD_MODULE_PROPERTIES_EX
};
/* clang-format on */
