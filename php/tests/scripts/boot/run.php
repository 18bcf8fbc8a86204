<?php
// Runs the script RUN: in worker mode for each request, else for this one.
$run = static function () { include $_SERVER['RUN']; };
if (function_exists('sendoff_handle_request')) {
	while (sendoff_handle_request($run)) {
	}
} else {
	$run();
}
