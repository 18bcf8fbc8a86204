<?php
// Takes a file, says what arrived, and keeps nothing: PHP removes an upload when the request ends.

require __DIR__ . '/parts/page.php';

/** Why there is no file, in words. */
function upload_problem(int $error): string
{
    return match ($error) {
        UPLOAD_ERR_INI_SIZE, UPLOAD_ERR_FORM_SIZE => 'The file is larger than upload_max_filesize (' . ini_get('upload_max_filesize') . ').',
        UPLOAD_ERR_PARTIAL => 'Only a part of the file arrived.',
        UPLOAD_ERR_NO_FILE => 'No file was chosen.',
        default => "The file could not be stored (PHP's upload error $error).",
    };
}

page_top('Upload', '/upload.php');

if ($_SERVER['REQUEST_METHOD'] === 'POST') {
    $file = $_FILES['file'] ?? null;
    if (!$_FILES && !$_POST && (int) $_SERVER['CONTENT_LENGTH'] > 0) {
        echo '<p class="problem" role="alert">The request is larger than post_max_size (', ini_get('post_max_size'), ").</p>\n";
    } elseif (!$file || !is_int($file['error']) || $file['error'] !== UPLOAD_ERR_OK) {
        $error = is_int($file['error'] ?? null) ? $file['error'] : UPLOAD_ERR_NO_FILE;
        echo '<p class="problem" role="alert">', htmlspecialchars(upload_problem($error)), "</p>\n";
    } else {
        ?>
<dl class="arrived" role="status">
<dt>Name</dt><dd><?= htmlspecialchars($file['name'], ENT_SUBSTITUTE) ?></dd>
<dt>Size</dt><dd><?= number_format($file['size']) ?> bytes</dd>
<dt>SHA-1</dt><dd><code><?= sha1_file($file['tmp_name']) ?></code></dd>
</dl>
<?php
    }
}
?>
<p>A web server that passes an upload on as it arrives occupies a PHP worker for as long as the client takes to send. Sendoff, like
nginx by default, receives the whole file before it takes a worker, so a slow upload occupies none. This page keeps nothing of it.</p>
<form method="post" enctype="multipart/form-data" action="/upload.php">
<label for="file">A file, up to <?= htmlspecialchars(ini_get('upload_max_filesize')) ?></label>
<input type="file" id="file" name="file" required>
<button type="submit">Upload</button>
</form>
<?php
page_bottom(__FILE__, '/upload.php');
