//! The manual page sendoff.toml(5).

use roff::{Inline, Roff, bold, italic, roman};

use crate::docs::{default, titled};
use crate::keys::{
    Auth, Authorize, Fleet, Pool, Proxy, RequestMap, Route, Site, Tls, Top, Traces, Upstream,
};
use crate::section::{Section, sentence};

/// The description of the file, above the lists of its keys.
const DESCRIPTION: [&str; 4] = [
    "The configuration of the server that `sendoff run` starts. `sendoff check FILE` says what is wrong with a file, with the line and what to write instead; `sendoff check --schema` prints a JSON schema for editors.",
    "The format is TOML (https://toml.io): keys for the whole server, then sections. A section begins with its name in brackets, and its keys follow, one per line. Texts stand in quotation marks; in single ones a backslash stands for itself. A list of one value may be written without brackets. Paths of files are relative to the folder of the file in which they stand.",
    "A time is written as `\"500ms\"`, `\"30s\"`, `\"2m\"`, `\"1h\"` or `\"30d\"`, and a number alone is seconds; a size as `\"64K\"`, `\"100M\"` or `\"1G\"`, and a number alone is bytes.",
    "A request goes to the site that names its host, then to one with a wildcard, then to the one without hosts. The site tries its routes in order: of a route, every condition that is given must hold. If the route has a handler, it answers; otherwise its rules apply, and the next route sees the request as they left it.",
];

/// The page in roff, from the declarations of the keys.
#[must_use]
pub fn manual() -> String {
    let mut page = Roff::new();
    page.control("TH", ["sendoff.toml", "5"]);
    page.control("SH", ["NAME"]);
    page.text([roman("sendoff.toml - the configuration of the Sendoff web server")]);
    page.control("SH", ["DESCRIPTION"]);
    for paragraph in DESCRIPTION {
        page.control("PP", []).text(inlines(paragraph));
    }
    section::<Top>(&mut page);
    section::<Site>(&mut page);
    section::<RequestMap>(&mut page);
    section::<Route>(&mut page);
    section::<Auth>(&mut page);
    section::<Authorize>(&mut page);
    section::<Proxy>(&mut page);
    section::<Tls>(&mut page);
    section::<Pool>(&mut page);
    section::<Upstream>(&mut page);
    section::<Traces>(&mut page);
    section::<Fleet>(&mut page);
    page.control("SH", ["FILES"]).control("TP", []);
    page.text([bold("/etc/sendoff/sendoff.toml")]);
    page.text([roman("the file that is read if the command line names none")]);
    page.control("SH", ["SEE ALSO"]);
    page.text([bold("sendoff-run"), roman("(1), "), bold("sendoff-check"), roman("(1)")]);
    page.render()
}

fn section<T: Section>(page: &mut Roff) {
    page.control("SH", [titled::<T>().replace('`', "").to_uppercase().as_str()]);
    page.text(inlines(&sentence(T::DOC)));
    for key in T::KEYS.iter().filter(|key| !key.example.starts_with("see ")) {
        page.control("TP", []);
        page.text([bold(key.name), roman(" = "), italic((key.kind)().replace('`', ""))]);
        page.text(inlines(&sentence(key.doc)));
        let default = default(key);
        if !default.is_empty() {
            page.control("br", []).text(inlines(&format!("Default: {default}.")));
        }
        let example = format!("For example: `{} = {}`", key.name, key.example);
        page.control("br", []).text(inlines(&example));
    }
}

/// A text of the documents: words between backticks are bold.
fn inlines(text: &str) -> Vec<Inline> {
    let pieces = text.split('`').enumerate().filter(|(_, piece)| !piece.is_empty());
    pieces.map(|(number, piece)| if number % 2 == 1 { bold(piece) } else { roman(piece) }).collect()
}
