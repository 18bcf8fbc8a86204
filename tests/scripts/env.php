<?php
// Everything a script can learn about its request, apart from what must differ between two servers.
// (REMOTE_USER: nginx puts the name there that a client claims, without checking it; here it is empty.)
const ITS_OWN = ['REMOTE_USER' => 0, 'SERVER_SOFTWARE' => 0, 'SERVER_PORT' => 0, 'REMOTE_PORT' => 0, 'REQUEST_TIME' => 0, 'REQUEST_TIME_FLOAT' => 0];

$server = array_diff_key($_SERVER, ITS_OWN);
ksort($server);
$environment = array_diff_key(getenv(), ITS_OWN);
ksort($environment);
$headers = getallheaders();
ksort($headers);
foreach ($_FILES as &$file) {
    $file['sha1'] = is_string($file['tmp_name']) && $file['tmp_name'] !== '' ? sha1_file($file['tmp_name']) : null;
    $file['tmp_name'] = is_string($file['tmp_name']) ? is_uploaded_file($file['tmp_name']) : null;
}
unset($file);

echo json_encode([
    'sapi' => PHP_SAPI,
    'server' => $server,
    'environment' => $environment,
    'getenv' => getenv('SCRIPT_NAME'),
    'get' => $_GET,
    'post' => $_POST,
    'cookie' => $_COOKIE,
    'files' => $_FILES,
    'request' => $_REQUEST,
    'input' => sha1(file_get_contents('php://input')),
    'headers' => $headers,
    'file' => __FILE__,
    'cwd' => getcwd(),
    'user' => posix_getpwuid(posix_geteuid())['name'],
    'groups' => posix_getgroups(),
    'umask' => umask(),
], JSON_PRETTY_PRINT | JSON_INVALID_UTF8_SUBSTITUTE | JSON_UNESCAPED_SLASHES), "\n";
