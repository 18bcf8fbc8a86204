<?php
// Writes the number of readers that the page wants where the demonstration looks for it.

$count = filter_var($_POST['count'] ?? null, FILTER_VALIDATE_INT, ['options' => ['min_range' => 0, 'max_range' => 400]]);
if ($_SERVER['REQUEST_METHOD'] !== 'POST' || $count === false) {
    http_response_code(400);
    exit("A number from 0 to 400 is wanted.\n");
}
file_put_contents(__DIR__ . '/data/readers', $count);
header('Location: /', true, 303);
