<?php
$ask = function () {
	try {
		return sendoff_handle_request(function () {}) ? 'another request' : 'no request';
	} catch (RuntimeException $e) {
		return $e->getMessage();
	}
};
if (isset($_GET['buffer'])) {
	ob_start(fn ($text) => $text . $ask());
} else {
	register_shutdown_function(function () use ($ask) { echo $ask(); });
}
echo 'asks: ';
if (isset($_GET['exit'])) {
	exit;
}
