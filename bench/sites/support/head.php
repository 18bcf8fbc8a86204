<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Support: <?= $title ?></title>
<style>
body { font: 16px/1.4 sans-serif; margin: 0 auto; max-width: 64em; padding: 1em; color: #222; background: #fff; }
nav ul { list-style: none; display: grid; grid-template-columns: repeat(4, 1fr); gap: .4em 1.2em; padding: 0; border-bottom: 2px solid #06a; }
nav a, aside a { color: #046; text-decoration: none; }
table { border-collapse: collapse; width: 100%; }
td { border-bottom: 1px solid #ccc; padding: .2em .5em; }
td + td { text-align: right; font-variant-numeric: tabular-nums; }
aside { background: #f4f8fc; padding: .5em 1em; }
pre { white-space: pre-wrap; word-break: break-all; font-size: .7em; color: #888; }
</style>
</head>
<body>
<nav aria-label="Support">
<ul>
<li><a href="home.php">Support</a>
<li><a href="search.php">Search</a>
<li><a href="catalog.php">Products</a>
<li><a href="fileCatalog.php">Drivers and programs</a>
<li><a href="product.php">Your product</a>
<li><a href="file.php">Downloads</a>
<li><a href="home.php?topic=repair">Repairs</a>
<li><a href="home.php?topic=contact">Contact</a>
</ul>
</nav>
<form action="search.php">
<label for="words">Words, or the number on the back of the product</label>
<input id="words" name="words" type="search">
<button>Search</button>
</form>
<h1><?= $title ?></h1>
