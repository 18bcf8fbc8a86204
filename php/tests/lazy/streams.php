<?php
// The ways in which an open file reaches the output, and the stream's state afterwards.
$dir = getenv('LAZY_DIR') ?: sys_get_temp_dir();
mt_srand((int) getenv('LAZY_SEED'));
$sizes = [1, 4096, 16383, 16384, 20000, 40960, 65536, 100001];
$files = [];
foreach ($sizes as $n => $size) {
	$files[$size] = "$dir/streams-$n";
	file_put_contents($files[$size], substr(str_repeat("line $n of it\n", 9000), 0, $size));
}
register_shutdown_function(function () use ($files) {
	array_map('unlink', $files);
});

function state($f)
{
	$status = ob_get_status(true);
	echo json_encode([ftell($f), feof($f), stream_get_meta_data($f)['unread_bytes'] ?? null, $status,
		ob_get_length(), get_resource_id($f), fstat($f)['size'], strlen((string) fread($f, 100)), feof($f), ftell($f)]);
	rewind($f);
	echo fgets($f), ftell($f), "\n";
}

$ways = [
	'fpassthru' => fn ($f) => fpassthru($f),
	'copy all' => fn ($f, $out) => stream_copy_to_stream($f, $out),
	'copy null' => fn ($f, $out) => stream_copy_to_stream($f, $out, null, 0),
	'copy some' => fn ($f, $out) => stream_copy_to_stream($f, $out, 17000),
	'copy more' => fn ($f, $out) => stream_copy_to_stream($f, $out, 1000000),
	'copy page' => fn ($f, $out) => stream_copy_to_stream($f, $out, 16384, 4096),
	'copy range' => fn ($f, $out) => stream_copy_to_stream($f, $out, 30000, 17),
	'copy none' => fn ($f, $out) => stream_copy_to_stream($f, $out, 0),
	'copy beyond' => fn ($f, $out) => stream_copy_to_stream($f, $out, null, 200000),
	'loop 8192' => function ($f) { while (!feof($f)) { echo fread($f, 8192); } },
	'loop 1000' => function ($f) { while (!feof($f)) { echo fread($f, 1000); } },
	'loop 16384 out' => function ($f, $out) {
		while ('' !== $data = (string) fread($f, 16384)) { echo fwrite($out, $data), ' '; }
		return ftell($out);
	},
	'loop 20000 flush' => function ($f) { while (!feof($f)) { print fread($f, 20000); @ob_flush(); flush(); } },
	'loop, changed' => function ($f) {
		while (!feof($f)) { $s = fread($f, 8192); if ($s !== '') { $s[0] = '#'; } echo $s; }
	},
	'loop, another' => function ($f) {
		while (!feof($f)) { $s = fread($f, 8192); $l = strlen($s); unset($s); echo str_repeat('*', $l); }
	},
	'contents' => function ($f) { echo stream_get_contents($f); },
	'contents whole' => function ($f) { rewind($f); $s = stream_get_contents($f); echo strlen($s), substr($s, 0, 20000), md5($s); },
	'contents part' => function ($f, $out) { return fputs($out, stream_get_contents($f, 20000, 5000)); },
	'contents copy' => function ($f, $out) { return fwrite($out, stream_get_contents($f), 9000); },
];
$before = [
	'nothing' => fn ($f) => null,
	'a line' => fn ($f) => fgets($f),
	'a page' => fn ($f) => fread($f, 4096),
	'seek' => fn ($f) => fseek($f, 12288),
	'seek odd' => fn ($f) => fseek($f, 1234),
	'seek back' => fn ($f) => [fread($f, 9000), fseek($f, 10)],
	'to the end' => fn ($f) => stream_get_contents($f),
	'beyond' => fn ($f) => fseek($f, 1 << 20),
	'filter' => fn ($f) => stream_filter_append($f, 'string.rot13', STREAM_FILTER_READ),
	'unbuffered' => fn ($f) => stream_set_read_buffer($f, 0),
	'chunks' => fn ($f) => stream_set_chunk_size($f, 100),
];
$pick = fn ($all) => array_rand($all);
for ($i = 0; $i < 60; $i++) {
	[$way, $first, $size, $mode] = [$pick($ways), $pick($before), $sizes[mt_rand(0, 7)], ['r', 'rb', 'r+', 'c+'][mt_rand(0, 3)]];
	echo "\n== $way, $first, $size, $mode\n";
	$level = mt_rand(0, 5);
	if ($level == 1) { ob_start(); }
	if ($level == 2) { ob_start(null, 9000); }
	if ($level == 3) { ob_start(fn ($s, $how) => "[$how:" . strlen($s) . ':' . strrev($s) . ']', mt_rand(0, 1) * 5000); }
	$f = fopen($files[$size], mt_rand(0, 3) ? 'r' : $mode);
	$out = fopen('php://output', 'w');
	$before[$first]($f);
	echo '>', json_encode($ways[$way]($f, $out)), '<', ftell($out), json_encode(fstat($out));
	state($f);
	while ($level && $level < 4 && ob_get_level() > (ini_get('output_buffering') ? 1 : 0)) { ob_end_flush(); }
	fclose($f);
	fclose($out);
}

$f = $files[40960];
echo json_encode([copy($f, 'php://output'), get_resource_id(fopen($f, 'r')), copy($f, 'PHP://Output')]);
echo json_encode([@copy("$f-not-there", 'php://output'), copy($files[1], 'php://output')]);
echo file_get_contents($f, false, null, 4096), file_get_contents($f, false, null, 17, 20000);
echo file_get_contents($f, false, null, -20000), file_get_contents($f, false, null, 0, 16384), file_get_contents($f, length: 100);
$part = file_get_contents($f, false, null, 10, 30000);
$part[3] = '#';
echo $part;

$o = new SplFileObject($files[100001]);
echo json_encode([$o->fgets(), $o->ftell(), $o->fpassthru(), $o->ftell(), $o->eof(), $o->key()]);
$o->rewind();
echo json_encode([$o->fseek(8192), $o->fpassthru(), $o->ftell(), $o->eof(), $o->fread(1)]);
$o->fseek(0);
while (!$o->eof()) {
	echo $o->fread(8192);
}
class Mine extends SplFileObject
{
}
echo (new Mine($files[65536]))->fpassthru();
try {
	echo (new ReflectionClass('SplFileObject'))->newInstanceWithoutConstructor()->fpassthru();
} catch (Throwable $e) {
	echo get_class($e), $e->getMessage();
}
foreach ([fn () => fpassthru(1), fn () => fpassthru(), fn () => fpassthru($o), fn () => fread(fopen($f, 'r'), 0),
	fn () => stream_copy_to_stream(1, 2), fn () => stream_copy_to_stream(fopen($f, 'r'), fopen('php://output', 'w'), 'x'),
	fn () => stream_copy_to_stream(fopen($f, 'r'), fopen('php://output', 'w'), -1),
	fn () => stream_copy_to_stream(fopen($f, 'r'), fopen('php://output', 'w'), 5, -1),
	fn () => stream_copy_to_stream(fopen($f, 'r'), fopen('php://memory', 'w')),
	fn () => copy($f, []), fn () => copy(), fn () => fwrite(1, 'x'), fn () => fwrite(fopen('php://output', 'w'), 5)] as $call) {
	try {
		echo json_encode($call());
	} catch (Throwable $e) {
		echo get_class($e), $e->getMessage();
	}
}
$closed = fopen($f, 'r');
fclose($closed);
try {
	fpassthru($closed);
} catch (Throwable $e) {
	echo get_class($e), $e->getMessage();
}
$data = (fn () => fread(fopen($f, 'r'), 9000))();
echo $data, 'end';
