//! Stacks of one process that consist of registers and a copy of the stack, or of a call chain from the
//! kernel: walks and symbolizes them.

use std::sync::atomic::AtomicU64;

use flightline_in_signal::layout::{JvmLayout, java_frame, sample_flags, walk_end};
use flightline_in_signal::unwind::interrupted::{Regs, arch};

use super::chain::{Chains, World};
use super::{RemoteUnwinder, Stopped};
use crate::perf_events::record::Mapped;
use crate::{
    names::frames::{Frames, Resolved},
    names::images::Images,
    names::intern::{Interner, TraceIndex},
    names::modules::{Line, ModuleMap},
    names::stack_table::StackTable,
    os::clock::monotonic_ns,
    recording::RecordingId,
    settings,
};

/// Time between two looks at the JVM, ns.
const JVM_NS: u64 = 50_000_000;

/// The code of a process, and its symbolized stacks.
#[derive(Default)]
pub struct Stacks {
    /// The mappings.
    pub modules: ModuleMap,
    /// Frames of addresses.
    pub frames: Frames,
    /// Created for the first stack, because most processes of a machine have none.
    walker: Option<Box<RemoteUnwinder>>,
    /// The code cache of its JVM.
    jvm: JvmLayout,
    /// When the JVM was last looked at, CLOCK_MONOTONIC ns.
    jvm_ns: u64,
    chains: Chains,
    versions: (u64, u32, u64, RecordingId),
    /// Walked stacks, each preceded by its two other words, and their traces in the output.
    stacks: StackTable<u64>,
    traces: Vec<TraceIndex>,
    words: Vec<u64>,
}

/// A stack from the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Copied<'a> {
    /// User registers; `None` for kernel threads and 32-bit programs.
    pub regs: Option<&'a Regs>,
    /// The user stack, from the stack pointer on.
    pub copy: &'a [u8],
    /// Return addresses in the kernel, leaf first.
    pub kernel: &'a [u64],
    /// The kernel's walk along frame pointers of the program, leaf first.
    pub user: &'a [u64],
}

/// A walked stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stack {
    /// The reason why it is cut, if it is ([`walk_end`]).
    pub truncated: Option<u16>,
    /// Bit i: frame i (of the first 64) is not a return address.
    pub exact: u64,
    /// Addresses, leaf first.
    pub frames: Vec<u64>,
}

/// Returns the number of frames that a chain of frame pointers from `regs` has in the copied stack before it
/// reaches the frame pointer `last`; `None` if it does not reach it.
fn frames_below(last: u64, regs: &Regs, copy: &[u8]) -> Option<usize> {
    let mut fp = regs.get(arch::FP)?;
    // Each frame pointer of a chain within one stack is higher than the previous one.
    for count in 0..copy.len() / 16 {
        if fp == last {
            return Some(count);
        }
        let at = usize::try_from(fp.checked_sub(regs.sp())?).ok()?;
        let next = u64::from_le_bytes(*copy.get(at..)?.first_chunk::<8>()?);
        if next <= fp && next != last {
            return None;
        }
        fp = next;
    }
    None
}

/// Returns true if the kernel copied as much of the stack as the event allows. Otherwise it stopped at an
/// unreadable page.
fn is_full(sp: u64, copy: &[u8]) -> bool {
    const PAGE: u64 = 4096;
    !copy.is_empty() && !sp.wrapping_add(copy.len() as u64).is_multiple_of(PAGE)
}

impl Stacks {
    /// Copies the state that a forked child inherits from its parent.
    pub fn inherit(&mut self, parent: &Stacks) {
        self.modules = parent.modules.clone();
    }

    /// Reads the current mappings.
    pub fn read_maps(&mut self, pid: u32, images: &mut Images) {
        let _ = self.modules.read_process_maps(pid, images);
    }

    /// Adds a mapping.
    pub fn mapped(&mut self, mapped: &Mapped<'_>, images: &mut Images) {
        let path = String::from_utf8_lossy(mapped.path);
        let line = Line {
            start: mapped.range.0,
            end: mapped.range.1,
            executable: mapped.executable,
            offset: mapped.offset,
            device: mapped.device,
            inode: mapped.inode,
            path: if path.starts_with("//anon") { "" } else { &path },
        };
        self.modules.mapped(mapped.pid, &line, images);
    }

    /// Walks a copied stack. Returns `None`, if it may `wait`, when the walk does not reach the root and
    /// unwind tables of a module on its way are still being read. `rows` is the arena of unwind tables.
    pub fn walk(
        &mut self,
        pid: u32,
        copied: &Copied<'_>,
        wait: bool,
        depth: usize,
        images: &mut Images,
        rows: &[AtomicU64],
    ) -> Option<Stack> {
        let Copied { regs, copy, kernel, user } = *copied;
        self.look_for_jvm(pid, images);
        let Some(regs) = regs else {
            // In the kernel after the program's memory was released, or a 32-bit program.
            let truncated = kernel.is_empty().then_some(walk_end::NO_INFO);
            return Some(Stack { truncated, exact: 1, frames: kernel.to_vec() });
        };
        let stopped = Stopped {
            pid,
            regs,
            stack: (regs.sp(), regs.sp().saturating_add(copy.len() as u64)),
            copied: (regs.sp(), copy),
            runs_on: true,
            jvm: Some(&self.jvm),
        };
        let Stacks { modules, walker, chains, .. } = self;
        let walker = walker.get_or_insert_with(|| Box::new(RemoteUnwinder::new()));
        let (walked, frames) = walker.walk(&stopped, modules, images, rows, depth);
        // A guess may stop at a wrong root, which the unwind table of a pending file will correct.
        let doubtful = walked.end != walk_end::ROOT || walked.flags & sample_flags::GUESSED != 0;
        let image = |address: &u64| modules.find(*address).map(|m| m.image);
        let unread = doubtful && frames.iter().filter_map(image).any(|image| !images.want(image));
        if unread && wait {
            return None;
        }
        let end = match walked.end {
            walk_end::ROOT if unread => walk_end::NO_INFO,
            walk_end::BAD_STACK if is_full(regs.sp(), copy) => walk_end::COPY_END,
            end => end,
        };
        let mut truncated = end != walk_end::ROOT;
        let mut exact = walked.exact_frames;
        let mut all = Vec::with_capacity(kernel.len() + frames.len());
        if truncated {
            let mut longer = frames.to_vec();
            let mut world = World { pid, modules, images, rows, walker };
            let above = frames_below(walked.fp, regs, copy).and_then(|count| user.get(count + 1..));
            truncated = !chains.go_on(&mut longer, user, above, depth, &mut world);
            all.extend_from_slice(kernel);
            all.extend(longer);
        } else {
            all.extend_from_slice(kernel);
            all.extend_from_slice(frames);
        }
        if !kernel.is_empty() {
            exact = exact.checked_shl(kernel.len() as u32).unwrap_or(0) | 1;
        }
        Some(Stack { truncated: truncated.then_some(end), exact, frames: all })
    }

    /// Searches for a JVM, or for new code in it.
    fn look_for_jvm(&mut self, pid: u32, images: &Images) {
        let now_ns = monotonic_ns();
        if now_ns.saturating_sub(self.jvm_ns) >= JVM_NS {
            self.jvm_ns = now_ns;
            // A JVM that is not supported is recorded as a native program.
            let _ = self.frames.java.find_jvm(pid, &self.jvm, &self.modules, images, now_ns);
        }
    }

    /// Walks the stack of a sleeping thread, from its program counter and stack pointer.
    pub fn walk_asleep(
        &mut self,
        pid: u32,
        (pc, sp): (u64, u64),
        depth: usize,
        images: &mut Images,
        rows: &[AtomicU64],
    ) -> Stack {
        self.look_for_jvm(pid, images);
        let mut regs = Regs::unknown();
        regs.pc = pc;
        regs.set(arch::SP, sp);
        let asleep = Stopped {
            pid,
            regs: &regs,
            stack: (0, 0),
            copied: (0, &[]),
            runs_on: false,
            jvm: Some(&self.jvm),
        };
        let Stacks { modules, walker, .. } = self;
        let walker = walker.get_or_insert_with(|| Box::new(RemoteUnwinder::new()));
        let (walked, frames) = walker.walk(&asleep, modules, images, rows, depth);
        let cut = walked.flags & sample_flags::TRUNCATED != 0;
        Stack { truncated: cut.then_some(walked.end), exact: walked.exact_frames, frames: frames.to_vec() }
    }

    /// Returns the trace of the stack in a recording; `None` while symbols are being read, unless `anyway` is
    /// set.
    pub fn trace(
        &mut self,
        stack: &Stack,
        anyway: bool,
        recording: RecordingId,
        interner: &mut Interner,
        images: &mut Images,
    ) -> Option<TraceIndex> {
        let versions = (self.modules.version, interner.generation, self.frames.version(), recording);
        let bytes = self.frames.bytes() + self.stacks.bytes();
        if versions != self.versions || bytes > settings::STACK_BYTES[1] {
            self.versions = versions;
            self.frames.clear();
            self.stacks.clear();
            self.traces.clear();
        }
        self.words.clear();
        self.words.extend([stack.truncated.map_or(0, |reason| 1 + u64::from(reason)), stack.exact]);
        self.words.extend_from_slice(&stack.frames);
        if let Some(known) = self.stacks.find(&self.words).and_then(|at| self.traces.get(at as usize)) {
            return Some(*known);
        }
        let mut sequence = Vec::with_capacity(stack.frames.len() + 1);
        sequence.push(u32::from(stack.truncated.is_some()));
        let (mut complete, mut known) = (true, true);
        for (i, &address) in stack.frames.iter().enumerate() {
            let exact = i < 64 && stack.exact >> i & 1 == 1;
            if java_frame::is_java(address) {
                let next = stack.frames.get(i + 1).copied().unwrap_or(0);
                self.frames.java.resolve(address, next, exact, interner, &mut sequence);
                continue;
            }
            // A return address may be the first address of the next function.
            let address = if exact { address } else { address.wrapping_sub(1) };
            let resolved =
                self.frames.resolve(address, &self.modules, interner, images, anyway, &mut sequence);
            complete &= !matches!(resolved, Resolved::Waiting | Resolved::Unnamed);
            known &= resolved == Resolved::Known;
        }
        let trace = complete.then(|| interner.trace(&sequence))?;
        if known {
            self.stacks.intern(&self.words);
            self.traces.push(trace);
        }
        Some(trace)
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn copy_that_ends_within_a_page_is_full() {
        assert!(is_full(0x7008, &[0; 4096]) && is_full(0x7ff8, &[0; 16]));
        assert!(!is_full(0x7008, &[0; 4088]) && !is_full(0x7008, &[]));
    }

    #[test]
    fn frame_pointers_are_counted_up_to_the_last_one() {
        const SP: u64 = 0x7000;
        const OTHER_STACK: u64 = 0x1000;
        let mut regs = Regs::unknown();
        regs.set(arch::SP, SP);
        regs.set(arch::FP, SP + 16);
        let mut words = [0u64; 12];
        (words[2], words[6]) = (SP + 48, OTHER_STACK);
        let copy: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        for (last, count) in [(SP + 16, Some(0)), (SP + 48, Some(1)), (OTHER_STACK, Some(2)), (SP + 64, None)]
        {
            assert_eq!(frames_below(last, &regs, &copy), count, "{last:#x}");
        }
        // A frame pointer register that the code uses for another purpose.
        regs.set(arch::FP, 5);
        assert_eq!(frames_below(OTHER_STACK, &regs, &copy), None);
        // A chain that does not lead upwards.
        regs.set(arch::FP, SP + 16);
        let copy: Vec<u8> = [0, 0, SP + 16, 0].iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
        assert_eq!(frames_below(OTHER_STACK, &regs, &copy), None);
    }
}
