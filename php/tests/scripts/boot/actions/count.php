<?php
echo "request $requests\n";
