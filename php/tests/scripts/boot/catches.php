<?php
// A worker script that answers when its handler has thrown.
$handler = function () {
	echo 'begun, ';
	if (isset($_GET['throw'])) {
		throw new LogicException($_GET['throw']);
	}
};
do {
	try {
		$goes_on = frankenphp_handle_request($handler);
	} catch (LogicException $e) {
		echo 'caught ', $e->getMessage();
		$goes_on = true;
	}
} while ($goes_on);
