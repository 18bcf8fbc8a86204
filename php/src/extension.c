/*
 * The module as an extension for stock php-fpm and php-cgi (docs/handover.md, section 8).
 *
 * Requests arrive over FastCGI, and PHP's SAPI answers them, beginning with the headers. A request
 * from a Sendoff front announces a channel: links that this process opens to the front. The body of
 * its response is framed, so that it can move to a link at the first lazy string; the rest of it
 * follows there as bytes and file segments. With any other web server there is no announcement and
 * no worker, and nothing changes.
 */
#include "lazy.h"

#include "SAPI.h"
#include "ext/standard/head.h"
#include "php_main.h"
#include "php_output.h"
#include "php_variables.h"
#include "ext/standard/basic_functions.h"

#include <pthread.h>
#include <time.h>

#define CHANNEL "SENDOFF_CHANNEL"
#define ACCEPT "SENDOFF_ACCEPT"
#define FRONT "SENDOFF_FRONT"

/* The word in ACCEPT of a request that `sendoff explain` sends. */
#define EXPLAIN "explain"

/* The beginning of the field of a response that tells the front of the extension. */
#define FIELD "X-Sendoff: "

/* An announcement ends with the claim, which identifies the request, in hexadecimal digits. */
#define CLAIM_LEN 32

/* The frame length that means: the rest of the body follows on a link. */
#define MOVED 0xffffffffu

/* Maximum length of a frame, in bytes. */
#define FRAME_MAX ((size_t)1 << 30)

/*
 * Pause after the front could not be reached, in seconds. The front may be in another network
 * namespace.
 */
#define RETRY_SECONDS 5

/* The destination of the current response's body. */
typedef enum body {
	/* To PHP's SAPI: the headers have not been sent, or no Sendoff front will get them. */
	BODY_PLAIN,
	/* To PHP's SAPI, unframed, after headers for a front. */
	BODY_UNFRAMED,
	/* To PHP's SAPI, in frames. */
	BODY_FRAMED,
	/* To the worker. */
	BODY_MOVED,
	/* Dropped: the response has ended, the script goes on. */
	BODY_ENDED,
} body;

/* Whether the body of the current response may move to the worker. */
typedef enum offer {
	/* The front has not announced a channel, or the worker cannot use it. */
	OFFER_NONE,
	/* The worker has not been told of the request: most requests hand nothing over. */
	OFFER_OPEN,
	/* The worker has begun the request (sendoff_channel_begin()). */
	OFFER_BEGUN,
} offer_state;

static body where;
static offer_state offer;
static sendoff_worker *worker;
/* This process was forked by a script. It must not use the worker, nor open links of its own. */
static bool is_child;
/* The headers of this response tell the front that the extension is installed. */
static bool greeting;
static char claim[CLAIM_LEN + 1];
static time_t retry_at;

static size_t (*stock_ub_write)(const char *str, size_t len);
static void (*stock_flush)(void *server_context);
static int (*stock_send_headers)(sapi_headers_struct *headers);
static char *(*stock_getenv)(const char *name, size_t len);
static unsigned int (*stock_input_filter)(int arg, const char *var, char **val, size_t len,
										  size_t *new_len);
static void (*stock_load_environment)(zval *array);
static zif_handler stock_finish_request;

static zend_result (*lazy_module_startup)(INIT_FUNC_ARGS);
static zend_result (*lazy_module_shutdown)(SHUTDOWN_FUNC_ARGS);
static zend_result (*lazy_request_startup)(INIT_FUNC_ARGS);

/* True for parameters that scripts must not see. */
static bool is_ours(const char *name, size_t len)
{
	return (len == sizeof(CHANNEL) - 1 && memcmp(name, CHANNEL, len) == 0) ||
		   (len == sizeof(ACCEPT) - 1 && memcmp(name, ACCEPT, len) == 0) ||
		   (len == sizeof(FRONT) - 1 && memcmp(name, FRONT, len) == 0);
}

static char *hiding_getenv(const char *name, size_t len)
{
	return is_ours(name, len) ? NULL : stock_getenv(name, len);
}

static unsigned int hiding_input_filter(int arg, const char *var, char **val, size_t len,
										size_t *new_len)
{
	if ((arg == PARSE_SERVER || arg == PARSE_ENV) && is_ours(var, strlen(var))) {
		return 0;
	}
	return stock_input_filter(arg, var, val, len, new_len);
}

/* For getenv() without arguments, which bypasses the input filter. */
static void hiding_load_environment(zval *array)
{
	stock_load_environment(array);
	zend_hash_str_del(Z_ARRVAL_P(array), CHANNEL, sizeof(CHANNEL) - 1);
	zend_hash_str_del(Z_ARRVAL_P(array), ACCEPT, sizeof(ACCEPT) - 1);
	zend_hash_str_del(Z_ARRVAL_P(array), FRONT, sizeof(FRONT) - 1);
}

static bool move_body(void);

static size_t write_frame(const char *str, size_t len)
{
	unsigned char head[4] = {(unsigned char)(len >> 24), (unsigned char)(len >> 16),
							 (unsigned char)(len >> 8), (unsigned char)len};

	if (stock_ub_write((char *)head, sizeof(head)) != sizeof(head)) {
		return 0;
	}
	return stock_ub_write(str, len);
}

static size_t write_frames(const char *str, size_t len)
{
	size_t written = 0;

	while (written < len) {
		size_t piece = MIN(len - written, FRAME_MAX);
		size_t n = write_frame(str + written, piece);

		written += n;
		if (n != piece) {
			break;
		}
	}
	return written;
}

/*
 * php_handle_aborted_connection() may leave by a long jump. No function of the worker is on the
 * stack then.
 */
static size_t extension_ub_write(const char *str, size_t len)
{
	switch (where) {
	case BODY_FRAMED:
		/* Explanations travel on links. */
		if (EXPECTED(!lazy_explaining) || !move_body()) {
			return write_frames(str, len);
		}
		ZEND_FALLTHROUGH;
	case BODY_MOVED:
		if (sendoff_write(worker, str, len) != 0) {
			php_handle_aborted_connection();
			return 0;
		}
		return len;
	case BODY_ENDED:
		/* PHP would write it after the end of the response, where the front expects the next
		 * response. */
		return len;
	default:
		return stock_ub_write(str, len);
	}
}

static void extension_flush(void *server_context)
{
	if (where != BODY_MOVED) {
		stock_flush(server_context);
	} else if (sendoff_flush(worker) != 0) {
		php_handle_aborted_connection();
	}
}

/*
 * The header block passes ub_write, unframed and unexplained. The field must not stay in the list,
 * where scripts could see it.
 */
static int send_headers_with(sapi_headers_struct *headers, const char *value)
{
	sapi_header_struct field;
	int result = SAPI_HEADER_SEND_FAILED;
	bool explaining = lazy_explaining;

	lazy_explaining = false;
	field.header_len = sizeof(FIELD) - 1 + strlen(value);
	field.header = emalloc(field.header_len + 1);
	memcpy(field.header, FIELD, sizeof(FIELD) - 1);
	strcpy(field.header + sizeof(FIELD) - 1, value);
	zend_llist_add_element(&headers->headers, &field);
	zend_try
	{
		result = stock_send_headers(headers);
	}
	zend_catch
	{
		zend_llist_remove_tail(&headers->headers);
		lazy_explaining = explaining;
		zend_bailout();
	}
	zend_end_try();
	zend_llist_remove_tail(&headers->headers);
	lazy_explaining = explaining;
	return result;
}

/*
 * True if file segments may follow the headers. If a request has asked for no file until its output
 * buffers are flushed at the end, and has no shutdown functions, its body needs no frames.
 */
static bool may_hand_over(void)
{
	return offer == OFFER_BEGUN || (offer == OFFER_OPEN && (!(EG(flags) & EG_FLAGS_IN_SHUTDOWN) ||
															BG(user_shutdown_function_names)));
}

static int extension_send_headers(sapi_headers_struct *headers)
{
	/* If a header callback writes, PHP sends the headers twice; the second block belongs to the
	 * body. */
	if (!greeting || where != BODY_PLAIN || SG(request_info).no_headers) {
		return stock_send_headers(headers);
	}
	body next = may_hand_over() ? BODY_FRAMED : BODY_UNFRAMED;
	int result = send_headers_with(headers, next == BODY_FRAMED ? claim : "1");

	where = next;
	return result;
}

/* True if the script has set a header that PHP's SAPI would write instead of the status. */
static bool has_status_header(void)
{
	zend_llist_position at;
	sapi_header_struct *header = zend_llist_get_first_ex(&SG(sapi_headers).headers, &at);

	for (; header; header = zend_llist_get_next_ex(&SG(sapi_headers).headers, &at)) {
		if (header->header_len >= 7 && strncasecmp(header->header, "Status:", 7) == 0) {
			return true;
		}
	}
	return false;
}

/*
 * Sends an interim response (hints.c), only to a Sendoff front: another web server might take it
 * for the final one.
 */
static bool send_interim(int status)
{
	int code = SG(sapi_headers).http_response_code;
	char *line = SG(sapi_headers).http_status_line;
	bool explaining = lazy_explaining;
	/* Volatile because it is read after a long jump. */
	volatile int result = SAPI_HEADER_SEND_FAILED;
	volatile bool bailout = false;

	if (!greeting || where != BODY_PLAIN || has_status_header()) {
		return false;
	}
	SG(sapi_headers).http_response_code = status;
	SG(sapi_headers).http_status_line = NULL;
	/* The block passes ub_write. */
	lazy_explaining = false;
	zend_try
	{
		result = stock_send_headers(&SG(sapi_headers));
		/* Since PHP 8.4 a flush sends the headers of the response, if they are not sent. */
		SG(headers_sent) = 1;
		stock_flush(SG(server_context));
	}
	zend_catch
	{
		bailout = true;
	}
	zend_end_try();
	lazy_explaining = explaining;
	SG(headers_sent) = 0;
	SG(sapi_headers).http_response_code = code;
	SG(sapi_headers).http_status_line = line;
	if (bailout) {
		zend_bailout();
	}
	return result == SAPI_HEADER_SENT_SUCCESSFULLY;
}

/*
 * Called before a file segment is handed over. Claims the request on a link first, so that the
 * front knows the link when it reads the frame; if this fails, the bytes stay on PHP's connection.
 */
static bool move_body(void)
{
	static const unsigned char moved[4] = {MOVED >> 24, MOVED >> 16 & 0xff, MOVED >> 8 & 0xff,
										   MOVED & 0xff};

	if (where == BODY_MOVED) {
		return true;
	}
	if (where != BODY_FRAMED || offer != OFFER_BEGUN || sendoff_channel_claim(worker) != 0) {
		return false;
	}
	where = BODY_MOVED;
	stock_ub_write((const char *)moved, sizeof(moved));
	stock_flush(SG(server_context));
	return true;
}

static void end_body(void)
{
	/* Explanations collected so far travel with a claim; make one, if no output does. */
	if (UNEXPECTED(lazy_explaining)) {
		zend_try
		{
			move_body();
		}
		zend_end_try();
	}
	if (where == BODY_MOVED) {
		sendoff_finish(worker, EG(exit_status), 0);
	}
	where = BODY_ENDED;
}

/* fastcgi_finish_request() ends the response; all of it must have been written by then. */
static ZEND_NAMED_FUNCTION(extension_finish_request)
{
	if (ZEND_NUM_ARGS() == 0 && greeting && where != BODY_ENDED) {
		php_output_end_all();
		php_header();
		lazy_output_end();
		end_body();
	}
	stock_finish_request(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

static time_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	return ts.tv_sec;
}

static void drop_worker(void)
{
	sendoff_lazy_attach(NULL);
	sendoff_worker_free(worker);
	worker = NULL;
}

static void note_child(void)
{
	is_child = true;
}

/* The C library's fork handlers notice a fork without a system call per request. */
static void watch_forks(void)
{
	static bool is_watching;

	if (!is_watching) {
		is_watching = pthread_atfork(NULL, NULL, note_child) == 0;
	}
}

/* Returns true unless links to the front of this request cannot be had now. */
static bool may_have_worker(void)
{
	if (worker && !is_child && sendoff_channel_lost(worker)) {
		drop_worker();
	}
	return !is_child && (worker || !retry_at || now() >= retry_at);
}

static void open_worker(const char *announcement, size_t len)
{
	worker = sendoff_channel_open(announcement, len);
	retry_at = worker ? 0 : now() + RETRY_SECONDS;
	if (worker) {
		sendoff_lazy_attach(worker);
	}
}

static void forget_request(void)
{
	where = BODY_PLAIN;
	offer = OFFER_NONE;
	greeting = false;
}

/*
 * True if a Sendoff front sends this request. The front announces itself even if the operator has
 * changed SERVER_SOFTWARE. Fields of clients arrive as HTTP_*, so no client can fake this.
 */
static bool is_from_front(void)
{
	const char *server = stock_getenv("SERVER_SOFTWARE", sizeof("SERVER_SOFTWARE") - 1);

	return (server && strncmp(server, "sendoff/", sizeof("sendoff/") - 1) == 0) ||
		   stock_getenv(FRONT, sizeof(FRONT) - 1);
}

/*
 * Tells the worker of the request, before the worker's first use in it. Opens links to the front if
 * there are none: a process that hands nothing over has no links and no second thread.
 */
static void use_worker(void)
{
	if (offer != OFFER_OPEN || is_child) {
		return;
	}
	const char *announcement = stock_getenv(CHANNEL, sizeof(CHANNEL) - 1);
	const char *accept = stock_getenv(ACCEPT, sizeof(ACCEPT) - 1);
	size_t len = announcement ? strlen(announcement) : 0;

	offer = OFFER_NONE;
	if (!worker && len) {
		open_worker(announcement, len);
	}
	if (worker && sendoff_channel_begin(worker, announcement, len, accept,
										accept ? strlen(accept) : 0) == 0) {
		offer = OFFER_BEGUN;
	}
}

static void begin_request(void)
{
	/* php-cgi sets 1 for a plain CGI request. */
	if (!SG(server_context) || SG(server_context) == (void *)1) {
		return;
	}
	/* Not where a master preloads, whose children are the processes that get requests. */
	watch_forks();
	const char *announcement = stock_getenv(CHANNEL, sizeof(CHANNEL) - 1);
	size_t len = announcement ? strlen(announcement) : 0;

	greeting = is_from_front();
	if (!greeting || len <= CLAIM_LEN || !may_have_worker()) {
		return;
	}
	memcpy(claim, announcement + len - CLAIM_LEN, CLAIM_LEN);
	offer = OFFER_OPEN;
	const char *accept = stock_getenv(ACCEPT, sizeof(ACCEPT) - 1);

	if (accept && strstr(accept, EXPLAIN)) {
		use_worker();
	}
}

static PHP_RINIT_FUNCTION(extension)
{
	/* php-fpm sets this pointer in each process after all modules have started. */
	if (stock_getenv && php_load_environment_variables != hiding_load_environment) {
		stock_load_environment = php_load_environment_variables;
		php_load_environment_variables = hiding_load_environment;
	}
	/* PHP may have given up the previous request before its RINIT functions were done. */
	forget_request();
	if (stock_getenv && SENDOFF_G(threshold) != 0) {
		begin_request();
	}
	return lazy_request_startup(INIT_FUNC_ARGS_PASSTHRU);
}

/* Runs after the last write and before the SAPI ends the response. */
static zend_result end_request(void)
{
	if (offer == OFFER_BEGUN) {
		end_body();
		sendoff_channel_end(worker);
	}
	sendoff_lazy_end_request();
	if (worker && !is_child && sendoff_channel_lost(worker)) {
		drop_worker();
	}
	forget_request();
	return SUCCESS;
}

static PHP_MINIT_FUNCTION(extension)
{
	if (strcmp(sapi_module.name, "fpm-fcgi") != 0 && strcmp(sapi_module.name, "cgi-fcgi") != 0) {
		lazy_is_wanted = false;
		return lazy_module_startup(INIT_FUNC_ARGS_PASSTHRU);
	}
	stock_getenv = sapi_module.getenv;
	sapi_module.getenv = hiding_getenv;
	stock_input_filter = sapi_module.input_filter;
	sapi_module.input_filter = hiding_input_filter;
	stock_send_headers = sapi_module.send_headers;
	sapi_module.send_headers = extension_send_headers;
	stock_flush = sapi_module.flush;
	sapi_module.flush = extension_flush;
	/* The ub_write hook of lazy_output.c, installed next, passes everything here that it does not
	 * hand over. */
	stock_ub_write = sapi_module.ub_write;
	sapi_module.ub_write = extension_ub_write;
	lazy_before_use = use_worker;
	lazy_before_hand_over = move_body;
	hints_send = send_interim;
	stock_finish_request =
		lazy_replace(CG(function_table), "fastcgi_finish_request", extension_finish_request);
	return lazy_module_startup(INIT_FUNC_ARGS_PASSTHRU);
}

static PHP_MSHUTDOWN_FUNCTION(extension)
{
	if (worker && !is_child) {
		drop_worker();
	}
	return lazy_module_shutdown(SHUTDOWN_FUNC_ARGS_PASSTHRU);
}

/*
 * The module entry of this file in a worker of sendoff-php, which has the module built in and reads
 * the settings of php-fpm, among them the line that loads this file. PHP warns of a second module
 * with the same name.
 */
static zend_module_entry idle_module = {
	STANDARD_MODULE_HEADER, "sendoff_for_fpm",          NULL, NULL, NULL, NULL, NULL, NULL,
	NO_VERSION_YET,         STANDARD_MODULE_PROPERTIES,
};

ZEND_DLEXPORT zend_module_entry *get_module(void)
{
	zend_module_entry *module = &sendoff_module_entry;

	if (zend_hash_str_exists(&module_registry, ZEND_STRL("sendoff"))) {
		return &idle_module;
	}

	lazy_module_startup = module->module_startup_func;
	lazy_module_shutdown = module->module_shutdown_func;
	lazy_request_startup = module->request_startup_func;
	module->module_startup_func = PHP_MINIT(extension);
	module->module_shutdown_func = PHP_MSHUTDOWN(extension);
	module->request_startup_func = PHP_RINIT(extension);
	module->post_deactivate_func = end_request;
	return module;
}
