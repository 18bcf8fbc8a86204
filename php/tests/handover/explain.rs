//! Reports of workers about their output when the front asks (`EXPLAIN`). Most reasons are tested
//! with the whole server; this test needs a worker that may not take leases.

use std::fs;

use crate::common::TempDir;
use crate::common::link::Request;
use crate::common::master::Master;
use sendoff_fastcgi::RecordPart;
use sendoff_fastcgi::record::Kind;

#[test]
#[cfg_attr(not(root), ignore = "needs root: runs workers as another user")]
fn a_file_of_somebody_else_has_no_lease() {
    let master = Master::start_unprivileged();
    let mut worker = master.worker();
    let dir = TempDir::new();
    let folder = dir.path().display().to_string();
    fs::write(dir.path().join("theirs"), vec![b'x'; 50_000]).unwrap();
    let code = "<?php $s = file_get_contents(__DIR__ . '/theirs');\necho $s;";
    fs::write(dir.path().join("index.php"), code).unwrap();

    let request = Request::new(&format!("{folder}/index.php"));
    worker.link().send(&request.with("SENDOFF_ACCEPT", "file explain"));
    let (mut said, mut body) = (Vec::new(), 0);
    loop {
        match worker.link().part().expect("the worker closed the link") {
            RecordPart::Record { kind: Kind::END_REQUEST, .. } => break,
            RecordPart::Record { kind: Kind::EXPLAIN, content, .. } => {
                said.push(String::from_utf8(content.to_vec()).unwrap());
            }
            RecordPart::Stream { kind: Kind::STDOUT, data, .. } => body += data.len(),
            _ => {}
        }
    }
    assert!(body > 50_000);
    let read = format!("file_get_contents({folder}/theirs)");
    let why = "no lease: EACCES (not the owner, no CAP_LEASE): give the file to the user of the pool, or start the server as root";
    let expected = [
        format!("read\t{folder}/index.php:1\t{read}\t{why}"),
        format!("bytes\t{folder}/index.php:2\techo\t{read}: {why}"),
    ];
    assert_eq!(said, expected);
}
