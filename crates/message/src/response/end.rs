//! How responses end.

/// How a response has come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseEnd {
    /// The application says that the response is complete.
    Complete,
    /// The application has closed the connection, as it does when it dies. Only the announced length tells whether something is missing.
    Closed,
    /// The application says that it has failed: something may be missing.
    Failed,
}

impl ResponseEnd {
    /// What an exit status says (`appStatus`, FastCGI 1.0 §5.5).
    pub fn of(app_status: u32) -> Self {
        if app_status == 0 { Self::Complete } else { Self::Failed }
    }

    /// The end of a response of which two parts have ended.
    pub fn and(self, other: Self) -> Self {
        if self == Self::Complete { other } else { self }
    }
}
