<?php
echo basename(getcwd()), ' ';
chdir('..');
echo realpath('.') === dirname(__DIR__) ? '../ ' : 'elsewhere ';
register_shutdown_function(function () { echo getcwd(); });
