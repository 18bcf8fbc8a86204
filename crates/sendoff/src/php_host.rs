//! Hosted pools: the command by which a stock PHP program becomes the master of a pool.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use sendoff_config::{HostProgram, PhpApi, PoolConfig, php_ini, php_settings};
use tokio::process::Command;

use crate::children::this_program;
use crate::failure::Failure;

/// The environment variable with this server's version, the path of the module, and the options of
/// the master, each a line. The module removes it.
const OPTIONS: &str = "SENDOFF_HOST";

/// The folder that the program is started in. php-cgi reads a php.ini of the folder that it is
/// started in, and no process can create a file in this one.
const FOLDER: &str = "/proc";

/// Variables of CGI requests. php-cgi looks at them: with one of the first four it takes itself for
/// a CGI program, and ignores its arguments; with the last it may ignore them.
const CGI_VARIABLES: [&str; 5] =
    ["SERVER_SOFTWARE", "SERVER_NAME", "GATEWAY_INTERFACE", "REQUEST_METHOD", "QUERY_STRING"];

/// The folder of modules, seen from the folder of this program, if they are not beside it.
const LIBRARIES: &str = "../lib/sendoff";

/// The command of a hosted master, apart from the master's options.
#[derive(Debug)]
pub(crate) struct HostCommand {
    module: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(&'static str, OsString)>,
}

/// The module for programs with this API.
///
/// # Errors
/// It is not installed.
pub(crate) fn module(api: PhpApi) -> Result<PathBuf, Failure> {
    let program = this_program()?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    let name = format!("sendoff-host-{api}.so");
    let mut places = [folder.join(&name), folder.join(LIBRARIES).join(&name)].into_iter();
    places.find(|path| path.is_file()).ok_or_else(|| {
        let version = api.version().unwrap_or("of this API");
        Failure::System(format!(
            "{name}, the module for PHP {version}, is missing: install the package \
             sendoff-host-php{version}, or put it beside sendoff or into {}",
            folder.join(LIBRARIES).display()
        ))
    })
}

impl HostCommand {
    /// The command for the master of a pool that this program hosts.
    ///
    /// # Errors
    /// The module is missing.
    pub(crate) fn new(host: &HostProgram, pool: &PoolConfig) -> Result<Self, Failure> {
        let module = module(host.api)?;
        let ini = ini_folder(host);
        let mut arguments = Vec::new();
        let mut environment = Vec::new();
        match (std::env::var_os(INI_PATH), &ini) {
            (Some(path), _) => environment.push((INI_PATH, absolute(Path::new(&path)).into())),
            (None, Some(folder)) => arguments.extend(["-c".into(), folder.join("php.ini").into()]),
            (None, None) => {}
        }
        match (std::env::var_os(SCANNED_FOLDERS), &ini) {
            (Some(folders), _) => environment.push((SCANNED_FOLDERS, all_absolute(&folders))),
            (None, Some(folder)) => {
                environment.push((SCANNED_FOLDERS, folder.join("conf.d").into()));
            }
            (None, None) => {}
        }
        let mut load = OsString::from("zend_extension=");
        load.push(php_settings::quoted_path(&module));
        let settings = php_settings::lines(pool).map(OsString::from);
        arguments.extend([load].into_iter().chain(settings).flat_map(|line| ["-d".into(), line]));
        // PHP begins a request in order to print its information. The module takes over there.
        arguments.push("-i".into());
        Ok(Self { module, arguments, environment })
    }

    /// Completes the command of a master by its options.
    pub(crate) fn pass(&self, options: Vec<OsString>, command: &mut Command) {
        let head = [env!("CARGO_PKG_VERSION").into(), self.module.clone().into_os_string()];
        let lines: Vec<_> = head.into_iter().chain(options).collect();
        for name in CGI_VARIABLES {
            command.env_remove(name);
        }
        command
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env(OPTIONS, lines.join(OsStr::new("\n")))
            .current_dir(FOLDER);
    }
}

/// The environment variable with the path of php.ini, or of its folder.
const INI_PATH: &str = "PHPRC";
/// The environment variable with the folders whose files PHP reads after php.ini.
const SCANNED_FOLDERS: &str = "PHP_INI_SCAN_DIR";

/// The same path for a program that is started in another folder.
fn absolute(path: &Path) -> PathBuf {
    // An empty path, which PHP ignores, is an error.
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// The same folders, which are separated by colons, for a program that is started in another one.
fn all_absolute(folders: &OsStr) -> OsString {
    let folders = folders.as_bytes().split(|byte| *byte == b':');
    let folders = folders.map(|folder| absolute(Path::new(OsStr::from_bytes(folder))));
    folders.map(PathBuf::into_os_string).collect::<Vec<_>>().join(OsStr::new(":"))
}

/// The folder with php-fpm's settings, for a program of the distribution, which may be another one
/// than php-fpm; `None`: the program knows its folder itself.
fn ini_folder(host: &HostProgram) -> Option<PathBuf> {
    let is_distributed =
        ["/usr/bin", "/usr/sbin"].iter().any(|folder| host.file.starts_with(folder));
    let folder = php_ini::fpm_folder(host.api.version()?);
    Some(folder).filter(|folder| is_distributed && folder.is_dir())
}
