//! Certificates of sites and of clients, and the files that they come from.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use rustls::AlertDescription;
use sendoff_tests::{
    Authority, Certificate, Client, LIMIT, Request, Server, Site, pattern, trusting_client,
};

use crate::{CLOSING, Secured, first_certificate, s_client, text, tls};

#[test]
fn each_site_shows_its_own_certificate() {
    let secured = Secured::new();
    let (a, b) = (secured.issue(&["a.test"]), secured.issue(&["*.b.test", "b.test"]));
    let server = secured.run(&[
        &format!(
            "hosts = 'a.test'\ntls = {{ {} }}\nhsts = '365d, includeSubDomains'\n\
             delivery = 'direct'",
            tls(&a)
        ),
        &format!("hosts = ['b.test', '*.b.test']\ntls = {{ {} }}", tls(&b)),
    ]);
    let port = server.tls_addr().unwrap().port();
    for host in ["a.test", "b.test", "x.b.test"] {
        let seen = secured.page(&server, host, &[]);
        assert_eq!(seen, format!("on|https|{port}|TLSv1.3|{host}|NONE|-|-|"));
    }
    let refused = secured.refusal(&server, "c.test", &[]);
    assert!(refused.contains("a.test") || refused.contains("SSL"), "the first site's: {refused}");
    // A worker that writes a response itself does not know of the field.
    for (page, options) in [("/big", ["-I", "--http1.1"]), ("/generated.php", ["-i", "--http1.1"])]
    {
        let head = text(&secured.curl(&server, "a.test", page, &options).stdout);
        assert!(
            head.contains("Strict-Transport-Security: max-age=31536000; includeSubDomains\r\n"),
            "{page}: {head:.300}"
        );
    }
    let other = text(&secured.curl(&server, "b.test", "/big", &["-I"]).stdout);
    assert!(!other.contains("Strict-Transport-Security"), "{other}");
    let clear = server.ask(&Request::get("/big").header("Host", "a.test"));
    assert_eq!(clear.header("Strict-Transport-Security"), None);
    for page in ["/big", "/big.php"] {
        assert!(secured.curl(&server, "a.test", page, &[]).stdout == pattern(1, 3_000_000));
    }
}

/// The alert for a client that sends a request together with its end of the handshake, and more
/// before it reads.
fn hasty_client(addr: SocketAddr, host: &'static str) -> io::Result<rustls::Error> {
    let mut socket = TcpStream::connect(addr).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let mut client = trusting_client(host);
    client.writer().write_all(&pattern(4, 50_000))?;
    while client.is_handshaking() || client.wants_write() {
        if client.wants_write() {
            client.write_tls(&mut socket)?;
        } else {
            client.read_tls(&mut socket)?;
            client.process_new_packets().map_err(io::Error::other)?;
        }
    }
    // The server has said something.
    socket.peek(&mut [0])?;
    client.writer().write_all(b"more")?;
    client.write_tls(&mut socket)?;
    loop {
        if client.read_tls(&mut socket)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if let Err(error) = client.process_new_packets() {
            return Ok(error);
        }
    }
}

/// A client's certificate of X.509 version 1.
fn old_certificate(secured: &Secured, authority: &Authority) -> Certificate {
    let file = |name: &str| secured.site.outside(&format!("keys/old.{name}"));
    let (issuer, issuer_key) = (file("issuer"), file("issuer.key"));
    secured.site.write_at(issuer.clone(), authority.pem());
    secured.site.write_at(issuer_key.clone(), authority.key_pem());
    let openssl = |command: &str, files: &[(&str, &Path)]| {
        let mut openssl = Command::new("openssl");
        openssl.args(command.split(' '));
        for (option, file) in files {
            openssl.arg(option).arg(file);
        }
        let output = openssl.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    let (request, key, chain) = (file("csr"), file("key"), file("pem"));
    let new = "req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=old";
    openssl(new, &[("-keyout", &key), ("-out", &request)]);
    let signed = [("-in", &*request), ("-CA", &issuer), ("-CAkey", &issuer_key), ("-out", &chain)];
    openssl("x509 -req -days 1", &signed);
    Certificate { chain, key }
}

/// True if a certificate that OpenSSL has made is of X.509 version 1. OpenSSL 3.5 makes version 3.
fn is_version_1(certificate: &Path) -> bool {
    let show = ["x509", "-noout", "-text", "-in"];
    let shown = Command::new("openssl").args(show).arg(certificate).output().unwrap();
    text(&shown.stdout).contains("Version: 1 ")
}

/// A kept connection has been made under the demand of that time.
#[test]
fn connections_from_before_a_reload_meet_the_demand_of_after_it() {
    let secured = Secured::new();
    let first = Authority::new();
    let ours = secured.issue(&["a.test"]);
    let issuers = secured.site.outside("keys/issuers.pem");
    let site = |more: &str| {
        secured.write(&[&format!("hosts = 'a.test'\ntls = {{ {}{more} }}", tls(&ours))])
    };
    let demand =
        format!(", client_issuers = '{}', client_certificates = 'optional'", issuers.display());
    let ask = |client: &mut Client| {
        client.ask(&Request::get("/seen.php").header("Host", "a.test")).status()
    };
    let server = secured.run(&[&format!("hosts = 'a.test'\ntls = {{ {} }}", tls(&ours))]);
    let connect = || Client::connect_tls(server.tls_addr().unwrap());
    let mut asked_for_nothing = connect();
    assert_eq!(ask(&mut asked_for_nothing), 200);
    secured.site.write_at(issuers.clone(), first.pem());
    site(&demand);
    server.command(&["reload"]).unwrap();
    assert_eq!(ask(&mut asked_for_nothing), 421);
    let mut asked_by_first = connect();
    assert_eq!(ask(&mut asked_by_first), 200);
    // The same file names other issuers.
    secured.site.write_at(issuers.clone(), Authority::new().pem());
    server.command(&["reload"]).unwrap();
    assert_eq!(ask(&mut asked_by_first), 421);
    assert_eq!(ask(&mut connect()), 200);
}

#[test]
fn clients_show_certificates_where_a_site_wants_them() {
    let secured = Secured::new();
    let staff = Authority::new();
    let issuers = secured.site.write_at(secured.site.outside("keys/staff.pem"), staff.pem());
    let ada = staff.issue(&["ada"], &secured.site.outside("keys"), "Ada, \"1\"");
    let stranger = secured.issue(&["eve"]);
    let (a, b, c) =
        (secured.issue(&["a.test"]), secured.issue(&["b.test"]), secured.issue(&["c.test"]));
    let issuers = format!("client_issuers = '{}'", issuers.display());
    let server = secured.run(&[
        &format!("hosts = 'a.test'\ntls = {{ {} }}", tls(&a)),
        &format!("hosts = 'b.test'\ntls = {{ {}, {issuers} }}", tls(&b)),
        &format!(
            "hosts = 'c.test'\ntls = {{ {}, {issuers}, client_certificates = 'optional' }}",
            tls(&c)
        ),
    ]);
    let shown = |certificate: &Certificate| {
        let Certificate { chain, key } = certificate;
        ["--cert", chain.to_str().unwrap(), "--key", key.to_str().unwrap()].map(str::to_owned)
    };
    let (ada, stranger) = (shown(&ada), shown(&stranger));
    let (ada, stranger) = (ada.each_ref().map(|s| &**s), stranger.each_ref().map(|s| &**s));
    // Over HTTP/2 curl writes before it reads, and tells of that only.
    let refusal = |host, options: &[&str]| {
        secured.refusal(&server, host, &[&["--http1.1"], options].concat())
    };
    assert!(refusal("b.test", &[]).contains("certificate required"));
    // Also where it sends a request right behind the handshake.
    for _ in 0..10 {
        let refused = hasty_client(server.tls_addr().unwrap(), "b.test");
        let alert = rustls::Error::AlertReceived(AlertDescription::CertificateRequired);
        assert_eq!(refused.map_err(|error| error.kind()), Ok(alert));
    }
    // Version 1 has no extensions.
    let old = old_certificate(&secured, &staff);
    if is_version_1(&old.chain) {
        let old = shown(&old);
        assert!(refusal("b.test", &old.each_ref().map(|s| &**s)).contains("alert"));
        server.await_log("the client's certificate is of X.509 version 1");
    }
    assert!(refusal("b.test", &stranger).contains("alert"));
    assert!(refusal("c.test", &stranger).contains("alert"));
    assert!(secured.page(&server, "c.test", &[]).ends_with("|NONE|-|-|"));
    for host in ["b.test", "c.test"] {
        let seen = secured.page(&server, host, &ada);
        let names = r#"|SUCCESS|CN=Ada\, \"1\"|CN=Authority of the scenarios|"#;
        assert!(seen.ends_with(names), "{seen}");
    }
    // A connection for one site says nothing about another.
    let other = secured.curl(
        &server,
        "a.test",
        "/seen.php",
        &["-H", "Host: b.test", "-o", "/dev/null", "-w", "%{http_code}"],
    );
    assert_eq!(text(&other.stdout), "421");
    let same = secured.page(&server, "b.test", &[&ada[..], &["-H", "Host: b.test"]].concat());
    assert!(same.contains("|SUCCESS|"));
}

/// A connection in the clear has no certificate of a client, whatever a proxy says about it.
#[test]
fn a_site_that_requires_certificates_refuses_requests_in_the_clear() {
    let secured = Secured::new();
    let issuers = secured.site.outside("keys/issuers.pem");
    let issuers = secured.site.write_at(issuers, Authority::new().pem());
    let (a, b) = (secured.issue(&["a.test"]), secured.issue(&["b.test"]));
    let with = |certificate, more: &str| {
        format!("{}, client_issuers = '{}'{more}", tls(certificate), issuers.display())
    };
    let config = secured.write(&[
        &format!("hosts = 'a.test'\ntls = {{ {} }}", with(&a, "")),
        &format!(
            "hosts = 'b.test'\ntls = {{ {} }}",
            with(&b, ", client_certificates = 'optional'")
        ),
    ]);
    let text = format!("trusted_proxies = '127.0.0.1'\n{}", fs::read_to_string(&config).unwrap());
    secured.site.write_at(config.clone(), text);
    let server = Server::try_run(&config, secured.site.root(), 2).unwrap();
    for (host, status) in [("a.test", 403), ("b.test", 200)] {
        for page in ["/seen.php", "/big"] {
            let request = Request::get(page).header("Host", host);
            let by_proxy = request.clone().header("X-Forwarded-Proto", "https");
            for request in [request, by_proxy] {
                // Over the listener without TLS, also where the scenarios' client speaks TLS.
                let mut client = Client::connect(server.clear_addr());
                assert_eq!(client.ask(&request).status(), status, "{request:?}");
            }
        }
    }
}

#[test]
fn a_stapled_response_is_sent() {
    let secured = Secured::new();
    let certificate = secured.issue(&["a.test"]);
    let ocsp = secured.site.write_at(secured.site.outside("keys/ocsp"), [0x30, 3, 0x0a, 1, 6]);
    let server = secured.run(&[&format!(
        "hosts = 'a.test'\ntls = {{ {}, ocsp = '{}' }}",
        tls(&certificate),
        ocsp.display()
    )]);
    let said = s_client(server.tls_addr().unwrap(), &["-status", "-servername", "a.test"], CLOSING);
    assert!(said.contains("OCSP Response Status: unauthorized"), "{said}");
}

#[test]
fn a_reload_takes_new_certificates_and_refuses_bad_ones_while_connections_go_on() {
    let secured = Secured::new();
    let certificate = secured.issue(&["a.test"]);
    let server = secured.run(&[&format!("hosts = 'a.test'\ntls = {{ {} }}", tls(&certificate))]);
    let addr = server.tls_addr().unwrap();
    let serial = || first_certificate(&s_client(addr, &["-servername", "a.test"], ""));
    let first = serial();
    let mut open = Client::connect(addr);
    open.ask(&Request::get("/seen.php")).expect(200);
    let before = fs::read(&certificate.key).unwrap();
    secured.issue(&["a.test"]);
    let after = fs::read(&certificate.key).unwrap();
    fs::write(&certificate.key, before).unwrap();
    let refused = server.command(&["reload"]).unwrap_err();
    assert!(refused.contains("the key does not fit the certificate"), "{refused}");
    assert_eq!(serial(), first);
    fs::write(&certificate.key, after).unwrap();
    server.command(&["reload"]).unwrap();
    assert_ne!(serial(), first);
    open.ask(&Request::get("/seen.php")).expect(200);
}

#[test]
fn check_says_what_is_wrong_with_certificates() {
    let secured = Secured::new();
    let (one, other) = (secured.issue(&["a.test"]), secured.issue(&["b.test"]));
    let swapped = Certificate { chain: one.chain.clone(), key: other.key };
    let check = |certificate: &Certificate| {
        let config = secured.write(&[&format!(
            "hosts = ['a.test', 'www.a.test']\ntls = {{ {} }}",
            tls(certificate)
        )]);
        let checked = Command::new(sendoff_tests::binary())
            .args(["check", "--config"])
            .arg(&config)
            .output()
            .unwrap();
        // Long lines are wrapped, wherever the path of the folder lets them end.
        let said = text(&checked.stdout) + &text(&checked.stderr);
        (checked.status.code(), said.replace("\n  │ ", " "))
    };
    let (code, said) = check(&swapped);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("the key does not fit the certificate") && said.contains(":9:"),
        "{said}"
    );
    let (code, said) = check(&one);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("the certificate is for a.test, not for www.a.test"), "{said}");
}

/// Files that would keep the server from starting, or clients from connecting.
#[test]
fn check_reads_every_file_of_tls() {
    let secured = Secured::new();
    let one = secured.issue(&["a.test"]);
    let folder = secured.site.outside("keys");
    let write = |name: &str, bytes: &[u8]| secured.site.write_at(folder.join(name), bytes);
    let openssl = |line: &str| {
        let made = Command::new("openssl").args(line.split(' ')).current_dir(&folder).output();
        let made = made.unwrap();
        assert!(made.status.success(), "{line}: {}", text(&made.stderr));
    };
    // An authority with two certificates, and its OCSP response for the first.
    openssl("req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 9 -subj /CN=ca");
    for (name, serial) in [("first", "0x01"), ("second", "0x02")] {
        openssl(&format!(
            "req -x509 -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.pem -days 9 -subj /CN=a.test -addext subjectAltName=DNS:a.test -CA ca.pem -CAkey ca.key -set_serial {serial}"
        ));
    }
    write("index", b"V\t491231235959Z\t\t01\tunknown\t/CN=a.test\n");
    openssl(
        "ocsp -index index -CA ca.pem -rsigner ca.pem -rkey ca.key -issuer ca.pem -cert first.pem -respout of-first -ndays 9 -noverify",
    );
    openssl(
        "req -x509 -newkey rsa:1024 -nodes -keyout small.key -out small.pem -days 9 -subj /CN=a.test",
    );
    // Without extensions it is of version 1.
    openssl("req -new -newkey rsa:2048 -nodes -keyout old.key -out old.csr -subj /CN=a.test");
    openssl("x509 -req -in old.csr -signkey old.key -out old.pem -days 9");
    fs::copy(folder.join("old.key"), folder.join("mixed.key")).unwrap();
    let pem = |name: &str| fs::read(folder.join(name)).unwrap();
    write("mixed.pem", &[pem("ca.pem"), pem("old.pem")].concat());
    fs::copy(folder.join("first.key"), folder.join("cut.key")).unwrap();
    write("cut.pem", &pem("first.pem")[..600]);
    fs::copy(folder.join("first.pem"), folder.join("short.pem")).unwrap();
    write("short.key", &pem("first.key")[..600]);
    let (empty, key) = (write("empty", b""), one.key.display().to_string());
    let empty = empty.display().to_string();
    let named = |name: &str| folder.join(name).display().to_string();
    let files = |name: &str| {
        let (chain, key) = (format!("{name}.pem"), format!("{name}.key"));
        format!("certificate = '{}', key = '{}'", named(&chain), named(&key))
    };
    let mut of_version_1 = Vec::new();
    if is_version_1(&folder.join("old.pem")) {
        of_version_1 = vec![
            (files("old"), 2, vec!["old.pem: certificate 1 of the file is of X.509 version 1"]),
            (files("mixed"), 2, vec!["mixed.pem: certificate 2 of the file is of X.509 version 1"]),
        ];
    }
    for (keys, status, says) in [
        (
            format!("{}, client_issuers = '{key}'", tls(&one)),
            2,
            vec![&*key, "this is a private key, not a certificate"],
        ),
        (
            format!("{}, client_issuers = '{empty}'", tls(&one)),
            2,
            vec![&*empty, "no certificate in PEM"],
        ),
        (
            format!("certificate = 'self-signed', client_issuers = '{key}'"),
            2,
            vec!["this is a private key"],
        ),
        (
            format!("{}, ocsp = '{key}'", tls(&one)),
            2,
            vec![&*key, "expected a response of an OCSP responder", "this is PEM"],
        ),
        (format!("{}, ocsp = '{empty}'", tls(&one)), 2, vec!["the file is empty"]),
        (files("cut"), 2, vec!["cut.pem: the file is cut off", "-----END CERTIFICATE-----"]),
        (files("short"), 2, vec!["short.key: the file is cut off", "-----END PRIVATE KEY-----"]),
        (
            format!("{}, client_issuers = '{}'", tls(&one), named("cut.pem")),
            2,
            vec!["cut.pem: the file is cut off"],
        ),
        (
            format!("{}, ocsp = '{}'", files("second"), named("of-first")),
            2,
            vec!["of-first", "this OCSP response is about another certificate"],
        ),
        (format!("{}, ocsp = '{}'", files("first"), named("of-first")), 0, vec![]),
        (
            files("small"),
            2,
            vec!["small.key", "the key is too small: RSA of 1024 bits", "2048 to 8192"],
        ),
    ]
    .into_iter()
    .chain(of_version_1)
    {
        let config = secured.write(&[&format!("hosts = 'a.test'\ntls = {{ {keys} }}")]);
        let checked = Command::new(sendoff_tests::binary()).arg("check").arg(&config).output();
        let checked = checked.unwrap();
        let said = text(&checked.stdout) + &text(&checked.stderr);
        let said = said.replace("\n  │ ", " ");
        assert_eq!(checked.status.code(), Some(status), "{keys}: {said}");
        for says in says {
            assert!(said.contains(says), "{says:?} is not in\n{said}");
        }
        if status != 0 {
            let head = format!("sendoff: {}: 1 error", config.display());
            assert!(said.contains(&head), "{head:?} is not in\n{said}");
        }
    }
}

/// Made once and kept where only the server's user may read it.
#[test]
fn a_certificate_of_the_servers_own() {
    let site = Site::with("a.txt", "static");
    let config = site.write_at(
        site.outside("sendoff.toml"),
        "listen = ['127.0.0.1:0', '127.0.0.1:0 tls']\nthreads = 1\nstate = 'state'\n[[site]]\nroot = 'root'\n\
         tls = 'self-signed'\nhttps_redirect = false\n[[pool]]\nworkers = 2\n",
    );
    let mut shown = Vec::new();
    for _ in 0..2 {
        let server = Server::try_run(&config, site.root(), 2).unwrap();
        let mut client = Client::connect(server.tls_addr().unwrap());
        assert_eq!(client.ask(&Request::get("/a.txt")).text(), "static");
        drop(client);
        let said = s_client(server.tls_addr().unwrap(), &[], "");
        shown.push(first_certificate(&said));
    }
    assert_eq!(shown[0], shown[1]);
    let kept = site.outside("state/self-signed/localhost.pem");
    assert_eq!(mode(&kept), 0o600);
    assert_eq!(mode(kept.parent().unwrap()), 0o700);
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}
