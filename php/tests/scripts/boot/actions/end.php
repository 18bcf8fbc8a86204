<?php
register_shutdown_function(function () { echo '[shutdown function]'; });
header('X-Before: 1');
echo 'before, ';
switch ($_GET['how']) {
	case 'exit':
		exit('exit');
	case 'error':
		undefined_function();
	case 'exception':
		throw new LogicException('thrown');
	case 'handled':
		set_exception_handler(function ($e) { http_response_code(503); echo 'handled ', $e->getMessage(); });
		throw new LogicException('thrown');
	case 'memory':
		ini_set('memory_limit', '16M');
		str_repeat('x', 64 << 20);
	case 'shutdown':
		register_shutdown_function(function () { exit('from a shutdown function'); });
		break;
	case 'shutdown-error':
		register_shutdown_function('undefined_function_of_shutdown');
		register_shutdown_function(function () { undefined_function(); });
		break;
	case 'buffer':
		ob_start(function ($text) { throw new LogicException('from a buffer'); });
		echo 'buffered';
		break;
}
