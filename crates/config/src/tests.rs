use std::ffi::OsStr;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use super::*;

fn config() -> Config {
    Config {
        log: "info".to_owned(),
        listen: [
            ListenAddress::Tcp("127.0.0.1:0".parse().unwrap()),
            ListenAddress::Unix("/run/\u{e4}".into()),
        ]
        .map(|address| Listener {
            address,
            proxy_protocol: false,
            tls: false,
            access: SocketAccess::default(),
        })
        .to_vec(),
        trusted_proxies: TrustedProxies {
            networks: vec![Network { address: "::1".parse().unwrap(), prefix: 128 }],
            unix: true,
            fields: ProxyFields::Forwarded,
        },
        account: Some(Account { uid: 33, gid: 33 }),
        state: "/var/lib/sendoff".into(),
        acme: Some(Acme {
            directory: "https://ca.test/dir".to_owned(),
            email: Some("a@b.test".to_owned()),
            roots: Some("/etc/ca\u{e4}.pem".into()),
            binding: Some(AccountBinding { id: "kid".to_owned(), key: "/etc/acme.key".into() }),
            dns: Some(DnsHook { program: "/etc/dns".into(), wait: Duration::from_secs(10) }),
        }),
        tls: TlsAlgorithms {
            ciphers: vec![CipherSuite::Aes256],
            groups: vec![KeyExchange::X25519MlKem768],
        },
        traces: Some(Traces {
            collector: Proxy {
                address: ProxyAddress::Tcp("otel.test:4318".to_owned()),
                protocol: GatewayProtocol::Http {
                    host: ProxyHost::Upstream,
                    tls: None,
                    upgrade: false,
                    bare_line_feeds: false,
                },
                forwarded: ForwardedFields::Off,
                proxy_protocol: false,
                timeouts: ProxyTimeouts::default(),
                urls: ProxyUrls::default(),
            },
            target: "/v1/traces".to_owned(),
            headers: vec![("Authorization".to_owned(), "Bearer x".to_owned())],
            per_million: 1000,
            most_per_second: 10,
            service_name: "shop".to_owned(),
        }),
        fleet: Some(Fleet {
            name: "shop".to_owned(),
            engine: Engine {
                address: EngineAddress::Unix("/run/redis.sock".into()),
                tls: None,
                user: Some("shop".to_owned()),
                password_file: Some("/etc/sendoff/engine".into()),
                database: 2,
            },
            secret_file: Some("/etc/sendoff/fleet".into()),
        }),
        drain_delay: Duration::from_secs(5),
        shutdown_timeout: Duration::from_secs(30),
        front: FrontConfig {
            threads: 2,
            access_log: Some(AccessLog {
                to: LogTarget::File("/var/log/a".into()),
                format: LogFormat::json(),
            }),
            request_ids: true,
            timeouts: Timeouts {
                head: Duration::from_millis(500),
                body: Duration::from_secs(1),
                idle: Duration::from_secs(2),
                send: Duration::new(3, 1),
            },
            page_cache: PageStore { folder: "/".into(), size: 0 },
            limits: Limits {
                max_body: u64::MAX,
                connections: Some(1),
                connections_per_client: Some(2),
                body_rate: 3,
                send_rate: 4,
                queued: 5,
            },
        },
        sites: vec![Site {
            follow: vec!["/a".into(), OsStr::from_bytes(b"/\x80").into()],
            fastcgi: ["/app=tcp:localhost:9000", "/=pool:shop"]
                .map(|a| a.parse().unwrap())
                .to_vec(),
            accel: vec!["/files=/var/lib/app".parse().unwrap()],
            proxies: vec![Proxy {
                address: ProxyAddress::Unix("/run/app.sock".into()),
                protocol: GatewayProtocol::Http {
                    host: ProxyHost::Fixed("app.test".to_owned()),
                    tls: Some(ProxyTls {
                        server_name: "app.test".to_owned(),
                        roots: Some(OsStr::from_bytes(b"/etc/\x80").into()),
                        verify: true,
                    }),
                    upgrade: true,
                    bare_line_feeds: true,
                },
                forwarded: ForwardedFields::Forwarded,
                proxy_protocol: false,
                timeouts: ProxyTimeouts::default(),
                urls: ProxyUrls {
                    strip_prefix: true,
                    redirects: Some(vec![("http://app.test/".to_owned(), "/".to_owned())]),
                    cookie_paths: Some(vec![("/".to_owned(), "/shop".to_owned())]),
                    cookie_domains: vec![("app.test".to_owned(), String::new())],
                },
            }],
            maintenance: Some("/run/maintenance".into()),
            pool: Some(0),
            ..Site::new(PathBuf::from(OsStr::from_bytes(b"/srv/\xff\xfe\n=")))
        }],
        pools: vec![PoolConfig {
            program: Some(Program {
                file: OsStr::from_bytes(b"/srv/\x80").into(),
                command: vec!["app".to_owned(), String::new()],
                requests_per_process: Some(4),
                fragments: Some(8 << 20),
            }),
            worker: Some(WorkerScript {
                file: OsStr::from_bytes(b"/srv/\x80.php").into(),
                max_memory: Some(1 << 30),
                max_age: Some(Duration::from_secs(60)),
                watch: vec!["/srv".into()],
            }),
            umask: Some(0o027),
            chroot: Some("/srv".into()),
            environment: vec![("LANG".to_owned(), "C.UTF-8".to_owned())],
            php_ini: vec!["date.timezone=\"Europe/Berlin\"".to_owned()],
            request_timeout: None,
            group: GroupLimits { memory: Some(1 << 30), cpu: Some(500), processes: Some(64) },
            slow_log: Some(SlowLog { after: Duration::from_secs(5), path: "/var/log/slow".into() }),
            ..PoolConfig::new(
                "default",
                Workers::Auto(Bounds { min: 4, max: 64, idle: Duration::from_secs(30) }),
            )
        }],
        upstreams: vec![Upstream {
            name: "app".to_owned(),
            hosts: vec!["app1:9000 weight=2".parse().unwrap(), "srv:_x._tcp.y".parse().unwrap()],
            balance: Balance::Hash(HashedPart::Cookie("id".to_owned())),
            sticky: Some(Sticky::OfApplication("id".to_owned())),
            connections: Some(4),
            fails: 1,
            retry_after: Duration::from_secs(1),
            slow_start: Duration::ZERO,
            probe: Some(Probe {
                every: Duration::from_millis(100),
                request: Some(HostCheck::Http(HttpCheck {
                    path: "/up".to_owned(),
                    host: Some("app.test".to_owned()),
                    status: Some(200),
                    body: Some("ok".to_owned()),
                })),
            }),
        }],
    }
}

#[test]
fn what_was_sealed_is_read_again_and_again() {
    let config = config();
    let sealed = config.seal().unwrap();
    let mut inherited = std::fs::File::from(sealed.try_clone().unwrap());
    // Another process that shares the descriptor has read to its end.
    inherited.seek(SeekFrom::End(0)).unwrap();
    for _ in 0..2 {
        assert_eq!(Config::read(sealed.try_clone().unwrap()).unwrap(), config);
    }
    let mut rest = String::new();
    assert_eq!(inherited.read_to_string(&mut rest).unwrap(), 0, "the offset stays where it was");
}

#[test]
fn nothing_can_change_a_sealed_configuration() {
    let sealed = config().seal().unwrap();
    let mut file = std::fs::File::from(sealed.try_clone().unwrap());
    assert!(file.write_all(b"x").is_err());
    assert!(file.set_len(0).is_err());
    assert!(Config::read(sealed).is_ok());
}

#[test]
fn other_bytes_are_refused() {
    let text = serde_json::to_string(&config()).unwrap();
    for wrong in ["", "{}", &text.replace("\"log\"", "\"lag\""), &text[..text.len() - 1]] {
        let mut file = std::fs::File::from(
            rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap(),
        );
        file.write_all(wrong.as_bytes()).unwrap();
        assert!(matches!(Config::read(file.into()), Err(Error::Foreign(_))), "{wrong}");
    }
    let (_ours, pipe) = rustix::pipe::pipe().unwrap();
    assert!(Config::read(pipe).is_err());
}

#[test]
fn the_front_ends_before_it_is_killed_and_both_within_the_time() {
    for millis in [0, 1, 100, 1000, 30_000, 3_600_000] {
        let all = Duration::from_millis(millis);
        let config = Config { shutdown_timeout: all, ..config() };
        let (drain, kill) = (config.drain_timeout(), config.kill_timeout());
        assert!(drain <= kill && kill <= all && all - drain <= Duration::from_secs(1), "{all:?}");
        assert!(kill + config.last_grace() <= all, "{all:?}");
        assert!(millis == 0 || (drain < kill && kill < all), "{all:?}");
    }
}

#[test]
fn a_listener_has_one_party_where_every_application_has_the_same_user() {
    let account = |uid| Some(Account { uid, gid: 7 });
    let pool = |name: &str, uid| PoolConfig {
        account: account(uid),
        ..PoolConfig::new(name, Workers::Fixed(1))
    };
    let site = |listener, pool| Site {
        listeners: vec![listener],
        pool: Some(pool),
        ..Site::new("/".into())
    };
    let (user, other) = (Some(Party::User(Some(1))), Party::User(Some(2)));
    let pools = vec![pool("a", 1), pool("b", 1), pool("c", 2)];
    let sole = |sites: &[Site]| {
        let config = Config { pools: pools.clone(), sites: sites.to_vec(), ..config() };
        config.sole_party(0)
    };
    assert_eq!(sole(&[site(0, 0)]), user);
    assert_eq!(sole(&[site(0, 0), site(0, 1), site(1, 2)]), user);
    assert_eq!(sole(&[site(0, 0), site(0, 2)]), None);
    assert_eq!(sole(&[site(1, 0)]), None, "the listener has no application");

    let mut routed = site(0, 0);
    let to_pool = |pool| Route {
        origin: String::new(),
        conditions: Conditions::default(),
        rules: Rules::default(),
        handler: Some(Handler::Php { pool, script: None }),
    };
    routed.routes = vec![to_pool(1)];
    assert_eq!(sole(&[routed.clone()]), user);
    routed.routes.push(to_pool(2));
    assert_eq!(sole(&[routed]), None);
    let worker = |pool| Some(SiteWorker { pool, file: "/w.php".into(), is_controller: true });
    assert_eq!(sole(&[Site { worker: worker(1), ..site(0, 0) }]), user);
    assert_eq!(sole(&[Site { worker: worker(2), ..site(0, 0) }]), None);

    let attached = |pool, to: &[&str]| Site {
        pool,
        fastcgi: to.iter().map(|one| one.parse().unwrap()).collect(),
        ..site(0, 0)
    };
    assert_eq!(sole(&[attached(Some(0), &["/x=pool:b"])]), user);
    assert_eq!(sole(&[attached(None, &["/=pool:c"])]), Some(other));
    assert_eq!(sole(&[attached(Some(0), &["/x=pool:c"])]), None);
    assert_eq!(sole(&[attached(Some(0), &["/x=tcp:h:1"])]), None);
    let elsewhere = Address::Tcp("h:1".to_owned());
    let twice = attached(None, &["/=tcp:h:1", "/x=tcp:h:1"]);
    assert_eq!(sole(&[twice]), Some(Party::Application(elsewhere)));
    assert_eq!(sole(&[attached(None, &["/=tcp:h:1", "/x=tcp:h:2"])]), None);
    let proxies = config().sites[0].proxies.clone();
    assert_eq!(sole(&[Site { proxies, ..site(0, 0) }]), None);
}

#[test]
fn times_have_units() {
    for (text, millis) in [
        ("30s", 30_000),
        ("500ms", 500),
        ("2m", 120_000),
        ("1h", 3_600_000),
        ("2d", 172_800_000),
        ("75", 75_000),
        ("0.5", 500),
        ("1.5m", 90_000),
        ("0", 0),
    ] {
        assert_eq!(units::time(text), Ok(Duration::from_millis(millis)), "{text}");
    }
    for bad in [
        "",
        "s",
        "5x",
        "5 s",
        "-1",
        "+1",
        "1e3",
        "inf",
        "nan",
        "1.2.3",
        ".",
        "99999999999999999999h",
    ] {
        assert!(units::time(bad).is_err_and(|why| why.contains(bad)), "{bad}");
    }
    assert!(units::positive_time("0ms").is_err());
    assert_eq!(units::positive_time("1ms"), Ok(Duration::from_millis(1)));
}

#[test]
fn sizes_have_units() {
    for (text, bytes) in
        [("0", 0), ("4096", 4096), ("64K", 1 << 16), ("64M", 64 << 20), ("1g", 1 << 30)]
    {
        assert_eq!(units::size(text), Ok(bytes), "{text}");
    }
    for bad in ["", "M", "1.5M", "64MB", "64 M", "-1", "99999999999G", "1T"] {
        assert!(units::size(bad).is_err(), "{bad}");
    }
}

#[test]
fn attachments_say_what_they_answer() {
    for (text, replaces) in [
        (".php=unix:/x", true),
        ("/=unix:/x", true),
        (".pl=unix:/x", false),
        ("/a/=unix:/x", false),
    ] {
        let attachment: Attachment = text.parse().unwrap();
        assert_eq!(attachment.replaces_workers(), replaces, "{text}");
    }
    for bad in ["php=unix:/x", ".=unix:/x", ".php=9000", "/app"] {
        assert!(bad.parse::<Attachment>().is_err(), "{bad}");
    }
}

#[test]
fn addresses_are_read_and_written_alike() {
    for text in
        ["unix:/run/a.sock", "tcp:127.0.0.1:9000", "tcp:[::1]:9000", "tcp:php:9000", "upstream:a"]
    {
        assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
    }
    for bad in ["", "unix:a.sock", "tcp:9000", "tcp::9000", "tcp:h:0", "tcp:h:99999", "h:9000"] {
        assert!(bad.parse::<Address>().is_err(), "{bad:?}");
    }
}

#[test]
fn an_accel_names_a_prefix_and_a_folder() {
    assert!("/files=/x".parse::<Accel>().is_ok());
    for bad in ["files=/x", "/files", "/files=", ""] {
        assert!(bad.parse::<Accel>().is_err(), "{bad}");
    }
}
