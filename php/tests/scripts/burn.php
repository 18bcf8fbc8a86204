<?php
// Uses CPU time, since the limit counts CPU time.
for ($end = (float) $_SERVER['QUERY_STRING'], $began = getrusage(); ; md5('x')) {
	$now = getrusage();
	$used = $now['ru_utime.tv_sec'] - $began['ru_utime.tv_sec'] + $now['ru_stime.tv_sec'] - $began['ru_stime.tv_sec']
		+ ($now['ru_utime.tv_usec'] - $began['ru_utime.tv_usec'] + $now['ru_stime.tv_usec'] - $began['ru_stime.tv_usec']) / 1e6;
	if ($used > $end) {
		break;
	}
}
echo 'done';
