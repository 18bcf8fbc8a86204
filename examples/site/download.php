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
<p>A script that checks who may have a file, counts the download and then sends it: with other servers it is occupied until
the last client has the last byte. Here is one file of <?= in_words(DOWNLOAD_SIZE) ?>, sent by a script in the two usual ways.
Neither reads it: the worker is free again before the first kilobyte has reached you, however slow your line is.</p>
<ul class="choices">
<li><a class="button" href="/download.php?how=readfile" download>Download</a> <code>readfile($file)</code></li>
<li><a class="button" href="/download.php?how=echo" download>Download</a> <code>echo file_get_contents($file)</code></li>
</ul>
<?php page_figures('Processor time for one download, in µs', [
    ['1 MB by readfile()', 396, 75],
    ['1 MB by echo fread($f, 8192) in a loop', 457, 94],
    ['100 MB by readfile(): the PHP worker alone', 18401, 111],
    ['100 MB by readfile(): the whole server side', 47222, 6679],
]);
page_bottom(__FILE__, '/download.php?how=readfile');
