<?php
// The ways a string reaches the output. Stock and lazy must write the same bytes.
$dir = getenv('LAZY_DIR') ?: sys_get_temp_dir();
$a = "$dir/output-a";
$b = "$dir/output-b";
file_put_contents($a, str_repeat("first file\n", 2000));
file_put_contents($b, str_repeat("2nd file\n", 4096));
register_shutdown_function(function () use ($a, $b) {
	echo 'shutdown ', file_get_contents($a);
	unlink($a);
	unlink($b);
});
class Late
{
	public $file;
	public function __destruct()
	{
		echo 'destructor ';
		readfile($this->file);
	}
}
$late = new Late();
$late->file = $b;

echo 'hello';
echo file_get_contents($a);
echo 'world';
echo file_get_contents($b);
echo 'bye';
print file_get_contents($a);
echo 'x', file_get_contents($b), 'y', file_get_contents($a);
echo readfile($b);
echo strlen(file_get_contents($a)), "{$a[0]}" . file_get_contents($b);
printf('%s|', file_get_contents($a));
fwrite(fopen('php://output', 'w'), file_get_contents($b));
file_put_contents('php://output', file_get_contents($a));
echo substr(file_get_contents($a), 0), substr(file_get_contents($a), 7, 9000);
?>
text <?= file_get_contents($b) ?> text
<?php
ob_start();
echo file_get_contents($a);
readfile($b);
echo strlen(ob_get_contents()), md5(ob_get_clean());
ob_start(fn ($s) => strtoupper($s));
echo file_get_contents($a);
echo readfile($b);
ob_end_flush();
ob_start(null, 100);
echo file_get_contents($a);
echo json_encode(ob_get_status(true));
readfile($b);
ob_end_flush();
ob_start(function ($s, $mode) { return "[$mode:" . strlen($s) . ']'; }, 5000);
readfile($b);
echo file_get_contents($a);
ob_end_flush();
flush();
echo json_encode([ob_get_status(true), ob_get_level(), ob_get_length(), headers_sent($file, $line), $line]);
ob_implicit_flush(true);
echo file_get_contents($b), 'implicit';
ob_implicit_flush(false);
@ob_flush();
echo 'pending', file_get_contents($a);
echo json_encode(ob_get_status(true));
$open = fopen($a, 'r');
echo (string) $open;
$s = file_get_contents($a);
file_put_contents($a, 'rewritten');
echo $s, file_get_contents($a);
exit(file_get_contents($b));
