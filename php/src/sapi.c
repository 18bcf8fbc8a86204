/*
 * The SAPI: its functions, and a worker after each fork. embed.c and host.c start PHP with them.
 *
 * It has the name of php-fpm's SAPI, because extensions (opcache first) and applications check for
 * that name.
 */
#include "php_sendoff.h"
#include "lazy.h"
#include "php_main.h"
#include "zend_signal.h"

#include <signal.h>
#include <time.h>

static size_t read_post(char *buffer, size_t wanted)
{
	size_t done = 0;
	size_t left = (size_t)(SG(request_info).content_length - SG(read_post_bytes));

	wanted = MIN(wanted, left);
	while (done < wanted) {
		ssize_t n = sendoff_read(sendoff_php_worker, buffer + done, wanted - done);
		if (n <= 0) {
			break;
		}
		done += (size_t)n;
	}
	return done;
}

/*
 * Called late in php_request_shutdown(): ends the response before the rest of the cleanup, which
 * then overlaps with its delivery.
 */
static int deactivate(void)
{
	if (sendoff_php_worker && SG(sapi_started)) {
		sendoff_end_response(sendoff_boot.is_long_after);
	}
	return SUCCESS;
}

static int activate(void)
{
	return sendoff_php_worker ? sendoff_activate() : SUCCESS;
}

/*
 * Removes functions that PHP has for command lines and that no web SAPI offers. A forking script
 * would leave two processes on one link; chroot() would change the root directory for all later
 * requests.
 */
static void remove_process_functions(void)
{
	zend_module_entry *pcntl =
		zend_hash_str_find_ptr(&module_registry, "pcntl", sizeof("pcntl") - 1);
	if (pcntl) {
		zend_unregister_functions(pcntl->functions, -1, CG(function_table));
		zend_hash_str_del(&module_registry, "pcntl", sizeof("pcntl") - 1);
	}
	zend_hash_str_del(CG(function_table), "chroot", sizeof("chroot") - 1);
}

/* Descriptor for the messages of PHP's start, in addition to the log; -1: none. */
static int said = -1;
static void (*handle_error)(int, zend_string *, const uint32_t, zend_string *);

static void tell_error(int type, zend_string *file, const uint32_t line, zend_string *message)
{
	if (said >= 0) {
		/* The supervisor takes each line as a message. Writing to a file in memory does not block.
		 */
		dprintf(said, "%.*s\n", (int)strcspn(ZSTR_VAL(message), "\r\n"), ZSTR_VAL(message));
	}
	handle_error(type, file, line, message);
}

int sendoff_sapi_register(void)
{
	zend_module_entry *const ours[] = {&sendoff_sapi_entry, &sendoff_module_entry};

	remove_process_functions();
	return php_register_extensions(ours, sizeof(ours) / sizeof(ours[0]));
}

void sendoff_sapi_tell(int file)
{
	said = file;
	if (said >= 0) {
		handle_error = zend_error_cb;
		zend_error_cb = tell_error;
	}
}

void sendoff_sapi_use(sapi_module_struct *module)
{
	module->name = "fpm-fcgi";
	module->pretty_name = "Sendoff";
#if PHP_VERSION_ID >= 80500
	/* Before PHP reads the body, whose limits may be settings of the folder. */
	module->pre_request_init = activate;
	module->activate = NULL;
#else
	module->activate = activate;
#endif
	module->deactivate = deactivate;
	module->ub_write = sendoff_ub_write;
	module->flush = sendoff_sapi_flush;
	module->getenv = sendoff_getenv;
	module->sapi_error = php_error;
	module->header_handler = sendoff_header_handler;
	module->send_headers = sendoff_send_headers;
	module->send_header = NULL;
	module->read_post = read_post;
	module->read_cookies = sendoff_read_cookies;
	module->register_server_variables = sendoff_register_variables;
	module->log_message = sendoff_log_message;
	module->get_stat = NULL;
	module->get_request_time = NULL;
	module->additional_functions = NULL;
	module->phpinfo_as_text = 0;
}

/* The signal on which a worker writes its backtrace and ends. */
static int stuck_signal;
static uint64_t orphan_time;
static pid_t master;

const char *sendoff_php_folder;

/* The environment of scripts, each entry NAME=VALUE. Never freed. */
static char **environment;
static size_t environment_count;

static void keep_environment(const sendoff_php_start *start)
{
	environment_count = start->environment_count;
	environment = pecalloc(MAX(environment_count, 1), sizeof(*environment), 1);
	for (size_t i = 0; i < environment_count; i++) {
		environment[i] = pestrdup(start->environment[i], 1);
	}
}

void sendoff_php_begin(const sendoff_php_start *start)
{
	sendoff_crashes_on();
	if (start->worker_script) {
		sendoff_boot.script = pestrdup(start->worker_script, 1);
		sendoff_boot.max_memory = start->max_memory;
		sendoff_boot.max_age = start->max_age;
	}
}

int sendoff_php_finish(const sendoff_php_start *start)
{
	if (handle_error && zend_error_cb == tell_error) {
		zend_error_cb = handle_error;
	}
	said = -1;
	if (!sendoff_settings_check(start)) {
		return -1;
	}
	sendoff_settings_fix(start);
	keep_environment(start);
	sendoff_slow_startup(start->pool);
	sendoff_php_folder = pestrdup(start->folder, 1);
	sendoff_server_vars_init();
	hints_send = sendoff_send_interim;
	stuck_signal = start->stuck_signal;
	orphan_time = start->orphan_time;
	sendoff_crashes_off();
	return 0;
}

/*
 * Ends a worker without a master in time, whatever its script does. In both GNU's and musl's C
 * library timer_create() is only a system call, unless it starts a thread.
 */
static void limit_orphan(void)
{
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
	struct itimerspec limit = {0};
	timer_t timer;
	limit.it_value.tv_sec = (time_t)MIN(orphan_time / 1000, INT32_MAX);
	limit.it_value.tv_nsec = (long)(orphan_time % 1000) * 1000000;
	if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 ||
		timer_settime(timer, 0, &limit, NULL) != 0) {
		_exit(1);
	}
}

/* SIGTERM comes from the master, an operator, or from the kernel when the master has died. */
static void on_sigterm(int signo)
{
	if (sendoff_is_child(signo)) {
		return;
	}
	if (getppid() != master) {
		limit_orphan();
	}
	sendoff_stop(sendoff_php_worker);
}

static void set_signals(void)
{
	struct sigaction action = {0};
	sigemptyset(&action.sa_mask);
	action.sa_flags = SA_RESTART;
	action.sa_handler = on_sigterm;
	sigaction(SIGTERM, &action, NULL);
	action.sa_handler = SIG_IGN;
	sigaction(SIGPIPE, &action, NULL);
	/* Replaces the handlers by which Rust's runtime reports stack overflows: they would lose a
	 * signal that another process sends. */
	sendoff_crashes_on();
#ifdef ZEND_SIGNALS
	/* No other code replaces our handlers, so they need not be set again in every request. */
	SIGG(reset) = 0;
#endif
}

/*
 * Scripts see the same environment as under php-fpm: the variables of the pool's user and those
 * that the operator lists, none of the server's own.
 */
static void set_environment(void)
{
	clearenv();
	for (size_t i = 0; i < environment_count; i++) {
		putenv(environment[i]);
	}
}

/* The worker's helper threads must not take the signals that are meant for PHP's thread. */
static sendoff_worker *new_worker(const int *links, size_t link_count, int guard, int slow)
{
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	sendoff_worker *worker = sendoff_worker_new(links, link_count, guard);
	if (slow >= 0 && !sendoff_slow_start(slow)) {
		fprintf(stderr, "no thread for the slow log: %s\n", strerror(errno));
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return worker;
}

int sendoff_php_serve(const int *links, size_t link_count, int guard, int slow, int status,
					  int busy, uint64_t max_requests)
{
	set_environment();
	if (chdir(sendoff_php_folder) != 0) {
		fprintf(stderr, "it cannot start: %s: %s\n", sendoff_php_folder, strerror(errno));
		return 1;
	}
	master = getppid();
	sendoff_backtrace_on(stuck_signal);
	sendoff_php_worker = new_worker(links, link_count, guard, slow);
	if (!sendoff_php_worker) {
		fprintf(stderr, "it cannot start: %s\n", strerror(errno));
		return 1;
	}
	lazy_outlives_requests = sendoff_boot.script != NULL;
	sendoff_lazy_attach(sendoff_php_worker);
	sendoff_status_start(status);
	set_signals();
	int exit_status = sendoff_serve_requests(busy, max_requests);
	/* on_sigterm() may still run. */
	sendoff_worker *worker = sendoff_php_worker;
	sendoff_php_worker = NULL;
	sendoff_worker_free(worker);
	return exit_status;
}
