//! Texts of the configuration for many responses.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use sendoff_http1::{Field, FieldLine};

/// A text of the configuration for many responses, leaked so that it lives as long as the process:
/// handing it out costs no reference counting, which took a tenth of a small file's time with ten
/// such fields. The leaked memory is bounded by the different texts of all configurations of the
/// process.
fn kept(text: &[u8]) -> &'static [u8] {
    static KEPT: Mutex<BTreeSet<&'static [u8]>> = Mutex::new(BTreeSet::new());
    let mut all = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = all.get(text) {
        return known;
    }
    let new: &'static [u8] = Vec::from(text).leak();
    all.insert(new);
    new
}

/// A text of the configuration for many responses.
pub fn shared(text: &str) -> Bytes {
    Bytes::from_static(kept(text.as_bytes()))
}

/// A field of the configuration for many responses.
pub fn shared_field(name: &[u8], value: &[u8]) -> Field {
    let own = || Field::Own(name.to_vec().into(), value.to_vec().into());
    let line = FieldLine::new(name, value).map(|line| Field::Line(line.kept_by(kept)));
    // The protocol drops an invalid field and logs it.
    line.unwrap_or_else(|_| own())
}
