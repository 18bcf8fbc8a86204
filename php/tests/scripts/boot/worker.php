<?php
// A worker script: boots once, and answers each request by one of its actions.
$requests = 0;
$state = [];
putenv('BOOT=boot');
$_ENV['BOOT'] = 'boot';
setlocale(LC_ALL, 'C.UTF-8');
umask(027);
ini_set('precision', '5');
date_default_timezone_set('Europe/Berlin');
mb_substitute_character(0x2603);
set_error_handler(fn ($n, $message) => print("boot's handler: $message\n"));
stream_context_set_default(['http' => ['user_agent' => 'boot']]);
register_shutdown_function(function () { echo "[boot's shutdown function]"; });
$handler = static function () use (&$requests, &$state) {
	$requests++;
	require __DIR__ . '/actions/' . ($_GET['do'] ?? 'count') . '.php';
};
while (sendoff_handle_request($handler)) {
	// Output between requests is dropped.
	echo 'between';
}
if (isset($state['done'])) {
	file_put_contents($state['done'], "the loop has ended after $requests");
}
