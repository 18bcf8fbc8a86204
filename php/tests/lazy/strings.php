<?php
// Every kind of use a string can be put to, on files below, at and above the threshold and of whole pages.
// Run it stock and lazy: the outputs must be the same. $dir holds the scratch files.
$dir = getenv('LAZY_DIR') ?: sys_get_temp_dir();

function text(int $size): string
{
	$s = '';
	for ($i = 0; strlen($s) < $size; $i++) {
		$s .= "line $i: <b>" . md5((string) $i) . "</b>, \"quoted\", caf\u{e9} \\ \r\n";
	}
	return substr($s, 0, $size);
}

class Holder
{
	public string $typed = '';
	public $any;
	public static $kept;
	public function __construct(public readonly string $promoted)
	{
	}
	public function __toString(): string
	{
		return $this->promoted;
	}
}

function operations(string $f): iterable
{
	$s = file_get_contents($f);
	yield 'len' => strlen($s);
	yield 'md5' => md5($s);
	yield 'same' => [$s === file_get_contents($f), $s == file_get_contents($f), $s <=> $s . 'x'];
	yield 'substr' => [substr($s, 0, 5), substr($s, -7), substr($s, 100, 50), md5(substr($s, 0))];
	yield 'index' => [$s[0], $s[strlen($s) - 1], $s[-3], isset($s[strlen($s)]), $s[5] ?? 'none'];
	$t = $s;
	$t[3] = 'X';
	yield 'write' => [md5($t), md5($s)];
	$t = $s;
	$t .= 'tail';
	yield 'append' => [strlen($t), md5($t), md5($s)];
	$t = &$s;
	yield 'reference' => md5($t);
	unset($t);
	yield 'replace' => [md5(str_replace('line', 'LINE', $s)), md5(str_replace('absent~', '', $s)), md5(strtr($s, 'abc', 'xyz'))];
	yield 'case' => [md5(strtoupper($s)), md5(strtolower($s)), md5(ucfirst($s)), md5(lcfirst($s)), md5(ucwords($s))];
	yield 'trim' => [strlen(trim($s)), md5(rtrim($s)), md5(ltrim($s, 'l'))];
	yield 'find' => [strpos($s, '</b>'), strrpos($s, 'line'), stripos($s, 'LINE 9'), substr_count($s, 'a'), strstr($s, 'nowhere')];
	yield 'preg' => [preg_match_all('/line (\d+)/', $s, $m), md5(serialize($m)), md5(preg_replace('/\d/', '#', $s)), count(preg_split('/\n/', $s))];
	yield 'preg_cb' => md5(preg_replace_callback('/[aeiou]/', fn ($m) => strtoupper($m[0]), $s));
	yield 'preg_pattern' => @preg_match($s, 'x');
	yield 'explode' => [count(explode("\n", $s)), md5(implode('|', explode("\n", $s))), md5(implode([$s])), md5(implode(',', [$s, $s]))];
	yield 'key' => (function () use ($s) {
		$a = [$s => 1, 'b' => 2];
		$a[$s]++;
		unset($a['b']);
		$o = (object) $a;
		return [$a[$s], isset($a[$s]), array_key_exists($s, $a), md5(key($a)), md5(serialize($a)), $o->{$s}, md5(array_search(2, $a))];
	})();
	yield 'unique' => [count(array_unique([$s, file_get_contents($f), $s . 'x'])), in_array($s, ['a', $s], true), count(array_flip([$s, 'k']))];
	yield 'serialize' => [md5(serialize([$s, $s])), unserialize(serialize($s)) === $s, @unserialize($s)];
	yield 'json' => [md5(json_encode(utf8($s))), json_decode(json_encode(['k' => utf8($s)]))->k === utf8($s), @json_decode($s)];
	yield 'var_export' => [md5(var_export($s, true)), md5(print_r($s, true))];
	yield 'cast' => [(int) $s, (bool) $s, md5((string) $s), is_numeric($s), is_callable($s), settype($s, 'string')];
	yield 'convert' => [md5(base64_encode($s)), base64_decode(base64_encode($s)) === $s, md5(bin2hex($s)), crc32($s), md5(strrev($s))];
	yield 'gz' => gzuncompress(gzcompress($s)) === $s;
	yield 'hash' => [hash('sha256', $s), hash_hmac('sha1', 'm', $s), hash_equals($s, $s), similar_text(substr($s, 0, 99), 'line')];
	yield 'html' => [md5(htmlspecialchars($s, ENT_SUBSTITUTE)), md5(strip_tags($s)), md5(nl2br($s)), md5(addslashes($s)), md5(stripslashes($s)), md5(wordwrap($s, 40))];
	yield 'mb' => [mb_strlen($s, 'UTF-8'), md5(mb_substr($s, 10, 500, 'UTF-8')), mb_check_encoding($s, 'UTF-8'), md5(mb_convert_encoding($s, 'UTF-16', 'UTF-8'))];
	yield 'printf' => [md5(sprintf('[%s]', $s)), md5(sprintf('%.20s', $s)), strlen(vsprintf('%s%s', [$s, $s])), sscanf($s, 'line %d')];
	yield 'interpolate' => [md5("a{$s}b"), md5($s . $s), md5(<<<X
		$s
		X)];
	yield 'compare' => [strcmp($s, $s . 'a'), strncmp($s, 'line 0', 6), strcasecmp($s, strtoupper($s)), strnatcmp($s, 'z'), levenshtein(substr($s, 0, 20), 'line')];
	yield 'object' => (function () use ($s) {
		$o = new Holder($s);
		$o->typed = $s;
		$o->any = [$s];
		Holder::$kept = $s;
		$c = clone $o;
		return [md5($c), md5(serialize($c)), md5(json_encode(utf8($c->typed))), count((array) $c), strlen("$o")];
	})();
	yield 'closure' => (function () use ($s) {
		static $memory = [];
		$memory[] = $s;
		$f = fn ($x) => $x . $s;
		return [strlen($f('a')), count($memory)];
	})();
	yield 'generator' => md5(implode((function () use ($s) {
		yield $s;
		yield from [$s];
	})()->current() === $s ? ['y'] : ['n']));
	yield 'match' => match ($s) { 'no' => 1, file_get_contents($f) => 2 };
	yield 'switch' => (function () use ($s) { switch ($s) { case 'a': return 1; case $s: return 2; } })();
	yield 'sort' => (function () use ($s) {
		$a = [$s, 'b', $s . 'c', 'a'];
		sort($a);
		usort($a, 'strcmp');
		return [md5(implode($a)), strlen(max($a)), strlen(min('a', $s))];
	})();
	yield 'chunks' => [count(str_split($s, 1000)), md5(chunk_split($s, 76)), md5(str_pad($s, strlen($s) + 3, '-')), strlen(str_repeat($s, 2))];
	yield 'lines' => (function () use ($s) {
		$h = fopen('php://memory', 'w+');
		fwrite($h, $s);
		rewind($h);
		$n = 0;
		while (fgets($h) !== false) {
			$n++;
		}
		return [$n, ftell($h)];
	})();
	yield 'data' => [md5(file_get_contents('data:text/plain;base64,' . base64_encode($s))), strlen(http_build_query(['a' => $s])), count(str_getcsv($s))];
	yield 'define' => [define('LAZY_' . md5($s), $s), md5(constant('LAZY_' . md5($s)))];
	yield 'names' => [class_exists($s), function_exists($s), defined($s), @constant_or_null($s), get_debug_type($s), @ini_get($s), getenv(substr($s, 0, 9))];
	yield 'tokens' => [strtok($s, ' '), strtok('<'), count(token_get_all('<?php ' . substr($s, 0, 0) . ' $a = 1;'))];
	yield 'xml' => (function () use ($s) {
		$d = new DOMDocument();
		$n = $d->createTextNode(utf8($s));
		$d->appendChild($d->createElement('r'))->appendChild($n);
		return md5($d->saveXML());
	})();
	yield 'pack' => [md5(pack('A*', $s)), unpack('Ca/nb', $s), count(count_chars($s, 1)), str_word_count(substr($s, 0, 5000))];
	yield 'date' => [@strtotime($s), date_create(substr($s, 0, 3)) === false];
	yield 'filter' => [filter_var($s, FILTER_VALIDATE_INT), strlen(urlencode($s)), md5(quoted_printable_encode($s)), md5(escapeshellarg(substr($s, 0, 3000)))];
	yield 'spl' => (function () use ($s) {
		$a = new ArrayObject([$s => $s]);
		$q = new SplQueue();
		$q[] = $s;
		$w = new SplFixedArray(2);
		$w[1] = $s;
		return [md5(serialize($a)), md5($q->dequeue()), md5($w[1]), isset($a[$s])];
	})();
	yield 'exception' => (function () use ($s) {
		try {
			throw new RuntimeException($s);
		} catch (Exception $e) {
			return [md5($e->getMessage()), strlen(print_r($e->getTraceAsString(), true)) > 0];
		}
	})();
	yield 'global' => (function () use ($s) {
		$GLOBALS['held'] = $s;
		extract(['extracted' => $s]);
		return [md5($GLOBALS['held']), md5($extracted), md5(compact('extracted')['extracted'])];
	})();
	yield 'copy' => (function () use ($s, $f) {
		$n = file_put_contents("$f.copy", $s);
		return [$n, md5_file("$f.copy"), unlink("$f.copy")];
	})();
	yield 'args' => [md5((fn (...$a) => $a[0])($s)), md5(call_user_func('strval', $s)), md5(array_map('trim', [$s])[0]), md5(array_reduce([$s, $s], fn ($c, $i) => $c . $i, ''))];
	yield 'parts' => [file_get_contents($f, false, null, 10, 20), md5(file_get_contents($f, false, null, 0)), strlen(file_get_contents($f, length: 100)), md5(file_get_contents(filename: $f, offset: 1))];
	yield 'increment' => (function () use ($s) { $t = $s; $t++; return md5($t); })();
	yield 'nulls' => [$s ?? 'x', $s ?: 'y'] === [$s, $s];
	yield 'bits' => [md5($s ^ $s), md5($s | 'a'), md5(~$s)];
	yield 'include' => (function () use ($dir_file, $f) { return null; })();
}

function utf8(string $s): string
{
	return mb_scrub($s, 'UTF-8');
}

function constant_or_null(string $name)
{
	try {
		return constant($name);
	} catch (Error $e) {
		return md5($e->getMessage());
	}
}

$dir_file = null;
foreach ([1000, 16383, 16384, 20000, 40960, 300001] as $size) {
	$f = "$dir/strings-$size";
	file_put_contents($f, text($size));
	foreach ([1, 2] as $round) {
		foreach (operations($f) as $name => $result) {
			echo "$size $round $name ", json_encode($result, JSON_PARTIAL_OUTPUT_ON_ERROR), "\n";
		}
	}
	unlink($f);
}
// Warm loops, for the JIT.
$f = "$dir/strings-hot";
file_put_contents($f, text(17000));
$sum = 0;
for ($i = 0; $i < 3000; $i++) {
	$s = file_get_contents($f);
	$sum += strlen($s) + ord($s[$i]) + strlen($s . $i) + ($s === file_get_contents($f) ? 1 : 0);
	$s .= 'more';
	$sum ^= crc32(substr($s, -40));
}
unlink($f);
echo "hot $sum\n";
