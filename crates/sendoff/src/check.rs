//! `sendoff check`, and `sendoff serve --print-config`.

use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;

use sendoff_setting_values::{At, FilePath, Place};
use sendoff_settings::Short;
use sendoff_settings::keys::{Fleet, Tls};
use sendoff_tls::{Complaint, FleetSecrets, Vault, Whose};

use crate::children::own_php_program;
use crate::failure::Failure;
use crate::htaccess::HtaccessReport;
use crate::options::{Check, Serve};
use crate::php_host;
use crate::source::{Resolved, refusal};

/// Checks a configuration file and the `.htaccess` files of its sites. Prints one line if the file
/// is usable, and the directives that the server ignores.
///
/// # Errors
/// The file cannot be used.
pub(crate) fn run(check: &Check) -> Result<(), Failure> {
    if check.schema {
        return print(&sendoff_settings::schema());
    }
    let file = check.file.path();
    let resolved = Resolved::from_file(file)?;
    if check.print {
        return print(&sendoff_settings::print(&resolved.top));
    }
    let colours = io::stdout().is_terminal();
    let mut resolved = resolved;
    for Complaint { site, whose, says, is_error } in Vault::complaints(&resolved.config) {
        let tls = resolved.top.site.value.0.get(site).and_then(|site| site.tls.as_ref());
        let place = tls.map_or(Place::Default, |tls| place_of(tls, whose));
        if is_error {
            resolved.problems.error(place, says);
        } else {
            resolved.problems.warning(place, says);
        }
    }
    fleet_files(&mut resolved);
    php_is_there(&mut resolved);
    resolved.problems.sort();
    if resolved.problems.errors() > 0 {
        return Err(Failure::Input(refusal(file, &resolved.problems, &resolved.sources)));
    }
    let warnings = resolved.problems.report(&resolved.sources, colours);
    let (sites, pools) = (resolved.config.sites.len(), resolved.config.pools.len());
    let routes: usize = resolved.config.sites.iter().map(|site| site.routes.len()).sum();
    let file = file.display();
    let htaccess = HtaccessReport::of(&resolved.config);
    let files = match htaccess.files() {
        0 => String::new(),
        files => format!(", {}", count(files, ".htaccess file")),
    };
    print(&format!(
        "{warnings}{htaccess}{file}: {}, {}, {}{files}: fine\n",
        count(sites, "site"),
        count(routes, "route"),
        count(pools, "pool"),
    ))
}

/// The rights of all users to read and to write a file.
const OTHERS: u32 = 0o006;

/// Reports files of a fleet's secrets that cannot be used.
fn fleet_files(resolved: &mut Resolved) {
    let section = resolved.top.fleet.as_ref().map(|fleet| &fleet.value.0);
    let file = |of: fn(&Fleet) -> &Option<At<FilePath>>| {
        section.and_then(|section| of(section).as_ref()).map_or(Place::Default, |file| file.place)
    };
    if resolved.config.acme.is_some() && section.is_some_and(|it| it.secret_file.is_none()) {
        let place = resolved.top.fleet.as_ref().map_or(Place::Default, |fleet| fleet.place);
        let says = "each node obtains certificates by itself; with secret_file they share them";
        resolved.problems.warning(place, says);
    }
    let password = file(|section| &section.password_file);
    let secret = file(|section| &section.secret_file);
    if let Err(says) = FleetSecrets::engine_password(&resolved.config) {
        resolved.problems.error(password, says);
    }
    if let Err(says) = FleetSecrets::secret(&resolved.config) {
        resolved.problems.error(secret, says);
    }
    let path = resolved.config.fleet.as_ref().and_then(|fleet| fleet.secret_file.as_ref());
    let mode = path.and_then(|path| path.metadata().ok()).map_or(0, |facts| facts.mode());
    if mode & OTHERS != 0 {
        let says = "every user of this machine can read or write this file: chmod 640";
        resolved.problems.warning(secret, says);
    }
}

/// Reports pools of PHP workers without `sendoff-php`, or without a module for their PHP program.
fn php_is_there(resolved: &mut Resolved) {
    for pool in resolved.config.pools.iter().filter(|pool| pool.program.is_none()) {
        let found = match &pool.host {
            Some(host) => php_host::module(host.api),
            None => own_php_program(),
        };
        if let Err(failure) = found {
            let mut sections = resolved.top.pool.value.0.iter();
            let section = sections.find(|section| section.name.value.0 == pool.name);
            let php = section.and_then(|section| section.php.as_ref());
            let place = php.map_or(Place::Default, |php| php.place);
            resolved.problems.error(place, failure.to_string());
        }
    }
}

/// The place in the file where a site names the credentials or the issuers that are wrong.
fn place_of(tls: &At<Short<Tls>>, whose: Whose) -> Place {
    let keys = &tls.value.0;
    let own = match whose {
        Whose::Certificate => keys.certificate.as_ref().map(|at| at.place),
        Whose::Key => keys.key.as_ref().map(|at| at.place),
        Whose::Ocsp => keys.ocsp.as_ref().map(|at| at.place),
        Whose::ClientIssuers => keys.client_issuers.as_ref().map(|at| at.place),
        Whose::Site => None,
    };
    own.unwrap_or(tls.place)
}

/// Prints the configuration file that is equivalent to a command line. The command line must be
/// valid.
///
/// # Errors
/// The command line cannot be served, or no file can express it.
pub(crate) fn print_config(serve: &Serve) -> Result<(), Failure> {
    let top = Resolved::from_options(serve)?.top;
    let text = sendoff_settings::print(&top);
    if sendoff_settings::read_text(&text) != Some(top) {
        return Err(Failure::Input("a path is not UTF-8, which no file can express".to_owned()));
    }
    print(&text)
}

/// Writes to standard output.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    io::stdout().lock().write_all(text.as_bytes()).map_err(Failure::system("standard output"))
}

fn count(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    }
}
