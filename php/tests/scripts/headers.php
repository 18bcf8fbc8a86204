<?php
switch ($_SERVER['QUERY_STRING']) {
	case 'plain':
		header('X-One: 1');
		header('X-Two: a');
		header('X-Two: b', false);
		header('X-Gone: 1');
		header_remove('X-Gone');
		header('Content-Type: text/plain');
		setcookie('c', 'v w', ['path' => '/', 'httponly' => true, 'samesite' => 'Lax']);
		break;
	case 'location':
		header('Location: /elsewhere');
		exit;
	case 'code':
		http_response_code(418);
		break;
	case 'unknown-code':
		http_response_code(599);
		break;
	case 'status-header':
		header('Status: 404 Custom');
		break;
	case 'status-header-and-code':
		header('Status: 404 Custom');
		http_response_code(503);
		break;
	case 'http-line':
		header('HTTP/1.1 404 Lost And Gone');
		break;
	case 'http-line-and-status':
		header('HTTP/1.0 403 Not You');
		header('Status: 404 Custom');
		break;
	case 'not-modified':
		http_response_code(304);
		header('ETag: "x"');
		exit;
	case 'no-type':
		ini_set('default_mimetype', '');
		break;
	case 'injection':
		header("X-Bad: 1\r\nX-Worse: 2");
		break;
	case 'late':
		echo str_repeat('x', 5000);
		flush();
		header('X-Late: 1');
		var_dump(headers_sent());
		break;
	case 'callback':
		header_register_callback(function () { header('X-Called: back'); });
		break;
	case 'length':
		header('Content-Length: 5');
		echo 'hello';
		exit;
	case 'nothing':
		exit;
	case 'compressed':
		ini_set('zlib.output_compression', 'On');
		echo str_repeat('compress me ', 1000);
		exit;
}
echo "body\n";
var_dump(http_response_code(), headers_list());
