<?php
clearstatcache();
echo json_encode([file_exists($state['path']), is_uploaded_file($state['path']), is_resource($state['input'])]);
