//! The answer of a script.

use std::rc::Rc;

use http::StatusCode;
use sendoff_delivery::segment::Segment;
use sendoff_static_files::Entry;

/// The answer of a script. Its fields are among the effects.
#[derive(Debug)]
pub enum ScriptAnswer {
    /// A body of strings and ranges of files.
    Body {
        /// The status.
        status: StatusCode,
        /// The pieces in order.
        segments: Vec<Segment>,
        /// Where the script has made it, if the response is explained.
        place: Option<String>,
    },
    /// This file, with ranges and conditions.
    File {
        /// The file.
        entry: Rc<Entry>,
        /// Where the script has chosen it, if the response is explained.
        place: Option<String>,
    },
    /// The script asks for the body of the request, and is to run again when it is there.
    AfterBody,
}
