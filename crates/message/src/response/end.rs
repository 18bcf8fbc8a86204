//! The ends of responses.

/// The end of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseEnd {
    /// The application reports that the response is complete.
    Complete,
    /// The application has closed the connection, as it does when it dies. Only an announced length
    /// shows if bytes are missing.
    Closed,
    /// The application reports a failure: bytes may be missing.
    Failed,
}

impl ResponseEnd {
    /// The end that an exit status stands for (`appStatus`, FastCGI 1.0 §5.5).
    pub fn of(app_status: u32) -> Self {
        if app_status == 0 { Self::Complete } else { Self::Failed }
    }

    /// The end of a response of two parts that have ended like this.
    pub fn and(self, other: Self) -> Self {
        if self == Self::Complete { other } else { self }
    }
}
