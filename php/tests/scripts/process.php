<?php
switch ($_SERVER['QUERY_STRING']) {
	case 'kill':
		posix_kill(getmypid(), 9);
	case 'killed-late':
		echo str_repeat('x', 100000);
		flush();
		posix_kill(getmypid(), 9);
	case 'status':
		preg_match_all('/^(Uid|Gid|Groups|Cap\w+|SigBlk|SigIgn):\s*(.*?)\s*$/m', file_get_contents('/proc/self/status'), $found);
		echo json_encode(array_combine($found[1], $found[2]));
		break;
	case 'fds':
		$open = [];
		foreach (scandir('/proc/self/fd') as $fd) {
			$open[] = preg_replace('/\d+/', '', (string) @readlink("/proc/self/fd/$fd"));
		}
		echo json_encode(array_count_values(array_filter($open)));
		break;
	case 'pid':
		echo getmypid();
		break;
	case 'sleep':
		$began = microtime(true);
		echo sleep(1), ' ', microtime(true) - $began >= 1.0 ? 'slept' : 'woken';
		break;
	case 'stderr':
		file_put_contents('php://stderr', "to descriptor 2\n");
		break;
}
