<?php
// A record of the site's last responses: how many bytes were handed over as files, and how many were copied.
// It lives in APCu, which all workers share; without APCu in a file in the folder for temporary files.

const RECORD_LENGTH = 12;

/** Notes, when the response to this request has been sent, how its bytes left. */
function record_this_response(string $name): void
{
    register_shutdown_function(function () use ($name) {
        if (!function_exists('sendoff_stats')) {
            return;
        }
        // The last of the output leaves PHP here, so that it is counted, too.
        while (ob_get_level() > 0) {
            ob_end_flush();
        }
        record_add(['time' => time(), 'name' => $name] + sendoff_stats());
    });
}

/** The last responses, newest first. */
function record_read(): array
{
    if (record_in_apcu()) {
        $last = (int) apcu_fetch('sendoff-site:last');
        $keys = [];
        for ($number = $last; $number > max(0, $last - RECORD_LENGTH); $number--) {
            $keys[] = "sendoff-site:$number";
        }
        $found = $keys ? apcu_fetch($keys) : [];
        // In the order of the keys; what APCu has evicted is left out.
        return array_values(array_intersect_key($found, array_flip($keys)));
    }
    $text = @file_get_contents(record_file());
    return $text ? (json_decode($text, true) ?? []) : [];
}

function record_add(array $entry): void
{
    if (record_in_apcu()) {
        $number = apcu_inc('sendoff-site:last');
        apcu_store("sendoff-site:$number", $entry);
        apcu_delete('sendoff-site:' . ($number - RECORD_LENGTH));
        return;
    }
    $file = @fopen(record_file(), 'c+');
    if ($file && flock($file, LOCK_EX)) {
        $entries = json_decode(stream_get_contents($file), true) ?? [];
        array_unshift($entries, $entry);
        ftruncate($file, 0);
        rewind($file);
        fwrite($file, json_encode(array_slice($entries, 0, RECORD_LENGTH)));
        fclose($file);
    }
}

function record_in_apcu(): bool
{
    return function_exists('apcu_enabled') && apcu_enabled();
}

function record_file(): string
{
    // A name of our own per user: another user's file could not be written.
    return sys_get_temp_dir() . '/sendoff-site-' . posix_geteuid() . '.json';
}
