<?php
// Changes of other requests that a request can see.
$state['uploads'] ??= sys_get_temp_dir();
echo json_encode([
	'get' => $_GET, 'post' => $_POST, 'cookie' => $_COOKIE, 'files' => $_FILES, 'env' => $_ENV['BOOT'],
	'more env' => isset($_ENV['CHANGED']), 'server' => $_SERVER['CHANGED'] ?? null, 'request' => $_REQUEST,
	'getenv' => [getenv('BOOT'), getenv('CHANGED')],
	'locale' => setlocale(LC_ALL, 0), 'umask' => umask(), 'cwd' => basename(getcwd()),
	'ini' => [ini_get('precision'), ini_get('display_errors'), ini_get('memory_limit'), ini_get('max_execution_time')],
	'error_reporting' => error_reporting(), 'zone' => date_default_timezone_get(),
	'mb' => [mb_internal_encoding(), mb_http_output(), mb_regex_encoding(), mb_strlen('é'), mb_substitute_character()], 'libxml' => [libxml_use_internal_errors(), is_null(libxml_get_external_entity_loader())],
	'last errors' => [json_last_error(), preg_last_error()],
	'context' => stream_context_get_options(stream_context_get_default()),
	'wrappers' => stream_get_wrappers(), 'filters' => stream_get_filters(), 'session' => [session_status(), session_id()],
	'session vars' => isset($_SESSION), 'levels' => ob_get_level(), 'headers' => headers_list(), 'code' => http_response_code(),
	'last' => error_get_last(), 'abort' => [ignore_user_abort(), connection_status()],
	'input' => file_get_contents('php://input'), 'strtok' => strtok(','),
	'handlers' => [is_object($h = set_error_handler(null)), is_null($e = set_exception_handler(null))],
]), "\n";
set_error_handler($h);
set_exception_handler($e);
