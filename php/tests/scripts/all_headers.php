<?php
var_dump(getallheaders() === apache_request_headers(), getallheaders());
