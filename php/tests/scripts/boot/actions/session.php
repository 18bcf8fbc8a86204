<?php
session_start();
$_SESSION['name'] ??= $_GET['name'];
echo session_id(), ' ', $_SESSION['name'];
