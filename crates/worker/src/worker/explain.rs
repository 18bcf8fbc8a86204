//! Explanations of a response for the front (`docs/handover.md`, `EXPLAIN`).

use sendoff_fastcgi::handover::MAX_EXPLANATION;
use sendoff_fastcgi::record::Kind;
use sendoff_link::worker::Request;

use super::Worker;

/// Maximum number of explanations before their response is claimed; further ones are lost.
const MOST_UNSAID: usize = 256;

impl Worker {
    /// True if the front wants this response explained.
    #[must_use]
    pub fn explains(&self) -> bool {
        self.requests.running().is_some_and(Request::accepts_explanations)
    }

    /// Explains the output that follows, if the front asked for it. Text beyond [`MAX_EXPLANATION`]
    /// bytes is cut off.
    pub fn explain(&mut self, text: &[u8]) {
        if !self.explains() || text.is_empty() {
            return;
        }
        let text = &text[..text.len().min(MAX_EXPLANATION)];
        if let Some(channel) = self.channel.as_mut().filter(|channel| channel.claim.is_some()) {
            if channel.unsaid.len() < MOST_UNSAID {
                channel.unsaid.push(text.to_vec());
            }
            return;
        }
        if self.is_closed() {
            return;
        }
        // The next write reports that the client has gone.
        let _gone = self.put_stream(Kind::EXPLAIN, text);
    }
}
