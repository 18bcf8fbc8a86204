//! The surroundings of a stock PHP program: extensions, the folder that the server was started in,
//! the server's environment, and the path of the module.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use sendoff_config::PHP_VERSION;
use sendoff_tests::{Server, Site, compile_extension, dies_with_us, hosted_binary};

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

/// A php-cgi that is not the distribution's: it looks for its php.ini itself.
fn own_php_cgi(site: &Site) -> String {
    let file = site.outside("php-cgi");
    fs::copy(format!("/usr/bin/php-cgi{PHP_VERSION}"), &file).unwrap();
    file.to_str().unwrap().to_owned()
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

#[test]
fn php_reads_no_settings_in_the_folder_of_the_server() {
    let site = Site::with(
        "index.php",
        "<?php echo ini_get('memory_limit'), '|', getcwd(), '|', function_exists('minded_ended');",
    );
    let folder = site.outside("started");
    fs::create_dir_all(folder.join("conf")).unwrap();
    fs::write(folder.join("php.ini"), "memory_limit = 77M\n").unwrap();
    fs::write(folder.join("conf/php.ini"), "memory_limit = 78M\n").unwrap();
    fs::rename(compile_extension(&site, "minded", &[]), folder.join("minded.so")).unwrap();
    // PHP loads it from the server's folder.
    let config = config(&site, &own_php_cgi(&site), "php_ini = { extension = './minded.so' }");
    let page = |ini: Option<&str>| {
        let mut command = dies_with_us(&hosted_binary(), "KILL");
        command.current_dir(&folder).env_remove("PHPRC").envs(ini.map(|path| ("PHPRC", path)));
        let server = Server::try_run_of(command, &config, site.root(), 1).unwrap();
        server.page("/index.php")
    };
    let rest = format!("|{}|1", site.root().canonicalize().unwrap().display());
    let stock = page(None);
    assert!(stock.ends_with(&rest), "{stock}");
    assert!(!stock.starts_with("77M"), "{stock}");
    for named in ["conf", "conf/php.ini"] {
        assert_eq!(page(Some(named)), format!("78M{rest}"), "{named}");
    }
}

/// php-cgi would take itself for a CGI program.
#[test]
fn variables_of_cgi_in_the_environment_of_the_server_change_nothing() {
    let site = Site::with("index.php", "<?php echo ini_get('memory_limit');");
    let more = "php_ini = { memory_limit = '79M' }";
    let config = config(&site, &format!("/usr/bin/php-cgi{PHP_VERSION}"), more);
    for variables in [
        &[("SERVER_SOFTWARE", "x/1")][..],
        &[("SERVER_NAME", "x"), ("GATEWAY_INTERFACE", "CGI/1.1"), ("REQUEST_METHOD", "GET")],
        &[("QUERY_STRING", "-s")],
    ] {
        let mut command = dies_with_us(&hosted_binary(), "KILL");
        command.envs(variables.iter().copied());
        let server = Server::try_run_of(command, &config, site.root(), 1).unwrap();
        assert_eq!(server.page("/index.php"), "79M", "{variables:?}");
    }
}

/// PHP reads the path of the module as a value of php.ini.
#[test]
fn the_module_is_loaded_from_a_folder_with_any_name() {
    let site = Site::with("index.php", "<?php echo 'it runs';");
    let name = OsStr::from_bytes(b"it's \"a\" ${HOME}; $x\\ = \xff");
    let folder = site.outside("installed").join(name);
    fs::create_dir_all(&folder).unwrap();
    for file in fs::read_dir(hosted_binary().parent().unwrap()).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), folder.join(file.file_name())).unwrap();
    }
    for php in [php_fpm(), format!("/usr/bin/php-cgi{PHP_VERSION}")] {
        let command = dies_with_us(&folder.join("sendoff"), "KILL");
        let config = config(&site, &php, "");
        let server = Server::try_run_of(command, &config, site.root(), 1).unwrap();
        assert_eq!(server.page("/index.php"), "it runs");
    }
}
