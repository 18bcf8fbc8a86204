use std::net::IpAddr;

use http::{HeaderName, HeaderValue, Method};
use sendoff_config::{MapPattern, MapRow, MapSource, Network, RequestMap};
use sendoff_message::request::{Endpoint, sample};

use super::*;

fn row(pattern: MapPattern, value: &str) -> MapRow {
    MapRow { pattern, value: value.to_owned() }
}

fn text(text: &str, value: &str) -> MapRow {
    row(MapPattern::Text(text.to_owned()), value)
}

fn expression(expression: &str, value: &str) -> MapRow {
    row(MapPattern::Expression(expression.to_owned()), value)
}

fn network(text: &str, value: &str) -> MapRow {
    let (address, prefix) = text.split_once('/').unwrap();
    let address: IpAddr = address.parse().unwrap();
    row(MapPattern::Network(Network { address, prefix: prefix.parse().unwrap() }), value)
}

fn maps(source: MapSource, rows: Vec<MapRow>) -> Maps {
    let (name, default) = ("a".to_owned(), "default".to_owned());
    Maps::compile(&[RequestMap { name, source, rows, default }]).unwrap()
}

fn value(maps: &Maps, request: &Request) -> String {
    String::from_utf8(maps.value(0, request).unwrap().value(request)).unwrap()
}

fn with_fields(fields: &[(&'static str, &[u8])]) -> Request {
    let mut request = sample::request(Some("Shop.Example.org:8080"));
    for (name, value) in fields {
        let value = HeaderValue::from_bytes(value).unwrap();
        request.headers.append(HeaderName::from_static(name), value);
    }
    request
}

#[test]
fn texts_come_before_expressions_and_expressions_in_order() {
    let maps = maps(
        MapSource::Header("X-Kind".to_owned()),
        vec![
            expression("^b", "begins with b"),
            expression("e", "has e"),
            text("Beta", "the text"),
            text("", "nothing"),
            expression("^(g)(.)", "$2$1 of $0 for $host, $$1"),
        ],
    );
    for (sent, expected) in [
        (&b"beta"[..], "the text"),
        (b"BETA", "the text"),
        (b"beta ", "begins with b"),
        (b"be", "begins with b"),
        (b"tea", "has e"),
        (b"go", "og of go for shop.example.org, $1"),
        (b"x", "default"),
        (b"", "nothing"),
    ] {
        let sent = with_fields(&[("x-kind", sent)]);
        assert_eq!(value(&maps, &sent), expected, "{:?}", sent.headers);
    }
    assert_eq!(value(&maps, &with_fields(&[])), "nothing");
    let twice = with_fields(&[("x-kind", b"beta"), ("x-kind", b"beta")]);
    assert_eq!(value(&maps, &twice), "begins with b", "the text is beta, beta");
}

#[test]
fn each_part_of_a_request_is_read() {
    let all = || vec![expression("^(?s:.)*$", "$0")];
    let mut request = with_fields(&[
        ("cookie", b"version=one; other=x"),
        ("cookie", b"version=two"),
        ("accept", b"a"),
        ("accept", b"b"),
    ]);
    request.query = Some("v=%31+2&v=3&w".into());
    request.path = b"/a b".to_vec();
    request.method = Method::POST;
    for (source, expected) in [
        (MapSource::Header("Accept".to_owned()), "a, b"),
        (MapSource::Header("Cookie".to_owned()), "version=one; other=x; version=two"),
        (MapSource::Header("X-None".to_owned()), ""),
        (MapSource::Cookie("version".to_owned()), "one"),
        (MapSource::Cookie("none".to_owned()), ""),
        (MapSource::Query("v".to_owned()), "1 2"),
        (MapSource::Query("w".to_owned()), ""),
        (MapSource::Host, "shop.example.org"),
        (MapSource::Path, "/a b"),
        (MapSource::Method, "POST"),
        (MapSource::Scheme, "http"),
    ] {
        assert_eq!(value(&maps(source.clone(), all()), &request), expected, "{source:?}");
    }
}

#[test]
fn the_longest_ending_of_a_host_counts() {
    let beneath = |ending: &str| row(MapPattern::Beneath(ending.to_owned()), ending);
    let maps = maps(
        MapSource::Host,
        vec![beneath(".org"), beneath(".example.org"), text("www.example.org", "exact")],
    );
    for (host, expected) in [
        ("www.example.org", "exact"),
        ("a.b.Example.org", ".example.org"),
        ("example.org", ".org"),
        ("org", "default"),
        ("example.orgx", "default"),
    ] {
        assert_eq!(value(&maps, &sample::request(Some(host))), expected, "{host}");
    }
}

#[test]
fn the_longest_network_counts() {
    let maps = maps(
        MapSource::Client,
        vec![
            network("10.0.0.0/8", "ten"),
            network("10.1.0.0/16", "ten one"),
            network("10.1.1.1/32", "$0"),
            network("2001:db8::/32", "six"),
            network("::/0", "all of six"),
        ],
    );
    let from = |address: &str| {
        let peer = Endpoint::Ip((address.parse::<IpAddr>().unwrap(), 5).into());
        value(&maps, &Request { peer, ..sample::request(None) })
    };
    for (address, expected) in [
        ("10.2.0.1", "ten"),
        ("10.1.0.1", "ten one"),
        ("::ffff:10.1.0.1", "ten one"),
        ("10.1.1.1", "10.1.1.1"),
        ("192.0.2.1", "default"),
        ("2001:db8::1", "six"),
        ("2001:db9::1", "all of six"),
    ] {
        assert_eq!(from(address), expected, "{address}");
    }
}

#[test]
fn ten_thousand_rows_are_found_at_once() {
    let rows = (0..10_000).map(|number| text(&format!("key-{number}"), &number.to_string()));
    let maps = maps(MapSource::Header("X-Key".to_owned()), rows.collect());
    assert_eq!(value(&maps, &with_fields(&[("x-key", b"KEY-9999")])), "9999");
    assert_eq!(value(&maps, &with_fields(&[("x-key", b"key-10000")])), "default");
    let began = std::time::Instant::now();
    let request = with_fields(&[("x-key", b"key-5000")]);
    (0..1000).for_each(|_| assert_eq!(value(&maps, &request), "5000"));
    // A scan of all rows would take more than 10 s in a build without optimization.
    assert!(began.elapsed().as_secs() < 2, "{:?}", began.elapsed());
}

/// A hostile text makes a thousand expressions backtrack: the request is refused.
#[test]
fn expressions_that_explode_are_an_error_and_share_their_steps() {
    let rows = (0..1000).map(|number| expression(&format!("^(a+)+(?:{number})?$"), "x")).collect();
    let maps = maps(MapSource::Header("X-Key".to_owned()), rows);
    let hostile = with_fields(&[("x-key", &[&b"a".repeat(5000)[..], b"!"].concat())]);
    let why = maps.value(0, &hostile).unwrap_err().0;
    assert!(why.starts_with("map a: the expression"), "{why}");
}

/// Bytes of a client cannot end a field or a parameter, and stay as they are otherwise.
#[test]
fn captured_bytes_are_encoded_for_their_use() {
    let maps = maps(MapSource::Query("v".to_owned()), vec![expression("(?s)^.*$", "<$0>")]);
    let mut request = sample::request(None);
    request.query = Some("v=%0d%0aX:1%00%7f+%3c%e4%2f?#%25".into());
    let mapped = maps.value(0, &request).unwrap();
    let (value, captured) = mapped.text();
    let as_field = value.render(&request, captured, Use::Field);
    assert_eq!(as_field, b"<%0D%0AX:1%00%7F <\xe4/?#%>");
    assert_eq!(value.render(&request, captured, Use::Plain), as_field);
    let as_uri = value.render(&request, captured, Use::Uri);
    assert_eq!(as_uri, b"<%0D%0AX:1%00%7F%20%3C%E4/%3F%23%25>");
    let as_query = value.render(&request, captured, Use::Query);
    assert_eq!(as_query, b"<%0D%0AX%3A1%00%7F%20%3C%E4/%3F%23%25>");
}

#[test]
fn explain_names_the_row() {
    let maps =
        maps(MapSource::Cookie("v".to_owned()), vec![text("1", "new"), expression("^b", "beta")]);
    let told = |cookie: &'static [u8]| maps.explain(&with_fields(&[("cookie", cookie)])).concat();
    assert_eq!(told(b"v=1"), "map a is \"new\": cookie:v is \"1\", row \"1\"");
    assert_eq!(told(b"v=bx"), "map a is \"beta\": cookie:v is \"bx\", row \"~^b\"");
    assert_eq!(told(b"x=1"), "map a is \"default\": cookie:v is \"\", no row, so the default");
}

#[test]
fn other_readings_have_values_too() {
    let rows = || vec![expression("^(?s:.)*$", "$0")];
    let others = |source: MapSource, request: &Request| -> Vec<String> {
        let others = maps(source, rows()).other_values(0, request).unwrap();
        let text = |mapped: &Mapped| String::from_utf8(mapped.value(request)).unwrap();
        others.iter().map(text).collect()
    };
    let cookies = with_fields(&[("cookie", b"a_b=1; a_b=2; a.b=%33; c=4; a[b=\"5\\066\"")]);
    let name = || MapSource::Cookie("a_b".to_owned());
    assert_eq!(others(name(), &cookies), ["\"5\\066\"", "%33", "2", "3", "56", "5\\066"]);
    assert_eq!(others(MapSource::Cookie("c".to_owned()), &cookies), [""; 0]);
    let mut query = sample::request(None);
    query.query = Some("a=1&a=2&a[]=1;a=3".into());
    assert_eq!(others(MapSource::Query("a".to_owned()), &query), ["1;a=3", "2", "3"]);
    query.query = Some("[a]=1&x;a=2".into());
    assert_eq!(others(MapSource::Query("a".to_owned()), &query), ["1", "2"]);
    query.query = Some("+a=1".into());
    assert_eq!(others(MapSource::Query("a".to_owned()), &query), [""], "Python finds none");
    let fields = with_fields(&[("x-a", b"1"), ("x-a", b"2"), ("x-a", b"1"), ("x-b", b"3")]);
    assert_eq!(others(MapSource::Header("X-A".to_owned()), &fields), ["1", "2"]);
    assert_eq!(others(MapSource::Header("X-B".to_owned()), &fields), [""; 0]);
    let split = with_fields(&[("cookie", b"c=1 a_b=2"), ("cookie", b"x=3,a_b=4")]);
    assert_eq!(others(name(), &split), ["2", "4"]);
    assert_eq!(others(MapSource::Path, &query), [""; 0]);
    let many: String = (0..=MAX_READINGS + 1).map(|number| format!("a={number}&")).collect();
    query.query = Some(many.into());
    let refused = maps(MapSource::Query("a".to_owned()), rows()).other_values(0, &query);
    assert_eq!(refused.unwrap_err().0, "map a: the request has query:a too often");
}
