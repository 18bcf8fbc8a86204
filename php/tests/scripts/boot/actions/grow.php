<?php
$state['large'][] = str_repeat('x', (int) $_GET['size']);
echo 'grown';
