<?php
try {
	sendoff_handle_request(function () {});
} catch (RuntimeException $e) {
	echo $e->getMessage(), "\n";
}
echo frankenphp_finish_request() ? 'finished' : '', ' and dropped';
