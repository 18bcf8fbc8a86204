//! Passwords and web services that decide: `basic_auth` and `forward_auth`. Addresses that make an
//! exception make none here, so that the rule is never wider.

use super::body::{Builder, Scope, Step};
use super::conditions::{Clients, Requests};
use super::proxy;
use sendoff_convert_document::Section;

impl Builder<'_> {
    /// `basic_auth [ALGORITHM [REALM]] { NAME HASH }`
    pub(super) fn basic_auth(&mut self, step: &Step<'_>, scope: &Scope<'_>) {
        let directive = step.directive;
        let realm = step.words.get(1).copied().unwrap_or("restricted");
        if !matches!(step.word(), "" | "bcrypt") || realm.contains(['{', '"', '\\']) {
            return self.refuse(step, scope, "its kind of hash, or its realm");
        }
        let mut lines = Vec::new();
        for user in directive.inner() {
            let hash = user.words.first().map(|hash| decoded(hash)).unwrap_or_default();
            let is_hash = hash.starts_with("$2") && hash.bytes().all(|b| b.is_ascii_graphic());
            if !is_hash || user.words.len() != 1 || user.name.contains([':', '{']) {
                return self.refuse(
                    step,
                    scope,
                    "a hash is no text of bcrypt, or has a placeholder",
                );
            }
            lines.push(format!("{}:{hash}", user.name));
        }
        self.user_files += 1;
        let file = format!("users-{}-{}", self.name, self.user_files);
        let text = format!(
            "{}: the names and hashes belong into the file {file} beside this one: {}",
            directive.name,
            lines.join(" ")
        );
        self.site.note(&directive.place, text);
        let requests = self.everyone(step);
        self.add(&requests, scope.mark, super::conditions::Seen::Whole, &|route, _| {
            route.set_in("auth", "users", file.clone());
            route.set_in("auth", "realm", realm);
        });
    }

    /// `forward_auth ADDRESS { uri TEXT copy_headers NAME... }`
    pub(super) fn forward_auth(&mut self, step: &Step<'_>, scope: &Scope<'_>) {
        let (mut path, mut fields) = (None, Vec::new());
        for option in step.directive.inner() {
            let words = option.words.iter().chain(option.inner().iter().map(|inner| &inner.name));
            match option.name.as_str() {
                "uri" => path = option.words.first().cloned(),
                "copy_headers" => fields.extend(words.cloned()),
                _ => {
                    let why = format!("{} is not known", option.name);
                    return self.refuse(step, scope, &why);
                }
            }
        }
        let renamed = step
            .directive
            .inner()
            .iter()
            .any(|option| option.inner().iter().any(|inner| !inner.words.is_empty()));
        if renamed || fields.iter().any(|field| field.contains(['>', '{', '*'])) {
            return self.refuse(step, scope, "a field that gets another name");
        }
        let address = match &step.words[..] {
            [address] => proxy::address(address),
            _ => None,
        };
        let (Some(address), Some(path)) = (address, path) else {
            return self.refuse(step, scope, "its address or its uri");
        };
        if !path.starts_with('/') || path.contains(['{', '$', '#', '"']) {
            return self.refuse(step, scope, "its uri has placeholders");
        }
        let url = match address.host.starts_with("unix:") {
            true => format!("{}://{}:{path}", address.scheme, address.host),
            false => format!("{}://{}{path}", address.scheme, address.host),
        };
        let requests = self.everyone(step);
        self.add(&requests, scope.mark, super::conditions::Seen::Whole, &|route, _| {
            let mut table = Section::default();
            table.set_in("authorize", "url", url.clone());
            if !fields.is_empty() {
                table.set_in("authorize", "copy_headers", fields.clone());
            }
            route.absorb(table);
        });
    }

    /// The requests of a rule that restricts: an exception for addresses has no equal.
    fn everyone(&mut self, step: &Step<'_>) -> Requests {
        if step.requests.clients != Clients::Everyone {
            let text = format!(
                "{}: its exception for addresses has no equal; it holds for all clients",
                step.directive.text()
            );
            self.site.left_out(&step.directive.place, text);
        }
        Requests { clients: Clients::Everyone, ..step.requests.clone() }
    }
}

/// The hash, which older versions of Caddy have in base64.
fn decoded(text: &str) -> String {
    const SIGNS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    if text.starts_with('$') {
        return text.to_owned();
    }
    let (mut bits, mut length, mut bytes) = (0_u32, 0, Vec::new());
    for sign in text.trim_end_matches('=').bytes() {
        let Some(value) = SIGNS.iter().position(|known| *known == sign) else {
            return String::new();
        };
        bits = (bits << 6 | u32::try_from(value).unwrap_or_default()) & 0xfff_ffff;
        length += 6;
        if length >= 8 {
            length -= 8;
            bytes.push(((bits >> length) & 0xff) as u8);
        }
    }
    String::from_utf8(bytes).unwrap_or_default()
}
