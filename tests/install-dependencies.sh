#!/bin/sh
# Installs what the tests need on Debian 12 and is not there yet.
set -eu
packages="nginx-light php8.2-fpm php8.2-cli php8.2-opcache php-apcu php8.2-xml php8.2-mbstring php-symfony-http-foundation util-linux"
missing=
for package in $packages; do
	dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
if [ -n "$missing" ]; then
	echo "installing for the tests:$missing"
	# The tests start their own nginx and php-fpm; Debian's services would only be in the way.
	RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
fi
