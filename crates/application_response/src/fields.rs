//! Fields by which an application speaks to the server.

use sendoff_fastcgi::channel::is_for_front;

/// True for a field that is addressed to the server: it reaches no client.
pub fn is_for_server(name: &[u8]) -> bool {
    is_for_front(name) || name.eq_ignore_ascii_case(sendoff_zero_copy::FIELD.as_bytes())
}
