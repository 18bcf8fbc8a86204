<?php
// What every page has around it, and the record of how its bytes left.

require __DIR__ . '/record.php';

function page_top(string $title, string $here): void
{
    // A browser shows the page as it comes; the record is written when the page has been sent.
    record_this_response($here);
    $links = ['/' => 'What it is', '/download.php' => 'Download', '/upload.php' => 'Upload', '/responses.php' => 'Responses'];
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

/** The end of a page, after how it was made: the source of its script, and what `sendoff explain` says of a URL of it. */
function page_bottom(string $script, string $target): void
{
    $name = basename($script, '.php');
    $address = 'http://' . ($_SERVER['HTTP_HOST'] ?? 'localhost') . $target;
    ?>
<section class="made" aria-labelledby="made">
<h2 id="made">How this page was made</h2>
<p>The server says of any page how each piece of it leaves, which line of the script it comes from, and why it was copied, if it
was. Ask it as the user that has started it:</p>
<pre tabindex="0" role="region" aria-label="Command"><code>sendoff explain <?= htmlspecialchars($address) ?></code></pre>
<p>When this site was written it answered:</p>
<pre tabindex="0" role="region" aria-label="Answer of sendoff explain"><code><?= page_listing(__DIR__ . "/explained/$name.txt") ?></code></pre>
<details>
<summary>The script of this page, <?= $name ?>.php</summary>
<pre tabindex="0" role="region" aria-label="Source of <?= $name ?>.php"><code><?= page_listing($script) ?></code></pre>
</details>
</section>
<?php
    page_end();
}

/** The end of a page. */
function page_end(): void
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

/** A text file as HTML. By lines, because a page that explains itself should not hand over its own explanation. */
function page_listing(string $file): string
{
    return htmlspecialchars(implode('', file($file)));
}

/** A table of measured times with bars: what is sent => the workload of the benchmark. */
function page_figures(string $caption, array $rows): void
{
    $figures = require __DIR__ . '/figures.php';
    $rows = array_map(fn ($what, $workload) => [$what, ...$figures[$workload]], array_keys($rows), $rows);
    $most = max(array_map(fn ($row) => max($row[1], $row[2]), $rows));
    $bar = fn (int $time) => sprintf('<span class="bar" style="width: %.1f%%"></span>', 100 * $time / $most);
    ?>
<table class="figures">
<caption><?= htmlspecialchars($caption) ?></caption>
<thead><tr><th scope="col">What is sent</th><th scope="col">nginx + php-fpm, tuned</th><th scope="col">Sendoff</th></tr></thead>
<tbody>
<?php foreach ($rows as [$what, $theirs, $ours]): ?>
<tr><th scope="row"><?= htmlspecialchars($what) ?></th><td><?= number_format($theirs), $bar($theirs) ?></td><td><?= number_format($ours), $bar($ours) ?></td></tr>
<?php endforeach ?>
</tbody>
</table>
<p class="source"><?= htmlspecialchars($figures['conditions']) ?> ±15 %. <code>make bench</code> measures it on your machine.</p>
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
