//! The snapshot guard on file systems of every kind: a file that a lease guards is handed over, any
//! other is read plainly; either way the client receives the bytes that the script read.

use std::fs::{self, OpenOptions};
use std::io::{Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use sendoff_tests::mapper::Mapper;
use sendoff_tests::{Client, Fifo, Request, Server, Site, dies_with_us, pattern};

const SIZE: usize = 300_000;

/// A script that outputs the contents of a file, then the number of bytes that left as a file.
const SCRIPT: &str = "<?php
    $s = file_get_contents($_GET['f']);
    file_put_contents('has-read', 'yes');
    file_get_contents('go-on');
    echo $s, '|', sendoff_stats()['handed_over_bytes'];";

/// A site, a server on it, and a barrier between a script's read and its output.
struct Scene {
    server: Server,
    has_read: Fifo,
    go_on: Fifo,
    site: Site,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    AsFile,
    AsBytes,
}

impl Scene {
    fn new(settings: &[&str]) -> Self {
        Self::on(Site::new(), settings)
    }

    fn on(site: Site, settings: &[&str]) -> Self {
        site.write("page.php", SCRIPT);
        let (has_read, go_on) = (site.fifo("has-read"), site.fifo("go-on"));
        let options: Vec<_> = settings.iter().flat_map(|setting| ["--php-ini", setting]).collect();
        let server = Server::start(site.root(), &options);
        Self { server, has_read, go_on, site }
    }

    /// Lets a script read a file, calls `meddle`, then lets the script output the file. Returns the
    /// way in which the file left.
    #[track_caller]
    fn read_and(&self, file: &Path, meddle: impl FnOnce()) -> Left {
        let expected = fs::read(file).unwrap();
        let mut client = Client::connect(self.server.addr());
        client.send(Request::get(&format!("/page.php?f={}", file.display())).bytes());
        self.has_read.await_script();
        meddle();
        self.go_on.release();
        let body = client.response("GET").body;
        let (contents, handed_over) = body.split_at(expected.len());
        assert!(contents == expected, "{}: not what the script read", file.display());
        match handed_over {
            b"|0" => Left::AsBytes,
            _ => Left::AsFile,
        }
    }

    /// All changes of a file, one after the other.
    #[track_caller]
    fn survives_writers(&self, file: &Path, expected: Left) {
        let left = |expected, meddle: &dyn Fn()| {
            fs::write(file, pattern(1, SIZE)).unwrap();
            assert_eq!(self.read_and(file, meddle), expected, "{}", file.display());
        };
        left(expected, &|| {});
        // When its lease breaks, a file becomes bytes.
        let writing = || OpenOptions::new().write(true).open(file).unwrap();
        left(Left::AsBytes, &|| writing().write_all_at(&pattern(2, SIZE), 0).unwrap());
        left(Left::AsBytes, &|| fs::write(file, pattern(2, SIZE)).unwrap());
        left(Left::AsBytes, &|| writing().set_len(10).unwrap());
    }
}

/// Runs a scenario in its own process with its own mount namespace. `test`: the name of the test.
fn with_own_mounts(test: &str, scenario: impl FnOnce()) {
    const INSIDE: &str = "SENDOFF_OWN_MOUNTS";
    if std::env::var_os(INSIDE).is_some() {
        scenario();
    } else {
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--propagation", "private"]).arg(std::env::current_exe().unwrap());
        // A mount point cannot be removed; outside of the namespace nothing is mounted.
        let outer = Site::new();
        unshare.env(INSIDE, "").env("TMPDIR", outer.root());
        let status = unshare.args(["--exact", test, "--nocapture"]).status();
        assert!(status.unwrap().success());
    }
}

fn mount(arguments: &[&str], at: &Path) {
    let status = Command::new("mount").args(arguments).arg(at).status().unwrap();
    assert!(status.success(), "mount {arguments:?}");
}

/// An overlay with a file in the lower layer at `merged`.
fn overlay(site: &Site) {
    // An overlay's upper layer cannot be an overlay.
    mount(&["-t", "tmpfs", "layers"], &site.folder("layers"));
    let layer = |name: &str| site.folder(&format!("layers/{name}")).display().to_string();
    site.write("layers/lower/f", pattern(1, SIZE));
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        layer("lower"),
        layer("upper"),
        layer("work")
    );
    mount(&["-t", "overlay", "overlay", "-o", &options], &site.folder("merged"));
}

#[test]
fn a_plain_file_system() {
    let scene = Scene::new(&[]);
    scene.survives_writers(&scene.site.write("f", ""), Left::AsFile);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root: mounts")]
fn tmpfs_as_root() {
    with_own_mounts("tmpfs_as_root", || {
        let site = Site::new();
        mount(&["-t", "tmpfs", "tmpfs"], &site.folder("mnt"));
        let scene = Scene::on(site, &[]);
        scene.survives_writers(&scene.site.write("mnt/f", ""), Left::AsFile);
    });
}

/// A lease on overlayfs does not cover a writable mapping whose descriptor is closed.
#[test]
#[cfg_attr(not(root), ignore = "needs root: mounts")]
fn overlayfs_as_root() {
    with_own_mounts("overlayfs_as_root", || {
        let site = Site::new();
        overlay(&site);
        let scene = Scene::on(site, &[]);
        let file = scene.site.path("merged/f");
        let mapper = Mapper::compile(&scene.site);
        let mut mapping = mapper.start();
        for letter in ['a', 'b', 'c'] {
            mapping.keep(&file);
            assert_eq!(scene.read_and(&file, || mapping.write_to_kept(letter)), Left::AsBytes);
        }
        scene.survives_writers(&file, Left::AsBytes);
    });
}

#[test]
#[cfg_attr(not(root), ignore = "needs root: mounts")]
fn overlayfs_by_choice_and_read_only_as_root() {
    with_own_mounts("overlayfs_by_choice_and_read_only_as_root", || {
        let site = Site::new();
        overlay(&site);
        let scene = Scene::on(site, &["sendoff.overlayfs=1"]);
        // The first writer copies the file of the lower layer to the upper layer.
        let file = scene.site.path("merged/f");
        assert_eq!(scene.read_and(&file, || fs::write(&file, "new").unwrap()), Left::AsBytes);
        scene.survives_writers(&file, Left::AsFile);
        drop(scene);

        let site = Site::new();
        overlay(&site);
        mount(&["-o", "remount,ro"], &site.path("merged"));
        let scene = Scene::on(site, &[]);
        assert_eq!(scene.read_and(&scene.site.path("merged/f"), || {}), Left::AsFile);
    });
}

/// A file system in user space may change a file in ways that no lease tells of.
#[test]
#[cfg_attr(not(root), ignore = "needs root: mounts")]
fn fuse_as_root() {
    with_own_mounts("fuse_as_root", || {
        let site = Site::new();
        let (behind, mnt) = (site.folder("behind"), site.folder("mnt"));
        let mut bindfs = dies_with_us(Path::new("bindfs"), "KILL");
        bindfs.args(["-o", "allow_other", "-f"]);
        let mut bindfs = bindfs.arg(&behind).arg(&mnt).spawn().unwrap();
        let scene = Scene::on(site, &[]);
        let original = scene.site.write("behind/f", pattern(1, SIZE));
        let file = mnt.join("f");
        // As long as nothing is mounted there is no such file.
        // (Without bindfs, a package that `tools/install test` installs, there will never be.)
        sendoff_tests::wait::for_some("the mount", || file.exists().then_some(()));
        scene.survives_writers(&file, Left::AsBytes);
        fs::write(&file, pattern(1, SIZE)).unwrap();
        let behind_its_back = || fs::write(&original, "short").unwrap();
        assert_eq!(scene.read_and(&file, behind_its_back), Left::AsBytes);
        drop(scene);
        bindfs.kill().unwrap();
        bindfs.wait().unwrap();
    });
}

#[test]
fn a_file_that_somebody_has_open_for_writing_or_mapped() {
    let scene = Scene::new(&[]);
    let file = scene.site.write("f", pattern(1, SIZE));
    let mapper = Mapper::compile(&scene.site);
    let mut mapping = mapper.start();
    mapping.keep(&file);
    assert_eq!(scene.read_and(&file, || mapping.write_to_kept('m')), Left::AsBytes);
    drop(mapping);

    let file = scene.site.write("g", pattern(1, SIZE));
    let mut open = OpenOptions::new().write(true).open(&file).unwrap();
    let write = || {
        open.write_all(&pattern(2, SIZE)).unwrap();
        open.rewind().unwrap();
    };
    assert_eq!(scene.read_and(&file, write), Left::AsBytes);
}
