//! Properties of a pool: user, root directory, environment, settings and limits.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::TempDir;
use crate::common::link::Request;
use crate::common::master::{Master, pool};
use sendoff_config::{PoolConfig, SlowLog};
use sendoff_pool_messages::ToMaster;

fn pair(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

/// The output of a script that is the only request of a pool's worker.
fn run(pool: PoolConfig, code: &str) -> String {
    let (dir, master) = (TempDir::new(), Master::start_pool(pool, Stdio::inherit()));
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(dir.path().join("a.php"), format!("<?php {code}")).unwrap();
    master.worker().link().ask(&Request::new(&dir.file("a.php"))).body()
}

/// Exit status and messages of a master that does not start.
fn refusal(pool: PoolConfig) -> (Option<i32>, String) {
    let mut master = Master::start_pool(pool, Stdio::piped());
    let (status, said) = master.said();
    (status.code(), said)
}

#[test]
fn scripts_see_their_user_and_the_listed_variables_and_no_others() {
    let code = "$all = array_diff_key(getenv(), ['USER' => 1, 'HOME' => 1]);
        $cgi = array_filter($all, fn($key) => strlen($key) < 4, ARRAY_FILTER_USE_KEY);
        echo json_encode([$cgi, isset($_SERVER['USER'], $_SERVER['HOME'], $_SERVER['CARGO']), $_SERVER['A'] ?? '',
            trim(`env | sort | grep -v ^_= | tr '\\n' ' '`)]);";
    let bare = run(PoolConfig { php_ini: vec!["variables_order=EGPCS".into()], ..pool() }, code);
    let account = if cfg!(root) { "HOME=/root PWD=" } else { "HOME=" };
    assert!(
        bare.starts_with("[[],false,\"\",\"") && bare.contains(&account.replace('/', "\\/")),
        "{bare}"
    );
    let environment = vec![pair("A", "b c=d"), pair("HOME", "/elsewhere")];
    let listed = run(PoolConfig { environment, ..pool() }, code);
    assert!(
        listed.starts_with("[{\"A\":\"b c=d\"},false,\"b c=d\",\"A=b c=d HOME=\\/elsewhere "),
        "{listed}"
    );
}

#[test]
fn files_get_the_permissions_that_the_umask_leaves() {
    let code =
        "file_put_contents(__DIR__ . '/f', ''); printf('%o', fileperms(__DIR__ . '/f') & 0777);";
    assert_eq!(run(PoolConfig { umask: Some(0o027), ..pool() }, code), "640");
    assert_eq!(run(PoolConfig { umask: Some(0), ..pool() }, code), "666");
}

#[test]
fn what_follows_a_script_runs_in_the_folder_of_the_pool() {
    let code = "register_shutdown_function(fn() => print(' ' . getcwd())); echo getcwd() === __DIR__ ? 'own' : getcwd();";
    assert_eq!(run(pool(), code), "own /");
    assert_eq!(run(PoolConfig { chdir: "/usr".into(), ..pool() }, code), "own /usr");
}

/// `getgrnam` needs a file that the new root does not have; groups and names are looked up before
/// the change.
#[test]
#[cfg_attr(not(root), ignore = "needs root: it changes the root directory")]
fn a_chroot_hides_everything_outside_and_is_entered_by_the_user_of_the_pool() {
    let dir = TempDir::new();
    fs::create_dir(dir.path().join("site")).unwrap();
    let code = "<?php echo __FILE__, ' ', getcwd(), ' ', $_SERVER['USER'], ' ', posix_getuid(), ' ', count(posix_getgroups()), ' ',
        var_export(is_dir('/usr'), true), ' ', implode(' ', scandir('/'));";
    fs::write(dir.path().join("site/a.php"), code).unwrap();
    let account = Some(sendoff_config::Account { uid: 33, gid: 33 });
    let pool = PoolConfig { chroot: Some(dir.path().to_owned()), account, ..pool() };
    let master = Master::start_pool(pool, Stdio::inherit());
    let body = master.worker().link().ask(&Request::new("/site/a.php")).body();
    let groups = Command::new("id").args(["-G", "www-data"]).output().unwrap().stdout;
    let groups =
        groups.split(|byte| byte.is_ascii_whitespace()).filter(|group| !group.is_empty()).count();
    assert_eq!(body, format!("/site/a.php /site www-data 33 {groups} false . .. site"));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root: it is about what root must not do")]
fn a_pool_without_a_user_does_not_run_as_root() {
    let (code, said) = refusal(PoolConfig { account: None, ..pool() });
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("pool default names no user, and scripts do not run as root"), "{said}");
    assert_eq!(run(pool(), "echo posix_getuid();"), "0");
}

#[test]
fn scripts_change_values_and_cannot_change_admin_values() {
    let pool = || PoolConfig {
        php_ini: vec!["memory_limit=64M".into(), "precision=5".into()],
        php_values: vec![
            pair("memory_limit", "96M"),
            pair("highlight.string", "a'b;\"c\" ${HOME}\\"),
        ],
        php_admin_values: vec![
            pair("precision", "7"),
            pair("disable_functions", "strrev,exec"),
            pair("error_log", "/x;y"),
        ],
        ..pool()
    };
    let code = "echo json_encode([ini_get('memory_limit'), ini_set('memory_limit', '97M'), ini_get('memory_limit'),
        ini_get('precision'), ini_set('precision', '9'), ini_get('precision'), ini_get('error_log'), ini_set('error_log', ''),
        ini_get('highlight.string'), function_exists('strrev'), ini_get_all('core')['precision']['access'] ?? ini_get_all()['precision']['access']]);";
    assert_eq!(
        run(pool(), code),
        r#"["96M","96M","97M","7",false,"7","\/x;y",false,"a'b;\"c\" ${HOME}\\",false,4]"#
    );
}

/// `.user.ini` files change only settings that scripts may change.
#[test]
fn user_ini_files_cannot_change_admin_values() {
    let dir = TempDir::new();
    fs::write(dir.path().join(".user.ini"), "precision=3\nserialize_precision=4\n").unwrap();
    fs::write(
        dir.path().join("a.php"),
        "<?php echo ini_get('precision'), ini_get('serialize_precision');",
    )
    .unwrap();
    let values = vec![pair("serialize_precision", "5")];
    let pool =
        PoolConfig { php_values: values, php_admin_values: vec![pair("precision", "7")], ..pool() };
    let master = Master::start_pool(pool, Stdio::inherit());
    assert_eq!(master.worker().link().ask(&Request::new(&dir.file("a.php"))).body(), "74");
}

#[test]
fn a_worker_gets_no_more_memory_than_its_limit() {
    let code = "echo 'used '; echo strlen(str_repeat('x', 100 << 20)), \"\\n\";";
    let with = |limit| PoolConfig {
        memory_limit: limit,
        php_ini: vec!["memory_limit=-1".into()],
        ..pool()
    };
    assert_eq!(run(with(None), code), "used 104857600\n");
    assert_eq!(run(with(Some(300 << 20)), code), "used 104857600\n");
    let (dir, master) = (TempDir::new(), Master::start_pool(with(Some(80 << 20)), Stdio::piped()));
    fs::write(dir.path().join("a.php"), format!("<?php {code}")).unwrap();
    let mut worker = master.worker();
    worker.link().send(&Request::new(&dir.file("a.php")));
    // Its version decides whether PHP ends the process, as if the machine had no memory left, or the
    // script only.
    let expected = match worker.link().response() {
        None => "Out of memory",
        Some(response) => {
            let body = response.body();
            assert!(!body.contains("104857600"), "{body}");
            "Cannot allocate memory"
        }
    };
    // What a worker has said is logged before the next one takes its place.
    drop(worker);
    master.worker();
    let said = master.end();
    assert!(said.contains(expected), "{said}");
}

#[test]
fn settings_that_make_no_sense_are_refused_and_unknown_ones_are_named() {
    for (setting, complaint) in [
        (
            "memory_limit=lots",
            "the PHP setting memory_limit=lots makes no sense: expected a number, as 1000 or 128M",
        ),
        ("post_max_size=8 parsecs", "the PHP setting post_max_size=8 parsecs makes no sense"),
        (
            "log_errors=perhaps",
            "the PHP setting log_errors=perhaps makes no sense: expected On or Off",
        ),
    ] {
        let (code, said) = refusal(PoolConfig { php_ini: vec![setting.into()], ..pool() });
        assert!(
            code == Some(2) && said.contains(&format!("sendoff-php: {complaint}")),
            "{code:?} {said}"
        );
        let (name, value) = setting.split_once('=').unwrap();
        let (code, said) =
            refusal(PoolConfig { php_admin_values: vec![pair(name, value)], ..pool() });
        assert!(
            code == Some(2) && said.contains(&format!("sendoff-php: {complaint}")),
            "{code:?} {said}"
        );
    }
    let good = [
        "memory_limit=1G",
        "memory_limit=-1",
        "log_errors=yes",
        "post_max_size=0x10K",
        "error_reporting=E_ALL & ~E_NOTICE",
        "date.timezone=\"Europe/Berlin\"",
        "sendoff.threshold=0",
        "opcache.memory_consumption=64",
    ];
    let php_ini = good.map(str::to_owned).to_vec();
    for (extra, complaint) in [
        (None, ""),
        (
            Some("memorylimit=1"),
            "sendoff-php: PHP and its extensions know no setting memorylimit: it has no effect\n",
        ),
    ] {
        let php_ini = php_ini.iter().cloned().chain(extra.map(str::to_owned)).collect();
        let master = Master::start_pool(PoolConfig { php_ini, ..pool() }, Stdio::piped());
        // Kept open, because the master would replace a worker whose links are closed.
        let _worker = master.worker();
        assert_eq!(master.end(), complaint);
    }
}

/// The slow log has php-fpm's format, and the script does not notice it: its sleep is not
/// shortened.
#[test]
fn a_slow_script_is_logged_with_its_backtrace_and_goes_on() {
    let dir = TempDir::new();
    let log = dir.path().join("slow.log");
    let code = "<?php
        class Shop { static function buy($how) { return $how(); } }
        function wait() { global $slept; $slept = [microtime(true), usleep(2000000), microtime(true)]; }
        eval('Shop::buy(\"wait\");');
        echo $slept[2] - $slept[0] >= 2 ? 'whole' : 'cut';";
    fs::write(dir.path().join("a.php"), code).unwrap();
    let slow_log = Some(SlowLog { after: Duration::from_secs(1), path: log.clone() });
    let pool = PoolConfig { slow_log, name: "shop".into(), ..pool() };
    let master = Master::start_pool(pool, Stdio::inherit());
    let mut worker = master.worker();
    worker.link().send(&Request::new(&dir.file("a.php")));
    let pid = worker.pid.as_raw_nonzero().get();
    let deadline = Instant::now() + Duration::from_millis(1800);
    // Repeat until the script sleeps.
    let text = loop {
        master.tell(&ToMaster::Trace { pid: pid.unsigned_abs() });
        let text = fs::read_to_string(&log).unwrap_or_default();
        if text.contains("usleep") || Instant::now() > deadline {
            break text;
        }
        std::thread::yield_now();
    };
    let entry = text.split("\n\n").find(|entry| entry.contains("usleep")).unwrap_or(&text);
    let lines: Vec<&str> = entry.trim().lines().collect();
    let file = dir.file("a.php");
    assert!(
        lines[0].starts_with('[') && lines[0].ends_with(&format!("]  [pool shop] pid {pid}")),
        "{entry}"
    );
    assert_eq!(lines[1], format!("script_filename = {file}"));
    let calls: Vec<&str> = lines[2..].iter().map(|line| line.split_once("] ").unwrap().1).collect();
    let expected = [
        format!("usleep() {file}:3"),
        format!("wait() {file}:2"),
        format!("buy() {file}(4) : eval()'d code:1"),
        format!("[INCLUDE_OR_EVAL]() {file}:4"),
    ];
    assert_eq!(calls, expected, "{text}");
    assert_eq!(worker.link().response().unwrap().body(), "whole");
    assert_eq!(fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
}
