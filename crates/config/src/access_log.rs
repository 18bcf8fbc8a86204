//! Access logs: their targets and the format of their lines.

use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An access log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessLog {
    /// The target of the lines.
    pub to: LogTarget,
    /// The format of the lines.
    pub format: LogFormat,
}

/// The access log of a site.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SiteLog {
    /// The log of the server, if it has one.
    #[default]
    Server,
    /// A log of the site's own. Several sites may share a file.
    Own(AccessLog),
    /// No log.
    Off,
}

/// The target of a log.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LogTarget {
    /// The server's standard output.
    Stdout,
    /// A file, opened for appending.
    File(#[serde(with = "crate::path::one")] PathBuf),
}

/// The format of a line: texts and variables, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogFormat {
    /// The notation of values.
    pub values: Values,
    /// The parts of a line.
    pub parts: Vec<LogPart>,
}

impl LogFormat {
    /// True if a line shows the request field with this name, in lower case.
    #[must_use]
    pub fn shows_field(&self, name: &str) -> bool {
        self.parts.iter().any(|part| matches!(part, LogPart::Field(shown) if shown == name))
    }
}

/// The notation of variables' values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Values {
    /// Quotes, backslashes and everything that is not printable ASCII as `\xHH`; `-` if there is
    /// none.
    Plain,
    /// As values of JSON: strings in quotes, numbers, `null` if there is none.
    Json,
}

/// A part of a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogPart {
    /// A fixed text.
    Text(String),
    /// The value of a variable.
    Variable(Variable),
    /// The value of a request field, by the field's name in lower case.
    Field(String),
    /// The value of a map of the site, by its name.
    Map(String),
}

/// Makes the type and the table of names from one list.
macro_rules! variables {
    ($($(#[doc = $doc:literal])+ $variable:ident = $name:literal,)+) => {
        /// A value in a line of the access log. Most have the names that nginx has for them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        pub enum Variable {
            $($(#[doc = $doc])+ $variable,)+
        }

        impl Variable {
            /// All variables, with their names and descriptions, for documents.
            pub const ALL: &[(Self, &str, &str)] = &[
                $((Self::$variable, $name, concat!($($doc),+)),)+
            ];
        }
    };
}

variables! {
    /// The client's address; `unix:` on a UNIX socket.
    RemoteAddr = "remote_addr",
    /// The client's port.
    RemotePort = "remote_port",
    /// The name with which the client authenticated.
    RemoteUser = "remote_user",
    /// Time at which the line was written: `21/Nov/2026:04:53:00 +0000`.
    TimeLocal = "time_local",
    /// The same as `2026-11-21T04:53:00+00:00`.
    TimeIso8601 = "time_iso8601",
    /// The request line as the client sent it.
    Request = "request",
    /// The method.
    RequestMethod = "request_method",
    /// Path and query as the client sent them.
    RequestUri = "request_uri",
    /// The path, decoded, after rewrites.
    Uri = "uri",
    /// The query.
    QueryString = "query_string",
    /// The version: `HTTP/1.1`.
    ServerProtocol = "server_protocol",
    /// `http` or `https`.
    Scheme = "scheme",
    /// The version of TLS: `TLSv1.3`.
    SslProtocol = "ssl_protocol",
    /// The cipher suite of TLS.
    SslCipher = "ssl_cipher",
    /// The host that the client named, in lower case, without the port.
    Host = "host",
    /// The port that the client named.
    ServerPort = "server_port",
    /// The name of the site that answered.
    Site = "site",
    /// The status of the response; 499: the client left before it began.
    Status = "status",
    /// Bytes of the response's body that were sent, chunked coding included.
    BodyBytesSent = "body_bytes_sent",
    /// Bytes of the body that came as parts of files and were not copied by the server.
    BytesHandedOver = "bytes_handed_over",
    /// Bytes of the body that came as bytes: generated ones and small files.
    BytesCopied = "bytes_copied",
    /// Seconds from the request's head until its response had left: `0.012`.
    RequestTime = "request_time",
    /// Seconds that the request waited for a worker of PHP.
    QueueTime = "queue_time",
    /// The process id of the worker that answered.
    Worker = "worker",
    /// The FastCGI application that answered.
    Upstream = "upstream",
    /// The request's id, if ids are on.
    RequestId = "request_id",
    /// The id of the request's trace, if requests are traced.
    TraceId = "trace_id",
    /// The id of the request's span, if requests are traced.
    SpanId = "span_id",
}

/// The format of [`LogFormat::combined`].
const COMBINED: &str = r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent""#;

/// The format of [`LogFormat::json`].
const JSON: &str = r#"{"time":$time_iso8601,"remote_addr":$remote_addr,"remote_user":$remote_user,"site":$site,"scheme":$scheme,"host":$host,"method":$request_method,"uri":$request_uri,"protocol":$server_protocol,"status":$status,"body_bytes_sent":$body_bytes_sent,"bytes_handed_over":$bytes_handed_over,"bytes_copied":$bytes_copied,"request_time":$request_time,"queue_time":$queue_time,"worker":$worker,"upstream":$upstream,"referer":$http_referer,"user_agent":$http_user_agent,"request_id":$request_id,"trace_id":$trace_id}"#;

impl LogFormat {
    /// The combined log format, as nginx and Apache write it.
    #[must_use]
    pub fn combined() -> Self {
        Self { values: Values::Plain, parts: parts(COMBINED).unwrap_or_default() }
    }

    /// An object of JSON per line.
    #[must_use]
    pub fn json() -> Self {
        Self { values: Values::Json, parts: parts(JSON).unwrap_or_default() }
    }

    /// True if lines contain this variable.
    #[must_use]
    pub fn has(&self, variable: Variable) -> bool {
        self.parts.contains(&LogPart::Variable(variable))
    }

    /// The names of the maps whose values are in lines.
    pub fn maps(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            LogPart::Map(name) => Some(&**name),
            LogPart::Text(_) | LogPart::Variable(_) | LogPart::Field(_) => None,
        })
    }
}

/// `combined`, `json`, or a line with variables:
/// `$remote_addr "$request" $status ${request_time}s`. `$$` is a dollar sign.
impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "combined" => Ok(Self::combined()),
            "json" => Ok(Self::json()),
            text if text.contains('$') => Ok(Self { values: Values::Plain, parts: parts(text)? }),
            text => Err(format!(
                "{text:?} is not combined, json or a line with variables such as $remote_addr"
            )),
        }
    }
}

/// Splits a line into its parts.
fn parts(line: &str) -> Result<Vec<LogPart>, String> {
    if line.contains(|c: char| c.is_control()) {
        return Err("a line of the access log has no control characters".to_owned());
    }
    let (mut parts, mut text, mut rest) = (Vec::new(), String::new(), line);
    while let Some((before, after)) = rest.split_once('$') {
        text.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            text.push('$');
            rest = after;
            continue;
        }
        let (name, after) = match after.strip_prefix('{') {
            Some(braced) => braced.split_once('}').ok_or("${ without }")?,
            None => {
                let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
                after.split_at(after.find(|c| !is_part(c)).unwrap_or(after.len()))
            }
        };
        if !text.is_empty() {
            parts.push(LogPart::Text(std::mem::take(&mut text)));
        }
        parts.push(variable(name)?);
        rest = after;
    }
    text.push_str(rest);
    if !text.is_empty() {
        parts.push(LogPart::Text(text));
    }
    Ok(parts)
}

fn variable(name: &str) -> Result<LogPart, String> {
    if let Some((variable, ..)) = Variable::ALL.iter().find(|(_, known, _)| *known == name) {
        return Ok(LogPart::Variable(*variable));
    }
    let is_field = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if let Some(map) = name.strip_prefix("map_")
        && !map.is_empty()
        && map.chars().all(is_field)
    {
        return Ok(LogPart::Map(map.to_owned()));
    }
    match name.strip_prefix("http_") {
        Some(field) if !field.is_empty() && field.chars().all(is_field) => {
            Ok(LogPart::Field(field.replace('_', "-")))
        }
        _ => {
            let known: Vec<_> = Variable::ALL.iter().map(|(_, name, _)| *name).collect();
            Err(format!(
                "${name} is not a variable; there are {}, http_FIELD and map_NAME",
                known.join(", ")
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> LogPart {
        LogPart::Text(text.to_owned())
    }

    #[test]
    fn lines_are_taken_apart() {
        for (line, expected) in [
            ("$status", vec![LogPart::Variable(Variable::Status)]),
            ("a $$ $request_time${worker}s$", vec![]),
            (
                "a $$ ${request_time}s $http_x_a,${map_a}b$host\"",
                vec![
                    text("a $ "),
                    LogPart::Variable(Variable::RequestTime),
                    text("s "),
                    LogPart::Field("x-a".to_owned()),
                    text(","),
                    LogPart::Map("a".to_owned()),
                    text("b"),
                    LogPart::Variable(Variable::Host),
                    text("\""),
                ],
            ),
        ] {
            match line.parse::<LogFormat>() {
                Ok(format) => assert_eq!(format.parts, expected, "{line}"),
                Err(_) => assert!(expected.is_empty(), "{line}"),
            }
        }
        for bad in [
            "",
            "x",
            "Combined",
            "$",
            "$nonsense",
            "${status",
            "$http_",
            "$http_A",
            "$map_",
            "$map_A",
            "$status\n",
        ] {
            assert!(bad.parse::<LogFormat>().is_err(), "{bad:?}");
        }
        assert!("$nonsense".parse::<LogFormat>().unwrap_err().contains("bytes_handed_over"));
    }

    /// docs/proxies.md lists every variable, and beside it the JSON member that has its value.
    #[test]
    fn the_document_lists_the_variables_and_the_members_of_json() {
        let page = include_str!("../../../docs/proxies.md");
        let rows: Vec<_> = page
            .lines()
            .filter(|line| line.starts_with("| `$"))
            .filter_map(|line| {
                let mut cells = line.split('|').map(|cell| cell.trim().trim_matches('`'));
                Some((cells.nth(1)?.strip_prefix('$')?, cells.next()?))
            })
            .collect();
        for (_, name, _) in Variable::ALL {
            assert!(rows.iter().any(|(row, _)| row == name), "{name}");
        }
        let members: Vec<_> = JSON.trim_matches(['{', '}']).split(',').collect();
        for member in &members {
            let (name, variable) = member.split_once(":$").unwrap();
            assert!(rows.contains(&(variable, name.trim_matches('"'))), "{member}");
        }
        assert_eq!(rows.iter().filter(|(_, member)| !member.is_empty()).count(), members.len());
    }

    #[test]
    fn the_formats_with_a_name_are_whole() {
        assert_eq!(LogFormat::combined(), COMBINED.parse().unwrap());
        let json = LogFormat::json();
        assert!(json.has(Variable::RequestId) && json.values == Values::Json);
        let object: String = json
            .parts
            .iter()
            .map(|part| if let LogPart::Text(text) = part { text } else { "null" })
            .collect();
        assert!(serde_json::from_str::<serde_json::Value>(&object).unwrap().is_object());
    }
}
