//! Questions to FastCGI applications in the role of an authorizer (FastCGI 1.0 §6.3), and the
//! parameters that their answers set.

use bytes::Bytes;
use sendoff_application_request::parameters;
use sendoff_application_response::failure::ApplicationFailure;
use sendoff_config::FastCgiAuthorizer;
use sendoff_message::response::CgiHead;

use crate::application::authorizer::Begun;
use crate::application::script::{Call, Role, Unanswered};
use crate::context::Context;
use crate::subrequest::ResponseBuffer;

/// Prefix of response fields that set a parameter of the request, in any case.
const VARIABLE: &[u8] = b"variable-";

/// Names that a variable cannot have, in capitals: parameters that the server sets itself,
/// parameters that stand for fields of the client, and parameters that programs take for settings.
const RESERVED: [&[u8]; 4] = [b"GATEWAY_INTERFACE", b"HTTPS", b"PATH", b"QUERY_STRING"];

/// Prefixes of such names. `REMOTE_USER` is not reserved: an authorizer is meant to set it.
const RESERVED_STARTS: [&[u8]; 15] = [
    b"CONTENT_",
    b"DOCUMENT_",
    b"FCGI_",
    b"HTTP_",
    b"LD_",
    b"PATH_",
    b"PHP_",
    b"REDIRECT_",
    b"REMOTE_ADDR",
    b"REMOTE_PORT",
    b"REQUEST_",
    b"SCRIPT_",
    b"SENDOFF_",
    b"SERVER_",
    b"SSL_",
];

/// Asks the application.
pub(super) async fn ask(
    context: &Context<'_>,
    authorizer: &FastCgiAuthorizer,
) -> Result<Begun, ApplicationFailure> {
    let Context { services, site, request, .. } = *context;
    let hosts = &services.attached[site.number][authorizer.application];
    let parameters = context.for_hosts(hosts, |asked| parameters::of_question(asked, authorizer));
    let mut call = Call::new(*context);
    // The authorizer answers the server, not the client.
    let mut asker = ResponseBuffer::new(&request.method);
    let (answered, _) = call.send_to_host(Role::Authorizer, hosts, parameters, &mut asker).await;
    match answered {
        Ok((exchange, start)) => Begun::of(exchange, start),
        Err(Unanswered::Failed(failure)) => Err(failure),
        Err(Unanswered::Cut(cut)) => Err(ApplicationFailure::bad_gateway(cut.to_string())),
    }
}

/// The request parameters that a response sets.
pub(super) fn variables(head: &CgiHead, request: &str) -> Vec<(Bytes, Bytes)> {
    let mut all = Vec::new();
    for field in &head.fields {
        let (field, value) = field.clone().into_parts();
        let starts = field.get(..VARIABLE.len());
        if !starts.is_some_and(|start| start.eq_ignore_ascii_case(VARIABLE)) {
            continue;
        }
        let name = field.slice(VARIABLE.len()..);
        if may_be_set(&name) {
            all.push((name, value));
        } else {
            let field = field.escape_ascii();
            tracing::warn!(request, "{field} of an authorizer sets nothing: the name is reserved");
        }
    }
    all
}

/// True if a variable may have this name. Case and punctuation do not distinguish a name from a
/// reserved one: programs may find the parameter in their environment, where some of them ignore
/// case.
fn may_be_set(name: &[u8]) -> bool {
    let is_word = |&byte: &u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    let known: Vec<u8> = name
        .iter()
        .map(|byte| if byte.is_ascii_alphanumeric() { byte.to_ascii_uppercase() } else { b'_' })
        .collect();
    !name.is_empty()
        && name.iter().all(is_word)
        && !RESERVED.contains(&&known[..])
        && !RESERVED_STARTS.iter().any(|start| known.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_set_what_is_neither_the_servers_nor_the_clients() {
        let block = "Status: 200\r\nvariable-REMOTE_USER: ann\r\nVariable-Shib-Session-ID: _1 2\r\n\
            Variable-HTTP_PROXY: http://evil\r\nVariable-Http-Proxy: x\r\nVariable-http_x_user: x\r\n\
            Variable-SCRIPT_FILENAME: /etc/passwd\r\nVariable-PHP_VALUE: x\r\nVariable-path: x\r\n\
            Variable-LD_PRELOAD: x\r\nVariable-: x\r\nVariable-A+B: x\r\nVariable: x\r\n\
            Variable-REMOTE_ADDR: x\r\nVariable-https: x\r\nVariable-EMPTY:\r\nSet-Cookie: a=b\r\n\r\n";
        let head = CgiHead::parse(&Bytes::from(block)).unwrap();
        let set = variables(&head, "GET /");
        let expected = [("REMOTE_USER", "ann"), ("Shib-Session-ID", "_1 2"), ("EMPTY", "")];
        let expected = expected.map(|(name, value)| (Bytes::from(name), Bytes::from(value)));
        assert_eq!(set, expected);
    }

    #[test]
    fn a_value_ends_with_its_line() {
        for block in [
            "Status: 200\r\nVariable-A: x\r\n y\r\n\r\n",
            "Status: 200\r\nVariable-A: x\0y\r\n\r\n",
            "Status: 200\r\nVariable-A: x\ry\r\n\r\n",
        ] {
            let head = CgiHead::parse(&Bytes::from(block));
            assert!(!head.is_ok_and(|head| head.bad_lines.is_empty()), "{block:?}");
        }
        let lines = "Status: 200\nVariable-A: x\nB: y\n\n";
        let head = CgiHead::parse(&Bytes::from(lines)).unwrap();
        assert_eq!(variables(&head, "GET /"), [(Bytes::from("A"), Bytes::from("x"))]);
    }
}
