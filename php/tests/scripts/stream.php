<?php
// The test opens the other end after it has received the output so far.
echo 'first ';
ob_flush();
flush();
file_get_contents($_GET['fifo']);
echo 'second';
