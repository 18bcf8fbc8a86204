<?php
$in = fopen('php://input', 'r');
$first = fread($in, 10);
$rest = stream_get_contents($in);
rewind($in);
echo strlen($first), ' ', strlen($rest), ' ', md5($first . $rest), ' ', md5(stream_get_contents($in)), ' ', $_SERVER['CONTENT_LENGTH'], ' ', count($_POST), "\n";
