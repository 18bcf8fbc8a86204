//! The clock stands still while a task can run, and then jumps to the next timer. Name servers are
//! real ones on the loopback interface.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::rc::Rc;

use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::op::{Message, MessageType, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA, SRV};
use hickory_resolver::proto::rr::{Name, Record, RecordType};
use tokio::task::LocalSet;

use super::*;
use crate::hosts::choice::HealthRules;
use crate::hosts::group::Tried;
use crate::hosts::wish::Placement;

const RULES: HealthRules =
    HealthRules { fails: 1, pause: Duration::from_secs(1), slow_start: Duration::ZERO };

fn run(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    LocalSet::new().block_on(&runtime, test);
}

fn hosts() -> Arc<Hosts<String>> {
    Hosts::new("app", RULES, Placement::FREE, |address| Arc::new(address.to_string()))
}

fn host(text: &str) -> UpstreamHost {
    text.parse().unwrap()
}

fn tcp(address: &str) -> Member<Address> {
    Member { key: Address::Tcp(address.to_owned()), weight: 1, rank: 0 }
}

fn found(addresses: &[&str], holds: u64) -> Result<LookupResult, String> {
    let members = addresses.iter().map(|address| tcp(address)).collect();
    Ok(LookupResult { members, holds: Duration::from_secs(holds) })
}

/// The addresses of the hosts, in their order.
fn known(hosts: &Hosts<String>) -> Vec<String> {
    hosts.all().iter().map(|host| host.strip_prefix("tcp:").unwrap().to_owned()).collect()
}

#[test]
fn names_are_looked_up_again_when_the_answer_is_old_and_hosts_stay_while_that_fails() {
    run(async {
        let answers = VecDeque::from([
            found(&["10.0.0.1:9000", "10.0.0.2:9000"], 30),
            Err("no answer".to_owned()),
            found(&["10.0.0.3:9000"], 0),
            found(&["10.0.0.4:9000"], 1_000_000),
        ]);
        let answers = Rc::new(RefCell::new(answers));
        let hosts = hosts();
        let task = {
            let (hosts, answers) = (Arc::clone(&hosts), Rc::clone(&answers));
            tokio::task::spawn_local(async move {
                let of = [host("app:9000")];
                let next = |_| {
                    let answer = answers.borrow_mut().pop_front();
                    async { answer.unwrap_or(Err("over".to_owned())) }
                };
                keep(&hosts, &of, next).await;
            })
        };
        let begun = tokio::time::Instant::now();
        // The first request waits for the first look-up.
        let attempt = hosts.choose(&mut Tried::default()).await.unwrap();
        assert_eq!(known(&hosts), ["10.0.0.1:9000", "10.0.0.2:9000"]);
        drop(attempt);
        let mut seen = Vec::new();
        for seconds in [29, 34, 36, 37, 96, 98] {
            tokio::time::sleep_until(begun + Duration::from_millis(seconds * 1000 + 500)).await;
            seen.push((known(&hosts), answers.borrow().len()));
        }
        let both = vec!["10.0.0.1:9000".to_owned(), "10.0.0.2:9000".to_owned()];
        let third = vec!["10.0.0.3:9000".to_owned()];
        let fourth = vec!["10.0.0.4:9000".to_owned()];
        let expected = [(both.clone(), 3), (both, 2), (fourth.clone(), 0)];
        assert_eq!(seen[..3], [expected[0].clone(), expected[1].clone(), expected[2].clone()]);
        assert_ne!(seen[2].0, third);
        assert!(seen[3..].iter().all(|(known, _)| *known == fourth), "{seen:?}");
        task.abort();
    });
}

#[test]
fn a_request_waits_for_the_first_answer_and_learns_why_there_is_none() {
    run(async {
        let hosts = hosts();
        let why = hosts.choose(&mut Tried::default()).await.unwrap_err();
        assert_eq!(why.to_string(), "its names were not looked up in time");
        let begun = tokio::time::Instant::now();
        let task = {
            let hosts = Arc::clone(&hosts);
            let of = [host("app:9000")];
            let never = |_| async { Err("app:9000 cannot be looked up: no such name".to_owned()) };
            tokio::task::spawn_local(async move { keep(&hosts, &of, never).await })
        };
        let why = hosts.choose(&mut Tried::default()).await.unwrap_err();
        assert_eq!(why.to_string(), "it has no host: app:9000 cannot be looked up: no such name");
        assert!(begun.elapsed() < AGAIN);
        task.abort();
    });
}

#[test]
fn what_is_no_name_is_not_looked_up() {
    run(async {
        let hosts = hosts();
        let of = ["127.0.0.1:9000 weight=2", "[::1]:9000 spare", "unix:/run/a"].map(host);
        // Returns, because no name has to be resolved again.
        keep_resolved(Arc::clone(&hosts), of.to_vec()).await;
        let weights: Vec<_> = hosts
            .states()
            .iter()
            .map(|(state, _)| (state.member.weight, state.member.rank))
            .collect();
        assert_eq!(weights[0], (2, 0));
        assert!(weights[1].1 > 0 && weights[2] == (1, 0));
    });
}

#[test]
fn names_in_etc_hosts_lead_where_it_says() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let found = runtime.block_on(look_up(host("localhost:9000"))).unwrap();
    assert!(found.members.contains(&tcp("127.0.0.1:9000")), "{found:?}");
}

/// A name server that knows `app.test` and the services of `test`. Ends with the process.
fn name_server() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            let request = Message::from_vec(&buffer[..len]).unwrap();
            let query = request.queries[0].clone();
            let mut answer = Message::response(request.metadata.id, request.metadata.op_code);
            answer.metadata.message_type = MessageType::Response;
            answer.metadata.recursion_available = true;
            let name = query.name().clone();
            let records = records(&name.to_ascii(), query.query_type());
            if records.is_empty() {
                answer.metadata.response_code = ResponseCode::NXDomain;
            }
            answer.queries.push(query);
            answer
                .answers
                .extend(records.into_iter().map(|data| Record::from_rdata(name.clone(), 7, data)));
            socket.send_to(&answer.to_vec().unwrap(), from).unwrap();
        }
    });
    address
}

fn records(name: &str, kind: RecordType) -> Vec<RData> {
    let name_of = |text: &str| Name::from_ascii(text).unwrap();
    match (name, kind) {
        ("app.test.", RecordType::A) => {
            vec![RData::A(A::new(10, 0, 0, 1)), RData::A(A::new(10, 0, 0, 2))]
        }
        ("app.test.", RecordType::AAAA) => {
            vec![RData::AAAA(AAAA::new(0xfd00, 0, 0, 0, 0, 0, 0, 1))]
        }
        ("_fcgi._tcp.test.", RecordType::SRV) => vec![
            RData::SRV(SRV::new(1, 5, 9001, name_of("app.test."))),
            RData::SRV(SRV::new(2, 0, 9002, name_of("app.test."))),
            RData::SRV(SRV::new(2, 0, 9002, name_of("gone.test."))),
        ],
        ("_none._tcp.test.", RecordType::SRV) => {
            vec![RData::SRV(SRV::new(0, 0, 0, Name::root()))]
        }
        _ => Vec::new(),
    }
}

#[test]
fn names_lead_to_all_their_addresses_and_services_to_hosts_with_weights_and_ranks() {
    let server = name_server();
    let mut udp = ConnectionConfig::udp();
    udp.port = server.port();
    let servers = vec![NameServerConfig::new(Ipv4Addr::LOCALHOST.into(), true, vec![udp])];
    let config = ResolverConfig::from_parts(None, Vec::new(), servers);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut builder =
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        builder.options_mut().ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        let resolver = builder.build().unwrap();
        let (mut found, holds) = ip_addresses(&resolver, "app.test").await.unwrap();
        found.sort();
        let expected: Vec<IpAddr> =
            ["10.0.0.1", "10.0.0.2", "fd00::1"].map(|ip| ip.parse().unwrap()).to_vec();
        assert_eq!(found, expected);
        assert!(holds > Duration::from_secs(3) && holds <= Duration::from_secs(7), "{holds:?}");
        let found = service_hosts(&resolver, "_fcgi._tcp.test", 10).await.unwrap();
        let of = |rank| found.members.iter().filter(move |member| member.rank == rank);
        assert!(of(11).all(|m| m.weight == 5 && m.key.to_string().ends_with(":9001")));
        assert!(of(12).all(|m| m.weight == 1 && m.key.to_string().ends_with(":9002")));
        assert_eq!((of(11).count(), of(12).count(), found.members.len()), (3, 3, 6));
        ip_addresses(&resolver, "gone.test").await.unwrap_err();
        service_hosts(&resolver, "_none._tcp.test", 0).await.unwrap_err();
    });
}
