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

/// The alignment of tasks, in bytes. The C library keeps no such blocks, whatever their size.
const TASK_ALIGNMENT: usize = 128;

/// Sizes whose blocks a thread keeps at a time. A request needs about five.
const SIZES: usize = 32;

/// Blocks of one size that a thread keeps: the streams of HTTP/2 and HTTP/3 that arrive together
/// have blocks of the same sizes. With 32 sizes of at most 32 KiB, a thread keeps 8 MiB at most.
const MOST_KEPT: usize = 8;

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
    /// Indexed by [`places`].
    sizes: [Blocks; SIZES],
}

/// Freed blocks of one size and alignment.
struct Blocks {
    kind: Cell<usize>,
    blocks: [Cell<*mut u8>; MOST_KEPT],
    /// The number of blocks.
    count: Cell<usize>,
}

impl Blocks {
    const fn none() -> Self {
        Self {
            kind: Cell::new(0),
            blocks: [const { Cell::new(ptr::null_mut()) }; MOST_KEPT],
            count: Cell::new(0),
        }
    }
}

/// The two places where blocks of a kind may be. Kinds that share a place take turns.
fn places(kind: usize) -> [usize; 2] {
    let hash = (kind ^ (kind >> 7)) / ALIGNMENT;
    [hash % SIZES, ((hash / SIZES) ^ hash ^ (SIZES / 2)) % SIZES]
}

/// The size and alignment of blocks as one number; `None` if such blocks are not kept.
fn kind(layout: Layout) -> Option<usize> {
    let size = layout.size();
    let (least, mark) = match layout.align() {
        ..=ALIGNMENT => (SHORT + 1, 0),
        TASK_ALIGNMENT => (1, 1 << 16),
        _ => return None,
    };
    (least..=LARGEST).contains(&size).then_some(size | mark)
}

impl Kept {
    /// A kept block of this kind.
    fn take(&self, kind: usize) -> Option<*mut u8> {
        let all = places(kind).map(|place| &self.sizes[place]);
        let blocks = all.into_iter().find(|blocks| blocks.kind.get() == kind)?;
        let last = blocks.count.get().checked_sub(1)?;
        blocks.count.set(last);
        Some(blocks.blocks[last].get())
    }

    /// Keeps a block if there is room for it.
    fn keep(&self, block: *mut u8, kind: usize) -> bool {
        let all = places(kind).map(|place| &self.sizes[place]);
        let own = all.iter().find(|blocks| blocks.kind.get() == kind);
        let Some(blocks) = own.or_else(|| all.iter().find(|blocks| blocks.count.get() == 0)) else {
            return false;
        };
        let count = blocks.count.get();
        if !self.is_on.get() || count == MOST_KEPT {
            return false;
        }
        blocks.kind.set(kind);
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
        if let Some(kind) = kind(layout)
            && let Some(block) = KEPT.with(|kept| kept.take(kind))
        {
            return block;
        }
        // SAFETY: `System` asks the same of its caller as this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if let Some(kind) = kind(layout)
            && KEPT.with(|kept| kept.keep(block, kind))
        {
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

    #[test]
    fn blocks_of_tasks_are_kept_whatever_their_size_and_stay_aligned() {
        keep_on_this_thread();
        let of = |align| Layout::from_size_align(256, align).unwrap();
        // SAFETY: each block is freed once, with its own layout.
        unsafe {
            let task = Allocator.alloc(of(TASK_ALIGNMENT));
            Allocator.dealloc(task, of(TASK_ALIGNMENT));
            let half = Allocator.alloc(of(TASK_ALIGNMENT / 2));
            assert_ne!(half, task, "only blocks of the same alignment are taken again");
            Allocator.dealloc(half, of(TASK_ALIGNMENT / 2));
            let again = Allocator.alloc(of(TASK_ALIGNMENT));
            assert_eq!((again, again.align_offset(TASK_ALIGNMENT)), (task, 0));
            Allocator.dealloc(again, of(TASK_ALIGNMENT));
        }
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
