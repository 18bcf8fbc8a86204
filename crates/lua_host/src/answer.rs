//! The answer of a script.

use std::rc::Rc;

use http::StatusCode;
use sendoff_delivery::segment::Segment;
use sendoff_static_files::Entry;

/// The answer of a script. Its fields are in the effects.
#[derive(Debug)]
pub enum ScriptAnswer {
    /// A body of strings and ranges of files.
    Body {
        /// The status.
        status: StatusCode,
        /// The pieces in order.
        segments: Vec<Segment>,
        /// The place in the script that made the body, if the response is explained.
        place: Option<String>,
    },
    /// A file, sent with ranges and conditions.
    File {
        /// The file.
        entry: Rc<Entry>,
        /// The place in the script that chose the file, if the response is explained.
        place: Option<String>,
    },
    /// The script needs the request's body, and must run again after it has arrived.
    AfterBody,
}
