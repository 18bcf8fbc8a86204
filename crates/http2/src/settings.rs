//! Settings of the client (RFC 9113 §6.5).

use crate::{Code, ConnectionError, MAX_FRAME, MAX_WINDOW};

/// A setting that a server announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// The most open streams of the client.
    MaxConcurrentStreams(u32),
    /// The initial window of each stream.
    InitialWindowSize(u32),
    /// The most bytes of a field section; advisory.
    MaxHeaderListSize(u32),
    /// Extended CONNECT (RFC 8441 §3).
    EnableConnectProtocol,
}

impl Setting {
    pub(crate) const fn parts(self) -> (u16, u32) {
        match self {
            Self::MaxConcurrentStreams(count) => (3, count),
            Self::InitialWindowSize(size) => (4, size),
            Self::MaxHeaderListSize(size) => (6, size),
            Self::EnableConnectProtocol => (8, 1),
        }
    }
}

/// The settings of one frame that matter to a server which pushes nothing and encodes without a
/// dynamic table. The last value of a setting counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settings {
    /// The initial window of each stream, for all streams of the connection.
    pub initial_window: Option<u32>,
    /// The client has set the size of its dynamic table: the next field block says that the table
    /// is not used (RFC 7541 §4.2).
    pub resizes_table: bool,
}

impl Settings {
    pub(crate) fn decode(payload: &[u8]) -> Result<Self, ConnectionError> {
        let (settings, rest) = payload.as_chunks::<6>();
        if !rest.is_empty() {
            return Err(ConnectionError::size("SETTINGS with an incomplete entry"));
        }
        let mut all = Self::default();
        for [high, low, value @ ..] in settings {
            let value = u32::from_be_bytes(*value);
            match u16::from_be_bytes([*high, *low]) {
                1 => all.resizes_table = true,
                2 if value > 1 => {
                    return Err(ConnectionError::protocol("SETTINGS_ENABLE_PUSH is not valid"));
                }
                4 if value > MAX_WINDOW => {
                    let code = Code::FLOW_CONTROL_ERROR;
                    return Err(ConnectionError::new(code, "an initial window is too large"));
                }
                4 => all.initial_window = Some(value),
                5 if !(MAX_FRAME..1 << 24).contains(&(value as usize)) => {
                    return Err(ConnectionError::protocol("SETTINGS_MAX_FRAME_SIZE is not valid"));
                }
                _ => {}
            }
        }
        Ok(all)
    }
}
