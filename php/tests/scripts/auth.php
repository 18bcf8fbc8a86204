<?php
foreach (['PHP_AUTH_USER', 'PHP_AUTH_PW', 'PHP_AUTH_DIGEST', 'AUTH_TYPE', 'HTTP_AUTHORIZATION'] as $name) {
	echo $name, '=', $_SERVER[$name] ?? 'unset', "\n";
}
