//! The program's allocator: mimalloc, but for large blocks where there is little memory. Those are the C library's, which takes each from the system and gives it back at once.
//!
//! What the process has in memory is compared with its budget. Mimalloc gives free pages back within a moment, but a thread's large blocks that were freed stay with it until it allocates
//! again: values of a megabyte from other nodes had a small container's node killed. To take each from the system costs time, which is why it is not done where a machine or a container has
//! room (decision 61).
//!
//! The one place with unsafe code: an allocator cannot be written without.
#![allow(unsafe_code)]

use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Blocks from so many bytes on are large. Above it, mimalloc takes a whole page of its own for each.
const LARGE: usize = 128 << 10;

/// With less than this in the machine or the process's control group there is little memory, in bytes.
const LITTLE: u64 = 1 << 30;

/// See the module.
pub(crate) struct Allocator {
    /// Blocks from so many bytes on are the C library's. It changes once, before there is any of them.
    large: AtomicUsize,
}

impl Allocator {
    pub(crate) const fn new() -> Allocator {
        Allocator { large: AtomicUsize::new(usize::MAX) }
    }

    /// Has large blocks taken from the system where there is little memory. To be called first in the program: whose a block is follows from its size.
    pub(crate) fn prepare(&self) {
        if rheostat_server::available().is_some_and(|bytes| bytes < LITTLE) {
            self.take_large_from_the_system();
        }
    }

    fn take_large_from_the_system(&self) {
        // Without this the C library maps fewer and fewer of them: each one that is freed raises its threshold.
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        // SAFETY: the option is a number that the C library only compares sizes with.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, libc::c_int::try_from(LARGE).expect("fits"));
        }
        self.large.store(LARGE, Ordering::Relaxed);
    }

    /// Whether a block of so many bytes is the C library's.
    fn is_large(&self, size: usize) -> bool {
        size >= self.large.load(Ordering::Relaxed)
    }
}

// SAFETY: whose block it is follows from its size, which its layout says whenever it is given back or changed; each of the two does what is asked of this one.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if self.is_large(layout.size()) { unsafe { System.alloc(layout) } } else { unsafe { MiMalloc.alloc(layout) } }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if self.is_large(layout.size()) { unsafe { System.alloc_zeroed(layout) } } else { unsafe { MiMalloc.alloc_zeroed(layout) } }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if self.is_large(layout.size()) { unsafe { System.dealloc(block, layout) } } else { unsafe { MiMalloc.dealloc(block, layout) } }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match (self.is_large(layout.size()), self.is_large(size)) {
            (true, true) => return unsafe { System.realloc(block, layout, size) },
            (false, false) => return unsafe { MiMalloc.realloc(block, layout, size) },
            _ => {}
        }
        // SAFETY: the caller promises that `size`, rounded up to the alignment, is no more than a layout may have. The two blocks are apart, and each has the bytes that are copied.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !new.is_null() {
                std::ptr::copy_nonoverlapping(block, new, layout.size().min(size));
                self.dealloc(block, layout);
            }
            new
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Allocator {
        let allocator = Allocator::new();
        allocator.take_large_from_the_system();
        allocator
    }

    fn byte(at: usize) -> u8 {
        u8::try_from(at % 251).unwrap()
    }

    /// Whether the block's first bytes are what [`byte`] says.
    unsafe fn holds(block: *mut u8, bytes: usize) -> bool {
        (0..bytes).all(|at| unsafe { block.add(at).read() } == byte(at))
    }

    #[test]
    fn a_block_keeps_its_bytes_when_it_becomes_large_and_small_again() {
        let allocator = small();
        for align in [1, 16, 4096] {
            let sizes = [100, LARGE - 1, LARGE, 3 * LARGE, LARGE + 1, LARGE - 1, 2 * LARGE, 100, 5 * LARGE, 100];
            let layout = |size| Layout::from_size_align(size, align).unwrap();
            // SAFETY: the block is used within its size, and given back with the layout that it has then.
            unsafe {
                let mut block = allocator.alloc(layout(sizes[0]));
                (0..sizes[0]).for_each(|at| block.add(at).write(byte(at)));
                for pair in sizes.windows(2) {
                    block = allocator.realloc(block, layout(pair[0]), pair[1]);
                    assert!(!block.is_null() && block.addr().is_multiple_of(align), "{pair:?}, aligned to {align}");
                    assert!(holds(block, pair[0].min(pair[1])), "{pair:?}, aligned to {align}");
                    (0..pair[1]).for_each(|at| block.add(at).write(byte(at)));
                }
                allocator.dealloc(block, layout(100));
            }
        }
    }

    #[test]
    fn zeroed_blocks_of_both_kinds_are_zero_where_others_were_freed() {
        let allocator = small();
        for size in [LARGE - 1, LARGE, 8 * LARGE] {
            let layout = Layout::from_size_align(size, 8).unwrap();
            // SAFETY: as above.
            unsafe {
                let used = allocator.alloc(layout);
                used.write_bytes(0xff, size);
                allocator.dealloc(used, layout);
                let zeroed = allocator.alloc_zeroed(layout);
                assert!((0..size).all(|at| zeroed.add(at).read() == 0), "{size} bytes");
                allocator.dealloc(zeroed, layout);
            }
        }
    }
}
