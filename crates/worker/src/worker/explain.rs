//! What the front is told about a response besides the response (`docs/handover.md`, `EXPLAIN`).

use sendoff_fastcgi::handover::MAX_EXPLANATION;
use sendoff_fastcgi::record::Kind;

use super::{FLUSH_LIMIT, Worker};

impl Worker {
    /// Whether the front wants this response explained.
    #[must_use]
    pub fn explains(&self) -> bool {
        self.request.explains
    }

    /// Says something about the output that follows. Nothing happens unless the front asked for it; what is longer than
    /// [`MAX_EXPLANATION`] is cut off.
    pub fn explain(&mut self, text: &[u8]) {
        if !self.request.explains || text.is_empty() || self.is_closed() {
            return;
        }
        let text = &text[..text.len().min(MAX_EXPLANATION)];
        let mut state = self.shared.lock();
        state.queue.stream(Kind::EXPLAIN, self.request.id, text);
        let full = state.queue.len() > FLUSH_LIMIT;
        drop(state);
        if full {
            // The next write tells of it.
            let _gone = self.flush();
        }
    }
}
