<?php
// Random walks through output buffers, one per seed: stock and lazy must write the same bytes and
// see the same states. LAZY_SEED picks the walk.
$dir = getenv('LAZY_DIR') ?: sys_get_temp_dir();
mt_srand((int) getenv('LAZY_SEED'));
$files = [];
foreach ([100, 16384, 20001, 70000] as $i => $size) {
	$files[] = $f = "$dir/buffers-$size";
	file_put_contents($f, str_repeat(chr(97 + $i) . "234567\n", $size >> 3));
}
$states = [];
register_shutdown_function(function () use (&$states, $files) {
	echo "\nstates ", md5(serialize($states));
	array_map('unlink', $files);
});
$pick = fn () => $files[mt_rand(0, 3)];
set_error_handler(fn ($n, $message) => $states[] = $message);
if (mt_rand(0, 3) === 0) {
	header_register_callback(function () {
		// Before the header block of a CGI response nothing may be written.
		echo PHP_SAPI === 'cli' ? 'headers' : '';
	});
}
$steps = mt_rand(5, 40);
for ($step = 0; $step < $steps; $step++) {
	switch (mt_rand(0, 22)) {
		case 0:
			ob_start();
			break;
		case 1:
			ob_start(fn ($s, $mode) => "($mode:" . strlen($s) . ')' . $s);
			break;
		case 2:
			ob_start(null, mt_rand(0, 30000));
			break;
		case 3:
			ob_start(fn ($s) => strrev($s), mt_rand(2, 9000));
			break;
		case 4:
			ob_start(null, mt_rand(0, 1) * 5000, mt_rand(0, 7) << 4);
			break;
		case 5:
			@ob_end_clean();
			break;
		case 6:
		case 7:
			@ob_end_flush();
			break;
		case 8:
			@ob_flush();
			break;
		case 9:
			flush();
			break;
		case 10:
			$states[] = md5((string) ob_get_contents());
			break;
		case 11:
			@ob_clean();
			break;
		case 12:
			ob_implicit_flush((bool) mt_rand(0, 1));
			break;
		case 13:
			echo str_repeat('-', mt_rand(1, 5000));
			break;
		case 14:
			print file_get_contents($pick());
			break;
		case 15:
			$states[] = readfile($pick());
			break;
		case 16:
			echo 'a', file_get_contents($pick()), 'b';
			break;
		case 17:
			fwrite(fopen('php://output', 'w'), file_get_contents($pick()));
			break;
		case 18:
			file_put_contents($pick(), str_repeat("$step", 20000));
			break;
		default:
			echo file_get_contents($pick());
	}
	$states[] = [ob_get_status(true), ob_get_length(), headers_sent($file, $line), $line];
}
if (mt_rand(0, 4) === 0) {
	throw new Exception(file_get_contents($pick()));
}
exit(file_get_contents($pick()));
