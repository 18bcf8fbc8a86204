<?php
// The front page, and the answer to every path that is neither a file nor a script.

require __DIR__ . '/parts/page.php';

$path = parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);
if ($path !== '/' && $path !== '/index.php') {
    http_response_code(404);
    page_top('There is nothing here', 'not found');
    echo '<p>No file and no script is called <code>', htmlspecialchars(rawurldecode((string) $path)), "</code>.</p>\n";
    echo "<p><a href=\"/\">To the first page</a></p>\n";
    page_bottom();
    exit;
}

page_top('A page with files inside', '/');
?>
<p>The frame around these tables is generated. The tables are files of some tens of kilobytes, and the script says only
<code>echo file_get_contents($file)</code>. Where you would expect PHP to read each one, copy it into its output buffer, and
copy it again to the web server, Sendoff hands the open file over: the page leaves as
<em>bytes, file, bytes, file, bytes</em>.</p>
<p>How it went for this very page is on <a href="/responses.php">the list of responses</a>.</p>
<?php foreach (glob(__DIR__ . '/tables/*.html') as $number => $file): ?>
<section aria-labelledby="table-<?= $number ?>">
<h2 id="table-<?= $number ?>"><?= htmlspecialchars(ucfirst(basename($file, '.html'))), ' ' ?>
<small><?= in_words(filesize($file)) ?>, at <?= date('H:i:s') ?></small></h2>
<div class="table" tabindex="0" role="region" aria-labelledby="table-<?= $number ?>">
<?php echo file_get_contents($file) ?>
</div>
</section>
<?php endforeach;
page_bottom();
