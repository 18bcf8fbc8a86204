<?php
header('X-Sent: yes');
echo 'sent';
fastcgi_finish_request();
echo 'not sent';
file_get_contents($_GET['fifo']);
file_put_contents($_GET['done'], 'worked on, ' . connection_status());
error_log('a line after the end');
