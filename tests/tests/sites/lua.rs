//! Lua scripts in the server: the same scripts run in Debian's lighttpd, and the answers are equal.

use std::fmt::Write;

use sendoff_tests::{Lighttpd, Request, Response, Server, Site};

/// A script and when it runs.
enum Case {
    /// Before all routes, for paths that begin with its name.
    Before(&'static str, &'static str),
    /// For a folder with its name.
    Route(&'static str, &'static str),
    /// On the head of the response, for a folder with its name.
    Response(&'static str, &'static str),
}
use Case::{Before, Route};

/// Fields that both servers choose themselves.
const OWN: [&str; 6] = ["server", "date", "etag", "last-modified", "accept-ranges", "connection"];

/// Starts both servers with the same scripts and files.
fn both(site: &Site, cases: &[Case]) -> (Server, Lighttpd) {
    site.write("a.txt", "contents of a.txt");
    site.write("big.txt", "0123456789".repeat(10_000));
    let (mut ours, mut theirs, mut before) = (String::new(), String::new(), Vec::new());
    for case in cases {
        let (name, text, phase) = match case {
            Before(name, text) => (name, text, "before"),
            Route(name, text) => (name, text, "lua"),
            Case::Response(name, text) => (name, text, "lua_response"),
        };
        let text = text.replace("ROOT", site.root().to_str().unwrap());
        let only =
            format!("if lighty.env['uri.path']:find('/{name}', 1, true) ~= 1 then return 0 end ");
        let text = if phase == "before" { only + &text } else { text };
        let path = site.write_at(site.outside(&format!("{name}.lua")), text);
        let path = path.display();
        match phase {
            "before" => before.push(format!("\"{path}\"")),
            _ => {
                writeln!(ours, "[[site.route]]\nprefix = '/{name}'\n{phase} = '{path}'").unwrap();
                let option = if phase == "lua" { "physical-path" } else { "response-start" };
                writeln!(
                    theirs,
                    "$HTTP[\"url\"] =~ \"^/{name}(/|\\?|$)\" {{ magnet.attract-{option}-to = (\"{path}\") }}"
                )
                .unwrap();
            }
        }
    }
    let before = before.join(", ");
    let config = format!(
        "listen = '127.0.0.1:0'\nthreads = 1\n[[pool]]\nworkers = 1\n[[site]]\nroot = 'root'\n\
         front_controller = 'off'\nlua_before = [{before}]\n{ours}"
    );
    let config = site.write_at(site.outside("sendoff.toml"), config);
    let server = Server::try_run(&config, site.root(), 1);
    let server = server.unwrap_or_else(|failed| panic!("{}", failed.stderr));
    let lines = format!("magnet.attract-raw-url-to = ({before})\n{theirs}");
    (server, Lighttpd::start(site.root(), &lines))
}

/// The parts of a response on which both servers must agree. Error pages are each server's own.
fn shown(response: &Response, with_page: bool) -> String {
    let mut text = format!("{}\n", response.status());
    let mut fields: Vec<String> = Vec::new();
    for (name, value) in &response.head.headers {
        let name = name.to_ascii_lowercase();
        let is_of_page = ["content-type", "content-length"].contains(&&*name) && !with_page;
        // lighttpd removes fields of scripts from error pages; here they stay.
        let is_kept = name.starts_with("x-") && !with_page;
        if !OWN.contains(&&*name) && !is_of_page && !is_kept {
            fields.push(format!("{name}: {value}\n"));
        }
    }
    fields.sort();
    text.extend(fields);
    if with_page { text + &String::from_utf8_lossy(&response.body) } else { text }
}

/// Asks both, and notes the differences of their answers.
fn compare(
    server: &Server,
    lighttpd: &Lighttpd,
    request: &Request,
    differing: &mut String,
) -> Response {
    let (ours, theirs) = (server.ask(request), lighttpd.ask(request));
    let is_page = theirs.status() >= 400 && theirs.body.starts_with(b"<");
    let (us, them) = (shown(&ours, !is_page), shown(&theirs, !is_page));
    if us != them {
        let request = String::from_utf8_lossy(&request.bytes()).into_owned();
        let most = |text: &str| text.chars().take(1000).collect::<String>();
        let line = request.lines().next().unwrap_or_default();
        writeln!(differing, "{line}\n ours: {}\n theirs: {}", most(&us), most(&them)).unwrap();
    }
    ours
}

#[test]
fn answers_are_those_of_lighttpd() {
    let site = Site::new();
    let cases = [
        Route(
            "text",
            "lighty.header['Content-Type'] = 'text/plain' lighty.content = { 'a', 'b', 3 } return 200",
        ),
        Route(
            "files",
            "lighty.content = { '<', { filename = 'ROOT/a.txt' }, '|', { filename = 'ROOT/big.txt', offset = 5, length = 25 }, '>' } return 200",
        ),
        Route("big", "lighty.content = { { filename = 'ROOT/big.txt' } } return 200"),
        Route(
            "newfiles",
            "lighty.r.resp_body.set({ { filename = 'ROOT/big.txt', offset = 5, length = 25 }, 'x' }) lighty.r.resp_body.add('y') return 200",
        ),
        Route("none", "lighty.content = { 'a', { filename = '/does/not/exist' }, 'b' } return 200"),
        Route("wrong", "lighty.content = { 'a', true, 'b' } return 200"),
        Route("status", "lighty.content = { 'gone' } return 410"),
        Route("page", "lighty.header['X-Why'] = 'so' return 403"),
        Route("empty", "return 200"),
        Route("nothing", "lighty.header['X-A'] = '1' return 204"),
        Route(
            "redirect",
            "lighty.header['Location'] = 'http://' .. lighty.r.req_attr['uri.authority'] .. '/x' return 302",
        ),
        Route("auth", "lighty.header['WWW-Authenticate'] = 'Basic realm=\"x\"' return 401"),
        Route(
            "cookies",
            "lighty.r.resp_header['Set-Cookie'] = 'a=1\\r\\nSet-Cookie: b=2' return 200",
        ),
        Route(
            "rewritten",
            "lighty.env['physical.path'] = lighty.env['physical.doc-root'] .. '/a.txt'",
        ),
        Route("missing", "lighty.header['X-A'] = '1'"),
        Route("broken", "\nerror('no')"),
        Route("syntax", "if if"),
        Route(
            "method",
            "lighty.content = { lighty.env['request.method'], lighty.env['request.protocol'] } return 200",
        ),
        Route("globals", "x = (x or 0) + 1 lighty.content = { tostring(x) } return 200"),
        Route("send", "return lighty.stat('ROOT/big.txt')['http-response-send-file']"),
        Route(
            "send200",
            "local r = lighty.stat('ROOT/a.txt')['http-response-send-file'] return 200",
        ),
        Route(
            "send404",
            "local r = lighty.stat('ROOT/a.txt')['http-response-send-file'] return 404",
        ),
        Route(
            "send_content",
            "local r = lighty.stat('ROOT/a.txt')['http-response-send-file'] lighty.content = { 'text ', tostring(r) } return r",
        ),
        Route(
            "send_content_404",
            "local r = lighty.stat('ROOT/a.txt')['http-response-send-file'] lighty.content = { 'text' } return 404",
        ),
        Route(
            "content_send",
            "lighty.content = { 'text' } local r = lighty.stat('ROOT/a.txt')['http-response-send-file'] return r",
        ),
        Route(
            "send_body",
            "local r = lighty.stat('ROOT/a.txt')['http-response-send-file'] lighty.r.resp_body.set({ 'body' }) return 200",
        ),
        Route(
            "send_more",
            "local r = lighty.stat('ROOT/a.txt')['http-response-send-file'] lighty.r.resp_body.add({ 'body' }) return 200",
        ),
        Route(
            "body_send",
            "lighty.r.resp_body.set({ 'body' }) local r = lighty.stat('ROOT/a.txt')['http-response-send-file'] return r",
        ),
        Route(
            "dots",
            "lighty.env['physical.path'] = lighty.env['physical.doc-root'] .. '/response/../a.txt'",
        ),
        Route(
            "dots2",
            "lighty.env['physical.path'] = lighty.env['physical.doc-root'] .. '/.//./a.txt'",
        ),
        Route("stage", "lighty.content = { tostring(lighty.env['request.stage']) } return 200"),
        Route(
            "caught",
            "local t = {} \n\
             local function try(f, ...) \n\
                 local ok, e = pcall(f, ...) \n\
                 t[#t + 1] = type(e) .. ' ' .. tostring(tostring(e):match(':(%d+): ')) \n\
             end \n\
             try(function() string.rep() end) \n\
             try(function() lighty.stat({}) end) \n\
             try(function() error('own') end) \n\
             try(function() error({}) end) \n\
             try(function() lighty.r.req_item.nope = 1 end) \n\
             try(function() return lighty.r.req_item.nope end) \n\
             try(function() lighty.r.req_attr.nope = 'x' end) \n\
             try(function() lighty.c.hexenc({}) end) \n\
             try(function() local x = nil; x.y = 1 end) \n\
             try(coroutine.wrap(function() lighty.stat({}) end)) \n\
             lighty.content = { table.concat(t, '\\n') } return 200",
        ),
        Route("post", "lighty.content = { tostring(lighty.r.req_body.len) } return 200"),
        Route(
            "stat",
            "local s, d = lighty.stat('ROOT/a.txt'), lighty.stat('ROOT') lighty.content = { tostring(s.is_file), tostring(d.is_dir), tostring(s.st_size), tostring(s.st_mtime), tostring(s.st_ino), tostring(s['content-type']), tostring(lighty.stat('/none')) } return 200",
        ),
        Before("old", "lighty.env['request.uri'] = '/text?x' return lighty.RESTART_REQUEST"),
        Before(
            "before_old",
            "lighty.env['request.uri'] = '/attributes?x' return lighty.RESTART_REQUEST",
        ),
        Before("path", "lighty.env['uri.path'] = '/a.txt'"),
        Before("loop", "return lighty.RESTART_REQUEST"),
        Before(
            "body",
            "if not lighty.r.req_body.collect then return 0 end lighty.content = { lighty.r.req_body.get } return 200",
        ),
        Before(
            "fields",
            "local t = {} for k, v in pairs(lighty.request) do t[#t + 1] = k:lower() .. '=' .. v end table.sort(t) lighty.content = { table.concat(t, ';') } return 200",
        ),
        Before(
            "attributes",
            "local t = {} for _, k in ipairs { 'uri.path', 'uri.path-raw', 'uri.scheme', 'uri.query', 'request.uri', 'request.orig-uri', 'request.method', 'request.remote-ip', 'physical.path' } do t[#t + 1] = k .. '=' .. tostring(lighty.env[k]) end lighty.content = { table.concat(t, '\\n') } return 200",
        ),
        Case::Response(
            "response",
            "lighty.r.resp_header['X-Type'] = lighty.r.resp_header['Content-Type'] lighty.r.resp_header['X-Status'] = tostring(lighty.r.req_item.http_status)",
        ),
    ];
    site.write("response/a.txt", "a");
    let (server, lighttpd) = both(&site, &cases);
    let mut differing = String::new();
    for path in [
        "/text",
        "/text?q",
        "/files",
        "/big",
        "/newfiles",
        "/none",
        "/wrong",
        "/status",
        "/page",
        "/empty",
        "/nothing",
        "/redirect",
        "/auth",
        "/cookies",
        "/rewritten",
        "/missing",
        "/broken",
        "/syntax",
        "/method",
        "/globals",
        "/globals",
        "/send",
        "/stat",
        "/old",
        "/path",
        "/fields?a",
        "/attributes/a%20b?c=d%20e",
        "/attributes",
        "/response/a.txt",
        "/response/none",
        "/a.txt",
        "/send200",
        "/send404",
        "/send_content",
        "/send_content_404",
        "/content_send",
        "/send_body",
        "/send_more",
        "/body_send",
        "/dots",
        "/dots2",
        "/stage",
        "/caught",
        "/before_old?y",
    ] {
        compare(&server, &lighttpd, &Request::get(path), &mut differing);
    }
    for path in ["/text", "/big", "/send", "/rewritten"] {
        compare(&server, &lighttpd, &Request::new("HEAD", path), &mut differing);
    }
    for body in ["", "x", &"y".repeat(100_000)] {
        let post = Request::post("/body", "text/plain", body);
        // lighttpd 1.4.69 gives the bytes of the whole request in place of a short body.
        let response = if body.len() == 1 {
            server.ask(&post)
        } else {
            compare(&server, &lighttpd, &post, &mut differing)
        };
        assert_eq!(response.text(), body);
        let post = Request::post("/post", "text/plain", body);
        compare(&server, &lighttpd, &post, &mut differing);
    }
    let range = Request::get("/send").header("Range", "bytes=5-24");
    assert_eq!(compare(&server, &lighttpd, &range, &mut differing).status(), 206);
    assert!(differing.is_empty(), "{differing}\n{}\n{}", server.log(), lighttpd.log());
    server.await_log("broken.lua:2: no");
    // lighttpd closes the connection.
    server.get("/loop").expect(500);
    server.await_log("begun the request again 10 times");
}

#[test]
fn functions_give_what_lighttpd_gives() {
    let site = Site::new();
    let script = r#"
        local out, c = {}, lighty.c
        -- lighttpd 1.4.69 has two names the wrong way round
        local names = not sendoff and { bsenc = 'bsenc_json', bsenc_json = 'bsenc' } or {}
        local function add(name, ...)
            local values = table.pack(pcall(c[names[name] or name], ...))
            for i = 1, values.n do values[i] = tostring(values[i]) end
            if values[1] == 'true' then out[#out + 1] = name .. ' ' .. table.concat(values, ' ', 2, values.n) end
        end
        local texts = { '', 'a', 'ab', 'abc', 'abcd', 'a b/c?d=e&f+g%20h%zz', '"q\\"r"', '"q', 'x\\n\\x41\\u00e9\\101\\', '<a href="x">\'&amp;',
            'YWJj', 'YWI=', 'YWI', 'Y!', '616263', '6', '6G', '/a/b/../c/./d//e', '/../x', 'a/../b', '/a/..', '/a/b/.', '/', '..' }
        for _, text in ipairs(texts) do
            for _, name in ipairs { 'hexenc', 'hexdec', 'b64enc', 'b64dec', 'b64urlenc', 'b64urldec', 'quotedenc', 'quoteddec', 'bsdec', 'urldec', 'urlenc', 'fspath_simplify' } do
                add(name, text)
            end
            for _, hash in ipairs { 'md5', 'sha1', 'sha256', 'sha512', 'none' } do
                add('md', hash, text)
                -- lighttpd 1.4.69 gives the digest of both texts
                if hash ~= 'md5' then add('hmac', hash, 'secret', text) end
            end
        end
        for byte = 1, 255 do
            for _, name in ipairs { 'hexenc', 'b64enc', 'xmlenc', 'urlenc', 'quotedenc', 'bsenc' } do
                add(name, 'a' .. string.char(byte) .. 'b')
            end
            -- lighttpd writes \a and \v, which JSON does not have
            for _, name in ipairs(byte ~= 7 and byte ~= 11 and { 'bsenc_json' } or {}) do
                add(name, 'a' .. string.char(byte) .. 'b')
            end
            add('urldec', string.format('a%%%02xb', byte))
            add('urlenc_query', { [string.char(byte)] = string.char(byte) })
        end
        for _, uri in ipairs { '/a/../b', '/%41%2f%3f?%20a+b%26', '/a b', '/ä?ö', '/a//b/./c', '/a%2', '/%7e~' } do
            add('urlenc_normalize', uri)
        end
        for _, text in ipairs { 'a=1&b=2&a=3', 'a', '&&a=b=c&', 'x+y=%2b+z' } do
            local t = {}
            for k, v in pairs(c.urldec_query(text)) do t[#t + 1] = k .. '>' .. v end
            table.sort(t)
            out[#out + 1] = table.concat(t, ',')
        end
        for _, text in ipairs { 'a=1; b="x;y"; c', ' a = 1 ;;b', 'a="q\\"r" junk; d=' } do
            local t = {}
            for k, v in pairs(c.cookie_tokens(text)) do t[#t + 1] = k .. '>' .. v end
            table.sort(t)
            out[#out + 1] = table.concat(t, ',')
            out[#out + 1] = table.concat(c.header_tokens(text), '|')
        end
        out[#out + 1] = tostring(c.digest_eq('0aFF', '0AfF')) .. tostring(c.digest_eq('0a', '0b')) .. tostring(c.secret_eq('a', 'a')) .. tostring(c.secret_eq('a', 'ab'))
        lighty.content = { table.concat(out, '\n') }
        return 200
    "#;
    let (server, lighttpd) = both(&site, &[Route("functions", script)]);
    let request = Request::get("/functions");
    let (ours, theirs) = (server.ask(&request), lighttpd.ask(&request));
    let lines = |response: &Response| -> Vec<String> {
        response.body.split(|&b| b == b'\n').map(|line| line.escape_ascii().to_string()).collect()
    };
    let (ours, theirs) = (lines(&ours), lines(&theirs));
    // lighttpd after 1.4.69 also escapes what may be a control character of another encoding.
    let more: Vec<_> = (0x7f..=0x9f)
        .map(|byte: u8| {
            let escaped = format!("bsenc_json a\\\\u00{byte:02X}b");
            (format!("bsenc_json a\\x{byte:02x}b"), escaped)
        })
        .collect();
    let differing: Vec<_> = ours
        .iter()
        .zip(&theirs)
        .filter(|(ours, theirs)| ours != theirs)
        .filter(|(ours, theirs)| !more.contains(&(String::clone(ours), String::clone(theirs))))
        .collect();
    assert!(differing.is_empty(), "ours, theirs: {differing:#?}");
    assert_eq!(ours.len(), theirs.len());
    assert!(ours.len() > 2000, "{}\n{}", server.log(), lighttpd.log());
}

/// A site with one route and a script.
fn one(site: &Site, keys: &str) -> Server {
    let text = format!(
        "listen = '127.0.0.1:0'\nthreads = 1\n[[pool]]\nworkers = 1\n[[site]]\nroot = 'root'\n{keys}"
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    Server::try_run(&config, site.root(), 1).unwrap_or_else(|failed| panic!("{}", failed.stderr))
}

#[test]
fn a_script_that_takes_too_much_harms_no_other() {
    let site = Site::with("a.txt", "fine");
    site.write_at(site.outside("loop.lua"), "\nwhile true do end");
    site.write_at(site.outside("memory.lua"), "local s = 'x'\nwhile true do s = s .. s end");
    let server = one(
        &site,
        "[[site.route]]\npath = '/loop'\nlua = 'loop.lua'\n[[site.route]]\npath = '/memory'\nlua = 'memory.lua'\n",
    );
    for (path, why) in
        [("/loop", "loop.lua:2: the script takes more than"), ("/memory", "memory.lua")]
    {
        server.get(path).expect(500);
        server.await_log(why);
        assert_eq!(server.page("/a.txt"), "fine");
    }
}

#[test]
fn a_changed_script_runs_at_once() {
    let site = Site::new();
    site.write_at(site.outside("s.lua"), "lighty.content = { 'one' } return 200");
    let server = one(&site, "[[site.route]]\npath = '/s'\nlua = 's.lua'\n");
    assert_eq!(server.page("/s"), "one");
    site.write_at(site.outside("s.lua"), "lighty.content = { 'two!' } return 200");
    assert_eq!(server.page("/s"), "two!");
}

#[test]
fn a_script_protects_where_a_request_is_led() {
    let site = Site::with("private/secret.txt", "secret");
    site.write_at(site.outside("deny.lua"), "return 403");
    site.write_at(
        site.outside("env.lua"),
        "lighty.r.req_env['FROM_LUA'] = 'yes' lighty.r.req_header['X-Lua'] = 'set'",
    );
    site.write("p.php", "<?php echo $_SERVER['FROM_LUA'], $_SERVER['HTTP_X_LUA'];");
    site.write_at(site.outside("beside.txt"), "beside the root");
    site.write_at(
        site.outside("choose.lua"),
        "lighty.r.req_attr['physical.path'] = lighty.r.req_attr['physical.doc-root'] .. lighty.r.req_attr['uri.query']",
    );
    let server = one(
        &site,
        "[[site.route]]\npath = '/choose'\nlua = 'choose.lua'\n\
         [[site.route]]\nprefix = '/private'\nlua = 'deny.lua'\n[[site.route]]\npath = '/p.php'\nlua = 'env.lua'\n\
         [[site.route]]\npath = '/open'\nrewrite = '/private/secret.txt'\n",
    );
    server.get("/private/secret.txt").expect(403);
    server.get("/open").expect(403);
    assert_eq!(server.page("/p.php"), "yesset");
    // In every notation of the path, beneath the root or by way of a folder beside it.
    let root = site.root().file_name().unwrap().to_str().unwrap();
    for path in ["/private/secret.txt", "/x/../private/secret.txt", "/./private/./secret.txt"] {
        server.get(&format!("/choose?{path}")).expect(403);
    }
    server.get(&format!("/choose?/../{root}/private/secret.txt")).expect(403);
    server.get(&format!("/choose?/../x/../{root}/x/../private/secret.txt")).expect(403);
    assert_eq!(server.page("/choose?/../beside.txt"), "beside the root");
}

#[test]
fn scripts_ask_other_pages_of_the_site_and_wait() {
    let site = Site::with("file.txt", "a file");
    site.write("big.bin", vec![b'x'; (1 << 20) + 1]);
    site.write(
        "p.php",
        "<?php header('X-From: php'); http_response_code(201);
        echo $_SERVER['REQUEST_METHOD'], ' ', $_SERVER['REQUEST_URI'], ' ', $_SERVER['HTTP_X_A'] ?? 'none', ' ',
            $_SERVER['HTTP_COOKIE'] ?? 'none', ' ', $_SERVER['HTTP_RANGE'] ?? 'none', ' ', file_get_contents('php://input');",
    );
    site.write_at(
        site.outside("ask.lua"),
        "local a = sendoff.subrequest { path = '/p.php?q=1', method = 'POST', headers = { ['X-A'] = 'b', Cookie = false }, body = 'sent' }
        local b = sendoff.subrequest('/file.txt')
        local c, why = sendoff.subrequest('/big.bin')
        local d = sendoff.subrequest('/none')
        lighty.content = { a.status, ' ', a.headers['x-from'], ' ', a.body, '|', b.status, ' ', b.headers['content-type'], ' ', b.body, '|', tostring(c), ' ', why, '|', d.status }
        return 200",
    );
    site.write_at(
        site.outside("auth.lua"),
        "local a = sendoff.subrequest { path = '/check.php', method = 'HEAD' }
        if a.status ~= 204 then return 403 end
        lighty.r.req_env['USER_FROM_LUA'] = a.headers['x-user']",
    );
    site.write(
        "check.php",
        "<?php http_response_code(($_SERVER['HTTP_X_KEY'] ?? '') === 'good' ? 204 : 401); header('X-User: ' . $_SERVER['REQUEST_METHOD']);",
    );
    site.write("private/page.php", "<?php echo $_SERVER['USER_FROM_LUA'];");
    site.write_at(
        site.outside("deep.lua"),
        "local a, why = sendoff.subrequest('/deep') lighty.content = { a and a.body or why, '.' } return 200",
    );
    let server = one(
        &site,
        "[[site.route]]\npath = '/ask'\nlua = 'ask.lua'\n[[site.route]]\nprefix = '/private'\nlua = 'auth.lua'\n\
         [[site.route]]\npath = '/deep'\nlua = 'deep.lua'\n",
    );
    let request = Request::get("/ask").header("Cookie", "a=b").header("Range", "bytes=0-1");
    let answer = server.ask(&request);
    assert_eq!(
        answer.text(),
        "201 php POST /p.php?q=1 b none none sent|200 text/plain a file|nil the answer has more than 1048576 bytes|404",
        "{}",
        server.log()
    );
    server.get("/private/page.php").expect(403);
    let known = Request::get("/private/page.php").header("X-Key", "good");
    assert_eq!(server.ask(&known).text(), "HEAD");
    assert_eq!(server.page("/deep"), "subrequests lie 4 deep in one another.....");
}

#[test]
fn the_event_loop_goes_on_while_a_script_waits() {
    let site = Site::with("file.txt", "a file");
    let (started, wait) = (site.fifo("started"), site.fifo("wait"));
    site.write(
        "slow.php",
        "<?php file_put_contents(__DIR__ . '/started', 'x'); echo file_get_contents(__DIR__ . '/wait');",
    );
    site.write_at(
        site.outside("ask.lua"),
        "lighty.content = { sendoff.subrequest('/slow.php').body } return 200",
    );
    site.write_at(
        site.outside("hurry.lua"),
        "local a, why = sendoff.subrequest { path = '/slow.php', timeout = 0.05 } lighty.content = { tostring(a), why } return 200",
    );
    // It has one event loop and one worker.
    let server = one(
        &site,
        "[[site.route]]\npath = '/ask'\nlua = 'ask.lua'\n[[site.route]]\npath = '/hurry'\nlua = 'hurry.lua'\n",
    );
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| server.page("/ask"));
        started.await_script();
        assert_eq!(server.page("/file.txt"), "a file");
        // The only worker is busy.
        assert_eq!(server.page("/hurry"), "nilno answer came in time");
        assert!(!waiting.is_finished());
        wait.release();
        assert_eq!(waiting.join().unwrap(), "go");
    });
}

#[test]
fn explain_says_where_a_script_has_made_its_answer() {
    let site = Site::with("file.txt", "a file");
    site.write_at(
        site.outside("s.lua"),
        "local how = lighty.env['uri.query']
        if how == 'file' then return lighty.stat(lighty.env['physical.doc-root'] .. '/file.txt')['http-response-send-file'] end
        lighty.content = { 'some text' }
        return 200",
    );
    let server = one(&site, "[[site.route]]\npath = '/s'\nlua = 's.lua'\n");
    for (target, line) in [("/s", 3), ("/s?file", 2)] {
        let table = server.explain(target, &[]).unwrap();
        assert!(table.contains("answered by a Lua script"), "{table}");
        assert!(table.contains(&format!("s.lua:{line}")), "{table}");
    }
}
