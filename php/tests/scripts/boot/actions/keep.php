<?php
// Keeps a lazy string, and answers with the values of it and of an earlier request's string.
if (isset($_GET['file'])) {
	$state['files'][] = file_get_contents($_GET['file']);
}
foreach ($state['files'] as $file) {
	echo strlen($file), ' ', md5($file), "\n";
}
if (isset($_GET['echo'])) {
	echo $state['files'][(int) $_GET['echo']];
}
