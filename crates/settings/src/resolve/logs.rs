//! Logs: the level of events, and the access logs of the server and of sites.

use sendoff_config::{AccessLog, LogTarget, SiteLog};
use sendoff_setting_values::{At, FilePath, Free, LogPath};

use super::context::Context;
use crate::keys::{Site, Top};

/// The values of `log` that are no filter for single modules.
const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

impl Context<'_> {
    /// Checks that the least level of events is a level. Levels of single modules are for
    /// developers and are not checked.
    pub(crate) fn levels_exist(&mut self, levels: &At<Free>) {
        let is_plain = !levels.value.0.contains(['=', ',', '[']);
        if is_plain && !LEVELS.contains(&levels.value.0.to_ascii_lowercase().as_str()) {
            self.problems
                .error(levels.place, format!("{:?} is no level of events", levels.value.0))
                .help(match levels.value.0.contains('/') {
                    true => "events go to standard error, which systemd's journal keeps; log is the level from which on they are written".to_owned(),
                    false => format!("there are {}", LEVELS.join(", ")),
                });
        }
    }

    /// The access log of the server.
    pub(crate) fn server_log(&mut self, top: &Top) -> Option<AccessLog> {
        let to = top.access_log.as_ref().and_then(|log| self.log_target(log))?;
        Some(AccessLog { to, format: top.access_log_format.value.resolved() })
    }

    /// The access log of a site.
    pub(crate) fn site_log(&mut self, section: &Site, top: &Top) -> SiteLog {
        let format = section.access_log_format.as_ref();
        let to = match (&section.access_log, format) {
            (None, None) => return SiteLog::Server,
            (Some(to), _) => self.log_target(to),
            (None, Some(_)) => top.access_log.as_ref().and_then(|to| self.log_target(to)),
        };
        match (to, format) {
            (Some(to), _) => {
                let format = format.unwrap_or(&top.access_log_format).value.resolved();
                SiteLog::Own(AccessLog { to, format })
            }
            (None, Some(format)) => {
                self.problems
                    .error(format.place, "there is no log that could have this format")
                    .help("name its file: access_log = \"/var/log/sendoff/access.log\"");
                SiteLog::Off
            }
            (None, None) => SiteLog::Off,
        }
    }

    /// The target of a log; `None` if requests are not logged. A file must be writable.
    fn log_target(&mut self, log: &At<LogPath>) -> Option<LogTarget> {
        let path = match &log.value {
            LogPath::Off => return None,
            LogPath::Stdout => return Some(LogTarget::Stdout),
            LogPath::File(path) => At { value: path.clone(), place: log.place },
        };
        self.check_log_path(&path);
        self.check_log_writable(&path);
        Some(LogTarget::File(path.value.0))
    }

    /// Checks that an access log is the path of a file alone, without a format or nginx's words.
    fn check_log_path(&mut self, log: &At<FilePath>) {
        const FORMATS: [&str; 4] = ["combined", "json", "main", "common"];
        let path = log.value.0.to_string_lossy();
        let name = path.rsplit('/').next().unwrap_or_default();
        let format = path.rsplit_once(' ').filter(|(_, format)| FORMATS.contains(format));
        let (says, help) = match (name, format) {
            ("none" | "false", _) => {
                (format!("\"{name}\" is a file here"), "write access_log = \"off\"".to_owned())
            }
            (_, Some((path, format))) => {
                let format = if format == "json" { format } else { "combined" };
                (
                    "the format is a key of its own".to_owned(),
                    format!("write access_log = \"{path}\" and access_log_format = \"{format}\""),
                )
            }
            _ if name.starts_with("syslog:") || path.contains("/syslog:") => (
                "requests are logged to a file or to standard output".to_owned(),
                "access_log = \"-\" is standard output, which systemd's journal keeps".to_owned(),
            ),
            _ => return,
        };
        self.problems.error(log.place, says).help(help);
    }
}
