<?php
// Strings in places from which PHP keeps data beyond the request: run it several times in one process.
$dir = getenv('LAZY_DIR') ?: sys_get_temp_dir();
$files = getenv('LAZY_KEPT') ?: $dir;
$read = function (string $name, string $content) use ($files): string {
	$f = "$files/kept-$name";
	if (!file_exists($f)) {
		file_put_contents($f, $content);
	}
	return file_get_contents($f);
};

class Base
{
	public static $count = 0;
	public const X = 7;
}

// Names: the class cache lives in the string's header.
$name = $read('class', str_repeat('C', 20000));
class_alias('Base', $name);
for ($i = 0; $i < 3; $i++) {
	$o = new $name();
	$name::$count++;
}
echo get_class($o), $name::X, Base::$count, is_a($o, $name) ? 'y' : 'n', $o instanceof $name ? 'y' : 'n', "\n";
var_dump(unserialize('O:20000:"' . $name . '":0:{}') instanceof Base, class_exists($name), function_exists($name));
eval("function $name() { return __FUNCTION__; }");
echo strlen($name()), strlen(call_user_func($name)), (new ReflectionFunction($name))->getNumberOfParameters(), "\n";
spl_autoload_register(function ($class) {
	echo 'autoload ', strlen($class), "\n";
});
var_dump(class_exists($name . 'D'));

// Caches that outlive the request.
$pattern = $read('pattern', '/a+/' . str_repeat(' ', 20000));
var_dump(preg_match($pattern, 'baab', $m), $m);
if (function_exists('apcu_enabled') && apcu_enabled()) {
	apcu_store('key', $pattern);
	apcu_store('array', [$pattern => [$name, 5]]);
	var_dump(apcu_fetch('key') === $pattern, md5(serialize(apcu_fetch('array'))));
	apcu_delete(['key', 'array']);
}

// Settings and the environment.
var_dump(strlen((string) ini_set('user_agent', $name)), strlen(ini_get('user_agent')));
ini_restore('user_agent');
ini_set('user_agent', $name);
var_dump(putenv("LAZY_VALUE=$name"), strlen(getenv('LAZY_VALUE')), setlocale(LC_ALL, $name), mb_internal_encoding());
var_dump(define($name, $name), constant($name) === $name, strlen(constant($name)));
try {
	assert($name === '', $name);
	trigger_error(substr($name, 0, 20), E_USER_NOTICE);
} catch (AssertionError $e) {
	echo strlen($e->getMessage());
}
date_default_timezone_set('UTC');
echo @date_default_timezone_set($name) ? 'set' : 'refused', "\n";

// A session, by its own files.
session_save_path($dir);
session_id('kept');
session_start(['use_cookies' => false, 'cache_limiter' => '']);
$_SESSION[$name] = $pattern;
$_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1;
session_write_close();
session_start(['use_cookies' => false, 'cache_limiter' => '']);
var_dump($_SESSION[$name] === $pattern, $_SESSION['n']);
session_destroy();

// Streams and filters that know names.
stream_wrapper_register('kept', 'Base');
var_dump(in_array('kept', stream_get_wrappers()), @fopen("$name://x", 'r'), @stream_filter_append(fopen('php://memory', 'r'), $name));
$GLOBALS[$name] = $name;
static $kept;
$kept[$name] = $$name;
register_shutdown_function(function () use ($name) {
	echo strlen($GLOBALS[$name]), $name[0], "\n";
	if (isset($_SERVER['LAZY_END'])) {
		throw new Exception($name);
	}
});
echo $name, $pattern;
