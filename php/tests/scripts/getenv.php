<?php
// The environment's values for each parameter, for similar names, and for variables set by the script.
function env(string $name): string {
	return var_export(getenv($name), true) . ' ' . var_export(getenv($name, true), true);
}
$names = ['REQUEST_METHOD', 'request_method', 'QUERY_STRING', 'HTTP_X_A', 'http_x_a', 'HTTP_X-A', 'HTTP_X.A', 'HTTP_X A',
	'HTTP_TWICE', 'HTTP_EMPTY', 'HTTP_PROXY', 'HTTP_PRO', 'HTTP', 'H', '', 'HTTP_NUL', 'HTTP_A[B]', 'PATH', 'HOME', 'USER', 'FCGI_ROLE',
	'PATH_INFO', 'ORIG_PATH_INFO', 'SCRIPT_FILENAME', 'PHP_SELF', 'SENDOFF_ACCEPT', 'PHP_VALUE', 'HTTP_AUTHORIZATION', 'NONE'];
foreach ($names as $name) {
	echo "$name: ", env($name), ' ', var_export($_SERVER[$name] ?? null, true), ' ', var_export($_ENV[$name] ?? null, true),
		' ', var_export(filter_input(INPUT_SERVER, $name), true), "\n";
}
$all = getenv();
echo count($all), ' ', json_encode(array_diff_key($all, $_SERVER)), ' ', json_encode(array_diff_key($_SERVER, $all, ['argv' => 1, 'argc' => 1, 'REQUEST_TIME' => 1, 'REQUEST_TIME_FLOAT' => 1])), "\n";
foreach ($all as $name => $value) {
	if (getenv($name) !== $value) {
		echo "getenv('$name') is not getenv()['$name']: ", var_export(getenv($name), true), " and ", var_export($value, true), "\n";
	}
}
foreach (['HTTP_X_A=mine', 'NONE=mine', 'HTTP_PROXY=mine', 'REQUEST_METHOD', 'HTTP_TWICE=', 'HTTP_PRO=mine'] as $setting) {
	putenv($setting);
	$name = explode('=', $setting)[0];
	echo "putenv $setting: ", env($name), ' ', var_export(getenv()[$name] ?? null, true), ' ', var_export($_SERVER[$name] ?? null, true), "\n";
	echo '  a child sees ', json_encode(shell_exec("printenv $name")), "\n";
}
putenv('HTTP_X_A');
echo 'taken back: ', env('HTTP_X_A'), "\n";
echo json_encode(array_keys(getenv(null) ?? [])) === json_encode(array_keys(getenv())) ? "same\n" : "other\n";
$_SERVER['HTTP_X_A'] = 'changed';
$_ENV['HTTP_X_A'] = 'changed';
echo 'after a change of $_SERVER: ', env('HTTP_X_A'), "\n";
echo 'apache: ', function_exists('apache_getenv') ? 'yes' : 'no', ' ', ini_get('variables_order'), ' ', ini_get('auto_globals_jit'), "\n";
