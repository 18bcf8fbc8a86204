use std::time::{Duration, SystemTime};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use sendoff_config::{
    Acme, Certificate, Config, FrontConfig, Host, Limits, PageStore, Site, Timeouts, Tls,
    TlsAlgorithms, TlsVersion, TrustedProxies,
};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use super::*;
use crate::identity::{self, identity};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A certificate for these names that is valid for some days from now on, with its key, and the
/// issuer's certificate.
struct Issued {
    chain: String,
    leaf: String,
    key: String,
}

fn issuer() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, "Issuer of the tests");
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn issued(names: &[&str], begins: SystemTime, ends: SystemTime) -> Issued {
    let issuer = issuer();
    let mut params =
        CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
            .unwrap();
    (params.not_before, params.not_after) = (begins.into(), ends.into());
    let key = KeyPair::generate().unwrap();
    let leaf = params.signed_by(&key, &issuer).unwrap().pem();
    Issued { chain: leaf.clone() + &issuer.pem(), leaf, key: key.serialize_pem() }
}

fn good(names: &[&str]) -> Issued {
    let now = SystemTime::now();
    issued(names, now - DAY, now + 60 * DAY)
}

fn credentials(chain: &str, key: &str) -> Credentials {
    Credentials { chain: chain.to_owned(), key: key.to_owned(), ocsp: None, client_issuers: None }
}

fn warned(chain: &str, hosts: &[&str]) -> Vec<String> {
    let hosts: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
    warnings(&credentials(chain, "").certificates().unwrap(), &hosts).unwrap()
}

#[test]
fn what_does_not_fit_together_is_refused_with_its_reason() {
    let (one, other) = (good(&["a.test"]), good(&["b.test"]));
    let swapped = one.chain[one.leaf.len()..].to_owned() + &one.leaf;
    let sealed =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    for (chain, key, why) in [
        (&*one.chain, &*other.key, "the key does not fit the certificate"),
        (&swapped, &one.key, "the site's own certificate must be the first in the file"),
        (&one.key, &one.key, "this is a private key, not a certificate"),
        (&one.chain, &one.chain, "this is a certificate, not a private key"),
        ("", &one.key, "no certificate in PEM"),
        (
            "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
            &one.key,
            "this is not PEM",
        ),
        (&one.chain, "nothing", "no private key in PEM"),
        (&one.chain, sealed, "protected by a passphrase"),
    ] {
        let (_, refused) = identity(&credentials(chain, key)).unwrap_err();
        assert!(refused.contains(why), "{refused:?} does not say {why:?}");
    }
    identity(&credentials(&one.chain, &one.key)).unwrap();
}

/// A certificate as PEM, with bytes of its DER replaced once.
fn altered(pem: &str, from: &[u8], to: &[u8]) -> String {
    use base64::Engine;
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec();
    let at = der.windows(from.len()).position(|window| window == from).unwrap();
    let der = [&der[..at], to, &der[at + from.len()..]].concat();
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}

#[test]
fn a_certificate_that_cannot_be_used_is_told_from_a_key_that_does_not_fit() {
    let (one, other) = (good(&["a.test"]), good(&["b.test"]));
    let issuer = &one.chain[one.leaf.len()..];
    // Its version field says 2; its signature does not matter here.
    let old = altered(&one.leaf, &[0xa0, 3, 2, 1, 2], &[0xa0, 3, 2, 1, 1]);
    let damaged = altered(&one.leaf, &[0xa0, 3, 2, 1, 2], &[0xa0, 3, 9, 1, 2]);
    let cut = &one.leaf[..one.leaf.len() - 40];
    let cut_key = &one.key[..one.key.len() - 40];
    let no_end = &one.leaf[..one.leaf.rfind("-----END").unwrap()];
    let version = "of the file is of X.509 version 2";
    for (chain, key, whose, why) in [
        (&*old, &*one.key, Whose::Certificate, version),
        (&(old.clone() + issuer), &one.key, Whose::Certificate, version),
        (
            &(issuer.to_owned() + &old),
            &one.key,
            Whose::Certificate,
            "certificate 2 of the file is of X.509",
        ),
        (
            &(old.clone() + &other.leaf),
            &other.key,
            Whose::Certificate,
            "must be the first in the file",
        ),
        (&old, &other.key, Whose::Site, "the key does not fit"),
        (&damaged, &one.key, Whose::Certificate, "certificate 1 of the file is damaged"),
        (
            &(one.leaf.clone() + &damaged),
            &other.key,
            Whose::Certificate,
            "certificate 2 of the file is damaged",
        ),
        (no_end, &one.key, Whose::Certificate, "the line \"-----END CERTIFICATE-----\" is missing"),
        (cut, &one.key, Whose::Certificate, "the file is cut off"),
        (&one.leaf, cut_key, Whose::Key, "the file is cut off"),
        (
            "-----BEGIN CERTIFICATE\nAAAA\n",
            &one.key,
            Whose::Certificate,
            "the line \"-----BEGIN CERTIFICATE\"",
        ),
    ] {
        let (about, refused) = identity(&credentials(chain, key)).unwrap_err();
        assert!(refused.contains(why), "{refused:?} does not say {why:?}");
        assert_eq!(about, whose, "{refused}");
        assert!(!refused.contains("45, 45"), "{refused}");
    }
    let folder = tempfile::tempdir().unwrap();
    let roots = folder.path().join("roots.pem");
    for (text, why) in [
        (issuer.to_owned() + &damaged, "certificate 2 of the file is damaged"),
        (no_end.to_owned(), "the line \"-----END CERTIFICATE-----\" is missing"),
        (String::new(), "no certificate in PEM"),
    ] {
        std::fs::write(&roots, &text).unwrap();
        let refused = client_config(Some(&roots), Verify::Certificate).unwrap_err();
        assert!(refused.contains(why) && refused.contains("roots.pem"), "{refused}");
        let refused = identity::issuers(text.as_bytes()).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
    // A comment between the sections may be in any character set.
    let chain = [b"# M\xfcller\n", one.leaf.as_bytes()].concat();
    std::fs::write(&roots, chain).unwrap();
    let text = credentials::read_text(&roots).unwrap();
    identity(&credentials(&text, &one.key)).unwrap();
}

#[test]
fn what_clients_will_complain_about_is_said_before() {
    let now = SystemTime::now();
    let fine = good(&["a.test", "*.b.test"]);
    assert!(warned(&fine.chain, &["a.test", "x.b.test", "*.b.test"]).is_empty());
    let other = good(&["a.test"]);
    let broken = format!("{}{}", fine.leaf, other.leaf);
    for (chain, host, says) in [
        (&*fine.leaf, "a.test", "the chain is incomplete"),
        (&*broken, "a.test", "the chain is broken: certificate 1"),
        (&fine.chain, "c.test", "the certificate is for a.test, *.b.test, not for c.test"),
        // A wildcard stands for one label.
        (&fine.chain, "b.test", "not for b.test"),
        (&fine.chain, "x.y.b.test", "not for x.y.b.test"),
        (&fine.chain, "*.a.test", "not for *.a.test"),
        (
            &issued(&["a.test"], now - 9 * DAY, now - 2 * DAY - DAY / 2).chain,
            "a.test",
            "has expired 2 days ago",
        ),
        (
            &issued(&["a.test"], now - 9 * DAY, now + 3 * DAY + DAY / 2).chain,
            "a.test",
            "expires 3 days from now",
        ),
        (&issued(&["a.test"], now + 3 * DAY, now + 90 * DAY).chain, "a.test", "is not valid yet"),
    ] {
        let said = warned(chain, &[host]);
        assert!(said.len() == 1 && said[0].contains(says), "{said:?} does not say {says:?}");
    }
}

#[test]
fn a_self_signed_certificate_is_made_once_and_again_only_for_other_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let config = |hosts: &[&str]| {
        let hosts = hosts.iter().map(|host| Host::Exact((*host).to_owned())).collect();
        let tls =
            Tls { certificate: Certificate::SelfSigned, clients: None, oldest: TlsVersion::Tls12 };
        let site = Site { hosts, tls: Some(tls), ..Site::new("/".into()) };
        config_of(site, folder.path())
    };
    let made = |hosts: &[&str]| {
        let (vault, complaints) = Vault::fill(&config(hosts));
        assert_eq!(complaints, []);
        vault.sites[0].clone().unwrap()
    };
    let first = made(&["a.test", "192.0.2.1", "[2001:db8::1]"]);
    assert_eq!(made(&["a.test", "192.0.2.1", "[2001:db8::1]"]), first);
    let leaf = Leaf::read(&first.certificates().unwrap()[0]).unwrap();
    assert!(["a.test", "192.0.2.1", "[2001:db8::1]"].iter().all(|host| leaf.covers(host)));
    assert_ne!(made(&["a.test", "b.test"]), first);
    assert!(Vault::complaints(&config(&["c.test"])).is_empty());
    let names: Vec<_> = folder.path().join("self-signed").read_dir().unwrap().collect();
    assert_eq!(names.len(), 1, "a check makes nothing, and no draft is left: {names:?}");
}

#[test]
fn the_key_is_in_no_debug_output() {
    let one = good(&["a.test"]);
    let shown = format!("{:?}", credentials(&one.chain, &one.key));
    let secret = one.key.lines().nth(1).unwrap();
    assert!(shown.contains("BEGIN CERTIFICATE") && !shown.contains(secret));
}

#[test]
fn credentials_travel_in_sealed_memory() {
    let one = good(&["a.test"]);
    let ocsp = Some(vec![0, 255]);
    let credentials = Credentials { ocsp, ..credentials(&one.chain, &one.key) };
    let vault = Vault { sites: vec![None, Some(credentials)], ..Vault::default() };
    assert_eq!(Vault::read(vault.seal().unwrap()).unwrap(), vault);
}

#[test]
fn a_broken_certificate_is_a_sentence() {
    let broken = CertificateDer::from(vec![48, 3, 1, 2, 3]);
    assert!(warnings(&[broken], &[]).unwrap_err().contains("certificate 1 of the file is damaged"));
}

#[test]
fn a_challenge_is_answered_by_a_certificate_with_its_digest() {
    let digest: Vec<u8> = (0..32).collect();
    let server = challenge_config("a.test", &digest).unwrap();
    assert_eq!(server.alpn_protocols, [ACME_PROTOCOL]);
    assert!(challenge_config("a.test", &digest[1..]).is_err());
    let (certificate, _) = challenge::certificate("a.test", &digest).unwrap();
    let (_, parsed) = X509Certificate::from_der(certificate.der()).unwrap();
    let extension =
        parsed.iter_extensions().find(|one| one.oid.to_id_string() == "1.3.6.1.5.5.7.1.31");
    let extension = extension.unwrap();
    assert!(extension.critical, "RFC 8737 §3");
    // An OCTET STRING of 32 bytes.
    assert_eq!(extension.value, [&[4, 32][..], &digest].concat());
    assert_eq!(Leaf::read(certificate.der()).unwrap().names, ["a.test"]);
}

#[test]
fn what_was_obtained_is_used_and_until_then_something_else() {
    let folder = tempfile::tempdir().unwrap();
    let asking = |hosts: &[&str]| {
        let hosts = hosts.iter().map(|host| Host::Exact((*host).to_owned())).collect();
        let tls = Tls { certificate: Certificate::Acme, clients: None, oldest: TlsVersion::Tls12 };
        let site = Site { hosts, tls: Some(tls), ..Site::new("/".into()) };
        let mut config = config_of(site, folder.path());
        let directory = "https://ca.test/dir".to_owned();
        config.acme = Some(Acme { directory, ..Acme::default() });
        config
    };
    let both = asking(&["a.test", "b.test"]);
    let (vault, complaints) = Vault::fill(&both);
    assert!(!complaints[0].is_error && complaints[0].says.contains("signed itself"));
    let passing = vault.sites[0].clone().unwrap();
    assert_eq!(Vault::obtained(&both), Vault { sites: vec![None], ..Vault::default() });
    let certificates = both.acme.as_ref().unwrap().certificates(folder.path());
    std::fs::create_dir_all(&certificates).unwrap();
    let put = |name: &str, one: &Issued| {
        std::fs::write(certificates.join(name), one.chain.clone() + &one.key).unwrap();
    };
    put("broken.pem", &Issued { key: String::new(), ..good(&["a.test", "b.test"]) });
    let (first, all) = (good(&["a.test"]), good(&["b.test", "a.test"]));
    put("first.pem", &first);
    let of_first = Vault::obtained(&both).sites.remove(0).unwrap();
    assert!(of_first.chain.starts_with(&first.chain), "better than none");
    put("all.pem", &all);
    let (filled, complaints) = Vault::fill(&both);
    assert_eq!(complaints, []);
    assert!(filled.sites[0].as_ref().unwrap().chain.starts_with(&all.chain));
    assert_eq!(
        Vault::obtained(&asking(&["c.test"])),
        Vault { sites: vec![None], ..Vault::default() }
    );
    let issuers = Some("issuers".to_owned());
    let sites = vec![None, Some(Credentials { client_issuers: issuers.clone(), ..passing })];
    let mut kept = Vault { sites, ..Vault::default() };
    let new = filled.sites[0].clone();
    kept.replace(Vault { sites: vec![new.clone(), new], ..Vault::default() });
    assert_eq!(kept.sites[0], None, "a site without TLS stays so");
    let replaced = kept.sites[1].clone().unwrap();
    assert!(replaced.chain.starts_with(&all.chain) && replaced.client_issuers == issuers);
}

fn config_of(site: Site, state: &std::path::Path) -> Config {
    let second = Duration::from_secs(1);
    Config {
        log: "info".to_owned(),
        listen: Vec::new(),
        trusted_proxies: TrustedProxies::default(),
        account: None,
        state: state.to_owned(),
        acme: None,
        tls: TlsAlgorithms::default(),
        traces: None,
        fleet: None,
        drain_delay: second,
        shutdown_timeout: second,
        front: FrontConfig {
            threads: 1,
            access_log: None,
            request_ids: false,
            timeouts: Timeouts { head: second, body: second, idle: second, send: second },
            page_cache: PageStore { folder: state.to_owned(), size: 0 },
            limits: Limits::new(1),
        },
        sites: vec![site],
        pools: Vec::new(),
        upstreams: Vec::new(),
    }
}
