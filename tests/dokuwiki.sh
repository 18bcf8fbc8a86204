#!/bin/sh
# Makes a DokuWiki site out of Debian's packages, without installing them (they would bring Apache).
#
# usage: dokuwiki.sh CACHE ROOT
# CACHE keeps the unpacked packages from run to run; ROOT is the folder to fill. The site has no access control:
# everybody may edit and upload.
set -eu
cache=$1
root=$2

packages="dokuwiki php-geshi php-phpseclib libphp-simplepie php-random-compat libjs-jquery libjs-jquery-ui libjs-jquery-cookie"
if [ ! -e "$cache/complete" ]; then
	rm -rf "$cache"
	mkdir -p "$cache"
	(cd "$cache" && apt-get -q download $packages)
	for package in "$cache"/*.deb; do
		dpkg -x "$package" "$cache"
	done
	touch "$cache/complete"
fi

# The package spreads DokuWiki over three places and links them; here it becomes one folder again.
mkdir -p "$root"
cp -R "$cache/usr/share/dokuwiki/." "$root"
rm -f "$root/.htaccess" "$root/lib/tpl" "$root/lib/plugins" "$root/install.php"
cp -R "$cache/var/lib/dokuwiki/lib/tpl" "$cache/var/lib/dokuwiki/lib/plugins" "$root/lib"
cp -R "$cache/var/lib/dokuwiki/data" "$root"
cp -R "$cache/etc/dokuwiki" "$root/conf"
rm -f "$root/conf/acl.auth.php" "$root/conf/users.auth.php" "$root/conf/.htaccess"
# Some libraries are links to others, which a copy keeps.
mkdir -p "$root/share"
cp -R "$cache/usr/share/php" "$cache/usr/share/php-geshi" "$cache/usr/share/javascript" "$root/share"

grep -rlE '/usr/share/(php|javascript)|/etc/dokuwiki|/var/lib/dokuwiki' "$root" --include='*.php' |
	xargs sed -i -E \
		-e "s#/usr/share/(php-geshi|php|javascript)#$root/share/\\1#g" \
		-e "s#/etc/dokuwiki#$root/conf#g" \
		-e "s#/var/lib/dokuwiki/data#$root/data#g"

cat > "$root/conf/local.php" <<'CONF'
<?php
$conf['title'] = 'Test wiki';
$conf['useacl'] = 0;
$conf['updatecheck'] = 0;
$conf['userewrite'] = 0;
$conf['license'] = '';
CONF
cat > "$root/data/pages/start.txt" <<'PAGE'
====== A test wiki ======
It runs on **Sendoff**. See [[wiki:syntax]].
PAGE

# DokuWiki generates a cached page again while the page is not newer, in whole seconds, than the files it was made from.
find "$root" -exec touch -h -d '2022-07-31 00:00:00 UTC' {} +
