<?php
$state['done'] = $_GET['file'];
