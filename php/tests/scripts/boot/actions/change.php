<?php
if (!class_exists('Wrapper', false)) {
	class Wrapper { public $context; }
	class Filter extends php_user_filter {}
}
$_ENV['BOOT'] = $_ENV['CHANGED'] = $_SERVER['CHANGED'] = 'changed';
$_GET['more'] = $_POST['more'] = $_COOKIE['more'] = $_REQUEST['more'] = 'changed';
putenv('BOOT=changed');
putenv('CHANGED=changed');
setlocale(LC_ALL, 'C');
umask(0);
chdir('/');
ini_set('precision', '3');
ini_set('display_errors', 'stderr');
ini_set('memory_limit', '1G');
set_time_limit(77);
error_reporting(0);
date_default_timezone_set('Asia/Tokyo');
ini_set('default_charset', 'EUC-JP');
mb_internal_encoding('ISO-8859-1');
ini_set('default_charset', 'ISO-8859-1');
mb_substitute_character('none');
libxml_use_internal_errors(true);
libxml_set_external_entity_loader(fn () => null);
json_decode('{');
preg_match('/(?:\D+|<\d+>)*[!?]/', 'foobar foobar foobar');
stream_context_set_default(['http' => ['user_agent' => 'changed', 'method' => 'PUT']]);
stream_wrapper_register('changed', 'Wrapper');
stream_wrapper_unregister('data');
stream_filter_register('changed.*', 'Filter');
session_start();
$_SESSION['changed'] = true;
set_error_handler(fn () => true);
set_error_handler(fn () => true);
set_exception_handler(fn () => true);
ignore_user_abort(true);
header('X-Changed: yes');
http_response_code(418);
header_register_callback(function () { header('X-Callback: yes'); });
register_shutdown_function(function () { echo '[shutdown function]'; });
strtok('a,b,c', ',');
output_add_rewrite_var('changed', 'yes');
ob_start(fn ($text) => strtoupper($text));
ob_start();
echo 'changed';
$state['kept'] = fopen('php://input', 'r');
mt_srand(5);
