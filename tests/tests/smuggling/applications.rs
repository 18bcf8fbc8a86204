//! Applications that note the ids of their requests: the id in the target, and the ids that the
//! servers before them have read.

use std::any::Any;
use std::cell::Cell;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::rc::Rc;

use sendoff_tests::{Fpm, LIMIT, Site, dies_with_us, processes, tomcat, wait};

/// A request that an application has answered.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) id: String,
    /// The id that Sendoff has read.
    pub(crate) sendoff: String,
    pub(crate) haproxy: String,
}

/// An application behind Sendoff.
pub(crate) struct Application {
    path: &'static str,
    /// The handler of its route; empty for PHP scripts.
    handler: String,
    /// An entry of the site's table of FastCGI applications.
    fastcgi: Option<String>,
    log: PathBuf,
    /// Bytes of the log that have been read.
    read: Cell<usize>,
    /// The running process; it ends when the value is dropped.
    _process: Rc<dyn Any>,
}

const SCRIPT: &str = "<?php
file_put_contents('LOG', implode(' ', [$_SERVER['QUERY_STRING'], $_SERVER['HTTP_X_SENDOFF'] ?? '-', $_SERVER['HTTP_X_HAPROXY'] ?? '-']) . \"\\n\",
    FILE_APPEND | LOCK_EX);
file_get_contents('php://input');
echo 'answered ', $_SERVER['QUERY_STRING'], ';';
";

const WSGI: &str = r"
import os
def application(env, start):
    line = ' '.join([env['QUERY_STRING'], env.get('HTTP_X_SENDOFF', '-'), env.get('HTTP_X_HAPROXY', '-')]) + '\n'
    log = os.open('LOG', os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, line.encode('latin-1'))
    os.close(log)
    env['wsgi.input'].read()
    start('200 OK', [('Content-Type', 'text/plain')])
    return [('answered ' + env['QUERY_STRING'] + ';').encode('latin-1')]
";

const JSP: &str = r#"<%@ page contentType="text/plain; charset=UTF-8" %><%@ page import="java.io.*" %><%
String sendoff = request.getHeader("X-Sendoff"), haproxy = request.getHeader("X-Haproxy");
synchronized (application) {
    FileWriter log = new FileWriter("LOG", true);
    log.write(request.getQueryString() + " " + (sendoff == null ? "-" : sendoff) + " " + (haproxy == null ? "-" : haproxy) + "\n");
    log.close();
}
InputStream in = request.getInputStream();
while (in.read() >= 0);
out.print("answered " + request.getQueryString() + ";");
%>"#;

/// A process that ends with its application, and its children.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        for process in processes::descendants(self.0.id()) {
            processes::signal(process, rustix::process::Signal::KILL);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Application {
    fn new(site: &Site, path: &'static str, process: Rc<dyn Any>) -> Self {
        let log = log(site, path);
        Self {
            path,
            handler: String::new(),
            fastcgi: None,
            log,
            read: Cell::new(0),
            _process: process,
        }
    }

    /// A script that the server's own workers run.
    pub(crate) fn workers(site: &Site) -> Self {
        let path = "/workers.php";
        let this = Self::new(site, path, Rc::new(()));
        site.write(&path[1..], SCRIPT.replace("LOG", &this.log.display().to_string()));
        this
    }

    /// A script that php-fpm runs.
    pub(crate) fn php_fpm(site: &Site) -> Self {
        let fpm = Fpm::start(site.root(), "");
        let fastcgi = format!("'.php' = '{}'", fpm.address());
        let path = "/fpm.php";
        let this = Self { fastcgi: Some(fastcgi), ..Self::new(site, path, Rc::new(fpm)) };
        site.write(&path[1..], SCRIPT.replace("LOG", &this.log.display().to_string()));
        this
    }

    /// Python over HTTP. Its connections are kept.
    pub(crate) fn gunicorn(site: &Site) -> Self {
        let path = "/python";
        let socket = site.outside("python.sock");
        let text = WSGI.replace("LOG", &log(site, path).display().to_string());
        site.write_at(site.outside("smuggled.py"), text);
        let child = dies_with_us(Path::new("/usr/bin/gunicorn"), "KILL")
            .args(["-w", "1", "-k", "gthread", "--threads", "4", "--umask", "0", "-b"])
            .arg(format!("unix:{}", socket.display()))
            .arg("smuggled:application")
            .current_dir(site.outside(""))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("gunicorn (tools/install test)");
        wait::for_some("gunicorn", || UnixStream::connect(&socket).ok());
        let handler = format!("proxy = 'http://unix:{}'", socket.display());
        Self { handler, ..Self::new(site, path, Rc::new(Process(child))) }
    }

    /// Java over HTTP and over AJP.
    pub(crate) fn tomcat(site: &Site) -> [Self; 2] {
        let base = site.outside("tomcat");
        let connectors = r#"<Connector protocol="HTTP/1.1" address="127.0.0.1" port="0"/>
            <Connector protocol="AJP/1.3" address="127.0.0.1" port="0" secretRequired="false"/>"#;
        let mut command = tomcat(&base, connectors, &[]);
        for path in ["/http", "/ajp"] {
            let page = JSP.replace("LOG", &log(site, path).display().to_string());
            fs::write(base.join(format!("webapps/ROOT{path}.jsp")), page).unwrap();
        }
        let output = base.join("logs/out");
        let log = fs::File::create(&output).unwrap();
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn();
        let child = child.expect("java (tools/install java)");
        let said = || fs::read_to_string(&output).unwrap();
        assert!(wait::until(8 * LIMIT, || said().contains("Server startup in")), "{}", said());
        let port = |name: &str| {
            let said = said();
            let rest = said.split(name).nth(1).unwrap_or_else(|| panic!("{said}"));
            rest.split('"').next().unwrap().to_owned()
        };
        let process: Rc<dyn Any> = Rc::new(Process(child));
        [
            ("/http", "http", "http-nio-127.0.0.1-auto-1-"),
            ("/ajp", "ajp", "ajp-nio-127.0.0.1-auto-2-"),
        ]
        .map(|(path, scheme, name)| {
            let handler = format!("proxy = '{scheme}://127.0.0.1:{}'", port(name));
            Self { handler, ..Self::new(site, path, Rc::clone(&process)) }
        })
    }

    /// The path that it answers.
    pub(crate) fn path(&self) -> String {
        match self.path {
            "/http" | "/ajp" => format!("{}.jsp", self.path),
            path => path.to_owned(),
        }
    }

    /// Its route.
    pub(crate) fn route(&self) -> String {
        if self.handler.is_empty() {
            return String::new();
        }
        format!("[[site.route]]\npath = '{}'\n{}\n", self.path(), self.handler)
    }

    pub(crate) fn fastcgi(&self) -> Option<String> {
        self.fastcgi.clone()
    }

    /// The requests that it has answered since the last call.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        let text = fs::read(&self.log).unwrap();
        let new = &text[self.read.get()..];
        let whole = new.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        self.read.set(self.read.get() + whole);
        let lines = String::from_utf8_lossy(&new[..whole]).into_owned();
        let seen = lines.lines().map(|line| {
            let mut words = line.split(' ');
            // Some applications take blanks of Unicode from the end of a field.
            let mut word = || words.next().unwrap_or_default().trim_end_matches(';').to_owned();
            Seen { id: word(), sendoff: word(), haproxy: word() }
        });
        seen.collect()
    }
}

/// The file in which the application at a path notes its requests.
fn log(site: &Site, path: &str) -> PathBuf {
    let log = site.outside(&format!("{}.log", &path[1..]));
    if !log.exists() {
        site.write_at(log.clone(), "");
    }
    log
}
