//! An answer that is explained instead of sent.

use std::io;

use bytes::Bytes;
use http::{Method, StatusCode};

use super::{Asked, Connection, Outcome};
use crate::explain::{FIELD, Remark, Report};
use crate::request::Request;
use crate::router::Route;
use crate::segment::Segment;

impl Connection {
    /// Answers the request into a table, and the client with the table.
    pub(super) async fn explain(
        &mut self,
        request: &Request,
        route: Route,
        keep_alive: bool,
    ) -> io::Result<Outcome> {
        let mut report = Report::default();
        match &route {
            Route::Script(_) => {}
            Route::File(_) => report.remark(Remark {
                how: "file".to_owned(),
                from: "open-file cache".to_owned(),
                what: String::from_utf8_lossy(&request.path).into_owned(),
                ..Remark::default()
            }),
            Route::Folder | Route::Refused(_) => report.answered_by("the server itself".to_owned()),
        }
        self.client.report = Some(Box::new(report));
        let answered = self.answer(request, route, keep_alive).await;
        let report = self.client.report.take().unwrap_or_default();
        let cut = answered.err().map(|error| error.to_string());
        let target = String::from_utf8_lossy(&request.target);
        let root = String::from_utf8_lossy(self.event_loop.router.root_bytes());
        let request_line = format!("{} {target}", request.method);
        let page = report.page(&request_line, &root, cut.as_deref());
        self.send_page(request, page).await
    }

    async fn send_page(&mut self, request: &Request, page: String) -> io::Result<Outcome> {
        // The connection ends here: the answer has other rules than the one that was asked for.
        let asked = Asked { method: &Method::GET, version: request.version, keep_alive: false };
        let (status, length) = (StatusCode::OK, Some(page.len() as u64));
        let keep_alive = self.client.begin(asked, status, None, length, |head| {
            self.event_loop.common_fields(head);
            head.field(b"Content-Type", b"text/plain; charset=utf-8");
            head.field(b"Cache-Control", b"no-store");
            head.field(FIELD.as_bytes(), b"yes");
        })?;
        self.client.finish([Segment::Bytes(Bytes::from(page))]).await?;
        Ok(Outcome { status, keep_alive })
    }
}
