<?php
// A page of ?kb=N kilobytes, written in pieces, as templates do.
header('Content-Type: text/plain; charset=utf-8');
$line = str_repeat('0123456789abcde ', 255) . "0123456789abcde\n";
for ($kb = max(4, min(65536, (int) ($_GET['kb'] ?? 100))); $kb >= 4; $kb -= 4) {
    echo $line;
}
