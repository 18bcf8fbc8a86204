//! The configuration of NGINX Unit: a JSON document.
//!
//! `json` reads it, `listener` makes sites of the listeners, `matching` conditions of `match`,
//! `action`, `share` and `program` routes of the actions, `application` pools of the applications.
//!
//! Each part names the options that it deals with; all others are named in the result.
#![forbid(unsafe_code)]

mod action;
mod application;
mod builder;
mod conditions;
mod json;
mod listener;
mod matching;
mod pattern;
mod program;
mod repeated;
mod settings;
mod share;
mod text;

use std::path::Path;

use sendoff_convert_document::{Conversion, Document, Files, Unreadable};

use json::Node;

/// Converts a document of Unit: what `GET /config` or `GET /` of its control socket answers.
///
/// # Errors
/// A file cannot be read, or is not what the server would accept.
pub fn convert(path: &Path, files: &dyn Files) -> Result<Conversion, Unreadable> {
    let (value, name) = json::read(path, files)?;
    let document = Node::new(&value, name);
    let config = document.get("config").unwrap_or_else(|| document.clone());
    let Some(listeners) = config.get("listeners") else {
        let says = "no listeners in this document: name what GET /config answers";
        return Err(Unreadable { place: Some(config.place), says: says.to_owned() });
    };
    let mut made = Document::default();
    let known = ["listeners", "routes", "applications", "upstreams", "settings", "access_log"];
    config.name_others(&known, &mut made.top);
    let types = settings::settings(&config, &mut made.top);
    settings::access_log(&config, &mut made.top);
    let listeners = listeners.members();
    let forwarded = settings::forwarded(&listeners, &mut made.top);
    let mut rest = &listeners[..];
    let mut done: Vec<&Node<'_>> = Vec::new();
    while let Some(((_, first), others)) = rest.split_first() {
        rest = others;
        if done.iter().any(|known| known.equals(first)) {
            continue;
        }
        done.push(first);
        let alike: Vec<_> =
            listeners.iter().filter(|(_, other)| other.equals(first)).cloned().collect();
        listener::convert(&config, &alike, forwarded, &mut made)?;
    }
    for site in made.sites.iter_mut().filter(|section| section.has("root")) {
        for (ending, kind) in &types {
            site.set_in("media_types", ending, kind.clone());
        }
    }
    for (name, upstream) in config.get("upstreams").iter().flat_map(Node::members) {
        let used = application::name(name);
        if made.sites.iter().any(|section| section.mentions(&used)) {
            made.groups.push(application::upstream(name, &upstream));
        }
    }
    Ok(made.finish())
}
