//! What a stock PHP program finds around it: extensions.

use std::path::PathBuf;

use sendoff_config::PHP_VERSION;
use sendoff_tests::{Server, Site, compile_extension};

/// A configuration with one pool in this program.
fn config(site: &Site, php: &str, more: &str) -> PathBuf {
    let text = format!(
        "listen = '127.0.0.1:0'\nthreads = 1\n\
         [[pool]]\nname = 'www'\nworkers = 1\nphp = '{php}'\n{more}\n[[site]]\nroot = 'root'\n"
    );
    site.write_at(site.outside("sendoff.toml"), text)
}

fn php_fpm() -> String {
    format!("/usr/sbin/php-fpm{PHP_VERSION}")
}

/// The extension crashes in the last step of a request that has not begun for it.
#[test]
fn no_extension_ends_a_request_that_it_has_not_begun() {
    let site = Site::with("index.php", "<?php echo minded_ended();");
    let module = compile_extension(&site, "minded", &[]);
    let more = format!("php_ini = {{ extension = '{}' }}", module.display());
    let php_cgi = format!("/usr/bin/php-cgi{PHP_VERSION}");
    for php in [php_fpm(), php_cgi] {
        let server = Server::try_run_hosted(&config(&site, &php, &more), site.root(), 1).unwrap();
        assert_eq!(server.page("/index.php"), "0");
        assert_eq!(server.page("/index.php"), "1");
    }
}
