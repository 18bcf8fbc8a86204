//! The snapshot guard has no effect that a script or its children could notice.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;

use crate::common::TempDir;
use crate::common::front::{Front, Piece};
use crate::common::link::Request;
use crate::common::master::Master;
use crate::common::site::{Site, bytes, content};
use rustix::fs::OFlags;
use rustix::process::{Signal, kill_process};

/// Quickly made contents for many files, different for each number.
fn numbered(number: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![b'x'; len];
    bytes[..8].copy_from_slice(format!("{number:08}").as_bytes());
    bytes
}

/// Runs a script in a worker with limits on descriptors, `soft:hard`; returns its output.
fn ask_with_descriptors(limits: &str, code: &str) -> Vec<Piece> {
    let mut command = Command::new("prlimit");
    command.arg(format!("--nofile={limits}")).arg(env!("CARGO_BIN_EXE_sendoff-php"));
    let master = Master::spawn(&mut command, &["--php-ini", "display_errors=1"]);
    let dir = TempDir::new();
    for i in 0..200 {
        fs::write(dir.path().join(format!("f{i}")), numbered(i, 17_000)).unwrap();
    }
    fs::write(dir.path().join("a.php"), format!("<?php $d = __DIR__; {code}")).unwrap();
    Front::new(master.worker()).ask(&Request::new(&dir.file("a.php")))
}

/// If held files used low descriptors, the script's numbers would run out, or be too high for
/// select(2).
#[test]
fn a_script_may_open_as_many_files_as_ever() {
    for (limits, opened, held) in
        [("1024:20000", 980, 128), ("1024:1024", 900, 50), ("256:256", 200, 10)]
    {
        let code = format!(
            r#"for ($i = 0; $i < 200; $i++) $s[] = file_get_contents("$d/f$i");
            while (count($open ?? []) < {opened}) $open[] = fopen(__FILE__, 'r');
            $pair = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
            fwrite($pair[0], 'x');
            $read = [$pair[1]];
            $none = null;
            echo 'ready: ', stream_select($read, $none, $none, 0), ';', fread($pair[1], 9);
            foreach ($s as $one) echo $one;"#
        );
        let pieces = ask_with_descriptors(limits, &code);
        assert_eq!(pieces[0], bytes("ready: 1;x"), "{limits}");
        let files = pieces.iter().filter(|piece| matches!(piece, Piece::File(_))).count();
        assert!(files >= held, "{limits}: {files} files");
        let body: Vec<u8> = pieces.into_iter().flat_map(Piece::into_bytes).skip(10).collect();
        let expected: Vec<u8> = (0..200).flat_map(|i| numbered(i, 17_000)).collect();
        assert!(body == expected, "{limits}: wrong bytes");
    }
}

/// The worker raises the limit to move a descriptor above it, and restores it.
#[test]
fn a_script_sees_the_limit_it_was_given() {
    let code = r#"readfile("$d/f1"); echo json_encode(posix_getrlimit()['soft openfiles']);
        while (is_resource($f = @fopen(__FILE__, 'r'))) $open[] = $f;
        echo ' ', count($open) > 1000;"#;
    let pieces = ask_with_descriptors("1024:20000", code);
    assert_eq!(pieces.last(), Some(&bytes("1024 1")));
}

/// The kernel limits a process to 65530 mappings. Scripts may need them.
#[test]
fn thousands_of_files_in_one_request_take_few_mappings() {
    let mut site = Site::new("memory_limit=256M");
    for i in 0..3000 {
        site.file(&format!("f{i}"), &numbered(i, 16_384));
    }
    let pieces = site.ask(
        r#"$count = fn () => substr_count(file_get_contents('/proc/self/maps'), "\n");
        $before = $count();
        for ($i = 0; $i < 3000; $i++) $s[] = file_get_contents("$d/f$i");
        $after = $count();
        foreach ($s as $one) echo $one;
        echo $after - $before;"#,
    );
    let body: Vec<u8> = pieces.into_iter().flat_map(Piece::into_bytes).collect();
    let (contents, mappings) = body.split_at(3000 * 16_384);
    let expected: Vec<u8> = (0..3000).flat_map(|i| numbered(i, 16_384)).collect();
    assert!(contents == expected, "wrong bytes");
    let mappings: usize = std::str::from_utf8(mappings).unwrap().parse().unwrap();
    assert!((128..1500).contains(&mappings), "{mappings} mappings");
}

#[test]
fn a_child_process_has_no_part_in_held_files() {
    let dir = TempDir::new();
    let master = Master::start(&[]);
    let worker = master.worker();
    let pid = worker.pid;
    let mut front = Front::new(worker);
    fs::write(dir.path().join("held"), content("a", 50_000)).unwrap();
    let fifo = dir.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    let code = r#"<?php chdir(__DIR__); readfile('held');
        $p = proc_open(['ls', '-l', '/proc/self/fd'], [1 => ['pipe', 'w']], $pipes);
        echo stream_get_contents($pipes[1]), `ls -l /proc/self/fd`;
        exec('cat fifo > /dev/null 2>&1 &');"#;
    fs::write(dir.path().join("a.php"), code).unwrap();
    let pieces = front.ask(&Request::new(&dir.file("a.php")));
    let [Piece::File(_), Piece::Bytes(listed)] = &pieces[..] else { panic!("{pieces:?}") };
    let listed = String::from_utf8_lossy(listed);
    assert!(listed.contains("/dev/pts") || listed.contains("pipe:"), "{listed}");
    for ours in ["held", "socket:", "eventfd", "signalfd"] {
        assert!(!listed.contains(ours), "{ours}: {listed}");
    }
    // The child of exec() lives on. After the end of the worker and the front, the file is no
    // longer guarded.
    kill_process(pid, Signal::KILL).unwrap();
    drop(front);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let opened_for_writing = |path: &std::path::Path| {
        let nonblock = OFlags::NONBLOCK.bits().cast_signed();
        while let Err(e) = OpenOptions::new().write(true).custom_flags(nonblock).open(path) {
            assert!(std::time::Instant::now() < deadline, "{}: {e}", path.display());
            std::thread::yield_now();
        }
    };
    opened_for_writing(&dir.path().join("held"));
    // It is alive, and may only now reach its open(2).
    opened_for_writing(&fifo);
}

/// Workers keep the one capability that permits leases on files of other users (CAP_LEASE).
#[test]
#[cfg_attr(not(root), ignore = "needs root: runs workers as another user")]
fn a_file_of_somebody_else_is_handed_over_with_the_capability() {
    let master = Master::start(&["--uid", "65534", "--gid", "65534"]);
    let mut front = Front::new(master.worker());
    let dir = TempDir::new();
    let theirs = content("theirs", 50_000);
    fs::write(dir.path().join("theirs"), &theirs).unwrap();
    fs::write(dir.path().join("a.php"), r#"<?php readfile(__DIR__ . "/theirs");"#).unwrap();
    assert_eq!(front.ask(&Request::new(&dir.file("a.php"))), [Piece::File(theirs)]);
}
