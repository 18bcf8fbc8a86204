//! Fragments: parts of pages that one worker makes, and all workers of a pool send.

use std::ffi::{c_char, c_int, c_uint};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use std::{io, ptr, slice};

use sendoff_sys::fragments::{Asked, Making};

use crate::{bytes, set_errno};

/// The fragments of a pool (docs/fragments.md): parts of pages that one process makes and all send.
/// They are in memory that processes share, and stay until the process ends.
#[derive(Debug)]
pub struct Fragments {
    inner: sendoff_sys::fragments::Fragments,
}

/// A fragment that is kept, or that the caller makes. It is for the thread that has asked for it.
#[derive(Debug)]
pub struct Fragment {
    asked: Asked<'static>,
}

/// A string that need not end in NUL.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Text {
    /// Its bytes.
    pub data: *const c_char,
    /// Their number.
    pub len: usize,
}

/// # Safety
/// `tags` is null with `count` 0, or points to `count` texts that stay unchanged for `'a`.
unsafe fn texts<'a>(tags: *const Text, count: usize) -> Vec<&'a [u8]> {
    if tags.is_null() {
        return Vec::new();
    }
    // SAFETY: per this function's contract.
    let tags = unsafe { slice::from_raw_parts(tags, count) };
    // SAFETY: as above.
    tags.iter().map(|tag| unsafe { bytes(tag.data.cast(), tag.len) }).collect()
}

fn hand_out(opened: io::Result<sendoff_sys::fragments::Fragments>) -> *mut Fragments {
    match opened {
        Ok(inner) => Box::into_raw(Box::new(Fragments { inner })),
        Err(error) => {
            set_errno(&error);
            ptr::null_mut()
        }
    }
}

/// Makes memory for fragments of `size` bytes in all, from 8 MiB to 4 GiB, which this process shares
/// with the children that it forks. It takes memory only as it is used. Returns NULL (errno) if there
/// is none.
#[unsafe(no_mangle)]
pub extern "C" fn sendoff_fragments_new(size: usize) -> *mut Fragments {
    hand_out(sendoff_sys::fragments::Fragments::create(size).map(|(made, _)| made))
}

/// The fragments of the pool that has started this process. Call it once: it takes descriptors that
/// the process has inherited. Returns NULL if the pool keeps none.
#[unsafe(no_mangle)]
pub extern "C" fn sendoff_fragments_of_pool() -> *mut Fragments {
    sendoff_sys::fragments::Fragments::inherited().map_or(ptr::null_mut(), hand_out)
}

/// Asks for the fragment with this key. If it is not kept, the caller makes it, with these tags, and
/// others wait until sendoff_fragment_end(). If another process makes it, waits for at most
/// `patience` milliseconds, or returns the old fragment. Returns NULL if the key has more than 4096
/// bytes, or if there are more than 64 tags: such a fragment is made each time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_fragment_ask(
    fragments: *const Fragments,
    key: *const c_char,
    key_len: usize,
    tags: *const Text,
    tag_count: usize,
    patience: c_uint,
) -> *mut Fragment {
    // SAFETY: per this function's contract; fragments are never freed.
    let (fragments, key, tags) =
        unsafe { (fragments.as_ref(), bytes(key.cast(), key_len), texts(tags, tag_count)) };
    let Some(fragments) = fragments else { return ptr::null_mut() };
    let patience = Duration::from_millis(patience.into());
    let asked = catch_unwind(AssertUnwindSafe(|| fragments.inner.ask(key, &tags, patience)));
    match asked.ok().flatten() {
        Some(asked) => Box::into_raw(Box::new(Fragment { asked })),
        None => ptr::null_mut(),
    }
}

/// The fragment with this key if it is kept and its time is not over, else NULL. The caller ends its
/// use by sendoff_fragment_end().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_fragment_fetch(
    fragments: *const Fragments,
    key: *const c_char,
    key_len: usize,
) -> *mut Fragment {
    // SAFETY: per this function's contract.
    let (fragments, key) = unsafe { (fragments.as_ref(), bytes(key.cast(), key_len)) };
    let fetch = || fragments.and_then(|fragments| fragments.inner.fetch(key));
    match catch_unwind(AssertUnwindSafe(fetch)).ok().flatten() {
        Some(bytes) => Box::into_raw(Box::new(Fragment { asked: Asked::Kept { bytes, place: 0 } })),
        None => ptr::null_mut(),
    }
}

/// The bytes of a kept fragment, valid until sendoff_fragment_end(); `len` receives their number, and
/// `place` (may be NULL) the place of the fragment for sendoff_send_parts(). Returns NULL if the
/// caller makes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_fragment_bytes(
    fragment: *const Fragment,
    len: *mut usize,
    place: *mut u64,
) -> *const c_char {
    // SAFETY: per this function's contract.
    match (unsafe { fragment.as_ref() }, unsafe { len.as_mut() }) {
        (Some(Fragment { asked: Asked::Kept { bytes, place: at } }), Some(len)) => {
            *len = bytes.len();
            // SAFETY: per this function's contract.
            if let Some(place) = unsafe { place.as_mut() } {
                *place = *at;
            }
            bytes.as_ptr().cast()
        }
        _ => ptr::null(),
    }
}

/// Ends the use of a fragment, in the thread that has asked for it. If the caller has made it, keeps
/// `len` bytes for `ttl` seconds; with `data` NULL nothing is kept. Returns 1 if it is kept; 0 if it
/// is not, because it has more than 1 MiB or was purged since the caller has asked for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_fragment_end(
    fragment: *mut Fragment,
    ttl: c_uint,
    data: *const c_char,
    len: usize,
) -> c_int {
    if fragment.is_null() {
        return 0;
    }
    // SAFETY: per this function's contract, it comes from sendoff_fragment_ask().
    let Fragment { asked } = *unsafe { Box::from_raw(fragment) };
    let keep = |making: &Making<'_>| {
        // SAFETY: per this function's contract.
        !data.is_null() && making.keep(seconds(ttl), unsafe { bytes(data.cast(), len) })
    };
    let is_kept = catch_unwind(AssertUnwindSafe(|| match asked {
        Asked::Kept { .. } => true,
        Asked::Make(making) => keep(&making),
    }));
    c_int::from(is_kept.unwrap_or(false))
}

/// The number of purges so far, for sendoff_fragment_store().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_fragments_purges(fragments: *const Fragments) -> u64 {
    // SAFETY: per this function's contract.
    unsafe { fragments.as_ref() }.map_or(0, |fragments| fragments.inner.purges())
}

/// Keeps a fragment for `ttl` seconds. `purges` is the number of purges before the data was made.
/// Returns 1, or 0 if it is not kept: it does not fit, or something was purged since.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_fragment_store(
    fragments: *const Fragments,
    key: *const c_char,
    key_len: usize,
    tags: *const Text,
    tag_count: usize,
    ttl: c_uint,
    data: *const c_char,
    len: usize,
    purges: u64,
) -> c_int {
    // SAFETY: per this function's contract.
    let (fragments, key, tags, data) = unsafe {
        let (key, data) = (bytes(key.cast(), key_len), bytes(data.cast(), len));
        (fragments.as_ref(), key, texts(tags, tag_count), data)
    };
    let Some(fragments) = fragments else { return 0 };
    let stored = catch_unwind(AssertUnwindSafe(|| {
        fragments.inner.store(key, &tags, seconds(ttl), data, purges)
    }));
    c_int::from(stored.unwrap_or(false))
}

/// Purges the fragments with this tag, for all processes; with `tag` NULL all fragments. The key of a
/// fragment is also its tag.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendoff_fragments_purge(
    fragments: *const Fragments,
    tag: *const c_char,
    len: usize,
) {
    // SAFETY: per this function's contract.
    let (fragments, tag) =
        unsafe { (fragments.as_ref(), (!tag.is_null()).then(|| bytes(tag.cast(), len))) };
    if let Some(fragments) = fragments {
        fragments.inner.purge(tag);
    }
}

fn seconds(ttl: c_uint) -> Duration {
    Duration::from_secs(ttl.into())
}
