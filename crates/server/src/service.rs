//! What a protocol asks of the server: decide on a request, answer it, note it down. The handlers' side of the seam.

use http::StatusCode;
use sendoff_config::FrontConfig;

use crate::cut::Cut;
use crate::observe::access_log::Line;
use crate::request::Request;
use crate::responder::Responder;

/// Answers requests. One value per event loop.
pub(crate) trait Service {
    /// Who will answer a request, and how.
    type Plan;

    /// What clients may do: times and sizes.
    fn limits(&self) -> &FrontConfig;

    /// Decides who answers, before the body has been read. Fields that are meant for the server itself are removed.
    fn plan(&self, request: &mut Request) -> Self::Plan;

    /// Whether the request's body is of use. What is of no use is read and dropped, and is not asked for.
    fn wants_body(plan: &Self::Plan) -> bool;

    /// Answers a request.
    ///
    /// # Errors
    /// The client has gone, or its response was cut short after it had begun.
    async fn answer(
        &self,
        plan: Self::Plan,
        request: &Request,
        responder: &mut dyn Responder,
    ) -> Result<(), Cut>;

    /// Answers a request that the protocol refuses.
    ///
    /// # Errors
    /// The client has gone.
    async fn refuse(&self, status: StatusCode, responder: &mut dyn Responder) -> Result<(), Cut>;

    /// Notes a request down, however it ended.
    fn log(&self, line: &Line<'_>);
}
