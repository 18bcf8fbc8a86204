<?php
// The front page, and the answer to every path that is neither a file nor a script.

require __DIR__ . '/parts/page.php';

$path = parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);
if ($path !== '/' && $path !== '/index.php') {
    http_response_code(404);
    page_top('There is nothing here', 'not found');
    echo '<p>No file and no script is called <code>', htmlspecialchars(rawurldecode((string) $path)), "</code>.</p>\n";
    echo "<p><a href=\"/\">To the first page</a></p>\n";
    page_end();
    exit;
}

page_top('Pages from PHP, without the copies', '/');
?>
<p>Sendoff is a web server that runs PHP. Your scripts stay as they are. When a script sends a file, other servers copy
every byte of it four times: into PHP, into PHP's output buffer, to the web server, to the client. Sendoff takes the <em>open
file</em> from the script instead, and sends all clients one copy of it.</p>
<img class="picture" src="/picture.svg" width="760" height="330" alt="With nginx and php-fpm a file is copied to PHP, to its output buffer, to nginx, and to the client. With Sendoff PHP passes the open file on to the front, which sends it to the client.">
<p>So the worker that ran the script is free at once, and the server spends less time on most pages:</p>
<?php page_figures('Processor time of the whole server side for one response, in µs', [
    "echo 'hello'" => 'hello',
    'a file of 60 KB that a script sends' => 'file-60k',
    'two files of 60 KB in one page' => 'mixed-60k',
    'a file of 1 MB that a script sends' => 'file-1m',
    '1 MB that the script generates' => 'generated-1m',
    'a file of 60 KB that the script changes first' => 'changing-60k',
]) ?>
<p>Sendoff loses the last row. The <a href="/download.php">download</a> and the <a href="/upload.php">upload</a>
show more; <a href="/responses.php">the list of responses</a> shows how each page of this site has left.</p>

<h2>This page is an example</h2>
<p>The text is generated. The three tables below are files of 48 to 96 KB, and the script says no more than
<code>echo file_get_contents($file)</code>: the page leaves as <em>text, file, text, file, text, file, text</em>.</p>
<?php foreach (glob(__DIR__ . '/tables/*.html') as $number => $file): ?>
<section aria-labelledby="table-<?= $number ?>">
<h3 id="table-<?= $number ?>"><?= htmlspecialchars(ucfirst(basename($file, '.html'))), ' ' ?>
<small><?= in_words(filesize($file)) ?>, at <?= date('H:i:s') ?></small></h3>
<div class="table" tabindex="0" role="region" aria-labelledby="table-<?= $number ?>">
<?php echo file_get_contents($file) ?>
</div>
</section>
<?php endforeach;
page_bottom(__FILE__, '/');
