<?php
// Changes the state of extensions that extensions/show.php shows.
libxml_use_internal_errors(true);
simplexml_load_string('<a><b></a>');
libxml_set_streams_context(stream_context_create(['http' => ['header' => 'Authorization: of another client']]));
mb_regex_set_options('ix');
mb_ereg_search_init('text of another client', 'c');
mb_ereg_search_regs();
spl_autoload_extensions('.changed');
@assert_options(ASSERT_CALLBACK, function () { echo 'callback of another client'; });
register_tick_function(function () { echo 'tick of another client'; });
mysqli_report(MYSQLI_REPORT_OFF);
@mysqli_connect('localhost', 'name', 'password', 'base', 0, '/no/such/socket');
@socket_create(AF_UNIX, SOCK_STREAM, 999);
grapheme_strlen("\xff");
openssl_pkey_get_private('no key');
date_create('no date');
echo json_encode([
	libxml_get_errors() !== [], mb_ereg_search_getregs() !== false, mysqli_connect_errno() > 0, socket_last_error() > 0,
	intl_get_error_code() > 0, date_get_last_errors() !== false,
]), "\n";
