<?php
$state['path'] = $_FILES['file']['tmp_name'] ?? null;
echo json_encode([$state['path'], is_uploaded_file($state['path']), strlen(file_get_contents($state['path']))]);
$state['input'] = fopen('php://input', 'r');
