<?php
var_dump($_GET, $_POST, $_COOKIE, $_REQUEST, file_get_contents('php://input'));
foreach ($_FILES as $name => $file) {
	foreach ((array)$file['tmp_name'] as $i => $path) {
		$contents = $path === '' ? null : md5_file($path);
		echo "$name: ", json_encode([((array)$file['name'])[$i], ((array)$file['type'])[$i],
			((array)$file['error'])[$i], ((array)$file['size'])[$i], $contents,
			is_uploaded_file($path), move_uploaded_file($path, "$path.moved")]), "\n";
		@unlink("$path.moved");
	}
}
