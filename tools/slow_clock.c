/*
 * Preloaded library for tools/instructions: clocks of the process go 10,000 times slower from its start on.
 * A process that executes step by step would otherwise do its work of every second with each request.
 */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000L
#define SLOWER 10000

int clock_gettime(clockid_t clock, struct timespec *now)
{
	static long began[16];
	int result = (int)syscall(SYS_clock_gettime, clock, now);
	long nanoseconds = now->tv_sec * SECOND + now->tv_nsec;

	if (result != 0 || clock < 0 || clock >= 16) {
		return result;
	}
	if (!began[clock]) {
		began[clock] = nanoseconds;
	}
	nanoseconds = began[clock] + (nanoseconds - began[clock]) / SLOWER;
	now->tv_sec = nanoseconds / SECOND;
	now->tv_nsec = nanoseconds % SECOND;
	return 0;
}
