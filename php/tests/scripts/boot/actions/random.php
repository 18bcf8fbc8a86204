<?php
if (isset($_GET['seed'])) {
	mt_srand(7);
}
echo mt_rand();
