//! The ways in which the body of a response is delivered.

/// The way in which the body of a response was delivered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// The server made it: a static file, a redirect, an error page.
    #[default]
    Server,
    /// A worker or an application sent bytes over its link.
    Relay,
    /// A worker handed over parts of files.
    File,
    /// A worker shared memory.
    Region,
    /// A worker wrote to the client's socket.
    Direct,
}

impl Mode {
    /// Every mode, with its label.
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::Server, "server"),
        (Self::Relay, "relay"),
        (Self::File, "file"),
        (Self::Region, "region"),
        (Self::Direct, "direct"),
    ];
}
