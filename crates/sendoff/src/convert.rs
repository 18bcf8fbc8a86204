//! `sendoff convert`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sendoff_convert::{Files, Origin};

use crate::check::print;
use crate::failure::Failure;
use crate::options::{Convert, OtherServer};

/// The largest configuration file, in bytes: far more than people write, and little to hold.
const MAX_FILE: u64 = 8 << 20;

/// The files of this machine.
struct OfMachine;

impl Files for OfMachine {
    fn read(&self, path: &Path) -> io::Result<String> {
        let file = File::open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("this is not a file"));
        }
        let mut bytes = Vec::new();
        file.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_FILE {
            return Err(io::Error::other("this file is too large for a configuration"));
        }
        // Comments may be in any encoding.
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn matching(&self, pattern: &Path) -> Vec<PathBuf> {
        let Some(pattern) = pattern.to_str() else { return Vec::new() };
        glob::glob(pattern).map(|paths| paths.flatten().collect()).unwrap_or_default()
    }
}

/// Converts the configuration of another server, and prints the result.
///
/// # Errors
/// The file cannot be read, or directives have no equal.
pub(crate) fn run(convert: &Convert) -> Result<(), Failure> {
    let from = convert.from.map(|server| match server {
        OtherServer::Apache => Origin::Apache,
        OtherServer::Caddy => Origin::Caddy,
        OtherServer::Nginx => Origin::Nginx,
        OtherServer::Unit => Origin::Unit,
    });
    let converted = sendoff_convert::convert(&convert.file, &OfMachine, from)
        .map_err(|unreadable| Failure::Input(unreadable.to_string()))?;
    print(&converted.text)?;
    match converted.left_out {
        0 => Ok(()),
        1 => Err(Failure::Incomplete("1 directive was left out; a comment names it".to_owned())),
        many => {
            Err(Failure::Incomplete(format!("{many} directives were left out; comments name them")))
        }
    }
}
