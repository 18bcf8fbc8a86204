//! The allocator of the server's programs: the C library's, except that event loops keep a few
//! freed blocks for themselves.
//!
//! The C library has a short way for blocks of up to 1 KiB only. Each request of the front takes
//! larger ones (the state of its exchange, a buffer for its head, the fields of its response) and
//! frees them microseconds later; each costs the C library some 300 instructions, and this
//! allocator 20. Another allocator would do as well, but would not give the memory of a burst of
//! slow clients back to the system as `malloc_trim` does.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;

/// The largest block that the C library keeps per thread by itself, in bytes.
const SHORT: usize = 1032;

/// The largest block that is kept, in bytes: larger ones are rare.
const LARGEST: usize = 32 * 1024;

/// The alignment of all blocks of the C library, in bytes.
const ALIGNMENT: usize = 16;

/// Sizes whose blocks a thread keeps at a time. A request needs about five.
const SIZES: usize = 32;

/// Blocks of one size that a thread keeps. With 32 sizes of at most 32 KiB, a thread keeps 2 MiB at
/// most.
const MOST_KEPT: usize = 2;

thread_local! {
    /// Without a destructor, so that blocks can be freed while the thread ends.
    static KEPT: Kept = const { Kept { is_on: Cell::new(false), sizes: [const { Blocks::none() }; SIZES] } };
}

/// The allocator. It acts as [`System`] on threads that have not called
/// [`keep_on_this_thread`].
#[derive(Debug)]
pub struct Allocator;

/// Has this thread keep freed blocks. For event loops, which run until the process ends: a thread
/// never gives back what it has kept.
pub fn keep_on_this_thread() {
    KEPT.with(|kept| kept.is_on.set(true));
}

struct Kept {
    is_on: Cell<bool>,
    /// Indexed by [`place`].
    sizes: [Blocks; SIZES],
}

/// Freed blocks of one size.
struct Blocks {
    size: Cell<usize>,
    blocks: [Cell<*mut u8>; MOST_KEPT],
    /// The number of blocks.
    count: Cell<usize>,
}

impl Blocks {
    const fn none() -> Self {
        Self {
            size: Cell::new(0),
            blocks: [const { Cell::new(ptr::null_mut()) }; MOST_KEPT],
            count: Cell::new(0),
        }
    }
}

/// The place of a size. Sizes that share a place take turns.
fn place(size: usize) -> usize {
    (size ^ size >> 7) / ALIGNMENT % SIZES
}

fn is_kept(layout: Layout) -> bool {
    (SHORT + 1..=LARGEST).contains(&layout.size()) && layout.align() <= ALIGNMENT
}

impl Kept {
    /// A kept block of this size.
    fn take(&self, size: usize) -> Option<*mut u8> {
        let blocks = &self.sizes[place(size)];
        if blocks.size.get() != size {
            return None;
        }
        let last = blocks.count.get().checked_sub(1)?;
        blocks.count.set(last);
        Some(blocks.blocks[last].get())
    }

    /// Keeps a block if there is room for it.
    fn keep(&self, block: *mut u8, size: usize) -> bool {
        let blocks = &self.sizes[place(size)];
        let count = blocks.count.get();
        if !self.is_on.get() || count == MOST_KEPT || count > 0 && blocks.size.get() != size {
            return false;
        }
        blocks.size.set(size);
        blocks.blocks[count].set(block);
        blocks.count.set(count + 1);
        true
    }
}

// SAFETY: every block comes from `System` with the size and an alignment that it is asked for here,
// and `Kept` hands it out at most once between two calls that keep it. `Kept` belongs to one thread
// and does not allocate, so no call can come amid another.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_kept(layout)
            && let Some(block) = KEPT.with(|kept| kept.take(layout.size()))
        {
            return block;
        }
        // SAFETY: `System` asks the same of its caller as this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_kept(layout) && KEPT.with(|kept| kept.keep(block, layout.size())) {
            return;
        }
        // SAFETY: the block came from `System` with this layout, directly or after having been kept.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: `System` asks the same of its caller as this function.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the block came from `System` with this layout, directly or after having been kept.
        unsafe { System.realloc(block, layout, new_size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, ALIGNMENT).unwrap()
    }

    /// Allocates and frees as a program does.
    fn freed(size: usize) -> *mut u8 {
        // SAFETY: the block is written within its size and freed once, with its own layout.
        unsafe {
            let block = Allocator.alloc(layout(size));
            block.write_bytes(0xAA, size);
            Allocator.dealloc(block, layout(size));
            block
        }
    }

    #[test]
    fn an_event_loop_gets_its_own_blocks_again() {
        keep_on_this_thread();
        let kept = freed(5000);
        // SAFETY: each block is freed once, with its own layout.
        unsafe {
            let (again, other) = (Allocator.alloc(layout(5000)), Allocator.alloc(layout(5000)));
            assert_eq!(again, kept);
            assert_ne!(again, other, "a block in use is not handed out");
            let larger = Allocator.realloc(again, layout(5000), 9000);
            Allocator.dealloc(larger, layout(9000));
            Allocator.dealloc(other, layout(5000));
            let zeroed = Allocator.alloc_zeroed(layout(5000));
            assert_eq!((*zeroed, *zeroed.add(4999)), (0, 0));
            Allocator.dealloc(zeroed, layout(5000));
        }
    }

    #[test]
    fn little_is_kept_and_only_by_event_loops() {
        freed(5000);
        let count =
            || KEPT.with(|kept| kept.sizes.iter().map(|one| one.count.get()).sum::<usize>());
        assert_eq!(count(), 0);
        keep_on_this_thread();
        for size in [SHORT, LARGEST + 1] {
            freed(size);
        }
        assert_eq!(count(), 0);
        // SAFETY: each block is freed once, with its own layout.
        unsafe {
            let blocks: [_; MOST_KEPT + 1] = std::array::from_fn(|_| Allocator.alloc(layout(5000)));
            for block in blocks {
                Allocator.dealloc(block, layout(5000));
            }
        }
        assert_eq!(count(), MOST_KEPT);
        for size in SHORT..LARGEST {
            freed(size);
        }
        assert!(count() <= SIZES * MOST_KEPT);
    }
}
