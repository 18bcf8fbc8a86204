//! `sendoff explain URL`: asks a running server on this machine how it sends the response, and
//! prints the answer.
//!
//! Only a user who could read the server's memory anyway may ask. For each address that the server
//! listens on, the supervisor writes a secret to a file that only its user can read. `explain`
//! finds the file by the URL's port and sends the secret to that address and to no other: the URL's
//! host is used only for the `Host` field.

mod secure;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sendoff_control::runtime_folder::{self, candidates, is_ours};
use sendoff_report::explain::{FIELD, SECRET_LEN};

use self::secure::Secure;

use crate::failure::Failure;
use crate::options::Explain;

/// The files with the secret that `explain` looks for; they exist while the supervisor runs.
#[derive(Debug)]
pub(crate) struct Door {
    files: Vec<PathBuf>,
    secret: String,
}

impl Door {
    /// Writes the secret for a server on these addresses. Also returns an open file, from which the
    /// front reads the secret. `None` if there is no folder for it: the server then explains
    /// nothing.
    pub(crate) fn open(addresses: &[SocketAddr]) -> Option<(Self, OwnedFd)> {
        let folder = candidates().into_iter().next()?;
        match Self::write(&folder, addresses) {
            Ok(door) => Some(door),
            Err(error) => {
                let folder = folder.display();
                tracing::warn!("sendoff explain will not work: {folder}: {error}");
                None
            }
        }
    }

    fn write(folder: &Path, addresses: &[SocketAddr]) -> io::Result<(Self, OwnedFd)> {
        let mut random = [0; SECRET_LEN / 2];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        let secret = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut door = Self { files: Vec::new(), secret };
        runtime_folder::make(folder)?;
        addresses.iter().try_for_each(|address| door.add(folder.join(address.to_string())))?;
        let first = door.files.first().ok_or(io::ErrorKind::NotFound)?;
        let file = File::open(first)?.into();
        Ok((door, file))
    }
}

impl Door {
    /// Writes the files for a changed set of addresses.
    pub(crate) fn moved(&mut self, addresses: &[SocketAddr]) {
        let Some(folder) = self.files.first().and_then(|file| file.parent()).map(Path::to_owned)
        else {
            return;
        };
        let wanted: Vec<_> = addresses.iter().map(|a| folder.join(a.to_string())).collect();
        for path in wanted.iter().filter(|path| !self.files.contains(path)).collect::<Vec<_>>() {
            if let Err(error) = self.add(path.clone()) {
                tracing::warn!("sendoff explain will not work: {}: {error}", path.display());
            }
        }
        for path in self.files.extract_if(.., |path| !wanted.contains(path)) {
            remove(&path, &self.secret);
        }
    }

    /// Writes the secret again, after another server that had replaced the files has ended.
    pub(crate) fn renew(&mut self) {
        for path in std::mem::take(&mut self.files) {
            if let Err(error) = self.add(path.clone()) {
                tracing::warn!("sendoff explain will not work: {}: {error}", path.display());
            }
        }
    }

    /// Writes the secret to one file.
    fn add(&mut self, path: PathBuf) -> io::Result<()> {
        // Left behind by a killed server.
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        self.files.push(path);
        file.write_all(self.secret.as_bytes())
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.files.iter().for_each(|path| remove(path, &self.secret));
    }
}

/// Removes a file with the secret, unless another server has written its own secret there.
fn remove(path: &Path, secret: &str) {
    if fs::read(path).is_ok_and(|found| found == secret.as_bytes()) {
        // Without a running server the secret is useless, so an error does no harm.
        let _ = fs::remove_file(path);
    }
}

/// Sends the request, and prints the table.
pub(crate) fn run(explain: &Explain) -> Result<(), Failure> {
    let url = Url::parse(&explain.url)?;
    if explain.header.iter().any(|field| field.contains(['\r', '\n']) || !field.contains(':')) {
        return Err(Failure::Input("--header: expected NAME: VALUE".to_owned()));
    }
    let (address, secret) = find(&url)?;
    let over = if url.is_secure { " over TLS" } else { "" };
    let answer = ask(&url, address, &secret, &explain.header)
        .map_err(Failure::system(format!("the server at {address} does not answer{over}")))?;
    let Some(page) = explained(&answer) else {
        let why = if !url.is_secure && answer.starts_with(b"HTTP/1.1 400 ") {
            "the port may be one for https"
        } else {
            "the secret that was found is another server's"
        };
        return Err(Failure::System(format!("the server at {address} explains nothing: {why}")));
    };
    io::stdout().lock().write_all(page).map_err(Failure::system("standard output"))
}

#[derive(Debug, PartialEq, Eq)]
struct Url<'a> {
    is_secure: bool,
    authority: &'a str,
    /// Without the brackets of an IPv6 address.
    host: &'a str,
    ip: Option<IpAddr>,
    port: u16,
    target: &'a str,
}

impl<'a> Url<'a> {
    fn parse(text: &'a str) -> Result<Self, Failure> {
        let bad = |why: &str| Failure::Input(format!("{text}: {why}"));
        let (is_secure, rest) = match (text.strip_prefix("http://"), text.strip_prefix("https://"))
        {
            (Some(rest), _) => (false, rest),
            (None, Some(rest)) => (true, rest),
            // A host without a scheme means http, as in browsers.
            (None, None) if !text.starts_with('/') && !text.contains("://") => (false, text),
            (None, None) => {
                return Err(bad("expected http://HOST:PORT/... or https://HOST:PORT/..."));
            }
        };
        if text.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(bad("spaces must be written as %20"));
        }
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| bad("its port is no number"))?)
            }
            _ => (authority, if is_secure { 443 } else { 80 }),
        };
        if host.is_empty() {
            return Err(bad("it has no host"));
        }
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Ok(Self { is_secure, authority, host, ip: host.parse().ok(), port, target })
    }

    fn request(&self, secret: &str, fields: &[String]) -> String {
        let slash = if self.target.starts_with('/') { "" } else { "/" };
        let has_host = fields.iter().any(|field| {
            field.split_once(':').is_some_and(|(name, _)| name.eq_ignore_ascii_case("host"))
        });
        let mut request = format!("GET {slash}{} HTTP/1.1\r\n", self.target);
        if !has_host {
            request += &format!("Host: {}\r\n", self.authority);
        }
        for field in fields {
            request += field;
            request += "\r\n";
        }
        request + &format!("{FIELD}: {secret}\r\nConnection: close\r\n\r\n")
    }
}

/// The address and the secret of the server that the URL selects.
fn find(url: &Url<'_>) -> Result<(SocketAddr, String), Failure> {
    let mut found: Vec<(SocketAddr, PathBuf)> = Vec::new();
    for folder in candidates() {
        if !is_ours(&folder) {
            continue;
        }
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let address = entry.file_name().to_str().and_then(|name| name.parse().ok());
            found.extend(
                address
                    .filter(|address: &SocketAddr| address.port() == url.port)
                    .map(|address| (address, entry.path())),
            );
        }
    }
    // A killed server leaves its secret behind; the newest secret most probably belongs to a
    // running server.
    found.sort_by_key(|(_, path)| path.metadata().and_then(|data| data.modified()).ok());
    found.reverse();
    let exact = found.iter().find(|(address, _)| Some(address.ip()) == url.ip);
    let Some((address, path)) = exact.or(found.first()) else {
        let port = url.port;
        return Err(Failure::System(format!(
            "no sendoff server of this user listens on port {port} of this machine: \
             `sendoff status` says where one listens; ask as the user that has started it"
        )));
    };
    let secret = fs::read_to_string(path).map_err(Failure::system(path.display()))?;
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    Ok((SocketAddr::new(ip, address.port()), secret))
}

fn ask(url: &Url<'_>, address: SocketAddr, secret: &str, fields: &[String]) -> io::Result<Vec<u8>> {
    let request = url.request(secret, fields);
    if !url.is_secure {
        return exchange(&mut TcpStream::connect(address)?, &request);
    }
    let mut secure = Secure::open(url.host, address)?;
    let answer = exchange(&mut secure.stream, &request)?;
    if let Some(why) = secure.note() {
        eprintln!(
            "sendoff: note: a client that does not know this certificate would refuse it: {why}"
        );
    }
    Ok(answer)
}

fn exchange(stream: &mut (impl Read + Write), request: &str) -> io::Result<Vec<u8>> {
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

/// The body of a response that is marked as an explanation.
fn explained(answer: &[u8]) -> Option<&[u8]> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    head.contains(&format!("\r\n{FIELD}: yes")).then(|| &answer[end + 4..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_port_and_a_target() {
        for (text, authority, port, target) in [
            ("http://localhost:8080/a?b=c", "localhost:8080", 8080, "/a?b=c"),
            ("http://example.org", "example.org", 80, ""),
            ("http://[::1]:81/#x", "[::1]:81", 81, "/"),
            ("http://[::1]?x", "[::1]", 80, "?x"),
            ("https://example.org/", "example.org", 443, "/"),
            ("https://[::1]:8443/", "[::1]:8443", 8443, "/"),
            ("localhost:8080/a", "localhost:8080", 8080, "/a"),
            ("localhost", "localhost", 80, ""),
        ] {
            let url = Url::parse(text).unwrap_or_else(|why| panic!("{why}"));
            assert_eq!((url.authority, url.port, url.target), (authority, port, target));
            assert_eq!(url.is_secure, text.starts_with("https"));
            assert!(!url.host.contains(['[', ']']), "{}", url.host);
            let start = format!("GET /{} HTTP/1.1\r\nHost: ", target.trim_start_matches('/'));
            assert!(url.request("", &[]).starts_with(&start));
        }
        for bad in [
            "ftp://a/",
            "https:///",
            "/x",
            "http://a:b/",
            "http:///x",
            "http://a/b c",
            "http://a/\r\nb",
        ] {
            assert!(Url::parse(bad).is_err(), "{bad}");
        }
    }
}
