//! Static files.

use std::io;

use crate::connection::{Asked, Client, Outcome};
use crate::front::Loop;
use crate::handler::error;
use crate::request::Request;
use crate::static_files::{self, Entry};

/// Answers with a file, a range of it, or the news that it has not changed.
pub(crate) async fn respond(
    event_loop: &Loop,
    client: &mut Client,
    asked: Asked<'_>,
    request: &Request,
    entry: &Entry,
) -> io::Result<Outcome> {
    let response = static_files::respond_with(entry, asked.method, &request.headers);
    let status = response.status;
    if status.is_client_error() {
        return error::respond_with(event_loop, client, asked, status, &response.headers).await;
    }
    let keep_alive = client.begin(asked, status, None, response.content_length, |head| {
        event_loop.common_fields(head);
        for (name, value) in &response.headers {
            head.field(name.as_bytes(), value);
        }
    })?;
    client.finish(response.body).await?;
    Ok(Outcome { status, keep_alive })
}
