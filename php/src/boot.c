/*
 * Worker mode: the life of a worker script, and of each request inside it.
 *
 *   NONE ── sendoff_boot_serve() ──▶ STARTS ── end_boot() ──▶ SETTLES ──▶ WAITS
 *
 *                             the callable returns or throws
 *   WAITS ── take_request() ──▶ HANDLES ──▶ RETURNED ── end_request() ──▶ ENDS
 *    ▲ └── told to end ──▶ OVER ◀── a limit of the process ───────────────┤
 *    └── forget_request() ────────────────────────────────────────────────┘
 *
 * A process runs the script once. When the script ends, for whatever reason, the process ends, too;
 * php_request_shutdown() answers a request that is open then, as in ordinary mode. The master
 * starts the next process.
 */
#include "boot.h"
#include "lazy.h"
#include "php_main.h"
#include "php_output.h"
#include "fopen_wrappers.h"
#include "ext/spl/spl_exceptions.h"
#include "ext/standard/basic_functions.h"
#include "zend_exceptions.h"
#include "zend_stream.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

/*
 * If the script works for longer than this after a request, before it asks for the next one, the
 * end of the response carries a note that the worker is still busy (frameworks "terminate" after
 * the response). The note costs a message, so it is sent only if it is worth it. In nanoseconds.
 */
#define LONG_AFTERMATH ((int64_t)500000)

static struct {
	/* Event counter: the worker adds to it, the master reads it. */
	int busy;
	uint64_t max_requests;
	uint64_t served;
	int64_t started;
	/* The folder of the script. */
	int folder;
	/* End of the last response, and the time for which the script then went on: a moving average,
	 * weight 1/4. */
	int64_t ended;
	int64_t aftermath;
} script;

/* A transition. No script can bring about another state than `from`: a defect ends the process. */
static void change(sendoff_boot_state from, sendoff_boot_state to)
{
	if (sendoff_boot.state != from) {
		abort();
	}
	sendoff_boot.state = to;
}

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Applications recognise worker mode by this parameter. */
static void mark_params(void)
{
	SENDOFF_PARAM_SET("FRANKENPHP_WORKER", "1");
}

/*
 * Sets the parameters while the script boots, when there is no request. Their values are copied
 * into $_SERVER.
 */
static void set_boot_params(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *folder = estrndup(path, slash ? (size_t)(slash - path) : 0);

	sendoff_params_clear();
	SENDOFF_PARAM_SET("DOCUMENT_ROOT", folder);
	SENDOFF_PARAM_SET("SCRIPT_NAME", slash ? slash : path);
	SENDOFF_PARAM_SET("SCRIPT_FILENAME", path);
	mark_params();
	efree(folder);
}

static void clear_request_info(void)
{
	sapi_request_info *info = &SG(request_info);

	if (info->path_translated) {
		efree(info->path_translated);
	}
	info->path_translated = NULL;
	info->request_method = NULL;
	info->query_string = NULL;
	info->request_uri = NULL;
	info->content_type = NULL;
	info->content_length = 0;
	info->cookie_data = NULL;
}

/* Ends the boot. False: a callback has thrown an exception, and the script must end. */
static bool end_boot(void)
{
	change(SENDOFF_BOOT_STARTS, SENDOFF_BOOT_SETTLES);
	sendoff_report();
	sendoff_renew_after_boot();
	if (EG(exception)) {
		return false;
	}
	change(SENDOFF_BOOT_SETTLES, SENDOFF_BOOT_WAITS);
	clear_request_info();
	eventfd_write(script.busy, SENDOFF_BOOTED);
	return true;
}

/* Records the time from the end of the last response until now, in which the script has gone on. */
static void note_aftermath(void)
{
	if (script.ended) {
		script.aftermath += (now_ns() - script.ended - script.aftermath) / 4;
		sendoff_boot.is_long_after = script.aftermath > LONG_AFTERMATH;
	}
}

/* True if a limit of this process has been reached. */
static bool is_used_up(void)
{
	return (script.max_requests && script.served >= script.max_requests) ||
		   (sendoff_boot.max_memory && zend_memory_usage(true) > sendoff_boot.max_memory) ||
		   (sendoff_boot.max_age &&
			(uint64_t)((now_ns() - script.started) / 1000000000) >= sendoff_boot.max_age);
}

/*
 * Before and after a request PHP runs outside of any function: messages name no line, and the
 * worker script cannot catch exceptions of callbacks. Returns the frame to restore.
 */
static zend_execute_data *hide_caller(void)
{
	zend_execute_data *caller = EG(current_execute_data);

	EG(current_execute_data) = NULL;
	return caller;
}

static void enter_folder(void)
{
	if (script.folder >= 0) {
		php_ignore_value(fchdir(script.folder));
	}
}

/* Begins the next request. False: there will be no further request. */
static bool take_request(void)
{
	note_aftermath();
	if (sendoff_boot.state == SENDOFF_BOOT_OVER) {
		return false;
	}
	sendoff_renew_between();
	if (sendoff_accept(sendoff_php_worker) != 1) {
		change(SENDOFF_BOOT_WAITS, SENDOFF_BOOT_OVER);
		return false;
	}
	change(SENDOFF_BOOT_WAITS, SENDOFF_BOOT_HANDLES);
	if (script.served == 0) {
		sendoff_note_first_request(script.busy);
	}
	sendoff_kept_before();
	SG(server_context) = sendoff_php_worker;
	sendoff_params_load(sendoff_php_worker);
	mark_params();
	sendoff_request_info_init();
	enter_folder();
	zend_execute_data *caller = hide_caller();
	sendoff_renew_before();
	EG(current_execute_data) = caller;
	return true;
}

/* Cleans up after the end of the response. */
static void forget_request(void)
{
	sendoff_lazy_end_request();
	SG(server_context) = NULL;
	sendoff_named_forget();
	clear_request_info();
	sendoff_params_clear();
	if (script.served++ == 0) {
		eventfd_write(script.busy, SENDOFF_SERVED);
	}
	/* When it is over, a request that arrives is left unread: the front gives it to another. */
	change(SENDOFF_BOOT_ENDS, is_used_up() ? SENDOFF_BOOT_OVER : SENDOFF_BOOT_WAITS);
	script.ended = now_ns();
}

/*
 * Changes to the working folder for callbacks after the script, as in ordinary mode (request.c).
 * Returns true if there are such callbacks.
 */
static bool leave_folder(void)
{
	if (!BG(user_shutdown_function_names) && zend_stack_count(&OG(handlers)) <= 1) {
		return false;
	}
	php_ignore_value(chdir(sendoff_php_folder));
	return true;
}

/* Ends the request. False: a callback has thrown an exception. */
static bool end_request(void)
{
	change(SENDOFF_BOOT_RETURNED, SENDOFF_BOOT_ENDS);
	bool has_left = leave_folder();
	zend_execute_data *caller = hide_caller();
	bool goes_on = sendoff_renew_after();

	EG(current_execute_data) = caller;
	if (!goes_on) {
		return false;
	}
	if (has_left) {
		enter_folder();
	}
	sendoff_kept_after();
	forget_request();
	return true;
}

PHP_FUNCTION(sendoff_handle_request)
{
	zend_fcall_info call;
	zend_fcall_info_cache cache;
	zval result;

	ZEND_PARSE_PARAMETERS_START(1, 1)
	Z_PARAM_FUNC(call, cache)
	ZEND_PARSE_PARAMETERS_END();

	switch (sendoff_boot.state) {
	case SENDOFF_BOOT_NONE:
		zend_throw_exception(spl_ce_RuntimeException,
							 "it takes requests only in a worker script (php_worker)", 0);
		RETURN_THROWS();
	case SENDOFF_BOOT_SETTLES:
	case SENDOFF_BOOT_HANDLES:
	case SENDOFF_BOOT_ENDS:
		zend_throw_exception(spl_ce_RuntimeException, "a request is being handled already", 0);
		RETURN_THROWS();
	case SENDOFF_BOOT_STARTS:
		if (!end_boot()) {
			RETURN_THROWS();
		}
		break;
	case SENDOFF_BOOT_RETURNED:
		/* The callable threw, and the script has caught it. */
		if (!end_request()) {
			RETURN_THROWS();
		}
		break;
	case SENDOFF_BOOT_WAITS:
	case SENDOFF_BOOT_OVER:
		break;
	}
	if (!take_request()) {
		RETURN_FALSE;
	}
	ZVAL_UNDEF(&result);
	call.retval = &result;
	zend_call_function(&call, &cache);
	/* Its destructor belongs to the request. */
	zval_ptr_dtor(&result);
	if (sendoff_boot.state == SENDOFF_BOOT_ENDS) {
		/* The callable was suspended in a fiber, which PHP resumes after the end of the script. */
		return;
	}
	change(SENDOFF_BOOT_HANDLES, SENDOFF_BOOT_RETURNED);
	if (EG(exception) || !end_request()) {
		RETURN_THROWS();
	}
	RETURN_TRUE;
}

static void log_failure(const char *path, const char *why)
{
	fprintf(stderr, "the worker script %s %s\n", path, why);
}

/* Runs the script. If it cannot be opened, the state does not change. */
static void run(const char *path)
{
	zend_file_handle file;

	memset(&file, 0, sizeof(file));
	errno = 0;
	if (php_fopen_primary_script(&file) == FAILURE) {
		log_failure(path, strerror(errno));
		return;
	}
	SG(options) |= SAPI_OPTION_NO_CHDIR;
	php_execute_script(&file);
	php_ignore_value(chdir(sendoff_php_folder));
	if (!file.in_list) {
		zend_destroy_file_handle(&file);
	}
}

/* True if a request has begun and has not ended. */
static bool has_request(void)
{
	return sendoff_boot.state == SENDOFF_BOOT_HANDLES ||
		   sendoff_boot.state == SENDOFF_BOOT_RETURNED || sendoff_boot.state == SENDOFF_BOOT_ENDS;
}

/* Cleans up after the end of the script. An open request is finished as in ordinary mode. */
static void finish(const char *path)
{
	bool had_request = has_request();

	sendoff_boot.is_long_after = false;
	if (had_request) {
		sendoff_boot.state = SENDOFF_BOOT_ENDS;
		sendoff_apply_error_header();
		sendoff_kept_join();
	}
	if (SG(request_info).path_translated) {
		efree(SG(request_info).path_translated);
		SG(request_info).path_translated = NULL;
	}
	php_request_shutdown(NULL);
	sendoff_end_response(false);
	if (had_request) {
		eventfd_write(script.busy, SENDOFF_SERVED);
	} else if (sendoff_boot.state == SENDOFF_BOOT_STARTS) {
		log_failure(path, "has ended before it called sendoff_handle_request()");
	}
}

static void open_folder(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *folder = slash ? estrndup(path, MAX((size_t)(slash - path), 1)) : NULL;

	script.folder = folder ? open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
	enter_folder();
	if (folder) {
		efree(folder);
	}
}

/* The limit, reduced by up to a tenth depending on the process, so that the workers of a pool do
 * not all end at the same time. */
static uint64_t staggered(uint64_t limit)
{
	return limit - (uint64_t)getpid() % (limit / 10 + 1);
}

int sendoff_boot_serve(int busy, uint64_t max_requests)
{
	const char *path = sendoff_boot.script;

	change(SENDOFF_BOOT_NONE, SENDOFF_BOOT_STARTS);
	script.busy = busy;
	script.max_requests = staggered(max_requests);
	script.started = now_ns();
	sendoff_boot.max_age = staggered(sendoff_boot.max_age);
	/* Nothing is sent before the first request. */
	sendoff_php_finished = true;
	set_boot_params(path);
	SG(request_info).path_translated = estrdup(path);
	SG(sapi_headers).http_response_code = 200;
	sendoff_boot_no_session(true);
	bool started = php_request_startup() == SUCCESS;
	sendoff_boot_no_session(false);
	if (!started) {
		return 1;
	}
	open_folder(path);
	run(path);
	finish(path);
	return sendoff_boot.state == SENDOFF_BOOT_STARTS ? 1 : 0;
}
