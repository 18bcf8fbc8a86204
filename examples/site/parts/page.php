<?php
// What every page has around it, and the record of how its bytes left.

require __DIR__ . '/record.php';

function page_top(string $title, string $here): void
{
    // A browser shows the page as it comes; the record is written when the page has been sent.
    record_this_response($here);
    $links = ['/' => 'Mixed page', '/download.php' => 'Download', '/upload.php' => 'Upload', '/responses.php' => 'Responses'];
    ?>
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title><?= htmlspecialchars($title) ?> · Sendoff</title>
<link rel="icon" href="/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/style.css">
</head>
<body>
<header>
<a class="name" href="/">Sendoff</a>
<nav aria-label="Pages">
<ul>
<?php foreach ($links as $target => $text): ?>
<li><a href="<?= $target ?>"<?= $target === $here ? ' aria-current="page"' : '' ?>><?= $text ?></a></li>
<?php endforeach ?>
</ul>
</nav>
</header>
<main>
<h1><?= htmlspecialchars($title) ?></h1>
<?php
}

function page_bottom(): void
{
    ?>
</main>
<footer>
<p>Plain PHP <?= PHP_VERSION ?>, run as <code><?= htmlspecialchars(PHP_SAPI) ?></code> by process <?= getmypid() ?>.</p>
</footer>
</body>
</html>
<?php
}

/** 4096 becomes "4.0 KB". */
function in_words(int $bytes): string
{
    return match (true) {
        $bytes < 1024 => "$bytes bytes",
        $bytes < 1024 ** 2 => sprintf('%.1f KB', $bytes / 1024),
        default => sprintf('%.1f MB', $bytes / 1024 ** 2),
    };
}
