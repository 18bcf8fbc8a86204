//! Changes of the windows (RFC 9113 §5.2, §6.9): bytes of bodies that are given back to the client,
//! and updates of the client.

use sendoff_http2::{Code, ConnectionError, MAX_WINDOW, Settings, encode};

use super::super::settings::{CONNECTION_WINDOW, STREAM_WINDOW};
use super::Session;
use super::receive::IDLE;

impl Session {
    /// Gives bytes back to the window of the connection.
    pub(super) fn give_back(&mut self, bytes: u32) {
        self.released += bytes;
        if self.released >= CONNECTION_WINDOW / 2 {
            let released = std::mem::take(&mut self.released);
            self.input_window += released;
            encode::window_update(0, released, self.output.frames());
        }
    }

    /// Gives bytes of a body, which its task has taken, back to the windows.
    pub(crate) fn release(&mut self, id: u32, bytes: usize) {
        let Some(stream) = self.live(id) else { return };
        let input = &mut stream.input;
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(input.held);
        input.held -= bytes;
        input.released += bytes;
        if !input.has_ended && input.released >= STREAM_WINDOW / 2 {
            let released = std::mem::take(&mut input.released);
            input.window += released;
            encode::window_update(id, released, self.output.frames());
        }
        self.give_back(bytes);
        if !self.output.is_empty() {
            self.wake();
        }
    }

    /// New settings (RFC 9113 §6.5.3, §6.9.2).
    pub(super) fn settings(&mut self, settings: Settings) -> Result<(), ConnectionError> {
        self.resizes_table |= settings.resizes_table;
        if let Some(initial) = settings.initial_window {
            let change = i64::from(initial) - self.initial_window;
            self.initial_window = initial.into();
            if change < 0 {
                // Behind the acknowledgement, the client counts by the smaller window.
                while self.pass_next() {}
            }
            for stream in &mut self.streams {
                stream.output.window += change;
                if stream.output.window > MAX_WINDOW.into() {
                    let code = Code::FLOW_CONTROL_ERROR;
                    return Err(ConnectionError::new(code, "the window of a stream is too large"));
                }
                if change > 0 {
                    stream.wake();
                }
            }
        }
        encode::settings_ack(self.output.frames());
        Ok(())
    }

    /// The client takes more bytes (RFC 9113 §6.9).
    pub(super) fn window_update(&mut self, id: u32, increment: u32) -> Result<(), ConnectionError> {
        let increment = i64::from(increment);
        if id == 0 {
            self.window += increment;
            if self.window > MAX_WINDOW.into() {
                let why = "the window of the connection is too large";
                return Err(ConnectionError::new(Code::FLOW_CONTROL_ERROR, why));
            }
            self.share_out();
            return Ok(());
        }
        if self.is_idle(id) {
            return Err(IDLE);
        }
        let Some(stream) = self.get(id).filter(|stream| !stream.is_reset) else { return Ok(()) };
        stream.output.window += increment;
        if stream.output.window > MAX_WINDOW.into() {
            return self.refuse(id, Code::FLOW_CONTROL_ERROR);
        }
        stream.wake();
        Ok(())
    }
}
