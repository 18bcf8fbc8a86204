<?php
foreach (['fastcgi_finish_request', 'getallheaders', 'apache_request_headers'] as $name) {
	echo new ReflectionFunction($name);
}
var_dump(extension_loaded('cgi-fcgi'), ignore_user_abort(), connection_status(), connection_aborted());
var_dump(ini_get('max_execution_time'), ini_get('output_buffering'), php_ini_loaded_file(), php_ini_scanned_files());
var_dump(get_cfg_var('cfg_file_path'), ini_get('display_errors'), ini_get('html_errors'), ini_get('error_log'));
$ours = array_diff(get_loaded_extensions(), ['sendoff']);
sort($ours);
echo implode(' ', $ours), "\n";
$functions = array_diff(get_defined_functions()['internal'], ['fpm_get_status', 'headers_send']);
$functions = array_filter($functions, fn($name) => !str_starts_with($name, 'sendoff_'));
sort($functions);
echo implode(' ', $functions), "\n";
var_dump(defined('STDIN'), defined('STDOUT'), isset($argv), $_SERVER['argc'] ?? null);
