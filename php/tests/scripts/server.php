<?php
// The order matters, so nothing is sorted; values that differ between runs are removed.
foreach (['_SERVER' => $_SERVER, 'getenv' => getenv()] as $name => $list) {
	echo "$name\n";
	foreach ($list as $key => $value) {
		if (str_starts_with($key, 'REQUEST_TIME')) {
			$value = gettype($value);
		}
		if ($key !== 'argv') {
			echo "  $key=$value\n";
		}
	}
}
echo 'getenv: ', var_export(getenv('REQUEST_METHOD'), true), ' ', var_export(getenv('SENDOFF_ACCEPT'), true), "\n";
echo php_sapi_name(), ' ', PHP_SAPI, "\n";
var_dump(abs($_SERVER['REQUEST_TIME_FLOAT'] - microtime(true)) < 10, getcwd() === __DIR__, get_included_files() === [__FILE__]);
var_dump(ini_get('cgi.fix_pathinfo'), filter_input(INPUT_SERVER, 'REQUEST_METHOD'), function_exists('dl'));
