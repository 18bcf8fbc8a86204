<?php
echo 'sent';
header('X-Finished: yes');
var_dump(fastcgi_finish_request());
echo 'into the void';
var_dump(fastcgi_finish_request());
