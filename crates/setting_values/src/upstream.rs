//! The values of an upstream: its hosts, and the choice among them.

use sendoff_config::UpstreamHost;

use crate::read::{Scope, Wrong};
use crate::rules::is_token;
use crate::value::Word;

/// A host of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend(pub UpstreamHost);

impl Word for Backend {
    const KIND: &'static str = "a host such as \"app1:9000\", \"unix:/run/app.sock\" or \"srv:_fastcgi._tcp.example.org\", perhaps with weight=N or spare behind it";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        if text.contains(char::is_control) {
            return Err(Wrong::new("a control character is not allowed here"));
        }
        if let Some((scheme, rest)) = text.split_once("://") {
            let wrong = Wrong::new(format!("a host has no scheme such as {scheme}"));
            return Err(wrong.help(format!(
                "write \"{rest}\"; a route names the protocol: proxy = \"{scheme}://upstream:NAME\""
            )));
        }
        text.parse().map(Self).map_err(|why: String| {
            let wrong = Wrong::new(why);
            match text.split_ascii_whitespace().any(|word| word == "backup") {
                true => {
                    wrong.help("write spare for a host that gets requests while no other is up")
                }
                false => wrong.help(format!("expected {}", Self::KIND)),
            }
        })
    }

    fn text(&self) -> String {
        self.0.to_string()
    }
}

/// The choice of the host for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Balance(pub sendoff_config::Balance);

impl Word for Balance {
    const KIND: &'static str =
        "\"least\", \"client\", \"path\", \"header:NAME\" or \"cookie:NAME\"";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        text.parse().map(Self).map_err(|why: String| {
            let wrong = Wrong::new(why);
            match text {
                "leastconn" | "least_conn" | "least-connections" | "roundrobin" | "round_robin"
                | "round-robin" | "byrequests" | "bybusyness" => wrong.help(
                    "\"least\" chooses the host with the fewest requests; equally busy hosts take turns",
                ),
                "source" | "ip_hash" => wrong.help("write \"client\""),
                "uri" => wrong.help("write \"path\""),
                _ => wrong.help(format!("expected {}", Self::KIND)),
            }
        })
    }

    fn text(&self) -> String {
        self.0.to_string()
    }
}

/// The name of a cookie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CookieName(pub String);

impl Word for CookieName {
    const KIND: &'static str = "the name of a cookie";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        match !text.is_empty() && text.bytes().all(is_token) {
            true => Ok(Self(text.to_owned())),
            false => {
                let wrong = Wrong::new(format!("\"{text}\" is not the name of a cookie"));
                Err(wrong.help("a name consists of letters, digits and marks such as _ and -"))
            }
        }
    }

    fn text(&self) -> String {
        self.0.clone()
    }
}
