/*
 * The time limits of scripts (max_execution_time, max_input_time), without PHP's five system calls
 * per request.
 *
 * PHP limits the CPU time of a script by setitimer(ITIMER_PROF). php_request_startup() arms the
 * timer and installs the handler of its signal, php_execute_script() arms it again, and
 * php_request_shutdown() disarms it. Most scripts are done long before the next tick of the
 * kernel's clock. The functions here replace PHP's two functions of the same names, which libphp
 * calls by their dynamic symbols: the timer stays armed after a short request, and serves all
 * requests that begin in the same tick. So a worker under load arms it once per tick.
 *
 *   start, tick 7     arm for 30 s and two ticks
 *   end, tick 7       no limit is in force; the timer stays armed
 *   start, tick 7     the limit is in force; the timer is armed late enough
 *   start, tick 8     arm again
 *   end, tick 9       disarm: the script was no short one
 *
 * A limit acts at most two ticks later than in PHP, and never earlier. What a script or a folder
 * changes passes the same two functions. A library that binds its own calls (-Bsymbolic, see
 * sendoff_limit_startup()) keeps PHP's functions.
 */
#include "php_sendoff.h"
#include "zend_signal.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>

#ifdef ZEND_SIGNALS

/* PHP sets no timer for other numbers. */
#define LONGEST 999999999

typedef struct tick {
	time_t second;
	long nanosecond;
} tick;

/* PHP's own functions. */
static void (*stock_set)(zend_long seconds, bool reset_signals);
static void (*stock_unset)(void);
/* PHP's own handler of SIGPROF; NULL: its address is not known yet. */
static void (*stock_handler)(int signo);

/* libphp calls the functions of this file. */
static bool is_bound;
static bool was_called;

/* The second in which the handler was installed. */
static time_t installed_in;

/* Two ticks, in microseconds: one until the last request that uses the timer begins, and as much
 * again for CPU time that other threads use until then. */
static suseconds_t margin;

/* What the timer was armed for, in seconds, and when. */
static volatile zend_long armed_for;
static tick armed_in;

/* The limit in force, in seconds; 0: none, the signal of the timer means nothing. */
static volatile zend_long in_force;

/* The kernel's clock at its last tick, read without a system call. */
static tick now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
	return (tick){time.tv_sec, time.tv_nsec};
}

static bool is_this_tick(tick then)
{
	tick current = now();

	return current.second == then.second && current.nanosecond == then.nanosecond;
}

static void set_timer(zend_long seconds, suseconds_t microseconds)
{
	struct itimerval timer = {.it_value = {seconds, microseconds}};

	setitimer(ITIMER_PROF, &timer, NULL);
	armed_for = seconds;
}

static void on_timer(int signo)
{
	zend_long limit = in_force, passed = armed_for;

	if (limit > passed) {
		/* Armed for the script, but the request is still being read. */
		set_timer(limit - passed, 0);
		armed_for = limit;
	} else if (limit) {
		stock_handler(signo);
	}
}

/*
 * PHP forgets the handlers of signals when a request starts. The kernel is told again once per
 * second: a library may have taken or blocked the signal.
 */
static void take_signal(void)
{
	tick current = now();
	zend_signal_entry_t *entry = &SIGG(handlers)[SIGPROF - 1];

	if (!stock_handler || current.second != installed_in) {
		/* Sets no timer. */
		stock_set(0, true);
		stock_handler = entry->handler;
		installed_in = current.second;
	}
	entry->flags = 0;
	entry->handler = on_timer;
}

/* Puts a limit in force, by a timer for `seconds` or, if it acts earlier, for `timer_seconds`. */
static void limit(zend_long seconds, zend_long timer_seconds)
{
	if (armed_for != timer_seconds || !is_this_tick(armed_in)) {
		/* A signal of the timer that was armed before means nothing. */
		in_force = 0;
		set_timer(timer_seconds, margin);
		armed_in = now();
	}
	in_force = seconds;
}

static bool is_limit(zend_long seconds)
{
	return seconds > 0 && seconds <= LONGEST;
}

static void disarm(void)
{
	if (armed_for) {
		set_timer(0, 0);
	}
}

/* As in PHP, `reset_signals` is set at the start of a request only, and a number that is no limit
 * leaves the limit in force. */
ZEND_API void zend_set_timeout(zend_long seconds, bool reset_signals)
{
	/* At the start of a request: max_execution_time, which follows soon. */
	zend_long next = reset_signals && is_limit(EG(timeout_seconds)) ? EG(timeout_seconds) : seconds;

	if (!is_bound) {
		stock_set(seconds, reset_signals);
		return;
	}
	if (reset_signals) {
		take_signal();
	}
	if (is_limit(seconds)) {
		limit(seconds, MIN(seconds, next));
	} else if (!in_force) {
		disarm();
	}
	EG(timeout_seconds) = seconds;
	zend_atomic_bool_store_ex(&EG(timed_out), false);
}

ZEND_API void zend_unset_timeout(void)
{
	was_called = true;
	if (!is_bound) {
		stock_unset();
		return;
	}
	if (EG(timeout_seconds)) {
		in_force = 0;
		/* PHP's handler replaces ours when a limit has been reached, and arms the timer anew. */
		if (!is_this_tick(armed_in) || SIGG(handlers)[SIGPROF - 1].handler != on_timer) {
			disarm();
		}
	}
	zend_atomic_bool_store_ex(&EG(timed_out), false);
}

void sendoff_limit_prepare(void)
{
	/* What a signal does between PHP's start of a request and take_signal(). */
	signal(SIGPROF, SIG_IGN);
	/* ISO C has no conversion from an object's address to a function's. */
	*(void **)&stock_set = dlsym(RTLD_NEXT, "zend_set_timeout");
	*(void **)&stock_unset = dlsym(RTLD_NEXT, "zend_unset_timeout");
}

void sendoff_limit_startup(void)
{
	struct timespec resolution;
	zend_ini_entry *entry =
		zend_hash_str_find_ptr(EG(ini_directives), ZEND_STRL("max_execution_time"));

	clock_getres(CLOCK_MONOTONIC_COARSE, &resolution);
	margin = 2 * (resolution.tv_nsec / 1000 + 1);
	was_called = false;
	if (entry && entry->on_modify) {
		/* Calls zend_unset_timeout(), and changes nothing. */
		entry->on_modify(entry, entry->value, entry->mh_arg1, entry->mh_arg2, entry->mh_arg3,
						 ZEND_INI_STAGE_DEACTIVATE);
	}
	is_bound = was_called;
}

#else

void sendoff_limit_prepare(void)
{
}

void sendoff_limit_startup(void)
{
}

#endif
