<?php
ini_set('memory_limit', '50M');
echo json_encode([$_GET['name'] => ini_get($_GET['name']), 'admin' => ini_set($_GET['name'], 'changed')]);
