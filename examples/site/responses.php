<?php
// How the site's last responses left: handed over as files, or copied.

require __DIR__ . '/parts/page.php';

page_top('The last responses', '/responses.php');
$entries = record_read();
if (!function_exists('sendoff_stats')): ?>
<p class="problem">This PHP does not run under Sendoff, so nothing is handed over and nothing is counted.
<code>sendoff serve</code> starts this site as it is meant.</p>
<?php elseif (!$entries): ?>
<p>None yet. Look at <a href="/">the mixed page</a> or <a href="/download.php">a download</a>, and come back.</p>
<?php else: ?>
<p>The body of every response of this site, newest first. What was <strong>handed over</strong> left as an open file and was
never read by PHP; what was <strong>copied</strong> was generated, or too small to be worth it.</p>
<table>
<thead>
<tr><th scope="col">Time</th><th scope="col">Page</th><th scope="col" class="number">Handed over</th><th scope="col" class="number">Copied</th><th scope="col" class="number">Segments</th><th scope="col">Share handed over</th></tr>
</thead>
<tbody>
<?php foreach ($entries as $entry):
    $whole = max(1, $entry['handed_over_bytes'] + $entry['copied_bytes']);
    $share = round(100 * $entry['handed_over_bytes'] / $whole);
    ?>
<tr>
<td><time datetime="<?= date('c', $entry['time']) ?>"><?= date('H:i:s', $entry['time']) ?></time></td>
<td><?= htmlspecialchars($entry['name']) ?></td>
<td class="number"><?= in_words($entry['handed_over_bytes']) ?></td>
<td class="number"><?= in_words($entry['copied_bytes']) ?></td>
<td class="number"><?= $entry['segments'] ?></td>
<td><meter min="0" max="100" value="<?= $share ?>"><?= $share ?> %</meter> <?= $share ?> %</td>
</tr>
<?php endforeach ?>
</tbody>
</table>
<?php endif;
page_bottom();
