/*
 * Declarations that the files of the SAPI share. A process serves one request at a time, so the
 * state of the current request is global, as in any PHP without thread safety.
 */
#ifndef PHP_SENDOFF_H
#define PHP_SENDOFF_H

#include "php_versions.h"
#include "SAPI.h"
#include "sendoff.h"

#include <sys/eventfd.h>

/* The worker of this process; NULL in the master, which answers no requests. */
extern sendoff_worker *sendoff_php_worker;

/* True if the response of the current request has ended. Later output is dropped. */
extern bool sendoff_php_finished;

/* Settings of php.ini that php-fpm defines, under the same names. */
typedef struct {
	bool fix_pathinfo;
	bool rfc2616_headers;
	bool nph;
	bool fcgi_logging;
	char *error_header;
	/* True if a worker script gets $_ENV anew for each request. */
	bool reset_env;
	/* Bytes for the fragments of the pool; 0: none is kept. */
	zend_long fragments;
} sendoff_php_ini;

extern sendoff_php_ini sendoff_php_settings;

/*
 * Arguments of PHP's start. The caller keeps ownership; sendoff_php_finish() copies what is needed
 * later.
 */
typedef struct {
	/* Settings that override php.ini, each KEY=VALUE. */
	const char *const *defines;
	size_t define_count;
	/* The name of the pool. */
	const char *pool;
	/* Names of settings that scripts cannot change. */
	const char *const *fixed;
	size_t fixed_count;
	/* The environment of scripts, each NAME=VALUE. */
	const char *const *environment;
	size_t environment_count;
	/* The working folder of workers before and after a script. */
	const char *folder;
	/* On this signal a worker writes its PHP backtrace and ends. */
	int stuck_signal;
	/* Milliseconds, at least 1, that a worker has for its request after the death of its master. */
	uint64_t orphan_time;
	/* The worker script that takes the requests; NULL: each request runs its own script. */
	const char *worker_script;
	/* With a worker script, bytes of PHP's memory and seconds after which a worker ends; 0: any. */
	uint64_t max_memory;
	uint64_t max_age;
	/* A descriptor to which PHP's messages are also written, one per line; -1: none. Not kept. */
	int said;
} sendoff_php_start;

/*
 * embed.c, called by the Rust side: starts libphp and loads the extensions, with php.ini and conf.d
 * of the folder `ini_dir`. Call it once, before the first worker is forked, so that the workers
 * share the extensions' shared memory. Returns 0, or -1 after an error.
 */
int sendoff_php_startup(const sendoff_php_start *start, const char *ini_dir);

/* sapi.c: the steps of PHP's start that embed.c and host.c share, in this order. */

/* Before anything else of PHP. */
void sendoff_php_begin(const sendoff_php_start *start);

/* Puts the functions of the SAPI into `module`. Other members stay unchanged. */
void sendoff_sapi_use(sapi_module_struct *module);

/* Messages of PHP's start go to this descriptor, too (-1: none), until sendoff_php_finish(). */
void sendoff_sapi_tell(int file);

/* Registers the modules of the SAPI, right after those that are compiled into PHP. */
int sendoff_sapi_register(void);

/* After PHP's start. Returns 0, or -1 after an error. */
int sendoff_php_finish(const sendoff_php_start *start);

/*
 * Called by the Rust side. Serves requests until the front closes a link, SIGTERM arrives or
 * `max_requests` (0: no limit) have been answered. Takes ownership of these descriptors: the links;
 * the guard (-1: none); the socket `slow` (-1: none), on which the master sends files to write the
 * running script's backtrace to; and the socket `status`, on which the worker asks the front for
 * the state of the pool. The eventfd `busy` is borrowed: the worker adds the time of the first
 * request (nanoseconds of CLOCK_MONOTONIC) to it. From that the master learns whether a worker
 * crashed in a request or could not start at all, and which front it has served. The worker adds
 * SENDOFF_SERVED after the first response, and SENDOFF_BOOTED when a worker script asks for its
 * first request. Returns the exit status of the process.
 */
int sendoff_php_serve(const int *links, size_t link_count, int guard, int slow, int status,
					  int busy, uint64_t max_requests);

/* The working folder of workers before and after a script. */
extern const char *sendoff_php_folder;

/*
 * Flags added to `busy`. Each is larger than any time in nanoseconds, so time and flags can be read
 * from one number.
 */
#define SENDOFF_SERVED ((eventfd_t)1 << 62)
#define SENDOFF_BOOTED ((eventfd_t)1 << 61)

/* request.c */
int sendoff_serve_requests(int busy, uint64_t max_requests);

/* Adds the time of the first request to the eventfd `busy`. */
void sendoff_note_first_request(int busy);

/* The states of a worker script, in the order of its life; boot.c has the diagram. */
typedef enum {
	/* No worker script runs. */
	SENDOFF_BOOT_NONE,
	/* The script has not asked for a request yet: its output goes to the log. */
	SENDOFF_BOOT_STARTS,
	/* Callbacks of the start run, such as output buffers. Their output goes to the log, too. */
	SENDOFF_BOOT_SETTLES,
	/* It has no request. */
	SENDOFF_BOOT_WAITS,
	/* A request has begun, and the callable runs. */
	SENDOFF_BOOT_HANDLES,
	/* The callable has returned or thrown; the script may catch what it has thrown. */
	SENDOFF_BOOT_RETURNED,
	/* Callbacks of the request run, and its response is ended. */
	SENDOFF_BOOT_ENDS,
	/* The script gets no further request. */
	SENDOFF_BOOT_OVER,
} sendoff_boot_state;

/* Worker mode. */
typedef struct {
	/* The worker script; NULL in ordinary mode. */
	const char *script;
	/* Bytes of PHP's memory and seconds after which a worker ends; 0: any. */
	uint64_t max_memory;
	uint64_t max_age;
	sendoff_boot_state state;
	/* The script works for long after a response, and the front must be told so. */
	bool is_long_after;
} sendoff_php_boot;
extern sendoff_php_boot sendoff_boot;

/* boot.c: runs the worker script. Same arguments and result as sendoff_serve_requests(). */
int sendoff_boot_serve(int busy, uint64_t max_requests);
PHP_FUNCTION(sendoff_handle_request);

/* functions.c */
extern zend_module_entry sendoff_sapi_entry;

/*
 * params.c: the parameters of the request, as the front sent them, with the changes of
 * request_info.c.
 */
void sendoff_params_load(const sendoff_worker *worker);
char *sendoff_params_get(const char *name, size_t name_len);
/*
 * Sets a parameter; NULL removes it. The value is copied. Returns the copy, which is valid until
 * the request ends.
 */
char *sendoff_params_set(const char *name, size_t name_len, const char *value);
void sendoff_params_clear(void);
typedef void (*sendoff_params_visitor)(const char *name, unsigned int name_len, char *value,
									   unsigned int value_len, void *arg);
void sendoff_params_each(sendoff_params_visitor visit, void *arg);

#define SENDOFF_PARAM(name) sendoff_params_get(name, sizeof(name) - 1)
#define SENDOFF_PARAM_SET(name, value) sendoff_params_set(name, sizeof(name) - 1, value)

/* request_info.c: fills SG(request_info) from the parameters. */
void sendoff_request_info_init(void);

/* server_vars.c */
void sendoff_server_vars_init(void);
void sendoff_register_variables(zval *track_vars_array);
char *sendoff_getenv(const char *name, size_t name_len);
char *sendoff_read_cookies(void);

/*
 * settings.c: settings of the operator in addition to php.ini. Prints a warning for a setting that
 * PHP does not know or refuses. False, after a message, if a value is invalid. Call it after PHP's
 * start.
 */
bool sendoff_settings_check(const sendoff_php_start *start);
void sendoff_settings_fix(const sendoff_php_start *start);

/*
 * user_ini.c: php.ini's sections for this path and host, .user.ini files, and settings that come
 * with the request. Requests of a worker script get only the latter: the script has got the others
 * at its start.
 */
int sendoff_activate(void);
void sendoff_user_ini_startup(void);
void sendoff_user_ini_shutdown(void);

/* backtrace.c: signal handlers for a worker that is stuck and for a process that crashes. */
void sendoff_backtrace_on(int signo);
/* For handlers: whether this process is a child of the worker, in which the signal takes effect
 * when the handler returns. */
bool sendoff_is_child(int signo);
void sendoff_crashes_on(void);
void sendoff_crashes_off(void);

/*
 * limit.c: replaces the functions by which PHP limits the time of scripts. Call
 * sendoff_limit_prepare() before anything of PHP, sendoff_limit_startup() after PHP's start.
 */
void sendoff_limit_prepare(void);
void sendoff_limit_startup(void);

/* slow.c: backtraces of scripts that run for long, without ending them. */
void sendoff_slow_startup(const char *pool);
/*
 * Starts the thread that writes them. The caller has blocked all signals, which the thread
 * inherits. False: no thread.
 */
bool sendoff_slow_start(int socket);

/* status.c: the state of the pool, asked for on this socket. */
void sendoff_status_start(int socket);
/* Sends an unsolicited message of the worker to the front, unless the socket is full. */
void sendoff_status_tell(const char *message, size_t len);
PHP_FUNCTION(fpm_get_status);

/*
 * report.c: reports PHP's state to the front, once per worker. Call it where a script could run.
 */
void sendoff_report(void);

/* named.c: files that X-Sendfile and X-Accel-Redirect name. */
/*
 * The parameter with the accel table of the request's site, which scripts do not see: prefixes of
 * URIs, each followed by its folder, the longest prefix first. A NUL ends each of them.
 */
#define SENDOFF_ACCEL "SENDOFF_ACCEL"
int sendoff_header_handler(sapi_header_struct *header, sapi_header_op_enum op,
						   sapi_headers_struct *headers);
/* Sends the open file to the front. Call it right before the header block. */
void sendoff_named_send(sapi_headers_struct *headers);
/* Closes all files that were not sent. Call it at the end of a request. */
void sendoff_named_forget(void);

/* output.c */
size_t sendoff_ub_write(const char *str, size_t len);
void sendoff_sapi_flush(void *server_context);
int sendoff_send_headers(sapi_headers_struct *headers);
/* Sends an interim response with the headers so far (hints.c). */
bool sendoff_send_interim(int status);
void sendoff_log_message(const char *message, int syslog_type);
/* fastcgi.error_header replaces the status of a script that ended with 255 (a fatal error). */
void sendoff_apply_error_header(void);
/* Ends the response; later calls have no effect. With `detach` the script runs on. */
void sendoff_end_response(bool detach);

#endif /* PHP_SENDOFF_H */
