<?php
$scripts = opcache_get_status()['scripts'] ?? [];
apcu_add('count', 0);
echo json_encode(['pid' => getmypid(), 'hits' => $scripts[__FILE__]['hits'] ?? null, 'count' => apcu_inc('count')]);
