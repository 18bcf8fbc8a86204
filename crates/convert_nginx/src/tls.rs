//! TLS of a site.

use super::rewrite::redirects_to_https;
use super::scope::Scope;
use sendoff_convert_document::Section;

/// Sets the keys of TLS, if the server speaks it.
pub(super) fn tls(scope: &Scope<'_>, site: &mut Section) {
    const NAMES: [&str; 5] = [
        "ssl_certificate",
        "ssl_certificate_key",
        "ssl_protocols",
        "ssl_client_certificate",
        "ssl_verify_client",
    ];
    let speaks_tls = scope.block().iter().any(|listen| {
        listen.name == "listen"
            && listen.words.iter().any(|word| matches!(word.as_str(), "ssl" | "quic"))
    });
    if !speaks_tls {
        // Without TLS they mean nothing.
        scope.group(&NAMES);
        return;
    }
    let (Some(certificate), Some(key)) =
        (scope.only("ssl_certificate", site), scope.only("ssl_certificate_key", site))
    else {
        return;
    };
    let (certificate, key) = (certificate.word(), key.word());
    site.set_in("tls", "certificate", certificate);
    site.set_in("tls", "key", key);
    if let Some(protocols) = scope.get("ssl_protocols") {
        if protocols.words.iter().all(|word| word == "TLSv1.3") {
            site.set_in("tls", "oldest", "1.3");
        } else if protocols
            .words
            .iter()
            .any(|word| matches!(word.as_str(), "TLSv1" | "TLSv1.1" | "SSLv3"))
        {
            site.note(&protocols.place, "ssl_protocols: TLS 1.2 is the oldest version here");
        }
    }
    let verify = scope.word("ssl_verify_client");
    if let (Some(issuers), Some("on" | "optional")) = (scope.word("ssl_client_certificate"), verify)
    {
        site.set_in("tls", "client_issuers", issuers);
        let asked = if verify == Some("on") { "required" } else { "optional" };
        site.set_in("tls", "client_certificates", asked);
    }
    // In nginx, a server or an `if` redirects.
    if !redirects_to_https(scope) {
        site.set("https_redirect", false);
    }
}
