use http::HeaderValue;

use super::*;

/// Proxies in 10.0.0.0/8 and 2001:db8:a::/48.
fn proxies(fields: ProxyFields) -> TrustedProxies {
    let mut proxies = TrustedProxies { fields, ..TrustedProxies::default() };
    proxies.add("10.0.0.0/8").unwrap();
    proxies.add("2001:db8:a::/48").unwrap();
    proxies
}

fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    headers
}

fn x_forwarded_with(fields: &[(&'static str, &str)]) -> Forwarded {
    Forwarded::read(&headers(fields), &proxies(ProxyFields::XForwarded))
}

fn forwarded_with(lines: &[&str]) -> Forwarded {
    let fields: Vec<_> = lines.iter().map(|line| ("forwarded", *line)).collect();
    Forwarded::read(&headers(&fields), &proxies(ProxyFields::Forwarded))
}

fn address(text: &str) -> Option<SocketAddr> {
    Some(text.parse().unwrap())
}

#[test]
fn the_last_address_that_is_no_proxys_is_the_client() {
    for (lines, client) in [
        (&["203.0.113.9"][..], "203.0.113.9:0"),
        (&["203.0.113.9, 10.0.0.2"], "203.0.113.9:0"),
        (&["203.0.113.9,10.0.0.3 ,\t10.0.0.2"], "203.0.113.9:0"),
        (&["203.0.113.9", "10.0.0.2"], "203.0.113.9:0"),
        // All addresses are proxies: the request comes from the first.
        (&["10.0.0.3, 10.0.0.2"], "10.0.0.3:0"),
        (&["203.0.113.9:4711"], "203.0.113.9:4711"),
        (&["2001:db8::9"], "[2001:db8::9]:0"),
        (&["[2001:db8::9]"], "[2001:db8::9]:0"),
        (&["[2001:db8::9]:4711, 2001:db8:a::1"], "[2001:db8::9]:4711"),
        (&["203.0.113.9, ::ffff:10.0.0.2"], "203.0.113.9:0"),
        (&["::ffff:203.0.113.9"], "203.0.113.9:0"),
        (&["203.0.113.9, , 10.0.0.2,,"], "203.0.113.9:0"),
    ] {
        let fields: Vec<_> = lines.iter().map(|line| ("x-forwarded-for", *line)).collect();
        let told = x_forwarded_with(&fields);
        assert_eq!((told.client, told.complaint), (address(client), None), "{lines:?}");
    }
}

#[test]
fn what_the_client_wrote_to_the_left_changes_nothing() {
    for forged in [
        "127.0.0.1",
        "10.0.0.9",
        "unknown",
        "_hidden",
        "\"",
        "\"10.0.0.9",
        "for=10.0.0.9",
        "10.0.0.9;",
        "\\",
        "[::1",
        "'",
        "(",
        "\u{e4}",
        ",",
        "10.0.0.9\t,\t10.0.0.9",
    ] {
        let expected = address("203.0.113.9:0");
        for lines in [
            vec![format!("{forged}, 203.0.113.9")],
            vec![format!("{forged},203.0.113.9, 10.0.0.2")],
            vec![forged.to_owned(), "203.0.113.9".to_owned()],
            vec![forged.to_owned(), "203.0.113.9,10.0.0.2".to_owned()],
        ] {
            let fields: Vec<_> = lines.iter().map(|line| ("x-forwarded-for", &**line)).collect();
            let told = x_forwarded_with(&fields);
            assert_eq!((told.client, told.complaint), (expected, None), "{lines:?}");
        }
        for added in [
            "for=203.0.113.9",
            "for=\"203.0.113.9\"",
            "for=203.0.113.9;host=\"a.example\", For=10.0.0.2",
        ] {
            for lines in
                [&[&*format!("{forged}, {added}")][..], &[&*format!("for=\"{forged}"), added]]
            {
                assert_eq!(forwarded_with(lines).client, expected, "{lines:?}");
            }
            let open_quote = format!("for=\"{forged}, {added}");
            assert_eq!(forwarded_with(&[&open_quote]).client, expected, "{open_quote}");
            let escaped = format!("for=\"{forged}\\, {added}");
            assert_eq!(forwarded_with(&[&escaped]).client, expected, "{escaped}");
        }
    }
}

#[test]
fn a_proxy_that_hides_the_client_or_is_not_understood_ends_the_list() {
    for (line, client, complains) in [
        ("unknown", None, false),
        ("203.0.113.9, UNKNOWN, 10.0.0.2", address("10.0.0.2:0"), false),
        ("203.0.113.9, _gazonk, 10.0.0.2", address("10.0.0.2:0"), false),
        ("203.0.113.9, nonsense, 10.0.0.2", address("10.0.0.2:0"), true),
        ("nonsense", None, true),
        ("203.0.113.9:x", None, true),
        ("203.0.113.9:", None, true),
        ("203.0.113.9:65536", None, true),
        ("203.0.113.9:000080", None, true),
        ("203.0.113.9:+80", None, true),
        ("203.0.113.09", None, true),
        ("203.0.113", None, true),
        ("0xcb.0.113.9", None, true),
        ("3405803785", None, true),
        ("203.0.113.9/32", None, true),
        ("203.0.113.9 10.0.0.1", None, true),
        ("[203.0.113.9]", None, true),
        ("[2001:db8::9", None, true),
        ("[2001:db8::9]x", None, true),
        ("[2001:db8::9]:", None, true),
        ("2001:db8::9]:80", None, true),
        ("fe80::1%eth0", None, true),
        ("\"203.0.113.9\"", None, true),
    ] {
        let told = x_forwarded_with(&[("x-forwarded-for", line)]);
        assert_eq!((told.client, told.complaint.is_some()), (client, complains), "{line}");
    }
    for (line, client, complains) in [
        ("for=unknown", None, false),
        ("for=203.0.113.9, for=_x;proto=https, for=10.0.0.2", address("10.0.0.2:0"), false),
        ("proto=https", None, false),
        ("for=203.0.113.9, for=\"10.0.0.2", None, true),
        ("for=203.0.113.9;for=10.0.0.2", None, true),
        ("for=203.0.113.9;FOR=203.0.113.8", None, true),
        ("for=", None, true),
        ("for", None, true),
        ("=203.0.113.9", None, true),
        ("for = 203.0.113.9 x", None, true),
        ("for=\"203.0.113.9\"x", None, true),
        ("for=\"203.0.113.9\\\"", None, true),
        ("for=a@b", None, true),
    ] {
        let told = forwarded_with(&[line]);
        assert_eq!((told.client, told.complaint.is_some()), (client, complains), "{line}");
    }
}

#[test]
fn forwarded_tells_address_scheme_and_host_by_element() {
    for (lines, client, scheme, host) in [
        (&["for=203.0.113.9"][..], "203.0.113.9:0", None, None),
        (&["For=\"[2001:db8::9]:4711\""], "[2001:db8::9]:4711", None, None),
        (&["for=\"203.0.113.9:_port\""], "203.0.113.9:0", None, None),
        // The standard demands quotes, but the meaning is clear.
        (&["for=[2001:db8::9]:4711"], "[2001:db8::9]:4711", None, None),
        (
            &["for=203.0.113.9;proto=HTTPS;by=10.0.0.1;host=a.example;x=\"a,b;c=\\\"\""],
            "203.0.113.9:0",
            Some(Scheme::Https),
            Some("a.example"),
        ),
        (
            &["for=203.0.113.9 ; proto=https ; host=\"a.example:8443\" , for=10.0.0.2;proto=http"],
            "203.0.113.9:0",
            Some(Scheme::Https),
            Some("a.example:8443"),
        ),
        // The scheme and host that a later proxy was asked for are not what the client asked for.
        (&["for=203.0.113.9", "for=10.0.0.2;proto=https;host=b"], "203.0.113.9:0", None, None),
        (&["for=6.6.6.6;proto=https;host=b", "for=203.0.113.9"], "203.0.113.9:0", None, None),
        (&["for=203.0.113.9;host=\"a b\";proto=gopher"], "203.0.113.9:0", None, None),
    ] {
        let told = forwarded_with(lines);
        let host = host.map(|host| Bytes::from_static(str::as_bytes(host)));
        let expected = (address(client), scheme, host);
        assert_eq!((told.client, told.scheme, told.host), expected, "{lines:?}");
    }
}

#[test]
fn only_the_fields_that_proxies_write_are_read() {
    let both = [("x-forwarded-for", "203.0.113.9"), ("forwarded", "for=198.51.100.1;proto=https")];
    let told = x_forwarded_with(&both);
    assert_eq!((told.client, told.scheme), (address("203.0.113.9:0"), None));
    let told = Forwarded::read(&headers(&both), &proxies(ProxyFields::Forwarded));
    assert_eq!((told.client, told.scheme), (address("198.51.100.1:0"), Some(Scheme::Https)));
    let other = x_forwarded_with(&[("forwarded", "for=198.51.100.1")]);
    assert!(other.client.is_none() && other.complaint.unwrap().contains("Forwarded"));
    let near = [("x-forwarded-fo", "203.0.113.9"), ("x-forwarded", "for=203.0.113.9")];
    assert_eq!(x_forwarded_with(&near), Forwarded::default());
}

#[test]
fn scheme_host_and_port_are_those_of_the_proxy_that_names_the_client() {
    const FOR: &str = "x-forwarded-for";
    const PROTO: &str = "x-forwarded-proto";
    const HOST: &str = "x-forwarded-host";
    const PORT: &str = "x-forwarded-port";
    let https = Some(Scheme::Https);
    for (fields, scheme, host, port) in [
        (&[(PROTO, "https")][..], https, None, None),
        (
            &[(PROTO, "Https"), (HOST, "a.example"), (PORT, "8443")],
            https,
            Some("a.example"),
            Some(8443),
        ),
        // Each proxy adds an element.
        (&[(FOR, "203.0.113.9, 10.0.0.2"), (PROTO, "https, http")], https, None, None),
        (&[(FOR, "203.0.113.9"), (PROTO, "http, https")], https, None, None),
        (&[(FOR, "203.0.113.9"), (PROTO, "https, http")], Some(Scheme::Http), None, None),
        (
            &[(FOR, "203.0.113.9"), (PROTO, "https"), (PROTO, "http")],
            Some(Scheme::Http),
            None,
            None,
        ),
        // The first proxy has set the field, the others left it alone.
        (&[(FOR, "203.0.113.9, 10.0.0.3, 10.0.0.2"), (PROTO, "https")], https, None, None),
        (&[(FOR, "203.0.113.9, 10.0.0.3, 10.0.0.2"), (HOST, "a, b")], None, Some("b"), None),
    ] {
        let told = x_forwarded_with(fields);
        let host = host.map(|host| Bytes::from_static(str::as_bytes(host)));
        assert_eq!((told.scheme, told.host, told.port), (scheme, host, port), "{fields:?}");
        assert_eq!(told.complaint, None, "{fields:?}");
    }
    for bad in [
        (PROTO, "gopher"),
        (PROTO, "https:"),
        (HOST, "a b"),
        (HOST, "a/b"),
        (HOST, "user@a"),
        (HOST, "a:b"),
        (HOST, ":80"),
        (HOST, "[::1"),
        (PORT, "0"),
        (PORT, "65536"),
        (PORT, "-1"),
        (PORT, "8O"),
    ] {
        let told = x_forwarded_with(&[(FOR, "203.0.113.9"), bad]);
        assert!((told.scheme, &told.host, told.port) == (None, &None, None), "{bad:?}");
        assert!(told.complaint.is_some() && told.client.is_some(), "{bad:?}");
    }
}

#[test]
fn the_port_follows_from_what_is_said() {
    const PROTO: (&str, &str) = ("x-forwarded-proto", "https");
    for (fields, asked, port) in [
        (&[][..], "a:8080", None),
        (&[("x-forwarded-for", "203.0.113.9")], "a:8080", None),
        (&[PROTO], "a", Some(443)),
        (&[PROTO], "a:8443", Some(8443)),
        (&[PROTO], "[::1]", Some(443)),
        (&[PROTO, ("x-forwarded-host", "b")], "a:8080", Some(443)),
        (&[PROTO, ("x-forwarded-host", "b:444")], "a:8080", Some(444)),
        (&[PROTO, ("x-forwarded-host", "b:444"), ("x-forwarded-port", "445")], "a", Some(445)),
        (&[("x-forwarded-host", "b")], "a:8080", None),
        (&[("x-forwarded-host", "b:444")], "a:8080", Some(444)),
    ] {
        assert_eq!(
            x_forwarded_with(fields).server_port(Some(asked.as_bytes())),
            port,
            "{fields:?}"
        );
    }
}

/// Any bytes that a client sends to the left of the proxies' part leave the result unchanged.
#[test]
fn random_prefixes_cannot_forge_anything() {
    const ALPHABET: &[u8] = b"\",;=\\ []:._fortpshunkw0123456789abcdef\t\xff";
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    for _ in 0..20_000 {
        let length = random(40);
        let forged: Vec<u8> = (0..length).map(|_| ALPHABET[random(ALPHABET.len())]).collect();
        for (name, added, fields) in [
            ("x-forwarded-for", &b"203.0.113.9, 10.0.0.2"[..], ProxyFields::XForwarded),
            ("forwarded", b"for=203.0.113.9;host=\"a\", for=10.0.0.2", ProxyFields::Forwarded),
        ] {
            let alone = Forwarded::read(
                &headers(&[(name, std::str::from_utf8(added).unwrap())]),
                &proxies(fields.clone()),
            );
            let mut prefixed = HeaderMap::new();
            let joined = [&forged[..], b",", added].concat();
            prefixed.append(name, HeaderValue::from_bytes(&joined).unwrap());
            let told = Forwarded::read(&prefixed, &proxies(fields.clone()));
            assert_eq!(told, alone, "{}", forged.escape_ascii());
            let mut lines = HeaderMap::new();
            lines.append(name, HeaderValue::from_bytes(&forged).unwrap());
            lines.append(name, HeaderValue::from_bytes(added).unwrap());
            assert_eq!(Forwarded::read(&lines, &proxies(fields.clone())), alone);
        }
    }
}

/// nginx and Apache read no other field than the one with the addresses.
#[test]
fn addresses_alone() {
    let fields = [
        ("x-forwarded-for", "192.0.2.1, 203.0.113.9, 10.0.0.2"),
        ("x-forwarded-host", "evil.test"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-port", "8443"),
    ];
    for (is_recursive, client) in [(true, "203.0.113.9:0"), (false, "10.0.0.2:0")] {
        let told =
            Forwarded::read(&headers(&fields), &proxies(ProxyFields::Addresses { is_recursive }));
        assert_eq!(told, Forwarded { client: address(client), ..Forwarded::default() });
    }
}

#[test]
fn a_field_of_a_cdn_has_one_address() {
    let read = |fields: &[(&'static str, &str)]| {
        let fields_of = ProxyFields::Single("cf-connecting-ip".to_owned());
        Forwarded::read(&headers(fields), &proxies(fields_of))
    };
    let others = [("x-forwarded-for", "1.1.1.1"), ("x-forwarded-host", "evil.test")];
    let with = |value| [others[0], others[1], ("cf-connecting-ip", value)];
    for (value, client) in [
        (" 203.0.113.9 ", "203.0.113.9:0"),
        ("2001:db8::9", "[2001:db8::9]:0"),
        ("203.0.113.9:4711", "203.0.113.9:4711"),
        // The client of a trusted proxy may have a trusted address, too.
        ("10.0.0.7", "10.0.0.7:0"),
    ] {
        let told = read(&with(value));
        assert_eq!(told, Forwarded { client: address(client), ..Forwarded::default() }, "{value}");
    }
    for value in ["", "203.0.113.9, 203.0.113.10", "host", "203.0.113.9 x"] {
        let told = read(&with(value));
        assert_eq!((told.client, told.complaint.is_some()), (None, true), "{value}");
    }
    let twice = [("cf-connecting-ip", "203.0.113.9"), ("cf-connecting-ip", "203.0.113.10")];
    assert_eq!((read(&twice).client, read(&twice).complaint.is_some()), (None, true));
    assert_eq!(read(&others), Forwarded::default());
}
