<?php
switch ($_SERVER['QUERY_STRING']) {
	case 'big':
		for ($i = 0; $i < 300; $i++) {
			echo str_repeat(chr(65 + $i % 26), 7001);
		}
		break;
	case 'one-big':
		echo str_repeat('0123456789', 300000);
		break;
	case 'small':
		for ($i = 0; $i < 20000; $i++) {
			echo $i, ',';
		}
		break;
	case 'buffers':
		ob_start(fn($s) => strrev($s));
		echo 'forward';
		ob_end_flush();
		ob_start();
		echo 'never';
		ob_end_clean();
		ob_start(null, 10);
		echo str_repeat('y', 25);
		print_r(ob_get_status(true));
		break;
	case 'unended':
		ob_start(fn($s) => strtoupper($s));
		echo 'left open';
		break;
	case 'stream':
		$out = fopen('php://output', 'w');
		fwrite($out, 'through a stream');
		fprintf($out, '%05d', 42);
		break;
	case 'binary':
		echo implode('', array_map('chr', range(0, 255)));
		break;
	case 'info':
		ob_start();
		phpinfo(INFO_VARIABLES);
		echo strlen(ob_get_clean()) > 1000 ? 'info' : 'none';
		break;
	case 'tags':
		?>
inline <b>html</b> <?= 1 + 1 ?>

<?php
		break;
	case 'file':
		readfile(__FILE__);
		echo file_get_contents(__FILE__, false, null, 5, 10);
		break;
}
