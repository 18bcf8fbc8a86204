//! Questions to web services, and the request fields that their answers set.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use sendoff_application_response::failure::ApplicationFailure;
use sendoff_config::HttpAuthorizer;
use sendoff_http1::client::claim;
use sendoff_message::request::{CONDITIONS, Request};
use sendoff_message::response::CgiHead;

use crate::application::authorizer::{Begun, Grant};
use crate::application::proxy::{self, ProxyTarget};
use crate::application::script::Call;
use crate::context::Context;
use crate::subrequest::ResponseBuffer;

/// Asks the service.
pub(super) async fn ask(
    context: &Context<'_>,
    authorizer: &HttpAuthorizer,
) -> Result<Begun, ApplicationFailure> {
    let Context { services, site, .. } = *context;
    let question = question(context.request, &authorizer.target)?;
    let context = Context { request: &question, ..*context };
    let gateway = &services.gateways[site.number][authorizer.proxy];
    // The service answers the server, not the client.
    let mut asker = ResponseBuffer::new(&question.method);
    let proxied = ProxyTarget { application: authorizer.proxy, prefix: 0 };
    let message = proxy::message(&context, gateway, proxied, &mut asker)
        .map_err(|failure| failure.of(&gateway.name()))?;
    let call = Call::new(context);
    match proxy::ask(&call, gateway, &message, &mut asker).await {
        Ok(Ok((exchange, start))) => Begun::of(exchange, start),
        Ok(Err(failure)) => Err(failure),
        Err(cut) => Err(ApplicationFailure::bad_gateway(cut.to_string())),
    }
}

/// A `GET` without a body that describes the client's request. The client's own fields come along,
/// except for those about its body, about a part of the resource or about an older copy of it.
fn question(request: &Request, target: &str) -> Result<Request, ApplicationFailure> {
    let mut asked = request.without_body();
    let bad = |why: &str| ApplicationFailure::new(StatusCode::BAD_REQUEST, why);
    asked.restart().map_err(|bad_path| bad(bad_path.0))?;
    // The service decides about the path that the rules see. In the client's spelling it could look
    // like another one: `/%61dmin`, `//admin`, `/x/../admin`.
    let uri = super::uri(&asked.path, &asked);
    let host = request.host.as_deref().unwrap_or_default();
    let url = [request.scheme.as_str().as_bytes(), b"://", host, &uri].concat();
    for name in CONDITIONS.into_iter().chain([CONTENT_TYPE]) {
        asked.headers.remove(name);
    }
    // oauth2-proxy and others look there first for the client's address.
    asked.headers.remove("x-real-ip");
    let client = request.peer.ip().map(|address| address.to_canonical().to_string());
    for (name, value) in [
        ("x-forwarded-method", request.method.as_str().as_bytes()),
        ("x-forwarded-uri", &uri),
        ("x-original-method", request.method.as_str().as_bytes()),
        ("x-original-uri", &uri),
        ("x-original-url", &url),
    ]
    .into_iter()
    .chain(client.as_ref().map(|client| ("x-real-ip", client.as_bytes())))
    {
        let value = HeaderValue::from_bytes(value);
        let value = value.map_err(|_| bad("its query has bytes that no field may have"))?;
        set(&mut asked.headers, HeaderName::from_static(name), value);
    }
    asked.method = Method::GET;
    asked.uri = Bytes::copy_from_slice(target.as_bytes());
    asked.restart().map_err(|bad_path| bad(bad_path.0))?;
    Ok(asked)
}

/// Replaces a field of the client.
fn set(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    claim(headers, &name);
    headers.insert(name, value);
}

/// The request fields and the user in an answer that gives access.
pub(super) fn grant(
    authorizer: &HttpAuthorizer,
    head: &CgiHead,
) -> Result<Grant, ApplicationFailure> {
    let values = |name: &str| {
        let fields = head.fields.iter().filter(|field| field.is(name));
        fields.map(|field| field.clone().into_parts().1).collect::<Vec<_>>()
    };
    let mut grant = Grant::default();
    for name in &authorizer.copy_headers {
        for value in values(name) {
            let name = HeaderName::from_bytes(name.as_bytes());
            let value = HeaderValue::from_maybe_shared(value);
            let (Ok(name), Ok(value)) = (name, value) else {
                let why = "it gave access with a field that no request may have";
                return Err(ApplicationFailure::bad_gateway(why));
            };
            grant.fields.push((name, value));
        }
    }
    if let Some(user) = authorizer.user.as_deref().and_then(|name| values(name).into_iter().next())
    {
        grant.variables.push((Bytes::from_static(b"REMOTE_USER"), user));
    }
    Ok(grant)
}
