<?php
// The state of extensions.
declare(ticks=1);
if (!class_exists('Xml', false)) {
	// Its streams contain an XML document, and note the options of their context.
	class Xml
	{
		public static $options;
		public $context;
		private $text = '<a/>';

		function stream_open()
		{
			self::$options = $this->context ? stream_context_get_options($this->context) : null;
			return true;
		}

		function stream_read()
		{
			$text = $this->text;
			$this->text = '';
			return $text;
		}

		function stream_eof()
		{
			return $this->text === '';
		}

		function stream_stat()
		{
			return [];
		}

		function url_stat()
		{
			return [];
		}
	}
}
stream_wrapper_register('seen', 'Xml');
$errors = [libxml_use_internal_errors(), count(libxml_get_errors()), libxml_get_last_error()];
(new DOMDocument)->load('seen://a');
try {
	$search = mb_ereg_search_regs();
} catch (Error $error) {
	$search = $error->getMessage();
}
echo json_encode([
	'libxml' => [$errors, Xml::$options], 'mb_ereg' => [mb_regex_set_options(), mb_ereg('A', 'a'), $search, mb_ereg_search_getpos()],
	'spl' => spl_autoload_extensions(), 'assert' => gettype(@assert_options(ASSERT_CALLBACK)),
	'mysqli' => [(new mysqli_driver)->report_mode, mysqli_connect_errno(), mysqli_connect_error()], 'sockets' => socket_last_error(),
	'intl' => intl_get_error_message(), 'openssl' => openssl_error_string(), 'date' => date_get_last_errors(), 'json' => json_last_error(),
]), "\n";
