<?php
// Walks through open files in chunks of all sizes, with all reading functions, and with changes in between.
$dir = getenv('LAZY_DIR') ?: sys_get_temp_dir();
mt_srand((int) getenv('LAZY_SEED'));
$sizes = [8192, 16384, 20000, 40960, 65537, 100001, 300000];
$text = fn (string $what, int $size) => substr(str_repeat("$what, and on; ", intdiv($size, strlen($what) + 9) + 1), 0, $size);

function told($f)
{
	$meta = stream_get_meta_data($f);
	return json_encode([ftell($f), feof($f), $meta['unread_bytes'], $meta['eof'], ob_get_length(), ob_get_level()]);
}

class Loud
{
	public function __construct(private $f, private $n) {}
	public function __destruct() { echo '<gone:', fread($this->f, $this->n), '>'; }
}

class Reader extends SplFileObject
{
	public function __destruct() { echo '<reader gone>'; }
}

class Shout extends php_user_filter
{
	public function filter($in, $out, &$consumed, bool $closing): int
	{
		while ($bucket = stream_bucket_make_writeable($in)) {
			$bucket->data = strtoupper($bucket->data);
			$consumed += $bucket->datalen;
			stream_bucket_append($out, $bucket);
		}
		return PSFS_PASS_ON;
	}
	public function onClose(): void { echo '<filter gone>'; }
}
stream_filter_register('shout', 'Shout');

function pieces($f, $n) { while (!feof($f)) { yield fread($f, $n); } }
$thrower = function () { throw new RuntimeException('between'); };

$n = fn () => [1, 100, 4095, 4096, 5000, 8191, 8192, 8193, 12288, 16384, 20000, 65536, 500000][mt_rand(0, 12)];
$steps = [
	fn ($f) => print fread($f, $n()),
	function ($f) use ($n) { echo fread($f, $n()); },
	function ($f) use ($n) { $c = $n(); echo fread($f, $c), '|', fread($f, $c); },
	function ($f) { echo fread($f, 8192); echo fread($f, 8192); },
	function ($f) { for ($i = 0; $i < 3 && !feof($f); $i++) { echo fread($f, 16384), told($f); } },
	function ($f) { while (!feof($f)) { echo fread($f, 8192); } },
	function ($f) use ($n) { $s = fread($f, $n()); echo $s; },
	function ($f) use ($n) { $s = fread($f, $n()); $s[0] = '#'; $t = $s . '!'; echo $s, strlen($t); },
	function ($f) use ($n) { static $kept; echo $kept; $kept = fread($f, $n()); },
	function ($f) use ($n) { echo strlen(fread($f, $n())), md5(fread($f, $n())); },
	function ($f) use ($n) { echo 'a' . fread($f, $n()) . 'b'; },
	function ($f) use ($n) { $c = $n(); foreach (pieces($f, $c) as $i => $s) { echo $s; if ($i > 2) { break; } } },
	function ($f) use ($n) { fwrite($GLOBALS['out'], fread($f, $n())); },
	function ($f) use ($n) { echo fwrite($GLOBALS['out'], fread($f, $n()), 5000); },
	function ($f) use ($n) { $m = fopen('php://memory', 'w+'); fwrite($m, fread($f, $n())); rewind($m); echo md5(stream_get_contents($m)); },
	function ($f) use ($n) { $g = 'fread'; echo $g($f, $n()); echo call_user_func('fread', $f, $n()); },
	function ($f) use ($n) { echo (fread(...))($f, $n()); echo fread(stream: $f, length: $n()); echo fread(...[$f, $n()]); },
	function ($f) use ($n) { echo fread(...['stream' => $f, 'length' => 8192]) ?: 'none'; echo (string) fread($f, 8192); },
	function ($f) use ($n) { ob_start(); echo fread($f, $n()); echo strrev(ob_get_clean()); },
	function ($f) use ($n) { ob_start(fn ($s) => strtoupper($s)); echo fread($f, $n()), fread($f, 8192); ob_end_flush(); },
	function ($f) use ($n) { ob_start(null, 5000); echo fread($f, $n()); ob_end_flush(); },
	function ($f) use ($n) { ob_start(); echo 'head', fread($f, $n()), 'foot'; ob_end_flush(); },
	function ($f) use ($n) { ob_start(fn () => throw new LogicException('in a callback')); try { echo fread($f, $n()); ob_end_flush(); } catch (LogicException $e) { echo $e->getMessage(); } },
	function ($f) use ($n, $thrower) { try { echo fread($f, $n()) . $thrower(); } catch (RuntimeException $e) { echo $e->getMessage(); } },
	function ($f) use ($n, $thrower) { try { echo fread($f, ...[$n(), 3]); } catch (Error $e) { echo $e->getMessage(); } },
	function ($f, $path) use ($n) { echo fread(fopen($path, 'r', false, stream_context_create(['x' => ['y' => new Loud($f, 8192)]])), 8192); },
	function ($f, $path) use ($n) { echo (new Reader($path))->fread(8192); $o = new Reader($path); $o->fseek($n()); echo $o->fread($n()), $o->ftell(), json_encode($o->eof()); },
	function ($f) use ($n) { new Loud($f, 8192); },
	function ($f) use ($n) { $g = (function () use ($f, $n) { echo fread($f, 8192); yield 1; echo fread($f, $n()); })(); $g->current(); $g->next(); },
	function ($f) use ($n) { $fiber = new Fiber(function () use ($f) { echo fread($f, 8192), Fiber::suspend(); }); $fiber->start(); echo fread($f, $n()); $fiber->resume('back'); },
	function ($f) use ($n) { eval('declare(ticks=1); echo fread($f, 8192); echo fread($f, 9000);'); },
	function ($f) { echo fgets($f); },
	function ($f) { echo fgetc($f), fgetc($f); },
	function ($f) use ($n) { echo stream_get_line($f, $n(), ';'); },
	function ($f) use ($n) { echo stream_get_contents($f, $n()); },
	function ($f) use ($n) { echo stream_copy_to_stream($f, $GLOBALS['out'], $n()); },
	function ($f) { echo fpassthru($f); },
	function ($f) use ($n) { echo fseek($f, $n()); },
	function ($f) use ($n) { echo fseek($f, -$n(), SEEK_CUR); },
	function ($f) use ($n) { echo fseek($f, -$n(), SEEK_END); },
	function ($f) { rewind($f); },
	function ($f) { stream_set_read_buffer($f, mt_rand(0, 1) * 8192); },
	function ($f) { if (!mt_rand(0, 3)) { stream_set_chunk_size($f, [100, 8192, 20000][mt_rand(0, 2)]); } },
	function ($f) use ($n) { $x = stream_filter_append($f, 'shout', STREAM_FILTER_READ); echo fread($f, $n()); if (mt_rand(0, 1)) { stream_filter_remove($x); } },
	function ($f) use ($n) { $x = stream_filter_prepend($f, 'string.rot13', STREAM_FILTER_READ); echo fgets($f); stream_filter_remove($x); echo fread($f, $n()); },
	function ($f, $path) use ($text) { if (!mt_rand(0, 2)) { file_put_contents($path, $text('other' . mt_rand(), filesize($path))); } },
	function ($f, $path) { if (!mt_rand(0, 2)) { file_put_contents($path, 'and more', FILE_APPEND); clearstatcache(); } },
	function ($f, $path) { if (!mt_rand(0, 5)) { $w = fopen($path, 'r+'); ftruncate($w, intdiv(fstat($w)['size'], 2)); clearstatcache(); } },
	function ($f, $path) use ($n) { $p = @proc_open(['head', '-c', (string) $n()], [$f, ['pipe', 'w']], $pipes); if ($p) { echo strlen(stream_get_contents($pipes[1])); proc_close($p); } echo fread($f, 8192), ftell($f); },
	function ($f) use ($n) { echo flock($f, LOCK_SH), json_encode(fstat($f)['size']), fread($f, 8192); },
	function ($f) use ($n) { flush(); echo fread($f, 8192); @ob_flush(); flush(); },
	function ($f) { trigger_error('told', E_USER_NOTICE); },
];
set_error_handler(function ($no, $message) { echo "[$no $message]"; return true; });
register_tick_function(function () { echo '.'; });

for ($i = 0; $i < 12; $i++) {
	$path = "$dir/chunks-$i";
	$size = $sizes[mt_rand(0, 6)];
	file_put_contents($path, $text("file $i", $size));
	clearstatcache();
	$out = fopen('php://output', 'w');
	$f = fopen($path, mt_rand(0, 9) ? 'rb' : 'r+');
	$count = mt_rand(1, 12);
	echo "\n== $size, $count: ";
	while ($count-- > 0) {
		$step = mt_rand(0, count($steps) - 1);
		// Most of the time a loop goes on.
		echo "($step)";
		for ($again = mt_rand(1, 4); $again > 0; $again--) {
			$steps[$step]($f, $path);
			echo told($f);
		}
	}
	fclose($f);
	unlink($path);
}
// Whole files by one read.
file_put_contents("$dir/whole", $text('whole', 50000));
foreach ([49999, 50000, 50001, 100000] as $wanted) {
	$f = fopen("$dir/whole", 'r');
	$s = fread($f, $wanted);
	echo strlen($s), told($f), $s, md5($s), fread($f, 10), told($f);
	rewind($f);
	$s = fread($f, $wanted) . 'x';
	rewind($f);
	fgets($f);
	echo $s, fread($f, $wanted), told($f);
	$s[7] = '#';
	echo $s;
}
unlink("$dir/whole");
