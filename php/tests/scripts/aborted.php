<?php
ignore_user_abort($_GET['ignore'] === '1');
register_shutdown_function(function () {
	file_put_contents($_GET['done'], connection_aborted() . ' ' . connection_status());
});
echo 'begun';
while (!connection_aborted()) {
	echo str_repeat('x', 1000);
	ob_flush();
	flush();
}
while (ob_get_level()) {
	ob_end_clean();
}
echo 'to nobody';
file_put_contents($_GET['done'] . '.more', 'went on');
