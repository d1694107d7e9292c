//! Reads memory during a walk.
//!
//! Plain loads happen in three places only: on the thread's known stack between the interrupted stack pointer
//! and the stack's top, inside the unwind information of modules that are never unmapped, and in the committed
//! part of a JVM's code heaps, which HotSpot never unmaps. All other memory (coroutine stacks, alternate stacks,
//! modules that may be unmapped) is copied by `process_vm_readv`, which fails instead of faulting, a page at a
//! time. The copies are cached for the rest of the walk, and a
//! walk makes a limited number of them.
//!
//! No SIGSEGV handler catches a failed load: it would conflict with those of the program.

use crate::os::sys;

/// The walker's access to memory. The handler uses [`Local`]; tests read another, stopped process.
pub trait Memory {
    /// Reads eight bytes of the stack (or of the target of a location expression).
    fn word(&mut self, address: u64) -> Option<u64>;
    /// Sets the range that [`Memory::info`] may read; `plain` allows loads without a probe.
    fn set_info(&mut self, from: u64, to: u64, plain: bool);
    /// Reads `bytes` (1..=8) little-endian bytes of unwind information inside the range set before.
    fn info(&mut self, address: u64, bytes: u32) -> Option<u64>;
    /// Reads like [`Memory::word`], but only if this takes no system call.
    fn plain_word(&self, address: u64) -> Option<u64>;
    /// Prefetches the cache lines of the stack from `sp` on; a hint.
    fn prefetch(&self, sp: u64);
    /// Announces that the walk continues at `sp` on a stack that the kernel switched from (signal frame).
    fn switched(&mut self, sp: u64);
    /// Returns true if both addresses lie on the same known stack.
    fn same_stack(&self, a: u64, b: u64) -> bool;
    /// Returns true if the memory is this process's, so that its own loader knows modules that are not in the
    /// tables.
    fn ask_loader(&self) -> bool {
        false
    }
    /// Returns true if a read failed because the walk has made its maximum number of copies.
    fn is_exhausted(&self) -> bool {
        false
    }
    /// Returns a guess of the frame pointer at `pc` with stack pointer `sp`, for walks that do not have it in
    /// a register.
    fn frame_pointer(&mut self, _pc: u64, _sp: u64) -> Option<u64> {
        None
    }
}

const WINDOW: usize = 4096;
const WINDOWS: usize = 8;

/// Maximum number of copies in one walk. Each takes about half a microsecond, so this bounds the time of a walk.
pub const MOST_COPIES: u32 = 96;

/// Copies of memory that may be unmapped, whole pages of 4 KiB.
#[repr(C)]
pub struct Windows {
    /// Start address of each copy; 1 = none.
    starts: [u64; WINDOWS],
    /// Index of the copy to replace next, and of the copy read last, which is never replaced.
    next: usize,
    last: usize,
    /// Copies that may still be made.
    left: u32,
    /// A copy was refused.
    exhausted: bool,
    bytes: [[u8; WINDOW]; WINDOWS],
}

impl Windows {
    /// Discards all copies.
    #[inline]
    pub fn clear(&mut self) {
        self.starts = [1; WINDOWS];
        self.left = MOST_COPIES;
        self.exhausted = false;
    }

    /// Bytes at `address` of process `pid`, through a window.
    pub fn read(&mut self, pid: u32, address: u64, bytes: u32) -> Option<u64> {
        let (start, offset) = split(address);
        let bytes = bytes.min(8) as usize;
        let mut word = [0u8; 8];
        let here = bytes.min(WINDOW.wrapping_sub(offset));
        let window = self.window(pid, start)?;
        word.get_mut(..here)?.copy_from_slice(window.get(offset..)?.get(..here)?);
        if here < bytes {
            let next = self.window(pid, start.checked_add(WINDOW as u64)?)?;
            word.get_mut(here..bytes)?.copy_from_slice(next.get(..bytes.wrapping_sub(here))?);
        }
        Some(u64::from_le_bytes(word))
    }

    #[inline]
    fn window(&mut self, pid: u32, start: u64) -> Option<&[u8; WINDOW]> {
        if self.starts.get(self.last) != Some(&start) {
            self.last = match self.starts.iter().position(|known| *known == start) {
                Some(known) => known,
                None => self.copy(pid, start)?,
            };
        }
        self.bytes.get(self.last)
    }

    #[inline(never)]
    fn copy(&mut self, pid: u32, start: u64) -> Option<usize> {
        let Some(left) = self.left.checked_sub(1) else {
            self.exhausted = true;
            return None;
        };
        self.left = left;
        let mut i = self.next % WINDOWS;
        if i == self.last {
            i = i.wrapping_add(1) % WINDOWS;
        }
        self.next = i.wrapping_add(1);
        let window = self.bytes.get_mut(i)?;
        let slot = self.starts.get_mut(i)?;
        *slot = 1;
        // SAFETY: the window is WINDOW bytes long.
        let got = unsafe { sys::read_process(pid, start, window.as_mut_ptr(), WINDOW) };
        if got != WINDOW {
            return None;
        }
        *slot = start;
        Some(i)
    }
}

/// Start of the window that contains `address`, and the offset in it.
#[inline]
fn split(address: u64) -> (u64, usize) {
    let mask = (WINDOW as u64).wrapping_sub(1);
    (address & !mask, (address & mask) as usize)
}

/// Bytes of stack prefetched before a walk: the size of about forty frames.
const AHEAD: u64 = 8192;

/// Prefetches a cache line. Never faults.
#[inline]
pub fn prefetch(address: u64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address only hints.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address as *const i8);
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch of any address only hints.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
}

/// Largest distance below the known stack that counts as an overflow.
const MAX_OVERFLOW: u64 = 1 << 20;

/// Memory of the process that runs the handler.
pub struct Local<'a> {
    pid: u32,
    /// Known stack of the thread.
    stack: (u64, u64),
    /// Lowest address of it that is proved to be in use; `stack.1` while the walk is on another stack.
    floor: u64,
    /// The walk is just below the known stack: the stack has overflowed.
    overflowed: bool,
    info: (u64, u64),
    plain: bool,
    windows: &'a mut Windows,
}

impl<'a> Local<'a> {
    /// Prepares a walk that starts at stack pointer `sp` of a thread whose stack is `stack`, (0, 0) if
    /// unknown.
    ///
    /// # Safety
    /// `sp` is the thread's interrupted stack pointer and, if it lies in `stack`, memory from there to `stack.1` is
    /// mapped and readable.
    #[inline]
    pub unsafe fn new(pid: u32, stack: (u64, u64), sp: u64, windows: &'a mut Windows) -> Local<'a> {
        windows.clear();
        let mut local =
            Local { pid, stack, floor: stack.1, overflowed: false, info: (0, 0), plain: false, windows };
        local.switched(sp);
        local
    }
}

impl Memory for Local<'_> {
    #[inline]
    fn word(&mut self, address: u64) -> Option<u64> {
        if let Some(word) = self.plain_word(address) {
            return Some(word);
        }
        let word = self.windows.read(self.pid, address, 8)?;
        if self.overflowed && address >= self.stack.0 && address < self.stack.1 {
            // This address was in use before the overflow, and so was the rest of the stack above it.
            self.overflowed = false;
            self.floor = address & !7;
        }
        Some(word)
    }

    #[inline]
    fn plain_word(&self, address: u64) -> Option<u64> {
        let last = self.stack.1.wrapping_sub(8);
        if address >= self.floor && address <= last && address & 7 == 0 {
            // SAFETY: inside [interrupted sp, top) of the thread's own stack; aligned; other threads may write it.
            return Some(unsafe { (address as *const u64).read_volatile() });
        }
        None
    }

    #[inline]
    fn prefetch(&self, sp: u64) {
        let end = sp.saturating_add(AHEAD).min(self.stack.1);
        let mut line = sp & !63;
        while line < end {
            prefetch(line);
            line = line.wrapping_add(64);
        }
    }

    #[inline]
    fn set_info(&mut self, from: u64, to: u64, plain: bool) {
        self.info = (from, to);
        self.plain = plain;
    }

    #[inline]
    fn info(&mut self, address: u64, bytes: u32) -> Option<u64> {
        let end = address.checked_add(u64::from(bytes))?;
        if address < self.info.0 || end > self.info.1 {
            return None;
        }
        if !self.plain {
            return self.windows.read(self.pid, address, bytes);
        }
        let at = address as *const u8;
        // SAFETY: inside the unwind information of a module that stays mapped; unaligned reads are intended.
        let value = unsafe {
            match bytes {
                1 => u64::from(at.read_volatile()),
                2 => u64::from(at.cast::<u16>().read_unaligned()),
                4 => u64::from(at.cast::<u32>().read_unaligned()),
                8 => at.cast::<u64>().read_unaligned(),
                _ => return None,
            }
        };
        Some(value)
    }

    #[inline]
    fn switched(&mut self, sp: u64) {
        if sp >= self.stack.0 && sp < self.stack.1 {
            self.floor = if self.floor == self.stack.1 { sp } else { self.floor.min(sp) };
        } else if sp < self.stack.0
            && self.stack.0.wrapping_sub(sp) < MAX_OVERFLOW
            && self.floor == self.stack.1
        {
            self.overflowed = true;
        }
    }

    #[inline]
    fn same_stack(&self, a: u64, b: u64) -> bool {
        let known = |x: u64| x >= self.stack.0 && x < self.stack.1;
        known(a) == known(b)
    }

    #[inline]
    fn ask_loader(&self) -> bool {
        true
    }

    fn is_exhausted(&self) -> bool {
        self.windows.exhausted
    }
}
