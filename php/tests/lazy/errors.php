<?php
// Cases that PHP itself must handle: errors, wrappers and special files.
$dir = getenv('LAZY_DIR') ?: sys_get_temp_dir();
set_error_handler(function ($n, $message) use ($dir) {
	echo "[$n ", str_replace($dir, 'DIR', $message), "]\n";
	return true;
});
$f = "$dir/errors-f";
file_put_contents($f, str_repeat('0123456789abcdef', 2000));
symlink($f, "$dir/errors-l");
mkdir("$dir/errors-d");
chdir($dir);

class Upper
{
	private $h;
	public $context;
	public function stream_open($path)
	{
		stream_wrapper_restore('file');
		$this->h = fopen($path, 'r');
		stream_wrapper_unregister('file');
		stream_wrapper_register('file', self::class);
		return (bool) $this->h;
	}
	public function stream_read($n)
	{
		return strtoupper(fread($this->h, $n));
	}
	public function stream_eof()
	{
		return feof($this->h);
	}
	public function stream_stat()
	{
		return fstat($this->h);
	}
}

function attempt(callable $call): void
{
	try {
		$result = $call();
		echo is_string($result) ? strlen($result) . ' ' . md5($result) : var_export($result, true), "\n";
	} catch (Throwable $e) {
		echo get_class($e), ': ', $e->getMessage(), "\n";
	}
}

foreach (['file_get_contents', 'readfile'] as $read) {
	ob_start(fn ($s) => strlen($s) > 9000 ? md5($s) . "\n" : $s);
	attempt(fn () => $read());
	attempt(fn () => $read(''));
	attempt(fn () => $read("$f\0x"));
	attempt(fn () => $read(['a']));
	attempt(fn () => $read(null));
	attempt(fn () => $read($f . '-absent'));
	attempt(fn () => $read("$dir/errors-d"));
	attempt(fn () => $read("$f/"));
	attempt(fn () => $read("$dir/errors-l"));
	attempt(fn () => $read('errors-f'));
	attempt(fn () => $read('./../' . basename($dir) . '/errors-l'));
	attempt(fn () => $read("file://$f"));
	attempt(fn () => $read("FILE://$f"));
	attempt(fn () => $read("file://remote$f"));
	attempt(fn () => $read("nothing://$f"));
	attempt(fn () => $read("compress.zlib://$f"));
	attempt(fn () => $read("php://filter/read=string.toupper/resource=$f"));
	attempt(fn () => $read('/dev/null'));
	attempt(fn () => $read('/proc/version'));
	attempt(fn () => $read($f, true));
	attempt(fn () => $read($f, 0));
	attempt(fn () => $read($f, false, null));
	attempt(fn () => $read($f, false, stream_context_create()));
	attempt(fn () => $read($f, false, 'no context'));
	attempt(fn () => $read(use_include_path: false, filename: $f));
	attempt(fn () => $read(new SplFileInfo($f)));
	attempt(fn () => $read($f, 1, 2, 3, 4, 5, 6));
	stream_wrapper_unregister('file');
	attempt(fn () => $read($f));
	stream_wrapper_register('file', Upper::class);
	attempt(fn () => $read($f));
	stream_wrapper_restore('file');
	attempt(fn () => $read($f));
	ob_end_flush();
}
attempt(fn () => file_get_contents($f, false, null, -5));
attempt(fn () => file_get_contents($f, false, null, 5));
attempt(fn () => file_get_contents($f, false, null, 0, 0));
attempt(fn () => file_get_contents($f, false, null, 0, -1));
attempt(fn () => file_get_contents($f, false, null, 1 << 40));
// A changed link is followed according to the realpath cache, until the cache is cleared.
file_put_contents("$f.2", str_repeat('other', 9000));
unlink("$dir/errors-l");
symlink("$f.2", "$dir/errors-l");
attempt(fn () => file_get_contents("$dir/errors-l"));
clearstatcache(true);
attempt(fn () => file_get_contents("$dir/errors-l"));
attempt(fn () => count(realpath_cache_get()));
// The file changes under the name: by rename, by writing, by growing, by permission.
rename("$f.2", $f);
attempt(fn () => file_get_contents($f));
file_put_contents($f, str_repeat('new', 7000));
attempt(fn () => file_get_contents($f));
file_put_contents($f, 'more', FILE_APPEND);
attempt(fn () => file_get_contents($f));
touch($f, 1000000000);
attempt(fn () => file_get_contents($f));
file_put_contents($f, 'short');
attempt(fn () => file_get_contents($f));
file_put_contents($f, str_repeat('long', 7000));
chmod($f, 0);
attempt(fn () => posix_getuid() === 0 || file_get_contents($f));
chmod($f, 0644);
ini_set('open_basedir', "$dir/errors-d");
attempt(fn () => file_get_contents($f));
attempt(fn () => readfile($f));
