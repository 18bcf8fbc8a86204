<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Shop: <?= $title ?></title>
<style>
body { font: 16px/1.4 sans-serif; margin: 0 auto; max-width: 64em; padding: 1em; color: #222; background: #fff; }
nav a { color: #048; margin-right: 1em; text-decoration: none; }
td + td { text-align: right; font-variant-numeric: tabular-nums; }
pre { white-space: pre-wrap; word-break: break-all; font-size: .7em; color: #888; }
</style>
</head>
<body>
<nav aria-label="Shop">
<a href="index.php">Start</a>
<a href="browse.php">All products</a>
<a href="search.php">Search</a>
<a href="cart.php">Your cart</a>
<a href="login.php">Checkout</a>
</nav>
<h1><?= $title ?></h1>
