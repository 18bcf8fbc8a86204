//! `.htaccess` files have the same meaning as for Debian's Apache: status, `Location`, header
//! fields, and the resulting file or script with its query, path info, variables and settings.

mod cases;
mod driver;

use cases::{Asked, Case};
use driver::{Answered, Disk, Driver, TYPES};
use sendoff_tests::{Apache, Response, Site};

/// Fields that the protocol adds, or that the server makes without a look at the rules.
const SERVERS_OWN: [&str; 9] = [
    "date",
    "server",
    "connection",
    "keep-alive",
    "content-length",
    "transfer-encoding",
    "accept-ranges",
    "last-modified",
    "upgrade",
];

fn host_of(case: &Case, apache: &Apache) -> String {
    format!("{}:{}", case.host, apache.addr().port())
}

fn ours(case: &Case, asked: &Asked, apache: &Apache) -> Answered {
    let (disk, host) = (Disk::new(&case.root), host_of(case, apache));
    let driver = Driver {
        disk: &disk,
        server: apache.addr(),
        client: ([127, 0, 0, 1], 1).into(),
        host: &host,
        method: &asked.method,
        target: &asked.target,
        fields: &asked.sent(&host),
    };
    driver.answer()
}

/// Brings both answers into a form in which they must be equal.
fn comparable(theirs: &Response, ours: &mut Answered) -> Answered {
    let status = theirs.status();
    let fields = theirs.head.headers.iter();
    let fields = fields.map(|(name, value)| (name.to_lowercase(), value.clone()));
    let mut fields: Vec<_> =
        fields.filter(|(name, _)| !SERVERS_OWN.contains(&name.as_str())).collect();
    fields.sort();
    for (name, value) in &mut fields {
        if name == "etag" {
            *value = "some".to_owned();
        }
    }
    // Apache removes the blanks of this list.
    for (_, value) in fields.iter_mut().chain(&mut ours.fields).filter(|(name, _)| name == "vary") {
        value.retain(|char| char != ' ');
    }
    let mut body = Some(theirs.text());
    // The text of an error page is the server's own, and so is its type.
    if ours.body.is_none() {
        body = None;
        for fields in [&mut fields, &mut ours.fields] {
            fields
                .retain(|(name, value)| name != "content-type" || !value.starts_with("text/html"));
        }
    }
    Answered { status, fields, body }
}

#[test]
fn same_as_apache() {
    let site = Site::new();
    let cases = cases::parse(&cases::corpus(), &site);
    let hosts: Vec<_> = cases.iter().map(|case| (case.host.clone(), case.root.clone())).collect();
    let apache = Apache::start(&hosts, TYPES, "");
    let (mut failures, mut count) = (Vec::new(), 0);
    for case in &cases {
        for asked in &case.requests {
            count += 1;
            let answers = || {
                let theirs = apache.ask(&asked.request(&host_of(case, &apache)));
                let mut ours = ours(case, asked, &apache);
                (comparable(&theirs, &mut ours), ours)
            };
            let is_expected = |theirs: &Answered, ours: &Answered| match asked.differs {
                None => theirs == ours,
                Some(status) => theirs != ours && ours.status == status,
            };
            let (mut theirs, mut ours) = answers();
            if !is_expected(&theirs, &ours) {
                // Some fields contain the time: a second may have begun between the answers.
                (theirs, ours) = answers();
            }
            if !is_expected(&theirs, &ours) {
                failures.push(format!(
                    "## {}\n> {}\nApache: {theirs:?}\nours:   {ours:?}\n",
                    case.name, asked.line
                ));
            }
        }
    }
    let failed = failures.len();
    assert!(failed == 0, "{}\n{failed} of {count} differ", failures.join("\n"));
    assert!(count >= 150, "{count} requests");
}
