//! The language of LSCache's plugins (`docs/lscache.md`): response fields by which an application
//! says who may get its page, for how long, and which pages have changed.
//!
//! - [`control`]: `X-LiteSpeed-Cache-Control`, and the same words in `.htaccess` files
//! - [`cookies`]: the cookies by which pages differ, and the owner of private pages
//! - [`request`]: the keys of a request
//! - [`fields`]: tags, variants and purges in the fields of a response
//! - [`purge`]: the pages that a purge names

mod control;
mod cookies;
mod fields;
mod purge;
mod request;

pub(super) use control::Control;
pub(super) use cookies::{Owner, value_for};
pub use fields::purges;
pub(super) use fields::{Labels, Said};
pub use purge::NamedPurge;
pub(super) use purge::{Named, Places, PurgeSubject};
pub use request::{LsCacheRequest, without_ignored};
