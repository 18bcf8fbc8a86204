//! The address of a fragment.

use sendoff_message::request::{Request, host_name};

/// Longest address in bytes. nginx refuses longer request lines (`large_client_header_buffers`).
const LONGEST: usize = 8 << 10;

/// The path and query of a fragment that a page names by this address, on the page's own host.
///
/// # Errors
/// The reason why it is not asked for: it is on another host, or no address.
pub fn target(address: &str, page: &Request) -> Result<String, String> {
    if address.len() > LONGEST {
        return Err(format!("the address has more than {LONGEST} bytes"));
    }
    let address = address.split('#').next().unwrap_or_default().trim();
    let lower = address.to_ascii_lowercase();
    let schemes = ["http://", "https://", "//"];
    if let Some(scheme) = schemes.into_iter().find(|scheme| lower.starts_with(scheme)) {
        let rest = &address[scheme.len()..];
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, uri) = rest.split_at(end);
        is_own(authority, page)?;
        return Ok(if uri.starts_with('/') { uri.to_owned() } else { format!("/{uri}") });
    }
    if address.starts_with('/') {
        return Ok(address.to_owned());
    }
    let own = String::from_utf8_lossy(&page.uri);
    let path = own.split('?').next().unwrap_or_default();
    if address.is_empty() {
        return Err("the address is empty".to_owned());
    }
    if address.starts_with('?') {
        return Ok(format!("{path}{address}"));
    }
    let before_slash = address.split(['/', '?']).next().unwrap_or_default();
    if before_slash.contains(':') {
        return Err(format!("{address:?} is no address of a page"));
    }
    let folder = path.rfind('/').map_or("/", |at| &path[..=at]);
    Ok(format!("{folder}{address}"))
}

/// Checks that an authority is the page's own.
fn is_own(authority: &str, page: &Request) -> Result<(), String> {
    let foreign = || {
        let own = page.host_name();
        format!(
            "it is on {authority:?}, and only fragments of the page's own host {own:?} are included"
        )
    };
    if authority.contains('@') || host_name(authority.as_bytes()) != page.host_name() {
        return Err(foreign());
    }
    let after_brackets = authority.rfind(']').map_or(0, |at| at + 1);
    let port = authority[after_brackets..].split_once(':').map(|(_, port)| port);
    match port.filter(|port| !port.is_empty()) {
        Some(port) if port.parse().ok() != page.port => Err(foreign()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use sendoff_message::request::sample::request;

    use super::*;

    fn page() -> Request {
        let mut page = request(Some("A.test:81"));
        (page.uri, page.port) = ("/blog/post?id=1".into(), Some(81));
        page
    }

    #[test]
    fn fragments_are_on_the_host_of_the_page() {
        for (address, uri) in [
            ("/x?y#z", "/x?y"),
            ("http://a.test/x", "/x"),
            ("https://A.TEST:81/x?y", "/x?y"),
            ("//a.test?y", "/?y"),
            ("http://a.test", "/"),
            ("?y", "/blog/post?y"),
            ("x?y=a:b", "/blog/x?y=a:b"),
            ("../x", "/blog/../x"),
            (" /x\n", "/x"),
        ] {
            assert_eq!(target(address, &page()).as_deref(), Ok(uri), "{address}");
        }
        for address in [
            "http://b.test/x",
            "//b.test/x",
            "http://a.test:82/x",
            "http://a.test@b.test/x",
            "http://b.test@a.test/x",
            "file:///etc/passwd",
            "unix:/run/x",
            "",
            "#x",
            "http:///x",
            &"/".repeat(LONGEST + 1),
        ] {
            assert!(target(address, &page()).is_err(), "{address}");
        }
    }
}
