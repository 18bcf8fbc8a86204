//! Servers that speak TLS, with a certificate of their own folder.

use super::nginx::{INCLUDED, LASTING, link_includes, start_nginx};
use super::php_fpm::{self, SOCKET};
use super::{Peer, Running, Sendoff};
use super::{find_program, free_port, path_str, version_line};
use crate::site::Site;
use anyhow::{Context, Result, ensure};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A server with TLS 1.3, HTTP/1.1 and HTTP/2 at its address.
#[derive(Debug)]
pub(crate) enum Tls {
    /// nginx + php-fpm.
    Nginx,
    Sendoff(Sendoff),
}

/// A self-signed certificate and its key.
struct Certificate {
    certificate: PathBuf,
    key: PathBuf,
}

impl Certificate {
    fn create(dir: &Path) -> Result<Self> {
        let (certificate, key) = (dir.join("cert.pem"), dir.join("key.pem"));
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
            .args(["-nodes", "-subj", "/CN=localhost", "-days", "2", "-keyout", path_str(&key)?])
            .args(["-out", path_str(&certificate)?])
            .output()
            .context("cannot run openssl (package openssl)")?;
        ensure!(made.status.success(), "openssl made no certificate: {}", made.status);
        Ok(Self { certificate, key })
    }
}

impl Peer for Tls {
    fn name(&self) -> &'static str {
        match self {
            Self::Nginx => "nginx+fpm",
            Self::Sendoff(sendoff) => sendoff.name,
        }
    }

    fn version(&self) -> Result<String> {
        match self {
            Self::Nginx => {
                let nginx = version_line(&find_program(&["nginx"])?, "-v")?;
                Ok(format!("{nginx}, {}", php_fpm::version()?))
            }
            Self::Sendoff(sendoff) => sendoff.version(),
        }
    }

    fn start(&self, site: &Site, dir: &Path) -> Result<Running> {
        let Certificate { certificate, key } = Certificate::create(dir)?;
        let addr = free_port()?;
        match self {
            Self::Nginx => {
                let fpm = php_fpm::start(site, dir)?;
                link_includes(dir)?;
                let http = nginx_block(site, dir, addr, &certificate, &key);
                let nginx = start_nginx(site, dir, addr, &http)?;
                Ok(Running { addr, daemons: vec![nginx, fpm] })
            }
            Self::Sendoff(sendoff) => {
                let listen = addr.to_string();
                let args = ["--tls-listen", &listen, "--tls-cert", path_str(&certificate)?];
                let args = [&args[..], &["--tls-key", path_str(&key)?]].concat();
                let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
                Ok(Running { addr, ..sendoff.start_with(site, dir, &args)? })
            }
        }
    }
}

fn nginx_block(
    site: &Site,
    dir: &Path,
    addr: SocketAddr,
    certificate: &Path,
    key: &Path,
) -> String {
    let (dir, root) = (dir.display(), site.root.display());
    let (certificate, key, include) = (certificate.display(), key.display(), INCLUDED[0]);
    format!(
        r"{LASTING}
	open_file_cache max=100;
	server {{
		listen {addr} ssl http2;
		ssl_certificate {certificate};
		ssl_certificate_key {key};
		ssl_protocols TLSv1.3;
		root {root};
		location ~ \.php$ {{ include {include}; fastcgi_pass unix:{dir}/{SOCKET}; }}
	}}"
    )
}
