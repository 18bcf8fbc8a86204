<?php
// The test opens the other end when it has seen what was sent so far.
echo 'first ';
ob_flush();
flush();
file_get_contents($_GET['fifo']);
echo 'second';
