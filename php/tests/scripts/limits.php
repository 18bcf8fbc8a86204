<?php
// Scripts that use CPU time, by the clock that the limit counts with. getrusage() has another one: the limit counts the ticks
// of the kernel at which the process runs: on a busy machine a twentieth or twice of the time that it has run.
function used()
{
	static $libc, $time;
	$libc ??= FFI::cdef('struct timespec { long tv_sec, tv_nsec; }; int clock_gettime(int clock, struct timespec *time);');
	$time ??= $libc->new('struct timespec');
	// The number that the kernel gives ITIMER_PROF's clock of this process (clock_getcpuclockid(3)).
	$libc->clock_gettime(-8, FFI::addr($time));
	return $time->tv_sec + $time->tv_nsec / 1e9;
}

// On one line, which the message names.
function burn($seconds) { for ($end = used() + $seconds; used() < $end; md5('x')); }

header('Content-Type: text/plain');
// PHP 8.5.4 crashes in the trace of an error that ends a call by FFI.
ini_set('fatal_error_backtraces', '0');
switch ($_GET['what']) {
	case 'short':
		break;
	case 'most':
		burn(0.6);
		break;
	case 'over':
		$began = used();
		register_shutdown_function(function () use ($began) {
			$took = used() - $began;
			echo 'ended ', $took > 0.9 && $took < 1.1 ? 'in time' : "after $took s", ', limit ', ini_get('max_execution_time'), "\n";
		});
		burn(5);
		break;
	case 'beyond':
		burn(1.3);
		break;
	case 'unlimited':
		set_time_limit(0);
		burn(1.3);
		break;
	case 'longer':
		set_time_limit(2);
		burn(1.3);
		break;
	case 'again':
		burn(0.6);
		set_time_limit(1);
		burn(0.6);
		break;
	case 'setting':
		ini_set('max_execution_time', '2');
		burn(1.3);
		ini_restore('max_execution_time');
		echo ini_get('max_execution_time'), "\n";
		break;
	case 'shutdown':
		register_shutdown_function(function () { burn(0.5); echo "cleaned up\n"; });
		burn(5);
		break;
	case 'slow-shutdown':
		register_shutdown_function(function () { echo "cleans up\n"; burn(5); echo "not reached\n"; });
		burn(5);
		break;
	case 'shutdown-with-time':
		register_shutdown_function(function () { set_time_limit(2); burn(1.3); echo "cleaned up\n"; });
		burn(5);
		break;
	case 'after-shutdown':
		// PHP writes the session when no limit is in force any more.
		session_set_save_handler(new class extends SessionHandler {
			public function write(string $id, string $data): bool { burn(1.3); return true; }
		}, false);
		session_id('aaaaaaaaaaaaaaaaaaaaaaaaaa');
		session_start(['use_cookies' => 0]);
		break;
	case 'internal':
		// One call, which PHP cannot interrupt.
		hash_pbkdf2('sha256', 'password', 'salt', 100_000_000);
		break;
	case 'sleep':
		echo sleep(1), "\n";
		break;
}
echo "done\n";
