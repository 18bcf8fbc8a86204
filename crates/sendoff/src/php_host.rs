//! Hosted pools: the command by which a stock PHP program becomes the master of a pool.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use sendoff_config::{HostProgram, PhpApi, PoolConfig, php_ini, php_settings};

use crate::children::this_program;
use crate::failure::Failure;

/// The environment variable with the options of the master. The module removes it.
pub(crate) const OPTIONS: &str = "SENDOFF_HOST";

/// The folder of modules, seen from the folder of this program, if they are not beside it.
const LIBRARIES: &str = "../lib/sendoff";

/// The command of a hosted master, apart from the master's options.
#[derive(Debug)]
pub(crate) struct HostCommand {
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: Vec<(&'static str, PathBuf)>,
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
        let ini = ini_folder(host);
        let is_set = |name| std::env::var_os(name).is_some();
        let file = ini.as_ref().filter(|_| !is_set("PHPRC")).map(|folder| folder.join("php.ini"));
        let scanned = ini.as_ref().filter(|_| !is_set("PHP_INI_SCAN_DIR"));
        let scanned = scanned.map(|folder| ("PHP_INI_SCAN_DIR", folder.join("conf.d")));
        let mut arguments = Vec::new();
        if let Some(file) = file {
            arguments.extend(["-c".into(), file.into_os_string()]);
        }
        let mut load = OsString::from("zend_extension=");
        load.push(module(host.api)?);
        let settings = php_settings::lines(pool).map(OsString::from);
        arguments.extend([load].into_iter().chain(settings).flat_map(|line| ["-d".into(), line]));
        // PHP begins a request in order to print its information. The module takes over there.
        arguments.push("-i".into());
        Ok(Self { arguments, environment: scanned.into_iter().collect() })
    }
}

/// The folder with php-fpm's settings, for a program of the distribution, which may be another one
/// than php-fpm; `None`: the program knows its folder itself.
fn ini_folder(host: &HostProgram) -> Option<PathBuf> {
    let is_distributed =
        ["/usr/bin", "/usr/sbin"].iter().any(|folder| host.file.starts_with(folder));
    let folder = php_ini::fpm_folder(host.api.version()?);
    Some(folder).filter(|folder| is_distributed && folder.is_dir())
}
