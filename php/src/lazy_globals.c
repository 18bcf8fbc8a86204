/*
 * State that all files of the module share: settings and counters, the write hook, the clock.
 */
#include "lazy.h"

#include <time.h>

ZEND_DECLARE_MODULE_GLOBALS(sendoff)

zend_write_func_t lazy_write_hook;

bool lazy_outlives_requests;

void (*lazy_before_use)(void);

void (*lazy_before_end)(void);

bool lazy_output_is_hooked(void)
{
	return zend_write == lazy_write_hook;
}

time_t lazy_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	return ts.tv_sec;
}
