//! Our libfcgi.so.0 in the place of Debian's: the same programs, the same bytes.

mod application;
mod modes;
mod roles;
mod servers;
mod wire;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use application::{
    Address, Application, BOTH, Library, command, cpp_program, our_library, program,
};
use rustix::process::Signal;
use sendoff_tests::pattern;
use wire::{Answer, Ask, ask};

#[track_caller]
fn assert_alike(name: &str, ours: &Answer, theirs: &Answer) {
    assert_eq!(ours.text(), theirs.text(), "{name}: ours and Debian's");
    let rest = |answer: &Answer| Answer { stdout: Vec::new(), ..answer.clone() };
    assert_eq!(rest(ours), rest(theirs), "{name}: ours and Debian's");
    assert!(ours.stdout == theirs.stdout, "{name}: bytes that are no text");
}

/// The responses with both libraries; each program is started again.
fn same(program: &Path, what: &[Ask]) -> Vec<Answer> {
    let [theirs, ours] = BOTH.map(|library| {
        let application = Application::start(program, &[], library);
        what.iter().map(|ask| application.connect().ask(ask)).collect::<Vec<_>>()
    });
    for ((ask, theirs), ours) in what.iter().zip(&theirs).zip(&ours) {
        let name = &ask.params[0].1;
        assert_alike(name, ours, theirs);
    }
    ours
}

#[test]
fn every_symbol_is_exported() {
    let symbols = |library: &Path| {
        let listing = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output();
        let listing = String::from_utf8(listing.unwrap().stdout).unwrap();
        let words = listing.lines().map(|line| line.split_once(' ').unwrap().1.to_owned());
        words.collect::<Vec<_>>()
    };
    let libraries = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let theirs = symbols(&Path::new(&libraries).join("libfcgi.so.0"));
    assert_eq!(symbols(&our_library().join("libfcgi.so.0")), theirs);
    assert!(theirs.len() > 80);
}

#[test]
fn streams_do_what_they_always_did() {
    let text = "first line\nsecond, which is longer than the buffer\n\n\nunfinished u and uu";
    let body = |len| pattern(1, len);
    let mut all: Vec<Ask> = [
        "environment",
        "conversions",
        "sizes",
        "large",
        "errors",
        "misuse",
        "flushes",
        "many",
        "nothing",
        "head",
        "closed",
    ]
    .map(ask)
    .into();
    for action in ["echo", "lines", "characters"] {
        all.push(ask(action));
        all.push(ask(action).body(text));
    }
    all.extend(
        [1, 8191, 8192, 8193, 65_536, 300_000, 1 << 20].map(|len| ask("echo").body(body(len))),
    );
    all.push(ask("characters").body(body(100_000)));
    all.push(ask("lines").body(body(100_000)));
    let long = "v".repeat(70_000);
    let mut many = ask("environment").param("LONG", &long).param("QUERY", "x=y=z");
    for i in 0..300 {
        many = many.param(&format!("HTTP_X_{i}"), &"ä".repeat(i));
    }
    all.push(many);
    let answers = same(&program("probe"), &all);
    assert!(answers[3].stdout.len() > 8 << 20);
    assert_eq!(answers[4].end, Some(((-7_i32).cast_unsigned(), 0)));
    assert!(answers.iter().all(|answer| answer.closed && answer.stdout_ended));
}

#[test]
fn what_is_closed_leaves_at_once() {
    let program = program("probe");
    for library in BOTH {
        let application = Application::start(&program, &[], library);
        let mut connection = application.connect();
        connection.send(&ask("early").head());
        let mut page = Vec::new();
        while !page.ends_with(b"early") {
            match connection.next() {
                Some(sendoff_fastcgi::RecordPart::Stream { data, .. }) => {
                    page.extend_from_slice(&data);
                }
                other => panic!("{library:?}: {other:?}"),
            }
        }
        // The end of the body, which the program waits for.
        connection.send(&[1, 5, 0, 1, 0, 0, 0, 0]);
        assert_eq!(connection.answer(1).end, Some((0, 0)));
    }
}

#[test]
fn all_roles() {
    let filter = |body: &str, data: &[u8]| {
        let mut filter = ask("filter").role(3).body(body);
        filter.data = Some(data.into());
        filter
    };
    let mut friend = ask("authorize").role(2).param("REMOTE_USER", "friend");
    friend.stdin = None;
    let all = [
        filter("", b""),
        filter("body", b"Data Of The File"),
        filter(&"b".repeat(20_000), &[b'd'; 200_000]),
        ask("filter").body("a responder"),
        friend.clone(),
        ask("authorize").role(2),
        ask("environment").role(2),
        ask("environment").role(3),
    ];
    let answers = same(&program("probe"), &all[..6]);
    assert!(answers[1].text().contains("dATA"), "{}", answers[1].text());
    // An authorizer that also gets an environment. (Filters read their streams before they say
    // goodbye, or not.)
    same(&program("probe"), &all[6..7]);
}

#[test]
fn stdio_does_what_it_always_did() {
    let mut all: Vec<Ask> = ["read", "files", "environment", "error", "finish"].map(ask).into();
    all.push(ask("read").body("one line\nand the rest, which is read in threes"));
    all.push(ask("read").body(pattern(5, 100_000)));
    all.push(ask("environment").param("SENDOFF_ACCEPTANCE", "is no word of ours"));
    all.push(ask("exit"));
    let answers = same(&program("stdio"), &all);
    assert!(answers[4].text().ends_with("finished"));
    assert!(answers[8].text().ends_with("last words"), "{}", answers[8].text());
}

/// Debian's libfcgi++ on our library.
#[test]
fn cpp_streams_do_what_they_always_did() {
    let mut all: Vec<Ask> = ["echo", "blocks", "numbers", "errors", "standard"].map(ask).into();
    for action in ["echo", "blocks", "standard"] {
        all.push(ask(action).body("one line\nand another, without an end"));
        all.extend([8191, 8192, 300_000].map(|len| ask(action).body(pattern(3, len))));
    }
    let answers = same(&cpp_program("streams"), &all);
    assert!(answers[2].text().ends_with("99999\n0xff 1.500000e+00\n"));
    assert!(answers[3].text().ends_with("to the client 2"));
    assert!(answers[3].stderr.ends_with(b"and more"), "{:?}", answers[3].stderr);
    assert!(answers.iter().all(|answer| answer.closed && answer.stdout_ended));
}

#[test]
fn our_own_parameter_is_hidden() {
    let application = Application::start(&program("stdio"), &[], Library::Ours);
    let asked = ask("environment").param("SENDOFF_ACCEPT", "file later");
    let answer = application.connect().ask(&asked);
    let text = answer.text();
    assert!(text.contains("QUERY_STRING=environment") && !text.contains("SENDOFF"), "{text}");
    // The worker behind it has understood: LENGTH.
    let body = text.split_once("\r\n\r\n").unwrap().1.len() as u64;
    assert_eq!(answer.others, [(130, body.to_be_bytes().to_vec())]);
}

#[test]
fn a_kept_connection_serves_many() {
    let program = program("probe");
    let asked: Vec<Ask> = ["echo", "lines", "echo", "characters", "echo", "lines"]
        .iter()
        .zip(1..)
        .map(|(action, id)| ask(action).body(pattern(2, 30_000)).keep().id(id))
        .chain([ask("echo").id(9)])
        .collect();
    let seen = BOTH.map(|library| {
        let application = Application::start(&program, &[], library);
        let mut connection = application.connect();
        asked.iter().map(|ask| connection.ask(ask)).collect::<Vec<_>>()
    });
    for (number, (theirs, ours)) in seen[0].iter().zip(&seen[1]).enumerate() {
        assert_alike(&format!("request {number}"), ours, theirs);
    }
    assert!(seen[1][6].closed);
}

/// Debian's library loses the connection if a body is left unread and another request follows.
#[test]
fn a_kept_connection_outlives_an_unread_body() {
    let program = program("probe");
    let application = Application::start(&program, &[], Library::Ours);
    let other = Application::start(&program, &[], Library::Ours);
    let mut connection = application.connect();
    for (id, action) in (1..).zip(["nothing", "errors", "environment", "head", "closed", "echo"]) {
        let asked = ask(action).body(pattern(2, 300_000)).id(id);
        let fresh = other.connect().ask(&asked);
        let kept = connection.ask(&asked.keep());
        assert_alike(action, &Answer { closed: true, ..kept }, &fresh);
    }
}

#[test]
fn a_body_that_nobody_reads_does_no_harm() {
    let program = program("probe");
    for library in BOTH {
        for application in [
            Application::start(&program, &[], library),
            Application::start_tcp(&program, &[], library),
        ] {
            for len in [100_000, 4_000_000] {
                let answer = application.connect().ask(&ask("errors").body(vec![b'x'; len]));
                assert_eq!(answer.end, Some(((-7_i32).cast_unsigned(), 0)), "{library:?} {len}");
                assert!(answer.text().ends_with("line 999 of the page\n"));
            }
        }
    }
}

/// Some clients end their sending direction.
#[test]
fn a_half_closed_connection_is_answered() {
    let program = program("probe");
    let seen = BOTH.map(|library| {
        let application = Application::start(&program, &[], library);
        let mut connection = application.connect();
        connection.send(&ask("large").bytes());
        connection.socket.close_write();
        connection.answer(1)
    });
    assert!(seen[1].stdout == seen[0].stdout && seen[1].end == seen[0].end);
}

#[test]
fn a_cut_body_is_an_error_and_a_lost_client_another() {
    let program = program("probe");
    let seen = BOTH.map(|library| {
        let application = Application::start(&program, &["1", "3"], library);
        let mut cut = application.connect();
        let whole = ask("echo").body(vec![b'c'; 20_000]).bytes();
        cut.send(&whole[..10_000]);
        cut.socket.close_write();
        let answer = cut.answer(1);
        let mut lost = application.connect();
        lost.send(&ask("endless").bytes());
        lost.next().unwrap();
        drop(lost);
        let next = application.connect().ask(&ask("head"));
        assert!(next.end.is_some());
        (answer.text().rsplit("bytes").next().unwrap().to_owned(), application.end())
    });
    assert_eq!(seen[1], seen[0]);
    assert!(seen[1].1.1.contains("ended: -1, error 1, eof -1, char -1, printf -1"), "{seen:?}");
}

#[test]
fn what_is_no_request_is_refused_alike() {
    let program = program("probe");
    let seen = BOTH.map(|library| {
        let application = Application::start(&program, &[], library);
        let mut all = vec![application.connect().ask(&ask("echo").role(7))];
        let mut values = application.connect();
        let mut names = Vec::new();
        for name in ["FCGI_MAX_CONNS", "FCGI_MAX_REQS", "FCGI_MPXS_CONNS", "OTHER"] {
            sendoff_fastcgi::params::encode(&mut names, name.as_bytes(), b"");
        }
        let len = u16::try_from(names.len()).unwrap();
        let kind = sendoff_fastcgi::record::Kind::GET_VALUES;
        let header = sendoff_fastcgi::record::Header::new(kind, 0, len);
        values.send(&[&header.encode()[..], &names].concat());
        all.push(values.ask(&ask("head")));
        all
    });
    // FCGI_UNKNOWN_ROLE; Debian's library closes the connection without an answer.
    assert_eq!((seen[1][0].end, seen[0][0].end), (Some((0, 3)), None));
    assert!(seen[1][0].closed);
    assert_eq!(seen[1][1], seen[0][1]);
}

#[test]
fn signals_end_it_as_they_always_did() {
    let program = program("probe");
    for library in BOTH {
        // In accept.
        let application = Application::start(&program, &[], library);
        assert!(application.connect().ask(&ask("head")).closed);
        await_sleep(application.pid());
        application.signal(Signal::USR1);
        let (status, log) = application.end();
        assert!(status.success() && log == "accept: -1\n", "{library:?}: {log}");

        // On a kept connection.
        let application = Application::start(&program, &[], library);
        let mut connection = application.connect();
        assert!(connection.ask(&ask("head").keep()).end.is_some());
        await_sleep(application.pid());
        application.signal(Signal::USR1);
        assert!(connection.next().is_none());
        assert_eq!(application.end().1, "accept: -1\n", "{library:?}");

        // At work: the request is answered first.
        let application = Application::start(&program, &[], library);
        let answer = application.connect().ask(&ask("usr1").body("whole"));
        assert!(answer.text().ends_with("whole5 bytes, eof -1, error 0, then -1"), "{answer:?}");
        assert_eq!(application.end().1, "accept: -1\n", "{library:?}");

        let application = Application::start(&program, &[], library);
        assert!(application.connect().ask(&ask("head")).closed);
        application.signal(Signal::PIPE);
        assert!(application.connect().ask(&ask("head")).closed);
        await_sleep(application.pid());
        application.signal(Signal::TERM);
        let (status, log) = application.end();
        assert!(status.success() && log == "accept: -1\n", "{library:?}: {log}");
    }
}

/// Until the process waits for something.
fn await_sleep(pid: u32) {
    sendoff_tests::wait::for_some("a sleeping process", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit(") ").next()?.starts_with('S').then_some(())
    });
}

#[test]
fn a_child_may_answer() {
    let program = program("probe");
    let seen = BOTH.map(|library| {
        let application = Application::start(&program, &[], library);
        [1, 2].map(|_| application.connect().ask(&ask("child")))
    });
    assert_eq!(seen[1], seen[0]);
    assert!(seen[1][1].text().ends_with("from a child"));
    let freed = BOTH.map(|library| {
        let application = Application::start(&program, &[], library);
        let freed = application.connect().ask(&ask("freed"));
        (freed, application.connect().ask(&ask("head")))
    });
    assert_eq!(freed[1], freed[0]);
}

#[test]
fn eight_threads_answer_at_once() {
    let program = program("probe");
    let application = Application::start(&program, &["8"], Library::Ours);
    std::thread::scope(|scope| {
        for thread in 0..8_u16 {
            let application = &application;
            scope.spawn(move || {
                let mut connection = application.connect();
                for round in 1..=300_u16 {
                    let body = pattern(thread.into(), usize::from(round) * 50);
                    let answer = connection.ask(&ask("echo").body(body.clone()).keep().id(round));
                    let head = b"Content-Type: text/plain\r\n\r\n".len();
                    assert!(answer.stdout[head..].starts_with(&body), "{thread} {round}");
                }
            });
        }
    });
}

#[test]
fn without_a_socket_it_is_cgi() {
    let (probe, stdio) = (program("probe"), program("stdio"));
    let seen = BOTH.map(|library| {
        let run = |program: &Path, query: &str| {
            let mut command = command(program, &[], library);
            let output = command.env("QUERY_STRING", query).stdin(Stdio::null());
            let output = output.env_remove("LD_LIBRARY_PATH_").output().unwrap();
            (output.status.code(), output.stdout, output.stderr)
        };
        ["read", "error", "exit", "files"]
            .map(|query| run(&stdio, query))
            .to_vec()
            .into_iter()
            .chain([run(&probe, "")])
            .collect::<Vec<_>>()
    });
    assert_eq!(seen[1], seen[0]);
    assert_eq!(seen[1][2].0, Some(9));
    assert_eq!(seen[1][4].2, b"this is CGI\n");
}

#[test]
fn an_aborted_request_is_ended() {
    let application = Application::start(&program("probe"), &[], Library::Ours);
    let asked = ask("echo");
    let mut begun = asked.head();
    // Before the record that ends the parameters, and in the body.
    begun.truncate(begun.len() - 8);
    for start in [begun, [asked.head(), vec![1, 5, 0, 1, 0, 1, 0, 0, b'x']].concat()] {
        let mut connection = application.connect();
        connection.send(&[start, vec![1, 2, 0, 1, 0, 0, 0, 0]].concat());
        let answer = connection.answer(1);
        assert_eq!((answer.stdout, answer.end), (Vec::new(), Some((0, 0))));
        assert!(connection.next().is_none());
    }
    assert!(application.connect().ask(&ask("head")).end.is_some());
}

/// Lines that a program has logged before it crashes arrive, except the last 4 KiB.
#[test]
fn a_crash_does_not_take_the_log_along() {
    let application = Application::start(&program("probe"), &[], Library::Ours);
    let answer = application.connect().ask(&ask("crash"));
    let log: String = (0..300).map(|line| format!("line {line} before the crash\n")).collect();
    assert!(answer.closed && answer.end.is_none());
    assert!(log.as_bytes().starts_with(&answer.stderr));
    assert!(answer.stderr.len() + 4096 >= log.len(), "{} of {}", answer.stderr.len(), log.len());
}

#[test]
fn valgrind_finds_nothing() {
    let program = program("probe");
    let actions = [
        "environment",
        "echo",
        "lines",
        "characters",
        "conversions",
        "sizes",
        "errors",
        "misuse",
        "flushes",
        "many",
        "nothing",
        "closed",
        "freed",
        "child",
        "filter",
        "authorize",
    ];
    let count = (actions.len() + 2).to_string();
    let arguments =
        ["-q", "--error-exitcode=9", "--leak-check=full", program.to_str().unwrap(), "1", &count];
    let application = Application::start(Path::new("/usr/bin/valgrind"), &arguments, Library::Ours);
    for action in actions {
        let asked =
            ask(action).body(pattern(8, 20_000)).role(if action == "filter" { 3 } else { 1 });
        let asked = Ask { data: (action == "filter").then(|| pattern(9, 9000)), ..asked };
        assert!(application.connect().ask(&asked).closed);
    }
    let mut kept = application.connect();
    for id in [1, 2] {
        assert!(kept.ask(&ask("echo").body(pattern(8, 20_000)).keep().id(id)).end.is_some());
    }
    let (status, log) = application.end();
    assert!(status.success() && log == "accept: 0\n", "{status}\n{log}");
}

/// FastCGI §2.2 lets programs start without descriptors 1 and 2.
#[test]
fn what_a_program_prints_is_no_part_of_an_answer() {
    let program = program("probe");
    let closing = ["-c", "exec \"$0\" >&- 2>&-", program.to_str().unwrap()];
    let application = Application::start(Path::new("/bin/sh"), &closing, Library::Ours);
    let answer = application.connect().ask(&ask("shout"));
    assert!(answer.text().ends_with("\r\n\r\nclosed"), "{answer:?}");
}

/// The client's side of the protocol: cgi-fcgi turns a CGI request into a FastCGI request, with
/// this library's functions.
#[test]
fn cgi_fcgi_connects() {
    let probe = program("probe");
    let body = pattern(7, 200_000);
    let seen = BOTH.map(|library| {
        // An exit status stays until another is set.
        let application = Application::start(&probe, &[], Library::Debian);
        let Address::Unix(socket) = &application.address else { unreachable!() };
        let arguments = ["-bind", "-connect", socket.to_str().unwrap()];
        ["keep", "environment", "large", "echo", "errors"].map(|query| {
            let mut command = command(Path::new("/usr/bin/cgi-fcgi"), &arguments, library);
            let length = if query == "keep" { body.len() } else { 0 };
            command.env("QUERY_STRING", query).env("CONTENT_LENGTH", length.to_string());
            command.env("REQUEST_METHOD", "POST").stdin(Stdio::piped());
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let mut stdin = child.stdin.take().unwrap();
            let unread = stdin.write_all(&body[..length]);
            drop(stdin);
            let output = child.wait_with_output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            let lines = text.lines().filter(|line| !line.starts_with("LD_LIBRARY_PATH="));
            let text: Vec<_> = lines.map(str::to_owned).collect();
            (unread.is_ok(), output.status.code(), text, output.stderr)
        })
    });
    for (theirs, ours) in seen[0].iter().zip(&seen[1]) {
        assert!(ours == theirs, "ours {ours:?}\nDebian's {theirs:?}");
    }
    assert!(seen[1][1].2.contains(&"QUERY_STRING=environment".to_owned()));
    assert_eq!(seen[1][4].1, Some(-7 & 0xff));
}

/// FCGI_WEB_SERVER_ADDRS.
#[test]
fn strangers_are_not_served() {
    let program = program("probe");
    for library in BOTH {
        let addresses = |list: &str| {
            let mut words = vec!["-u", "LD_LIBRARY_PATH"];
            let (list, path) =
                (format!("FCGI_WEB_SERVER_ADDRS={list}"), our_library().display().to_string());
            let path = format!("LD_LIBRARY_PATH={path}");
            words.push(&list);
            if library == Library::Ours {
                words.push(&path);
            }
            words.push(program.to_str().unwrap());
            let application = Application::start_tcp(Path::new("/usr/bin/env"), &words, library);
            application.connect().ask(&ask("head")).end
        };
        assert_eq!(addresses("192.0.2.1,127.0.0.1"), Some((0, 0)), "{library:?}");
        assert_eq!(addresses("192.0.2.1"), None, "{library:?}");
    }
}

/// A socket of the program's own.
#[test]
fn open_socket_listens() {
    let program = program("socket");
    for library in BOTH {
        let folder = application::Folder::new();
        let path = folder.0.join("own.sock");
        std::os::unix::net::UnixListener::bind(&path).unwrap();
        let listed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        for name in [path.to_str().unwrap().to_owned(), format!(":{}", listed.port())] {
            let mut child =
                command(&program, &[&name], library).stdin(Stdio::null()).spawn().unwrap();
            let mut connection = sendoff_tests::wait::for_some("a listener", || match &*name {
                unix if unix.starts_with('/') => {
                    Some(wire::Connection::new(std::os::unix::net::UnixStream::connect(unix).ok()?))
                }
                _ => Some(wire::Connection::new(std::net::TcpStream::connect(listed).ok()?)),
            });
            assert!(connection.ask(&ask("x")).text().ends_with("it listens"), "{library:?} {name}");
            assert!(child.wait().unwrap().success());
        }
    }
}
