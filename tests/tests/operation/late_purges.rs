//! Requests that a reload or an upgrade leaves behind purge fragments that new processes have made
//! meanwhile (docs/fragments.md).

use std::path::PathBuf;

use sendoff_tests::{Request, Server, Site, binary, wait};

use crate::upgrade::{end, successor};

/// The fragment counts its runs.
const PAGE: &str = "<?php sendoff_fragment('k', 600, function () { $runs = '../runs';
    file_put_contents($runs, '.', FILE_APPEND); echo 'run ', filesize($runs); }, ['post-1']);";

/// The same in the server.
const SCRIPT: &str = "lighty.content = { sendoff.fragment('k', 600, function()
        return 'run ' .. sendoff.shared.incr('runs')
    end, { 'post-1' }) }
    return 200";

/// The same in a pool of a program.
const PROGRAM: &str = "lighty.content = { sendoff.fragment('k', 600, function()
        return 'made ' .. lighty.c.rand()
    end, { 'post-1' }) }
    return 200";

/// Waits, and then purges in its own way.
const LATE: &str = "<?php file_get_contents($_GET['pipe']);
if ($_GET['by'] == 'function') sendoff_fragment_purge(['post-1']);
elseif ($_GET['by'] == 'everything') sendoff_fragment_purge();
else header('X-LiteSpeed-Purge: ' . $_GET['by']);
echo 'purged';";

/// The ways, and the fragments that they concern: of PHP, of the server's scripts, and of a program.
const WAYS: [(&str, [bool; 3]); 5] = [
    ("tag=post-2", [false, false, false]),
    ("tag=post-1", [true, true, true]),
    ("*", [true, true, true]),
    ("function", [true, false, false]),
    ("everything", [true, false, false]),
];

/// `version` is a setting of both pools: another one replaces them.
fn configure(site: &Site, version: u32) -> PathBuf {
    let text = format!(
        "listen = '127.0.0.1:0'\nthreads = 1\npage_cache_folder = 'pages'\n\
         [[pool]]\nname = 'shop'\nworkers = 6\nphp_ini = {{ user_agent = 'v{version}' }}\n\
         [[pool]]\nname = 'program'\ncommand = ['{}']\nenv = {{ VERSION = '{version}' }}\n\
         workers = 1\nfragments = '8M'\n\
         [[site]]\nroot = 'root'\npage_cache = 'lscache'\nfront_controller = 'off'\n\
         pool = 'shop'\nfastcgi = {{ '.lua' = 'pool:program' }}\n\
         [[site.route]]\npath = '/script'\nlua = 'script.lua'\n",
        binary().with_file_name("sendoff-lua").display()
    );
    site.write_at(site.outside("sendoff.toml"), text)
}

fn start() -> (Site, Server) {
    let site = Site::with("page.php", PAGE);
    site.write("late.php", LATE);
    site.write("version.php", "<?php echo ini_get('user_agent');");
    site.write_at(site.outside("script.lua"), SCRIPT);
    site.write("program.lua", PROGRAM);
    let server = Server::try_run_with(&configure(&site, 0), site.root(), 6, 1);
    (site, server.unwrap_or_else(|failed| panic!("{}", failed.stderr)))
}

/// `change` replaces processes by others of version 1 while requests wait, which then purge.
fn purge_late(site: &Site, server: &Server, change: impl FnOnce()) {
    let late = WAYS.iter().enumerate().map(|(number, (by, concerned))| {
        let pipe = format!("pipe{number}");
        let (fifo, mut client) = (site.fifo(&pipe), server.connect());
        client.send(Request::get(&format!("/late.php?by={by}&pipe={pipe}")).bytes());
        (fifo.hold(), client, by, concerned)
    });
    let late: Vec<_> = late.collect();
    configure(site, 1);
    change();
    // The old server may still take a connection.
    let mut new = wait::for_some("the new version", || {
        let mut client = server.connect();
        (client.ask(&Request::get("/version.php")).text() == "v1").then_some(client)
    });
    let mut fragments =
        || ["/page.php", "/script", "/program.lua"].map(|page| new.ask(&Request::get(page)).text());
    let mut before = fragments();
    for (held, mut client, by, concerned) in late {
        assert_eq!(fragments(), before, "{by}: they are kept");
        drop(held);
        assert_eq!(client.response("GET").text(), "purged");
        let after = fragments();
        let are_new = [0, 1, 2].map(|number| after[number] != before[number]);
        assert_eq!(are_new, *concerned, "{by}");
        before = after;
    }
}

#[test]
fn requests_before_a_reload_purge_fragments_of_a_new_pool() {
    let (site, server) = start();
    purge_late(&site, &server, || {
        let said = server.command(&["reload"]).unwrap();
        assert!(said.contains("new workers in 2 pools"), "{said}");
    });
}

#[test]
fn requests_before_an_upgrade_purge_fragments_of_the_new_server() {
    let (site, server) = start();
    let mut new = 0;
    purge_late(&site, &server, || new = successor(&server.command(&["upgrade"]).unwrap()));
    end(new, server);
}
