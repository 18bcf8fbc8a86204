<?php

// A worker script in the way of Laravel Octane: the application is made within the first request.

if (!($_SERVER['FRANKENPHP_WORKER'] ?? false) || !function_exists('frankenphp_handle_request')) {
    echo 'This script runs in worker mode alone.';
    exit(1);
}

require __DIR__ . '/app.php';

$app = null;
$most = $_ENV['MAX_REQUESTS'] ?? $_SERVER['MAX_REQUESTS'];
$count = 0;
try {
    $answer = static function () use (&$app): void {
        $app ??= new App();
        try {
            $app->handle($_SERVER, $_GET, $_POST);
        } catch (Throwable $e) {
            http_response_code(500);
            echo 'Internal Server Error';
        }
    };
    while ($count < $most && frankenphp_handle_request($answer)) {
        $count++;
    }
} finally {
    $app?->terminate('all');
}
