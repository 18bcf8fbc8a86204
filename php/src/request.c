/*
 * A request from start to end: accept, find the script, run it, clean up.
 */
#include "php_sendoff.h"
#include "lazy.h"
#include "php_main.h"
#include "php_output.h"
#include "fopen_wrappers.h"
#include "zend_stream.h"

#include <time.h>

/* Extensions of files that may run (php-fpm: security.limit_extensions). */
static const char *const extensions[] = {".php", ".phar"};

static bool may_run(const char *path)
{
	size_t len = strlen(path);
	for (size_t i = 0; i < sizeof(extensions) / sizeof(extensions[0]); i++) {
		size_t extension_len = strlen(extensions[i]);
		if (len > extension_len && !strcmp(path + len - extension_len, extensions[i])) {
			return true;
		}
	}
	return false;
}

static void refuse(int code, const char *page, const char *log_line)
{
	if (log_line) {
		sendoff_log(sendoff_php_worker, log_line, strlen(log_line));
	}
	zend_try
	{
		SG(sapi_headers).http_response_code = code;
		PUTS(page);
	}
	zend_end_try();
}

static void refuse_named(int code, const char *page, const char *format, const char *path,
						 const char *why)
{
	char line[MAXPATHLEN + 128];
	snprintf(line, sizeof(line), format, path, why);
	refuse(code, page, line);
}

/*
 * Runs the script in its own folder, and the code after it (shutdown functions, destructors) in the
 * pool's folder: `/` unless the operator sets another, as with a php-fpm that the system starts.
 * PHP would change folders itself, but call getcwd(2) in each request.
 */
static void run_in_folder(zend_file_handle *script, const char *path)
{
	const char *slash = strrchr(path, '/');
	if (slash) {
		char *folder = estrndup(path, MAX((size_t)(slash - path), 1));
		php_ignore_value(chdir(folder));
		efree(folder);
	}
	SG(options) |= SAPI_OPTION_NO_CHDIR;
	php_execute_script(script);
	php_ignore_value(chdir(sendoff_php_folder));
}

static void run_script(void)
{
	zend_file_handle script;
	/* If php_fopen_primary_script() fails, it frees path_translated. */
	char *path = estrdup(SG(request_info).path_translated);

	memset(&script, 0, sizeof(script));
	errno = 0;
	if (php_fopen_primary_script(&script) == FAILURE) {
		bool forbidden = errno == EACCES;
		refuse_named(forbidden ? 403 : 404,
					 forbidden ? "Access denied.\n" : "No input file specified.\n",
					 "Unable to open primary script: %s (%s)", path, strerror(errno));
	} else {
		EG(exit_status) = 0;
		run_in_folder(&script, path);
	}
	efree(path);
	/* With opcache, the engine takes over the handle only if it compiled the script. */
	if (!script.in_list) {
		zend_destroy_file_handle(&script);
	}
}

static void answer(void)
{
	const char *path = SG(request_info).path_translated;
	EG(exit_status) = 0;
	if (!SG(request_info).request_method) {
		return;
	}
	if (!path) {
		refuse(404, "File not found.\n", "Primary script unknown");
	} else if (!may_run(path)) {
		refuse_named(403, "Access denied.\n",
					 "Access to the script '%s' has been denied (only .php and .phar run)%s", path,
					 "");
	} else {
		run_script();
	}
	sendoff_apply_error_header();
}

static bool serve_request(void)
{
	sendoff_php_finished = false;
	SG(server_context) = sendoff_php_worker;
	sendoff_params_load(sendoff_php_worker);
	sendoff_request_info_init();
	bool started = php_request_startup() == SUCCESS;
	if (started) {
		answer();
		sendoff_report();
		if (SG(request_info).path_translated) {
			efree(SG(request_info).path_translated);
			SG(request_info).path_translated = NULL;
		}
		php_request_shutdown(NULL);
		sendoff_lazy_end_request();
	}
	/* If php_request_startup() has failed, no shutdown has ended the response. */
	sendoff_end_response(false);
	SG(server_context) = NULL;
	sendoff_named_forget();
	sendoff_params_clear();
	return started;
}

void sendoff_note_first_request(int busy)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	eventfd_write(busy, (eventfd_t)now.tv_sec * 1000000000 + (eventfd_t)now.tv_nsec);
}

/*
 * Returns the exit status of the process. A function of its own, so that no local variable is alive
 * across setjmp(3).
 */
static zend_never_inline int serve_until_told(int busy, uint64_t max_requests)
{
	uint64_t served = 0;

	while (sendoff_accept(sendoff_php_worker) == 1) {
		if (served == 0) {
			sendoff_note_first_request(busy);
		}
		if (!serve_request()) {
			return 1;
		}
		if (served == 0) {
			eventfd_write(busy, SENDOFF_SERVED);
		}
		if (++served == max_requests) {
			sendoff_stop(sendoff_php_worker);
		}
	}
	return 0;
}

int sendoff_serve_requests(int busy, uint64_t max_requests)
{
	/* Volatile because it is read after a long jump. */
	volatile int status = 1;

	/* A bailout outside of a request ends the process; the master starts another. */
	zend_first_try
	{
		status = sendoff_boot.script ? sendoff_boot_serve(busy, max_requests)
									 : serve_until_told(busy, max_requests);
	}
	zend_end_try();
	return status;
}
