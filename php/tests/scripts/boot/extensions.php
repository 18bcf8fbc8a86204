<?php
// A worker script whose boot sets what requests change by extensions/leave.php.
class Base {}
$callback = fn () => null;
$ticks = 0;
libxml_use_internal_errors(true);
libxml_set_streams_context(stream_context_create(['http' => ['user_agent' => 'boot']]));
mb_regex_set_options('mr');
mb_internal_encoding('ISO-8859-1');
spl_autoload_extensions('.boot');
spl_autoload_register(function ($class) { if ($class === 'OfBoot') { class_alias('Base', $class); } });
@assert_options(ASSERT_CALLBACK, $callback);
register_tick_function(function () use (&$ticks) { $ticks++; });
mysqli_report(MYSQLI_REPORT_INDEX);
// Traces of the boot are no settings.
simplexml_load_string('<a><b></a>');
date_create('no date');
$handler = function () use (&$ticks, $callback) {
	if ($_GET['do'] === 'leave') {
		mb_internal_encoding('EUC-JP');
		spl_autoload_register(function ($class) { if ($class === 'OfRequest') { class_alias('Base', $class); } });
	}
	$ticks = 0;
	require __DIR__ . '/../extensions/' . $_GET['do'] . '.php';
	echo json_encode([
		mb_internal_encoding(), @assert_options(ASSERT_CALLBACK) === $callback, $ticks > 0, class_exists('OfBoot'), class_exists('OfRequest'),
	]), "\n";
};
while (sendoff_handle_request($handler)) {
	// The work of the script between two requests leaves traces, too.
	simplexml_load_string('<a><b></a>');
	json_decode('{');
}
