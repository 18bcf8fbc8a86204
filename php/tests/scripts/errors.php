<?php
ini_set('display_errors', $_GET['display'] ?? '0');
ini_set('html_errors', '0');
function undefined_things() { return $nothing . UNDEFINED_CONSTANT; }
if (isset($_GET['out'])) {
	echo 'first';
	if ($_GET['out'] === 'flush') {
		ob_flush();
		flush();
	}
}
switch ($_GET['kind']) {
	case 'warning':
		echo $undefined;
		trigger_error('mine', E_USER_WARNING);
		trigger_error('mine too', E_USER_NOTICE);
		error_log('logged by hand');
		echo "goes on\n";
		break;
	case 'log':
		error_log("first\nsecond\n" . str_repeat('x', 5000) . "\nlast");
		break;
	case 'exception':
		throw new RuntimeException("it's thrown");
	case 'error':
		undefined_things();
		break;
	case 'memory':
		ini_set('memory_limit', '8M');
		$x = str_repeat('x', 64 << 20);
		break;
	case 'parse':
		include __DIR__ . '/broken.inc';
		break;
	case 'require':
		require __DIR__ . '/missing.inc';
		break;
	case 'time':
		set_time_limit(1);
		// Where the limit ends the loop is in the trace, which PHP has from 8.5 on.
		ini_set('fatal_error_backtraces', '0');
		// On one line, which the message names.
		while (true) { md5('x'); }
	case 'exit':
		exit(3);
	case 'die':
		die('last words');
	case 'shutdown':
		register_shutdown_function(function () { echo "shutting down\n"; });
		new class { function __destruct() { echo "destroyed\n"; } };
		$kept = new class { function __destruct() { echo "destroyed at the end\n"; } };
		exit("exit\n");
	case 'shutdown-fatal':
		register_shutdown_function(function () { http_response_code(404); echo 'rescued: ', error_get_last()['message']; });
		undefined_things();
		break;
	case 'handler':
		set_exception_handler(function ($e) { http_response_code(503); echo 'handled ', $e->getMessage(); });
		throw new Exception('it');
	case 'recursion':
		ini_set('memory_limit', '16M');
		// Of the trace, which PHP has from 8.5 on, php-fpm logs the beginning.
		ini_set('fatal_error_backtraces', '0');
		function again($n) { return again($n + 1) . 'x'; }
		again(0);
		break;
}
