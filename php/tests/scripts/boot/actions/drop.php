<?php
$state['files'] = [];
