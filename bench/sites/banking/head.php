<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Banking: <?= $title ?></title>
<style>
body { font: 16px/1.4 sans-serif; margin: 0 auto; max-width: 60em; padding: 1em; color: #222; background: #fff; }
nav ul { list-style: none; display: flex; flex-wrap: wrap; gap: .4em 1.2em; padding: 0; border-bottom: 2px solid #0a5; }
nav a { color: #064; text-decoration: none; }
table { border-collapse: collapse; width: 100%; }
td { border-bottom: 1px solid #ccc; padding: .2em .5em; }
td + td { text-align: right; font-variant-numeric: tabular-nums; }
pre { white-space: pre-wrap; word-break: break-all; font-size: .7em; color: #888; }
</style>
</head>
<body>
<nav aria-label="Banking">
<ul>
<li><a href="account_summary.php">Accounts</a>
<li><a href="bill_pay.php">Pay bills</a>
<li><a href="add_payee.php">Add a payee</a>
<li><a href="billpay_status.php">Payments on their way</a>
<li><a href="req_checks.php">Order checks</a>
<li><a href="req_xfer_form.php">Move money</a>
<li><a href="chg_profile.php">Your profile</a>
<li><a href="logout.php">Log out</a>
</ul>
</nav>
<h1><?= $title ?></h1>
