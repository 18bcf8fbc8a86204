//! The grammar of Apache: directives, sections, includes, and what `Define` and `<If...>` decide
//! while the files are read.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use sendoff_convert_document::sources::{MAX_DEPTH, Source, Sources};
use sendoff_convert_document::{Directive, Files, Place, Unreadable};
use sendoff_htaccess::syntax;

/// The variables of Debian's `envvars`.
const DEBIAN: [(&str, &str); 6] = [
    ("APACHE_LOG_DIR", "/var/log/apache2"),
    ("APACHE_RUN_DIR", "/var/run/apache2"),
    ("APACHE_LOCK_DIR", "/var/lock/apache2"),
    ("APACHE_PID_FILE", "/var/run/apache2/apache2.pid"),
    ("APACHE_RUN_USER", "www-data"),
    ("APACHE_RUN_GROUP", "www-data"),
];
/// Modules that are part of Apache.
const BUILT_IN: [&str; 8] =
    ["core", "so", "http", "log_config", "logio", "version", "unixd", "watchdog"];
/// Modules of Apache that Debian enables, or that sites ask for with `!` to find out their version.
const OF_APACHE: [&str; 24] = [
    "access_compat",
    "alias",
    "auth_basic",
    "authn_core",
    "authn_file",
    "authz_core",
    "authz_host",
    "authz_user",
    "autoindex",
    "deflate",
    "dir",
    "env",
    "expires",
    "filter",
    "headers",
    "mime",
    "negotiation",
    "proxy",
    "proxy_fcgi",
    "proxy_http",
    "rewrite",
    "setenvif",
    "ssl",
    "status",
];
/// The longest line with the values of its variables: more than people write. Each `Define` may
/// double the length.
const MAX_LINE: usize = 64 << 10;
/// Directives whose arguments are expressions: backslashes stay.
const RAW: [&str; 2] = ["rewriterule", "rewritecond"];

/// A file with its includes.
#[derive(Debug)]
pub(super) struct Tree {
    /// The directives, with their names in small letters; sections with a `<` in front.
    pub(super) directives: Vec<Directive>,
    /// True if the file loads modules: then it is the whole configuration.
    pub(super) is_whole: bool,
}

/// Reads a file and all files that it includes.
pub(super) fn read(path: &Path, files: &dyn Files) -> Result<Tree, Unreadable> {
    let mut reader = Reader {
        sources: Sources::new(files),
        files,
        folder: main_folder(path),
        variables: DEBIAN.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
        modules: HashSet::new(),
        loads_modules: false,
    };
    // <IfModule> may stand in front of the first LoadModule.
    reader.loads_modules = files.read(path).is_ok_and(|text| is_main(&text));
    let directives = reader.file(path, None, 0)?;
    Ok(Tree { directives, is_whole: reader.loads_modules })
}

/// True for the text of a file that loads modules, itself or by an include.
fn is_main(text: &str) -> bool {
    text.lines().map(str::trim_start).any(|line| {
        let line = line.to_ascii_lowercase();
        line.starts_with("loadmodule ")
            || line.starts_with("include") && line.contains("mods-enabled/*.load")
    })
}

/// The folder of the main file, where relative paths begin unless `ServerRoot` names another one:
/// the parent of `sites-available`.
fn main_folder(path: &Path) -> PathBuf {
    let folder = path.parent().unwrap_or(Path::new(""));
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_part = name.ends_with("-available") || name.ends_with("-enabled") || name == "conf.d";
    let folder = if is_part { folder.parent().unwrap_or(folder) } else { folder };
    folder.to_owned()
}

struct Reader<'f> {
    sources: Sources<'f>,
    files: &'f dyn Files,
    folder: PathBuf,
    variables: HashMap<String, String>,
    /// The loaded modules, without `_module`.
    modules: HashSet<String>,
    loads_modules: bool,
}

/// The fate of the directives in a section about modules, names or versions.
enum Decision {
    Holds,
    HoldsNot,
    /// The file does not tell.
    Unknown,
    /// The section is about something else.
    Other,
}

/// The directives about access of a section that perhaps holds, as a section with a condition that
/// is not understood.
fn guarding(block: Vec<Directive>, place: &Place) -> Option<Directive> {
    let kept: Vec<Directive> = block.into_iter().filter_map(guard).collect();
    let name = "<if".to_owned();
    (!kept.is_empty()).then(|| Directive::new(name, Vec::new(), Some(kept), place.clone()))
}

/// A directive without the parts that refuse nothing; `None`: nothing is left of it.
fn guard(directive: Directive) -> Option<Directive> {
    match directive.block {
        None => super::access::may_refuse(&directive).then_some(directive),
        Some(block) => {
            let kept: Vec<Directive> = block.into_iter().filter_map(guard).collect();
            let Directive { name, words, place, .. } =
                Directive::new(directive.name, directive.words, None, directive.place);
            (!kept.is_empty()).then(|| Directive::new(name, words, Some(kept), place))
        }
    }
}

/// The lines of a file.
struct Lines<'l> {
    source: &'l Source,
    rest: std::slice::Iter<'l, syntax::Line>,
}

impl Reader<'_> {
    fn file(
        &mut self,
        path: &Path,
        from: Option<&Place>,
        depth: usize,
    ) -> Result<Vec<Directive>, Unreadable> {
        let source = self.sources.open(path, from, depth)?;
        let lines = syntax::lines(source.text.as_bytes()).map_err(|error| Unreadable {
            place: Some(source.line(error.number)),
            says: "this line is too long".to_owned(),
        })?;
        let mut lines = Lines { source: &source, rest: lines.iter() };
        let directives = self.block(&mut lines, None, depth);
        self.sources.close();
        directives
    }

    /// Reads directives up to the end of a section, or of the file.
    fn block(
        &mut self,
        lines: &mut Lines<'_>,
        section: Option<(&str, &Place)>,
        depth: usize,
    ) -> Result<Vec<Directive>, Unreadable> {
        let mut directives = Vec::new();
        while let Some(line) = lines.rest.next() {
            let place = lines.source.line(line.number);
            let wrong = |says: String| Unreadable { place: Some(place.clone()), says };
            let name = String::from_utf8_lossy(&line.name).to_ascii_lowercase();
            self.sources.count(&place)?;
            if let Some(end) = name.strip_prefix("</") {
                return match section {
                    Some((name, _)) if end.trim_end_matches('>') == &name[1..] => Ok(directives),
                    _ => Err(wrong(format!("{name} closes no section"))),
                };
            }
            if depth > MAX_DEPTH {
                return Err(wrong("sections are nested too deeply".to_owned()));
            }
            let rest = String::from_utf8_lossy(&line.rest).into_owned();
            let (name, rest) = match name.strip_suffix('>') {
                Some(name) if name.starts_with('<') => (name.to_owned(), ">".to_owned()),
                _ => (name, rest),
            };
            let rest = self.with_variables(&rest, &place)?;
            if name.starts_with('<') {
                let rest = rest.trim_end().strip_suffix('>').unwrap_or(&rest);
                let words = words(&name, rest);
                let block = self.block(lines, Some((&name, &place)), depth + 1)?;
                match self.decides(&name, &words, &place)? {
                    Decision::Holds => directives.extend(block),
                    Decision::HoldsNot => {}
                    Decision::Unknown => directives.extend(guarding(block, &place)),
                    Decision::Other => {
                        directives.push(Directive::new(name, words, Some(block), place));
                    }
                }
                continue;
            }
            let words = words(&name, &rest);
            match name.as_str() {
                "include" | "includeoptional" => {
                    let word = words.first().map_or("", String::as_str);
                    let mut pattern = self.folder.join(word);
                    if !word.contains(['*', '?', '[']) && self.files.read(&pattern).is_err() {
                        // A folder stands for its files.
                        pattern = match name.as_str() {
                            "includeoptional" => pattern.join("*"),
                            _ => pattern,
                        };
                    }
                    for path in self.sources.named(&pattern) {
                        directives.extend(self.file(&path, Some(&place), depth + 1)?);
                    }
                }
                "serverroot" => self.folder = PathBuf::from(words.concat()),
                "define" => {
                    let value = words.get(1).cloned().unwrap_or_default();
                    self.variables.insert(words.first().cloned().unwrap_or_default(), value);
                }
                "undefine" => {
                    self.variables.remove(words.first().map_or("", String::as_str));
                }
                "loadmodule" => {
                    let name = words.first().map_or("", String::as_str);
                    self.modules.insert(name.trim_end_matches("_module").to_owned());
                }
                "use" => {
                    return Err(wrong(
                        "macros are not understood: write out what they stand for".to_owned(),
                    ));
                }
                _ => directives.push(Directive::new(name, words, None, place)),
            }
        }
        match section {
            None => Ok(directives),
            Some((name, place)) => {
                let says = format!("{name}> has no end");
                Err(Unreadable { place: Some(place.clone()), says })
            }
        }
    }

    /// Decides about the directives of a section.
    fn decides(&self, name: &str, words: &[String], place: &Place) -> Result<Decision, Unreadable> {
        let word = words.first().map_or("", String::as_str);
        let (negated, word) = match word.strip_prefix('!') {
            Some(word) => (true, word),
            None => (false, word),
        };
        let holds = match name {
            "<ifmodule" => {
                let name = word.trim_start_matches("mod_");
                let name = name.trim_end_matches(".c").trim_end_matches("_module");
                let is_loaded = BUILT_IN.contains(&name)
                    || self.modules.contains(name)
                    || word.starts_with("php") && self.modules.contains("php");
                // All modules count as loaded in a file that loads none; the server may lack those
                // of others.
                match !self.loads_modules && !is_loaded {
                    true if negated && !OF_APACHE.contains(&name) => return Ok(Decision::Unknown),
                    is_guessed => is_loaded || is_guessed,
                }
            }
            // The command line may define it, too.
            "<ifdefine" if !self.variables.contains_key(word) && !negated => {
                return Ok(Decision::Unknown);
            }
            "<ifdefine" => self.variables.contains_key(word),
            "<ifdirective" | "<ifsection" => return Ok(Decision::Unknown),
            "<iffile" => self.files.read(&self.folder.join(word)).is_ok(),
            "<ifversion" => {
                let text = words.join("");
                return match text.as_str() {
                    ">=2.4" | ">2.4.0" | ">=2.4.0" | ">2.2" | ">=2.3" | "2.4" | ">=2.2" => {
                        Ok(Decision::Holds)
                    }
                    "<2.4" | "<2.3" | "<2.4.0" | "<=2.2" | "!>=2.4" | "<2.2" => {
                        Ok(Decision::HoldsNot)
                    }
                    _ => Err(Unreadable {
                        place: Some(place.clone()),
                        says: format!("<IfVersion {text}> is not understood"),
                    }),
                };
            }
            "<macro" => {
                let says = "macros are not understood: write out what they stand for".to_owned();
                return Err(Unreadable { place: Some(place.clone()), says });
            }
            _ => return Ok(Decision::Other),
        };
        Ok(match holds != negated {
            true => Decision::Holds,
            false => Decision::HoldsNot,
        })
    }

    /// The text with the values of variables, `${NAME}`.
    fn with_variables(&self, text: &str, place: &Place) -> Result<String, Unreadable> {
        let (mut made, mut rest) = (String::new(), text);
        while let Some(start) = rest.find("${") {
            let Some(end) = rest[start..].find('}').map(|length| start + length) else { break };
            let name = &rest[start + 2..end];
            // A map of mod_rewrite.
            let value = match self.variables.get(name) {
                Some(value) => value.clone(),
                None if name.contains(':') => rest[start..=end].to_owned(),
                None => {
                    let says = format!("${{{name}}} has no value: add a line Define {name} VALUE");
                    return Err(Unreadable { place: Some(place.clone()), says });
                }
            };
            made.push_str(&rest[..start]);
            made.push_str(&value);
            if made.len() > MAX_LINE {
                let says = format!("this line has more than {MAX_LINE} bytes with its variables");
                return Err(Unreadable { place: Some(place.clone()), says });
            }
            rest = &rest[end + 1..];
        }
        made.push_str(rest);
        Ok(made)
    }
}

/// The words of a directive.
fn words(name: &str, rest: &str) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if RAW.contains(&name) {
        let mut rest = rest.as_bytes();
        return std::iter::from_fn(|| syntax::raw_word(&mut rest).map(text)).collect();
    }
    syntax::words(rest.as_bytes()).iter().map(|word| text(word)).collect()
}
