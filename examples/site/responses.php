<?php
// How the site's last responses left: handed over as files, or copied.

require __DIR__ . '/parts/page.php';

page_top('The last responses', '/responses.php');
$entries = record_read();
if (!function_exists('sendoff_stats')): ?>
<p class="problem">This PHP does not run under Sendoff, so nothing is handed over and nothing is counted.
<code>sendoff serve</code> starts this site as it is meant.</p>
<?php elseif (!$entries): ?>
<p>None yet. Look at <a href="/">the first page</a> or <a href="/download.php">a download</a>, and come back.</p>
<?php else: ?>
<p>The body of every response of this site, newest first. What was <strong>handed over</strong> left as an open file, and PHP never
read it. What was <strong>copied</strong> was text that the script generated, or a file too small to be worth it. The share is
that of the bytes handed over.</p>
<table class="responses">
<thead>
<tr><th scope="col" class="wide">Time</th><th scope="col">Page</th><th scope="col" class="number">Handed over</th><th scope="col" class="number">Copied</th><th scope="col" class="number">Share</th></tr>
</thead>
<tbody>
<?php foreach ($entries as $entry):
    $whole = max(1, $entry['handed_over_bytes'] + $entry['copied_bytes']);
    $share = round(100 * $entry['handed_over_bytes'] / $whole);
    ?>
<tr>
<td class="wide"><time datetime="<?= date('c', $entry['time']) ?>"><?= date('H:i:s', $entry['time']) ?></time></td>
<td><?= htmlspecialchars($entry['name']) ?></td>
<td class="number"><?= in_words($entry['handed_over_bytes']) ?></td>
<td class="number"><?= in_words($entry['copied_bytes']) ?></td>
<td class="number"><?= $share ?> %</td>
</tr>
<?php endforeach ?>
</tbody>
</table>
<?php endif;
page_bottom(__FILE__, '/responses.php');
