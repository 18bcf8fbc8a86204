<?php
// The parts of all pages. A page calls head(), records() for each command of the back end, and foot(). A page that is "collected" goes
// into PHP's output buffer and is printed once, as template engines do.

/** Asks the back end, over a connection that lasts as long as the process. */
function ask(string $command, int $user): string
{
    [$host, $port] = explode(':', BACK_END);
    // Another process may have ended a kept connection: a new one is tried once.
    for ($attempt = 0; $attempt < 2; $attempt++) {
        $socket = pfsockopen($host, (int) $port);
        if ($socket === false) {
            break;
        }
        $sent = @fwrite($socket, "GET /$command/$user HTTP/1.1\r\nHost: records\r\n\r\n");
        $status = $sent ? fgets($socket) : false;
        if ($status === false) {
            fclose($socket);
            continue;
        }
        $length = 0;
        while (($line = rtrim((string) fgets($socket))) !== '') {
            if (stripos($line, 'Content-Length:') === 0) {
                $length = (int) substr($line, 15);
            }
        }
        return (string) stream_get_contents($socket, $length);
    }
    http_response_code(503);
    exit('The back end does not answer.');
}

function head(string $title, int $user): void
{
    if (COLLECTED) {
        ob_start();
    }
    include __DIR__ . '/head.php';
    echo "<p>Customer $user\n";
}

/** A table of the records that the back end has for a user. */
function records(string $command, int $user): void
{
    echo "<table>\n";
    foreach (explode("\n", rtrim(ask($command, $user))) as $record) {
        [$label, $amount] = explode(';', $record);
        echo "<tr><td>$label<td>$amount\n";
    }
    echo "</table>\n";
}

function foot(string $padding): void
{
    readfile(__DIR__ . '/foot.html');
    echo "<pre>\n";
    if (COLLECTED) {
        $text = file_get_contents($padding);
        $page = ob_get_clean();
        echo $page . $text . "</pre>\n</html>\n";
        return;
    }
    readfile($padding);
    echo "</pre>\n</html>\n";
}
