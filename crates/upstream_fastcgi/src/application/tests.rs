//! Applications that know handover, on kept connections.

use std::io;
use std::os::fd::AsFd;

use sendoff_delivery::segment::Segment;
use sendoff_fastcgi::handover::{ACCEPT_PARAM, ACCEPT_REGION};
use sendoff_message::request::Body;
use sendoff_upstream::fastcgi_request::RequestMessageBuilder;
use tokio::time::timeout;

use super::*;

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let test = async { timeout(Duration::from_secs(20), test).await };
    tokio::task::LocalSet::new().block_on(&runtime, test).expect("it hangs");
}

/// The response to one request: its bytes, and the number of them that lie in shared memory.
async fn ask(application: &Arc<Application>, accept: Option<&[u8]>) -> (Vec<Bytes>, usize) {
    let mut builder = RequestMessageBuilder::new();
    if let Some(words) = accept {
        builder.param(ACCEPT_PARAM, words);
    }
    let message = Rc::new(builder.streamed(&Body::Memory(Bytes::new())));
    let exchange =
        application.begin(message, Reuse::Any, SentAlong::Nothing, "GET /".into()).await.unwrap();
    let (mut all, mut lent) = (Vec::new(), 0);
    loop {
        match exchange.next().await {
            Event::Segment(Segment::Bytes(bytes)) => all.push(bytes),
            Event::Piece(bytes) => {
                lent += bytes.len();
                all.push(bytes);
            }
            Event::End(_) => return (all, lent),
            other => panic!("{other:?}"),
        }
    }
}

/// An application that was started elsewhere announces the capability, and only then gets
/// permission.
#[test]
fn applications_share_memory_over_kept_connections() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let body: Vec<u8> = (0..200_000_u32).map(|i| (i >> 3).to_le_bytes()[0]).collect();
    let written = body.clone();
    let served = std::thread::spawn(move || {
        let connection = listener.accept().unwrap().0;
        let mut worker = sendoff_worker::Worker::new(vec![connection.into()], None).unwrap();
        let mut requests = 0;
        while worker.accept() {
            assert_eq!(worker.params_with_nul().len(), 0, "the parameter is not for scripts");
            worker.write_head(b"\r\n").unwrap();
            worker.write(&written).unwrap();
            worker.finish(0, false);
            requests += 1;
        }
        requests
    });
    run(async {
        let address = format!("unix:{}", path.display()).parse().unwrap();
        let application = Application::new(address, Duration::from_secs(20));
        assert!(!application.knows_region());
        let (first, lent) = ask(&application, None).await;
        assert!(application.knows_region() && lent == 0);
        // The pieces of a response may still be in flight when the connection serves the next
        // request.
        let mut held = vec![first];
        for _ in 0..5 {
            let (pieces, lent) = ask(&application, Some(ACCEPT_REGION)).await;
            assert_eq!(lent, body.len());
            held.push(pieces);
        }
        for pieces in held {
            let bytes = pieces.concat();
            assert!(bytes[2..] == body, "{} bytes", bytes.len());
        }
    });
    assert_eq!(served.join().unwrap(), 6);
}

/// Lends the socket only on a connection whose last answer announced that the application can use
/// it.
#[test]
fn applications_write_to_clients_over_kept_connections() {
    use sendoff_fastcgi::direct::Client;
    use sendoff_fastcgi::handover::Sockets;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let served = std::thread::spawn(move || {
        let connection = listener.accept().unwrap().0;
        let mut worker = sendoff_worker::Worker::new(vec![connection.into()], None).unwrap();
        while worker.accept() {
            worker.write_head(b"Content-Length: 100000\r\n\r\n").unwrap();
            worker.write(&[b'x'; 100_000]).unwrap();
            worker.finish(0, false);
        }
    });
    let (ours, mut theirs) = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let theirs = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, theirs)
    };
    run(async {
        let address = format!("unix:{}", path.display()).parse().unwrap();
        let application = Application::new(address, Duration::from_secs(20));
        for round in 0..3 {
            let mut builder = RequestMessageBuilder::new();
            builder.lend(Client {
                http_10: false,
                keep_alive: true,
                encrypted: false,
                fields: b"A: b\r\n",
            });
            let message = Rc::new(builder.streamed(&Body::Memory(Bytes::new())));
            let client = SentAlong::Client(ours.as_fd());
            let begun = application.begin(message, Reuse::Any, client, "GET /".into()).await;
            let exchange = begun.unwrap();
            let Event::Sent(sent) = exchange.next().await else {
                assert_eq!(round, 0, "it keeps what it is lent");
                while !exchange.next().await.is_last() {}
                continue;
            };
            assert!(round > 0 && !sent.gone && sent.wire > 100_000);
            let mut wire = vec![0; usize::try_from(sent.wire).unwrap()];
            io::Read::read_exact(&mut theirs, &mut wire).unwrap();
            assert!(wire.starts_with(b"HTTP/1.1 200 OK\r\n") && wire.ends_with(b"xxx"));
            assert!(matches!(exchange.next().await, Event::End(_)));
            assert_eq!(application.knows_direct(), Sockets::All);
        }
    });
    served.join().unwrap();
}

/// The client leaves while its request is sent: the application sees the connection end inside the
/// request, and the next request gets a new connection.
#[test]
fn a_request_given_up_while_it_is_sent_closes_its_connection() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let (begun, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let (left, go_on) = std::sync::mpsc::channel();
    let served = std::thread::spawn(move || {
        let mut first = listener.accept().unwrap().0;
        io::Read::read_exact(&mut first, &mut [0; 16]).unwrap();
        begun.send(()).unwrap();
        go_on.recv().unwrap();
        let mut rest = Vec::new();
        // A part of the request, and then the end of the stream or a reset.
        let _reset = io::Read::read_to_end(&mut first, &mut rest);
        let connection = listener.accept().unwrap().0;
        let mut worker = sendoff_worker::Worker::new(vec![connection.into()], None).unwrap();
        while worker.accept() {
            worker.write_head(b"\r\n").unwrap();
            worker.finish(0, false);
        }
        rest.len()
    });
    run(async {
        let address = format!("unix:{}", path.display()).parse().unwrap();
        let application = Application::new(address, Duration::from_secs(20));
        let body = Body::Memory(vec![b'x'; 10_000_000].into());
        let message = Rc::new(RequestMessageBuilder::new().streamed(&body));
        let exchange = application
            .begin(message, Reuse::Any, SentAlong::Nothing, "POST /".into())
            .await
            .unwrap();
        seen.recv().await.unwrap();
        drop(exchange);
        left.send(()).unwrap();
        ask(&application, None).await;
    });
    assert!(served.join().unwrap() < 10_000_000);
}
