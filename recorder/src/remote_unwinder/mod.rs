//! Walks stacks of another process: of threads that wait in the kernel, or whose registers and stack were
//! copied.
//!
//! The walker is the same as in handlers, with our own module table and the arena of unwind tables, which is
//! mapped here too. The memory of the other process can only affect where a walk goes, never what it reads
//! here: every word is read with `process_vm_readv`.
//!
//! The registers of a thread that waits in the kernel may be unknown. If the frame pointer is missing, it is
//! searched above the stack pointer, and accepted if the call before its return address leads to the current
//! function. Such frames are marked as guessed.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use flightline_in_signal::layout::{JvmLayout, MAX_DEPTH, MODULES_PER_TABLE, ModuleTable, walk_end};
use flightline_in_signal::os::sys;
use flightline_in_signal::unwind::eh_frame::Machine;
use flightline_in_signal::unwind::interrupted::{Regs, arch};
use flightline_in_signal::unwind::modules::Modules;
use flightline_in_signal::unwind::rule_cache::{RuleCache, Tag};
use flightline_in_signal::unwind::stack::{Memory, Windows};
use flightline_in_signal::unwind::walk::{Lookup, Walked, walk};

use crate::{
    names::images::{ANONYMOUS, Images},
    names::modules::ModuleMap,
};

mod chain;
pub(crate) mod stacks;

const PAGE: usize = 4096;
/// Limit of copied pages of one stack; waiting threads rarely have deeper stacks.
const MAX_PAGES: usize = 256;
/// How far above the stack pointer to search for a frame with a frame pointer, bytes.
const SEARCH: u64 = 64 << 10;

/// Walks the stacks of one process.
pub struct RemoteUnwinder {
    table: Box<ModuleTable>,
    rule_cache: Box<RuleCache>,
    machine: Box<Machine>,
    windows: Box<Windows>,
    pages: Pages,
    code: Code,
    frames: Box<[u64; MAX_DEPTH]>,
    /// Version of the modules and number of unwind tables for which the module table was built.
    state: Option<(u64, usize)>,
}

/// Registers and memory of the thread to walk.
pub struct Stopped<'a> {
    /// The PID for `process_vm_readv`.
    pub pid: u32,
    /// The known registers.
    pub regs: &'a Regs,
    /// Range of the stack, (0, 0) if unknown.
    pub stack: (u64, u64),
    /// A copied part of the stack: its address, its bytes; empty if there is none.
    pub copied: (u64, &'a [u8]),
    /// The thread continues to run, so memory outside of the copy may have changed.
    pub runs_on: bool,
    /// The process's JVM.
    pub jvm: Option<&'a JvmLayout>,
}

impl Default for RemoteUnwinder {
    fn default() -> RemoteUnwinder {
        RemoteUnwinder::new()
    }
}

impl RemoteUnwinder {
    /// Returns an unwinder with empty caches.
    pub fn new() -> RemoteUnwinder {
        // SAFETY: all zero is an empty table, rule cache, interpreter state and array: in programs, these
        // live in zeroed memory.
        unsafe {
            RemoteUnwinder {
                table: Box::new_zeroed().assume_init(),
                rule_cache: Box::new_zeroed().assume_init(),
                machine: Box::new_zeroed().assume_init(),
                windows: Box::new_zeroed().assume_init(),
                pages: Pages::default(),
                code: Code::default(),
                frames: Box::new_zeroed().assume_init(),
                state: None,
            }
        }
    }

    /// Updates the module table to the current mappings.
    fn learn(&mut self, modules: &ModuleMap, images: &Images) {
        let ready = modules.current().iter().filter(|m| images.get(m.image).rows_off != 0).count();
        if self.state == Some((modules.version, ready)) {
            return;
        }
        self.state = Some((modules.version, ready));
        let entries = modules.table(images);
        for (to, entry) in self.table.entries.iter().zip(&entries) {
            to.store(*entry);
        }
        self.table.count.store(entries.len().min(MODULES_PER_TABLE) as u32, Relaxed);
        self.table.generation.fetch_add(1, Relaxed);
    }

    /// Walks a stack. The addresses, leaf first, can be read until the next walk. `rows` is the arena of
    /// unwind tables.
    pub fn walk(
        &mut self,
        thread: &Stopped<'_>,
        modules: &ModuleMap,
        images: &mut Images,
        rows: &[AtomicU64],
        depth: usize,
    ) -> (Walked, &[u64]) {
        self.learn(modules, images);
        let modules_now = Modules::new(&self.table);
        // The rule cache's tag has 16 bits. When they wrap, old rules must not match.
        if modules_now.generation() & 0xffff == 0 {
            // SAFETY: all zero is an empty cache.
            self.rule_cache = unsafe { Box::new_zeroed().assume_init() };
            self.table.generation.fetch_add(1, Relaxed);
        }
        let modules_now = Modules::new(&self.table);
        let tag = Tag(modules_now.generation() as u16);
        let lookup =
            Lookup { modules: modules_now, rows, rule_cache: &self.rule_cache, tag, jvm: thread.jvm };
        self.windows.clear();
        self.pages.clear();
        let mut memory = Remote {
            thread,
            info: (0, 0),
            windows: &mut self.windows,
            pages: &mut self.pages,
            code: &mut self.code,
            modules,
            images,
        };
        let depth = depth.min(MAX_DEPTH);
        let frames = &mut self.frames[..depth];
        let walked = walk(&lookup, thread.regs, &mut memory, &mut self.machine, frames);
        let found = &self.frames[..walked.depth.min(depth)];
        // Request all files that the walk met, so that the next walk has their unwind tables and the symbols
        // are available later.
        for mapping in found.iter().filter_map(|address| modules.find(*address)) {
            if mapping.image != ANONYMOUS {
                images.want(mapping.image);
            }
        }
        (walked, found)
    }

    /// Returns true if unwind information marks the function before a return address as a root, which has no
    /// caller.
    pub fn is_root(
        &mut self,
        pid: u32,
        address: u64,
        modules: &ModuleMap,
        images: &mut Images,
        rows: &[AtomicU64],
    ) -> bool {
        let mut regs = Regs::unknown();
        regs.pc = address.wrapping_sub(1);
        // Without a stack, the unwinder can only report a root.
        regs.set(arch::SP, PAGE as u64);
        let (stack, copied) = ((0, 0), (0, &[][..]));
        let nothing = Stopped { pid, regs: &regs, stack, copied, runs_on: true, jvm: None };
        self.walk(&nothing, modules, images, rows, 1).0.end == walk_end::ROOT
    }
}

/// Copied pages of a stack.
#[derive(Default)]
struct Pages {
    starts: Vec<u64>,
    bytes: Vec<Box<[u8; PAGE]>>,
}

impl Pages {
    fn clear(&mut self) {
        self.starts.clear();
    }

    fn word(&mut self, pid: u32, address: u64) -> Option<u64> {
        let start = address & !(PAGE as u64 - 1);
        let at = (address - start) as usize;
        let index = match self.starts.iter().rposition(|s| *s == start) {
            Some(index) => index,
            None => self.read(pid, start)?,
        };
        let bytes = self.bytes.get(index)?.get(at..at + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    fn read(&mut self, pid: u32, start: u64) -> Option<usize> {
        let index = self.starts.len();
        if index >= MAX_PAGES {
            return None;
        }
        if index == self.bytes.len() {
            self.bytes.push(Box::new([0; PAGE]));
        }
        let to = self.bytes.get_mut(index)?;
        // SAFETY: the buffer has PAGE bytes.
        let got = unsafe { sys::read_process(pid, start, to.as_mut_ptr(), PAGE) };
        (got == PAGE).then(|| {
            self.starts.push(start);
            index
        })
    }
}

/// Code and unwind information that walks have read, because the last samples of a process are walked after
/// its end.
#[derive(Default)]
struct Code(HashMap<u64, Box<[u8; PAGE]>>);

impl Code {
    /// Limit of pages of one process; above it, all are dropped.
    const MAX: usize = 256;

    fn keep(&mut self, pid: u32, address: u64) {
        let start = address & !(PAGE as u64 - 1);
        if self.0.contains_key(&start) {
            return;
        }
        if self.0.len() >= Code::MAX {
            self.0.clear();
        }
        let mut page = Box::new([0; PAGE]);
        // SAFETY: the buffer has PAGE bytes.
        if unsafe { sys::read_process(pid, start, page.as_mut_ptr(), PAGE) } == PAGE {
            self.0.insert(start, page);
        }
    }

    /// Returns `bytes` (1..=8) little-endian bytes of one page.
    fn read(&self, address: u64, bytes: u32) -> Option<u64> {
        let at = (address & (PAGE as u64 - 1)) as usize;
        let page = self.0.get(&(address - at as u64))?;
        let found = page.get(at..at + bytes.min(8) as usize)?;
        Some(found.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }
}

/// The other process's memory during one walk.
struct Remote<'a> {
    thread: &'a Stopped<'a>,
    info: (u64, u64),
    windows: &'a mut Windows,
    pages: &'a mut Pages,
    code: &'a mut Code,
    modules: &'a ModuleMap,
    images: &'a Images,
}

impl Remote<'_> {
    /// Returns the first address of the function that contains `address`.
    fn function(&self, address: u64) -> Option<u64> {
        let mapping = self.modules.find(address)?;
        let function = self.images.get(mapping.image).symbols.find(address.wrapping_sub(mapping.bias));
        Some(function.start.wrapping_add(mapping.bias))
    }

    /// Checks the instruction before `ra`: `Some(true)` for a call of `function`, `Some(false)` for an
    /// indirect call, `None` if it is no such call.
    fn called(&mut self, ra: u64, function: u64) -> Option<bool> {
        self.modules.find(ra.checked_sub(1)?)?;
        let five = self.windows.read(self.thread.pid, ra.checked_sub(5)?, 5)?;
        if five & 0xff == 0xe8 {
            let target = ra.wrapping_add_signed(i64::from((five >> 8) as u32 as i32));
            return Some(target == function);
        }
        // ff /2 with an operand of two to six bytes.
        let [_, _, b3, b2, b1] = five.to_le_bytes()[..5].try_into().ok()?;
        let indirect = |modrm: u8| modrm & 0x38 == 0x10;
        ((b2 == 0xff && indirect(b1)) || (b3 == 0xff && indirect(b2))).then_some(false)
    }
}

impl Memory for Remote<'_> {
    fn word(&mut self, address: u64) -> Option<u64> {
        let (start, bytes) = self.thread.copied;
        if let Some(at) = address.checked_sub(start)
            && let Some(word) =
                bytes.get(usize::try_from(at).ok()?..).and_then(|rest| rest.first_chunk::<8>())
        {
            return Some(u64::from_le_bytes(*word));
        }
        if self.thread.runs_on { None } else { self.pages.word(self.thread.pid, address) }
    }

    fn set_info(&mut self, from: u64, to: u64, _plain: bool) {
        self.info = (from, to);
    }

    fn info(&mut self, address: u64, bytes: u32) -> Option<u64> {
        let inside = address >= self.info.0 && address.checked_add(u64::from(bytes))? <= self.info.1;
        if !inside {
            return None;
        }
        // Java frames need many pages of the code cache, more than there are windows.
        let code = self.thread.jvm.is_some_and(|jvm| {
            address.wrapping_sub(jvm.code_start.load(Relaxed)) < jvm.code_size.load(Relaxed)
        });
        if code {
            let word = self.pages.word(self.thread.pid, address & !7)?;
            let (shift, bits) = (8 * (address & 7), 8 * u64::from(bytes.min(8)));
            if shift + bits <= 64 {
                return Some((word >> shift) & (u64::MAX >> (64 - bits.max(1))));
            }
        }
        let found = self.windows.read(self.thread.pid, address, bytes);
        match (found, self.thread.runs_on) {
            (Some(_), true) => self.code.keep(self.thread.pid, address),
            (None, true) => return self.code.read(address, bytes),
            _ => {}
        }
        found
    }

    fn plain_word(&self, _address: u64) -> Option<u64> {
        None
    }

    fn prefetch(&self, _sp: u64) {}

    fn switched(&mut self, _sp: u64) {}

    fn same_stack(&self, a: u64, b: u64) -> bool {
        let known = |x: u64| x >= self.thread.stack.0 && x < self.thread.stack.1;
        known(a) == known(b)
    }

    /// Returns the nearest pair of (caller's frame pointer, return address) above `sp` whose call leads to
    /// the function of `pc`. An indirect call may lead anywhere, so it is used only if there is no direct one
    /// and its frame pointer leads upwards.
    fn frame_pointer(&mut self, pc: u64, sp: u64) -> Option<u64> {
        if cfg!(not(target_arch = "x86_64")) {
            return None;
        }
        let function = self.function(pc.wrapping_sub(1))?;
        let mut second_best = None;
        let mut at = sp.checked_next_multiple_of(8)?;
        let end = sp.checked_add(SEARCH)?;
        let mut caller = self.word(at)?;
        while at < end {
            let Some(ra) = self.word(at.wrapping_add(8)) else { break };
            if ra > 0xffff {
                match self.called(ra, function) {
                    Some(true) => return Some(at),
                    Some(false)
                        if second_best.is_none() && (caller == 0 || caller > at && caller < at + SEARCH) =>
                    {
                        second_best = Some(at);
                    }
                    _ => {}
                }
            }
            caller = ra;
            at = at.wrapping_add(8);
        }
        second_best
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    mod java_frames;
    mod java_walker;

    use super::*;

    #[test]
    fn cached_code_is_readable_and_bounded() {
        let mut code = Code::default();
        let function = follows as fn(u32) -> u32 as usize as u64;
        code.keep(std::process::id(), function);
        // SAFETY: the first bytes of a function.
        let bytes = unsafe { *(function as *const [u8; 4]) };
        assert_eq!(code.read(function, 4), Some(u64::from(u32::from_le_bytes(bytes))));
        assert_eq!(code.read(function ^ 1 << 40, 4), None);
        assert_eq!(code.read(function | (PAGE as u64 - 1), 2), None, "across two pages");
        for page in 0..3 * Code::MAX as u64 {
            code.keep(std::process::id(), function + page * PAGE as u64);
        }
        assert!(code.0.len() <= Code::MAX);
    }

    fn follows(x: u32) -> u32 {
        x.wrapping_mul(3)
    }

    #[test]
    fn own_memory_is_read_by_pages() {
        let words: Vec<u64> = (0..2000).collect();
        let mut pages = Pages::default();
        let pid = std::process::id();
        for round in 0..2 {
            for (i, word) in words.iter().enumerate().step_by(7) {
                let at = (&raw const words[i]) as u64;
                assert_eq!(pages.word(pid, at), Some(*word), "round {round}");
            }
            assert!(pages.starts.len() <= 5);
            pages.clear();
        }
        assert_eq!(pages.word(pid, 8), None);
        assert_eq!(pages.word(pid, u64::MAX - 6), None);
        assert_eq!(
            pages.word(pid, ((&raw const words[1000]) as u64 & !4095) + 4092),
            None,
            "across two pages"
        );
    }
}
