//! A site for tests: two of its files may be sent by an application, the third may not.

use sendoff_config::{Accel, Site};
use sendoff_site_files::sendable::Sendable;

/// `root/a` ("A") and `more/b` ("BB") may be sent by their paths, `accel/d e` may not.
pub(crate) fn site() -> (tempfile::TempDir, Sendable) {
    let dir = tempfile::tempdir().unwrap();
    for (name, contents) in [("root/a", "A"), ("more/b", "BB"), ("accel/d e", "DDDD")] {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, contents).unwrap();
    }
    let accel = Accel { prefix: "/protected".to_owned(), folder: dir.path().join("accel") };
    let sendable = Sendable::open(&Site {
        sendfile_from: vec![dir.path().join("more")],
        accel: vec![accel],
        ..Site::new(dir.path().join("root"))
    });
    (dir, sendable.unwrap())
}
