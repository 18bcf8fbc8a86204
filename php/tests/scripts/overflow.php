<?php
// Nested destructors recurse on the C stack until it overflows.
$list = null;
for ($i = 0; $i < 3000000; $i++) {
	$list = [$list];
}
unset($list);
echo 'survived';
