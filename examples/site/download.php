<?php
// A download in the two ways PHP scripts send one. The file is made when it is first asked for.

require __DIR__ . '/parts/page.php';

const DOWNLOAD_SIZE = 5 * 1024 * 1024;

/** The file to send. Two requests at once may both make it: the rename lets either win. */
function download_file(): string
{
    $file = sys_get_temp_dir() . '/sendoff-site-download-' . posix_geteuid() . '.txt';
    if (!is_file($file) || filesize($file) !== DOWNLOAD_SIZE) {
        $line = 0;
        $text = '';
        while (strlen($text) < DOWNLOAD_SIZE) {
            $text .= sprintf("%07d  the quick brown fox jumps over the lazy string\n", ++$line);
        }
        $new = tempnam(dirname($file), 'sendoff-site-');
        file_put_contents($new, substr($text, 0, DOWNLOAD_SIZE));
        rename($new, $file);
    }
    return $file;
}

$how = $_GET['how'] ?? '';
if ($how === 'readfile' || $how === 'echo') {
    record_this_response("/download.php, $how");
    $file = download_file();
    header('Content-Type: text/plain; charset=utf-8');
    header('Content-Disposition: attachment; filename="lazy-strings.txt"');
    header('Content-Length: ' . filesize($file));
    if ($how === 'readfile') {
        readfile($file);
    } else {
        echo file_get_contents($file);
    }
    exit;
}

page_top('Download', '/download.php');
?>
<p>Many scripts check who may have a file, count the download, and then send it. Here is one file of
<?= in_words(DOWNLOAD_SIZE) ?>, sent by a script in the two usual ways. With nginx and php-fpm every byte goes through PHP. The worker is
free when nginx has the whole response, and nginx writes what a slow client has not read to a temporary file, one for each download:
2.4 MB of this file if the client stops reading. Inside Apache the worker is occupied until the client has read almost everything. Here
neither script reads the file. The worker is free at once, and all downloads share one copy of the file in memory.</p>
<ul class="choices">
<li><a class="button" href="/download.php?how=readfile" download>Download</a> <code>readfile($file)</code></li>
<li><a class="button" href="/download.php?how=echo" download>Download</a> <code>echo file_get_contents($file)</code></li>
</ul>
<?php page_figures('Processor time of the whole server side for one download, in µs', [
    '1 MB by readfile()' => 'readfile-1m',
    '1 MB by echo fread($f, 8192) in a loop' => 'loop-1m',
    '100 MB by readfile()' => 'readfile-100m',
]);
page_bottom(__FILE__, '/download.php?how=readfile');
