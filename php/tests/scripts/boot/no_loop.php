<?php
echo "the application says why\n";
exit(1);
