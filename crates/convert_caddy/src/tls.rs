//! `tls` of a site.

use sendoff_convert_document::{Directive, Section};

/// Sets the certificate of a site. Returns false if the site has to be closed: clients without a
/// certificate would get what Caddy refuses them.
pub(super) fn tls(directive: &Directive, site: &mut Section, top: &mut Section) -> bool {
    match &directive.words[..] {
        [] => {}
        [one] if one == "internal" => site.set_in("tls", "certificate", "self-signed"),
        [email] if email.contains('@') => top.set("acme_email", email.clone()),
        [certificate, key] => {
            site.set_in("tls", "certificate", certificate.clone());
            site.set_in("tls", "key", key.clone());
        }
        _ => directive.left_out(site, "its certificate is not known"),
    }
    let mut is_open = true;
    for option in directive.inner() {
        match (option.name.as_str(), option.word()) {
            ("protocols", "tls1.3") => site.set_in("tls", "oldest", "1.3"),
            ("protocols", _) | ("curves" | "ciphers" | "alpn" | "key_type", _) => {}
            ("client_auth", _) => is_open &= client_auth(option, site),
            ("issuer", "internal") => site.set_in("tls", "certificate", "self-signed"),
            ("ca", url) if url.starts_with("https://") => top.set("acme_directory", url),
            _ => option.left_out(site, "no option of tls is like it"),
        }
    }
    is_open
}

/// `client_auth { mode MODE, trusted_ca_cert_file PATH }`
fn client_auth(directive: &Directive, site: &mut Section) -> bool {
    let (mut mode, mut issuers) = ("require_and_verify", None);
    for option in directive.inner() {
        match option.name.as_str() {
            "mode" => mode = option.word(),
            "trusted_ca_cert_file" if issuers.is_none() => issuers = Some(option.word()),
            _ => {
                option.left_out(site, "it decides about clients; every request is refused");
                return false;
            }
        }
    }
    match (mode, issuers) {
        ("require_and_verify", Some(issuers)) => {
            site.set_in("tls", "client_issuers", issuers);
            true
        }
        ("verify_if_given", Some(issuers)) => {
            site.set_in("tls", "client_issuers", issuers);
            site.set_in("tls", "client_certificates", "optional");
            true
        }
        _ => {
            directive.left_out(site, "its mode; every request is refused");
            false
        }
    }
}
