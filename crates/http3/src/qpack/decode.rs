//! Field sections of requests.

use http::HeaderMap;
use sendoff_field_section::{FieldSection, SectionBuilder, TrailersBuilder};

use super::QpackError;
use super::lines::Lines;

/// Decodes the head of a request, or returns the first error in it. `max_size` limits the sum of
/// names, values and 32 bytes for each field (RFC 9114 §4.2.2).
pub fn decode(section: &[u8], max_size: usize) -> Result<FieldSection, QpackError> {
    let mut lines = Lines::new(section)?;
    let mut fields = SectionBuilder::new(max_size);
    while let Some((name, value)) = lines.next_line()? {
        fields.push(&name, value)?;
    }
    Ok(fields.finish()?)
}

/// Decodes trailers (RFC 9114 §4.1), which have no pseudo-header fields, as [`decode`] does.
pub fn trailers(section: &[u8], max_size: usize) -> Result<HeaderMap, QpackError> {
    let mut lines = Lines::new(section)?;
    let mut fields = TrailersBuilder::new(max_size);
    while let Some((name, value)) = lines.next_line()? {
        fields.push(&name, value)?;
    }
    Ok(fields.finish())
}
