<?php
session_start();
$_SESSION['count'] = ($_SESSION['count'] ?? 0) + 1;
echo session_id(), ' ', $_SESSION['count'], "\n";
