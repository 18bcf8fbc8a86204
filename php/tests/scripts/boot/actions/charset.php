<?php
// mbstring takes its encodings from this setting.
ini_set('default_charset', 'ISO-8859-1');
echo mb_internal_encoding();
