<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sendoff is running</title>
<style>
:root { color-scheme: light dark; }
body { max-width: 40rem; margin: 3rem auto; padding: 0 1rem; font: 1rem/1.6 system-ui, sans-serif; }
pre { padding: .75rem 1rem; overflow-x: auto; border: 1px solid; border-radius: .375rem; }
</style>
</head>
<body>
<main>
<h1>Sendoff is running</h1>
<p><?= 'PHP runs, too.' ?> This page stands in for your site. To serve yours:</p>
<ol>
<li>name its folder in <code>/etc/sendoff/sendoff.toml</code>, as <code>root</code>;</li>
<li>check the file: <code>sendoff check</code>;</li>
<li>put it into effect: <code>systemctl reload sendoff</code>.</li>
</ol>
<p>What the server does: <code>sendoff status</code>. How a page leaves it, and what was copied:</p>
<pre><code>sendoff explain http://localhost/</code></pre>
</main>
</body>
</html>
