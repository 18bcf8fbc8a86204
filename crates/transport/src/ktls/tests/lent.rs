//! Sockets that are lent while the kernel encrypts: bytes that a borrower has written or left in an
//! open record, and the end. `make ktls` runs these tests.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use bytes::BytesMut;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use rustls::{ClientConnection, StreamOwned};

use super::super::{KernelTls, accept, kernel_has_tls, settle};
use super::{VERSIONS, configs};
use crate::{Tcp, Transport};

/// Longest time that a client may take nothing.
const LIMIT: Duration = Duration::from_secs(20);

type Client = StreamOwned<ClientConnection, TcpStream>;

/// Calls `test` with a connection and its client, for each version of TLS. `narrow`: both sockets
/// have small buffers.
fn with_pairs<Test: Future<Output = ()>>(narrow: bool, test: impl Fn(KernelTls, Client) -> Test) {
    assert!(
        kernel_has_tls(),
        "this kernel has no TLS: tools/ktls runs the test in a virtual machine"
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for version in VERSIONS {
        let (config, connection) = configs(version);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(LIMIT)).unwrap();
        let (server, _) = listener.accept().unwrap();
        if narrow {
            set_socket_send_buffer_size(&server, 30_000).unwrap();
            set_socket_recv_buffer_size(&client, 10_000).unwrap();
        }
        server.set_nonblocking(true).unwrap();
        let mut client = StreamOwned::new(connection, client);
        let shaking = std::thread::spawn(move || {
            client.conn.complete_io(&mut client.sock).unwrap();
            client
        });
        runtime.block_on(async {
            let tcp = Tcp::new(tokio::net::TcpStream::from_std(server).unwrap());
            let accepted = accept(tcp, BytesMut::new(), config, |_| Ok(()), &mut None).await;
            let (connection, ()) = accepted.unwrap_or_else(|failure| panic!("{failure}"));
            test(connection, shaking.join().unwrap()).await;
        });
    }
}

fn borrow(connection: &mut KernelTls) -> OwnedFd {
    connection.lend().unwrap().try_clone_to_owned().unwrap()
}

/// Writes as a worker does. Returns the number of bytes that the socket has accepted.
fn write(socket: &OwnedFd, bytes: &[u8], more: SendFlags) -> usize {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL | more;
    sendmsg(socket, &[IoSlice::new(bytes)], &mut SendAncillaryBuffer::default(), flags).unwrap_or(0)
}

/// Bytes that depend on their position.
fn pattern(len: usize) -> Vec<u8> {
    (0..=250).cycle().take(len).collect()
}

/// Sends everything, in as many pieces as the socket requires.
async fn send_all(connection: &mut KernelTls, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match connection.try_send(&[IoSlice::new(bytes)], false) {
            Ok(n) => bytes = &bytes[n..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::future::poll_fn(|cx| connection.poll_writable(cx)).await.unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Ends the connection as the front does.
async fn end(connection: KernelTls) {
    let ktls = connection.ktls();
    drop(connection);
    settle(&ktls, LIMIT).await;
}

/// All bytes up to the end, and true if the connection ended in good order.
fn rest(mut client: Client) -> (Vec<u8>, bool) {
    let mut all = Vec::new();
    let is_whole = client.read_to_end(&mut all).is_ok();
    (all, is_whole)
}

#[test]
#[ignore = "needs TLS by the kernel: make ktls"]
fn what_a_borrower_writes_is_counted_and_the_front_goes_on_behind_it() {
    with_pairs(false, async |mut connection, client| {
        send_all(&mut connection, b"before,").await;
        for size in [1, 16_384, 16_385, 50_000] {
            let socket = borrow(&mut connection);
            assert_eq!(connection.written_elsewhere().unwrap(), 0..=0);
            assert_eq!(write(&socket, &pattern(size), SendFlags::empty()), size);
            let records = size.div_ceil(1 << 14) as u64;
            assert_eq!(connection.written_elsewhere().unwrap(), size as u64..=records << 14);
            connection.resume(size as u64);
            assert_eq!(connection.written_elsewhere().unwrap(), 0..=0);
            send_all(&mut connection, b",then,").await;
        }
        assert_eq!(connection.sent(), 7 + 1 + 16_384 + 16_385 + 50_000 + 4 * 6);
        let reading = std::thread::spawn(move || rest(client));
        end(connection).await;
        let pieces =
            [1, 16_384, 16_385, 50_000].map(|size| [&pattern(size)[..], b",then,"].concat());
        assert!(reading.join().unwrap() == ([b"before,", &pieces.concat()[..]].concat(), true));
    });
}

/// An open record takes in the next bytes and is in no counter of the kernel.
#[test]
#[ignore = "needs TLS by the kernel: make ktls"]
fn what_a_borrower_has_left_open_is_noticed() {
    with_pairs(false, async |mut connection, client| {
        let socket = borrow(&mut connection);
        assert_eq!(write(&socket, b"open", SendFlags::MORE), 4);
        let written = connection.written_elsewhere().unwrap();
        assert!(*written.start() == 4 && *written.end() > 0, "{written:?}");
        connection.resume(4);
        send_all(&mut connection, b"closed").await;
        // No record is open, so the socket may be lent again.
        drop(borrow(&mut connection));
        connection.resume(0);
        end(connection).await;
        assert_eq!(rest(client), (b"openclosed".to_vec(), true));
    });
}

#[test]
#[ignore = "needs TLS by the kernel: make ktls"]
fn a_full_socket_loses_nothing() {
    let all = pattern(400_000);
    with_pairs(true, async |mut connection, client| {
        let socket = borrow(&mut connection);
        let mut taken = 0;
        loop {
            match write(&socket, &all[taken..], SendFlags::empty()) {
                0 => break,
                n => taken += n,
            }
        }
        drop(socket);
        let written = connection.written_elsewhere().unwrap();
        assert!(written.contains(&(taken as u64)), "{taken}: {written:?}");
        // Impossible numbers.
        assert!(!written.contains(&0) && !written.contains(&(all.len() as u64)), "{written:?}");
        connection.resume(taken as u64);
        // The kernel holds bytes that TCP does not have.
        assert!(*written.start() < taken as u64 && connection.lend().is_none(), "{written:?}");
        let reading = std::thread::spawn(move || rest(client));
        send_all(&mut connection, &all[taken..]).await;
        end(connection).await;
        assert!(reading.join().unwrap() == (all.clone(), true));
    });
}

/// No matter how far the borrower has got, the client does not see an end in good order.
#[test]
#[ignore = "needs TLS by the kernel: make ktls"]
fn the_end_of_a_borrower_is_not_that_of_the_connection() {
    for more in [SendFlags::empty(), SendFlags::MORE] {
        for len in [0, 10, 16_384, 40_000] {
            with_pairs(false, async |mut connection, client| {
                let socket = borrow(&mut connection);
                write(&socket, &pattern(len), more);
                drop(socket);
                let is_untouched = *connection.written_elsewhere().unwrap().end() == 0;
                assert_eq!(is_untouched, len == 0);
                end(connection).await;
                let (all, is_whole) = rest(client);
                assert!(!is_whole && pattern(len).starts_with(&all), "{} of {len}", all.len());
            });
        }
    }
}

/// The snapshot guard relies on this: bytes that the kernel has accepted do not change, even if TCP
/// has no room for them.
#[test]
#[ignore = "needs TLS by the kernel: make ktls"]
fn what_was_written_does_not_change_any_more() {
    for more in [SendFlags::empty(), SendFlags::MORE] {
        with_pairs(true, async |mut connection, client| {
            let socket = borrow(&mut connection);
            let mut buffer = vec![0; 20_000];
            let (mut expected, mut turn) = (Vec::new(), 0_u8);
            loop {
                turn = turn.wrapping_add(1);
                buffer.fill(turn);
                match write(&socket, &buffer, more) {
                    0 => break,
                    n => expected.resize(expected.len() + n, turn),
                }
            }
            buffer.fill(0xff);
            drop(socket);
            let written = connection.written_elsewhere().unwrap();
            assert!(written.contains(&(expected.len() as u64)), "{}: {written:?}", expected.len());
            connection.resume(expected.len() as u64);
            let reading = std::thread::spawn(move || rest(client));
            end(connection).await;
            assert!(reading.join().unwrap() == (expected, true));
        });
    }
}

/// The front sends no alert to a client that breaks the protocol while another process writes.
#[test]
#[ignore = "needs TLS by the kernel: make ktls"]
fn only_the_borrower_writes_to_a_lent_socket() {
    with_pairs(false, async |mut connection, mut client| {
        let socket = borrow(&mut connection);
        client
            .sock
            .write_all(&[
                23, 3, 3, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            ])
            .unwrap();
        let mut buffer = BytesMut::with_capacity(100);
        let read = std::future::poll_fn(|cx| connection.poll_read(cx, &mut buffer)).await;
        assert!(read.is_err(), "{read:?}");
        assert_eq!(connection.written_elsewhere().unwrap(), 0..=0);
        assert_eq!(write(&socket, b"late", SendFlags::empty()), 4);
        drop(socket);
        end(connection).await;
        let mut seen = [0; 4];
        client.read_exact(&mut seen).unwrap();
        assert_eq!((&seen, rest(client)), (b"late", (Vec::new(), false)));
    });
}

#[test]
#[ignore = "needs TLS by the kernel: make ktls"]
fn nothing_is_lent_that_has_ended_or_whose_keys_are_nearly_used_up() {
    with_pairs(false, async |mut connection, _client| {
        assert!(connection.lend().is_some());
        connection.resume(0);
        connection.wants_new_keys = true;
        assert!(connection.lend().is_none());
        connection.wants_new_keys = false;
        assert!(connection.lend().is_some());
        connection.resume(0);
        connection.ktls.borrow_mut().use_up();
        assert!(connection.lend().is_none());
    });
    with_pairs(false, async |mut connection, _client| {
        connection.cut();
        assert!(connection.lend().is_none());
    });
}

/// A read may report the end of the connection to the front. To a borrower that writes the kernel
/// may then report complete success.
#[test]
#[ignore = "needs TLS by the kernel: make ktls"]
fn a_connection_that_is_gone_has_no_peer() {
    with_pairs(false, async |mut connection, mut client| {
        let socket = borrow(&mut connection);
        assert!(write(&socket, &pattern(100_000), SendFlags::empty()) > 0);
        client.read_exact(&mut [0; 10]).unwrap();
        drop(client);
        let mut buffer = BytesMut::with_capacity(100);
        let read = std::future::poll_fn(|cx| connection.poll_read(cx, &mut buffer)).await;
        assert!(read.is_err(), "{read:?}");
        write(&socket, b"into the void", SendFlags::empty());
        assert_eq!(rustix::net::getpeername(&socket).unwrap_err(), rustix::io::Errno::NOTCONN);
    });
}
