<?php
// The temporary-file technique: a page goes into a file in memory while the script writes it, and the server sends the file.
//
// PHP runs this before every script (auto_prepend_file), so the scripts stay as they are. The worker opens the file when the header is
// set, which is why the file can be removed at once: nothing has to be cleaned up after a request.

const PAGES = '/dev/shm/sendoff-pages';

(function (): void {
    if (!is_dir(PAGES) && !@mkdir(PAGES, 0700) && !is_dir(PAGES)) {
        return; // The page is sent as usual.
    }
    $name = tempnam(PAGES, 'page-');
    if ($name === false || dirname($name) !== PAGES || !($file = fopen($name, 'w'))) {
        return;
    }
    [$whole, $written, $ending] = [true, 0, false];
    register_shutdown_function(static function () use (&$ending): void {
        $ending = true;
    });
    ob_start(
        static function (string $text, int $phase) use ($name, $file, &$whole, &$written, &$ending): string {
            if (!$whole) {
                return $text;
            }
            $final = ($phase & PHP_OUTPUT_HANDLER_FINAL) !== 0;
            // A full disk, a head that has been sent, or a script that ends its buffers itself: the page is sent as usual.
            $whole = !headers_sent() && (!$final || $ending) && fwrite($file, $text) === strlen($text);
            if (!$whole) {
                $text = file_get_contents($name, false, null, 0, $written) . $text;
                unlink($name);
                return $text;
            }
            $written += strlen($text);
            if ($final) {
                fclose($file);
                if ($written > 0) {
                    header("X-Sendfile: $name");
                }
                unlink($name);
            }
            return '';
        },
        65536
    );
})();
