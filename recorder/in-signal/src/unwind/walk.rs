//! The walk from the interrupted instruction to the root of the stack.
//!
//! Per frame: rule cache → rows of the module → its mapped unwind information → frame pointer as a guess. The
//! lookup uses the exact address for the interrupted instruction and for frames interrupted by a signal, and
//! one byte less for return addresses (a call may be the last instruction of its function). Only the stack
//! and frame pointer are followed; when a frame needs another register the walk starts again and interprets
//! every frame.
//!
//! A stack is complete only if the walk reached an undefined or null return address. A root that was not
//! reached is never added.

use crate::layout::{JvmLayout, ModuleEntry, sample_flags, walk_end};
use crate::unwind::eh_frame::{Failure, Machine};
pub use crate::unwind::frame_pointer_fallback::follows_call;
use crate::unwind::hotspot::CodeCache;
use crate::unwind::interrupted::{Regs, arch, strip};
use crate::unwind::loader;
use crate::unwind::modules::{Modules, is_plain};
use crate::unwind::rule::{Rule, Saved, Simple};
use crate::unwind::rule_cache::{RuleCache, Tag};
use crate::unwind::stack::Memory;
use crate::unwind::unwind_table::UnwindTable;

/// The tables that a walk uses.
#[derive(Clone, Copy)]
pub struct Lookup<'a> {
    /// The active modules.
    pub modules: Modules<'a>,
    /// Rows arena.
    pub rows: &'a [core::sync::atomic::AtomicU64],
    /// Rule cache and the tag of the present modules.
    pub rule_cache: &'a RuleCache,
    /// See [`Tag`].
    pub tag: Tag,
    /// The process's JVM.
    pub jvm: Option<&'a JvmLayout>,
}

/// Result of a walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walked {
    /// Frames written.
    pub depth: usize,
    /// [`walk_end`].
    pub end: u16,
    /// [`sample_flags`] GUESSED and TRUNCATED with the reason.
    pub flags: u16,
    /// As in [`crate::layout::SampleRecord::exact_frames`].
    pub exact_frames: u64,
    /// Addresses in no known module.
    pub unknown_pcs: u32,
    /// Frame pointer at the last frame, 0 if it is unknown.
    pub fp: u64,
}

/// Maximum number of stack changes that are not signal frames (coroutines, split stacks) followed in one
/// walk.
const MAX_SWITCHES: u32 = 8;

/// Maximum size of a frame that is found by its frame pointer.
pub(crate) const MAX_GUESSED_FRAME: u64 = 1 << 20;

pub(crate) struct Walk<'a, M> {
    pub(crate) lookup: &'a Lookup<'a>,
    pub(crate) memory: &'a mut M,
    pub(crate) machine: &'a mut Machine,
    pub(crate) regs: Regs,
    /// `regs.pc` is an address that was interrupted, not a return address.
    pub(crate) exact: bool,
    /// Interpret every frame, and track all registers.
    pub(crate) full: bool,
    switches: u32,
    pub(crate) code_cache: CodeCache<'a>,
    /// The committed part of the code heap that contains the frame; (0, 0) if the frame is not Java code.
    pub(crate) code_range: (u64, u64),
    pub(crate) result: Walked,
}

/// Maximum number of frames that are prefetched.
const MAX_AHEAD: usize = 64;

/// Starts the memory accesses of a walk in parallel. The walk itself makes them one after the other (stack
/// word → rule → next stack word), which on a cold stack takes most of the time. `last` are the addresses of
/// the previous walk, leaf first: most outer frames are the same again. Without them, the frame pointers are
/// followed. The results are hints only.
#[inline]
pub fn prefetch<M: Memory>(lookup: &Lookup<'_>, regs: &Regs, memory: &M, last: &[u64]) {
    let mut sp = regs.sp();
    memory.prefetch(sp);
    lookup.rule_cache.prefetch(regs.pc);
    if !last.is_empty() {
        for ra in last.iter().take(MAX_AHEAD).skip(1) {
            lookup.rule_cache.prefetch(ra.wrapping_sub(1));
        }
        return;
    }
    let mut fp = regs.get(arch::FP).unwrap_or(0);
    for _ in 0..MAX_AHEAD {
        if fp <= sp || fp.wrapping_sub(sp) >= MAX_GUESSED_FRAME {
            return;
        }
        let Some(ra) = memory.plain_word(fp.wrapping_add(8)) else { return };
        lookup.rule_cache.prefetch(strip(ra).wrapping_sub(1));
        let Some(next) = memory.plain_word(fp) else { return };
        sp = fp;
        fp = next;
    }
}

/// Walks from `regs` and writes addresses, leaf first, to `frames` (as many as fit).
pub fn walk<M: Memory>(
    lookup: &Lookup<'_>,
    regs: &Regs,
    memory: &mut M,
    machine: &mut Machine,
    frames: &mut [u64],
) -> Walked {
    let mut full = false;
    machine.simulator.begin_walk();
    let code_cache = CodeCache::new(lookup.jvm);
    loop {
        let result = Walked::default();
        let (regs, exact, switches, code_range) = (*regs, true, 0, (0, 0));
        let mut walk =
            Walk { lookup, memory, machine, regs, exact, full, switches, code_cache, code_range, result };
        let end = walk.run(frames);
        let mut result = walk.result;
        result.fp = walk.regs.get(arch::FP).unwrap_or(0);
        if end == Failure::NeedRegister && !full && !memory.is_exhausted() {
            full = true;
            continue;
        }
        let exhausted = memory.is_exhausted() || machine.simulator.is_exhausted();
        result.end = match end {
            Failure::Root => walk_end::ROOT,
            _ if exhausted => walk_end::TOO_LONG,
            Failure::NoInfo => walk_end::NO_INFO,
            Failure::BadInfo | Failure::NeedRegister => walk_end::BAD_INFO,
            Failure::BadStack => walk_end::BAD_STACK,
            Failure::Depth => walk_end::DEPTH,
            Failure::NoProgress => walk_end::NO_PROGRESS,
        };
        if result.end != walk_end::ROOT {
            result.flags |= sample_flags::TRUNCATED;
        }
        result.flags |= (result.end & sample_flags::REASON_MASK) << sample_flags::REASON_SHIFT;
        return result;
    }
}

impl<M: Memory> Walk<'_, M> {
    /// Returns why the walk ended.
    fn run(&mut self, frames: &mut [u64]) -> Failure {
        loop {
            let Some(frame) = frames.get_mut(self.result.depth) else { return Failure::Depth };
            *frame = self.regs.pc;
            if self.exact && self.result.depth < 64 {
                self.result.exact_frames |= 1 << self.result.depth;
            }
            self.result.depth = self.result.depth.wrapping_add(1);
            let caller = if self.code_cache.contains(self.regs.pc) {
                self.java_frame(frames).and_then(|found| if found { Ok(()) } else { self.caller() })
            } else {
                self.caller()
            };
            if let Err(end) = caller {
                return end;
            }
            if self.regs.pc == 0 {
                return Failure::Root;
            }
        }
    }

    /// Steps to the caller of the current frame.
    #[inline]
    fn caller(&mut self) -> Result<(), Failure> {
        let at = if self.exact { self.regs.pc } else { self.regs.pc.wrapping_sub(1) };
        if !self.full
            && let Some(value) = self.lookup.rule_cache.get(at, self.lookup.tag)
        {
            match Rule::unpack(value as u32) {
                Rule::Simple(simple) => return self.simple(simple),
                Rule::Root => return Err(Failure::Root),
                Rule::Gap | Rule::Complex => {}
            }
        }
        self.slow(at)
    }

    /// Finds the caller by rows, mapped unwind information or frame pointer.
    #[cold]
    #[inline(never)]
    fn slow(&mut self, at: u64) -> Result<(), Failure> {
        let module = self.lookup.modules.find(at).or_else(|| {
            // The drain will find the module and add its rows; until then the loader may know it.
            self.result.unknown_pcs = self.result.unknown_pcs.wrapping_add(1);
            self.memory.ask_loader().then(|| loader::find_object(at))?
        });
        let Some(module) = module else { return self.guess(at, None) };
        let mut rule = Rule::Complex;
        if !self.full && module.rows_off != 0 {
            let rows = UnwindTable::at(self.lookup.rows, module.rows_off, module.path_id);
            let found = rows.and_then(|rows| rows.rule(at.wrapping_sub(module.bias)));
            rule = found.unwrap_or(Rule::Complex);
        }
        if rule == Rule::Complex {
            rule = match self.interpret(at, &module)? {
                None => return Ok(()),
                Some(rule) => rule,
            };
        }
        self.lookup.rule_cache.put(at, self.lookup.tag, u64::from(rule.pack()));
        match rule {
            Rule::Simple(simple) => self.simple(simple),
            Rule::Root => Err(Failure::Root),
            Rule::Gap | Rule::Complex => self.guess(at, Some(&module)),
        }
    }

    /// Evaluates the mapped unwind information. Returns `Some(rule)` if the caller must apply the rule;
    /// `None` if the step is done.
    fn interpret(&mut self, at: u64, module: &ModuleEntry) -> Result<Option<Rule>, Failure> {
        if module.eh_frame_hdr == 0 {
            return Ok(Some(Rule::Gap));
        }
        self.memory.set_info(module.eh_readable_start, module.eh_readable_end, is_plain(module));
        match self.machine.evaluate(self.memory, module, at) {
            Ok(()) => {}
            Err(Failure::NoInfo | Failure::BadInfo) => return Ok(Some(Rule::Gap)),
            Err(other) => return Err(other),
        }
        let rule = self.machine.rule();
        if rule != Rule::Complex && !self.full {
            return Ok(Some(rule));
        }
        let signal_frame = self.machine.is_signal_frame();
        let before = self.regs.sp();
        let cfa = self.machine.step(self.memory, &mut self.regs)?;
        if signal_frame {
            self.memory.switched(self.regs.sp());
        } else {
            self.progress(before, cfa)?;
        }
        self.exact = signal_frame;
        Ok(None)
    }

    #[inline]
    fn simple(&mut self, rule: Simple) -> Result<(), Failure> {
        let sp = self.regs.sp();
        let base = match (rule.from_fp, self.regs.get(arch::FP)) {
            (false, _) => sp,
            (true, Some(fp)) => fp,
            (true, None) => self.missing_frame_pointer(sp)?,
        };
        let cfa = base.wrapping_add(rule.offset);
        self.progress_or_leaf(sp, cfa)?;
        let mut fp = self.regs.get(arch::FP);
        let ra = if cfg!(target_arch = "x86_64") {
            let ra = self.memory.word(cfa.wrapping_sub(8)).ok_or(Failure::BadStack)?;
            if let Saved::Fp(below) = rule.saved {
                let at = cfa.wrapping_sub(below);
                match self.memory.word(at) {
                    Some(saved) => fp = Some(saved),
                    // The word is popped already and lies below a copied stack: the register still has the
                    // value.
                    None if at < sp => {}
                    None => return Err(Failure::BadStack),
                }
            }
            ra
        } else {
            match rule.saved {
                Saved::Nothing => self.regs.get(arch::RA).ok_or(Failure::NeedRegister)?,
                Saved::Ra(below) => self.memory.word(cfa.wrapping_sub(below)).ok_or(Failure::BadStack)?,
                Saved::Fp(below) => {
                    let at = cfa.wrapping_sub(below);
                    fp = Some(self.memory.word(at).ok_or(Failure::BadStack)?);
                    self.memory.word(at.wrapping_add(8)).ok_or(Failure::BadStack)?
                }
            }
        };
        self.go_to(strip(ra), cfa, fp);
        Ok(())
    }

    /// Walks from outside do not have the registers of a thread that waits in the kernel.
    #[cold]
    #[inline(never)]
    fn missing_frame_pointer(&mut self, sp: u64) -> Result<u64, Failure> {
        let fp = self.memory.frame_pointer(self.regs.pc, sp).ok_or(Failure::NeedRegister)?;
        self.regs.set(arch::FP, fp);
        self.result.flags |= sample_flags::GUESSED;
        Ok(fp)
    }

    /// Sets program counter, stack and frame pointer, and marks all other registers as unknown.
    #[inline]
    pub(crate) fn go_to(&mut self, pc: u64, sp: u64, fp: Option<u64>) {
        self.regs.pc = pc;
        self.regs.valid = 0;
        self.regs.set(arch::SP, sp);
        if let Some(fp) = fp {
            self.regs.set(arch::FP, fp);
        }
        self.exact = false;
    }

    /// On aarch64 a leaf that has no frame keeps the stack pointer; elsewhere the CFA must grow.
    #[inline]
    fn progress_or_leaf(&mut self, sp: u64, cfa: u64) -> Result<(), Failure> {
        if cfa > sp || (cfg!(target_arch = "aarch64") && self.exact && cfa == sp) {
            return Ok(());
        }
        self.progress(sp, cfa)
    }

    #[cold]
    fn progress(&mut self, sp: u64, cfa: u64) -> Result<(), Failure> {
        if cfa > sp || (cfg!(target_arch = "aarch64") && self.exact && cfa == sp) {
            return Ok(());
        }
        self.switches = self.switches.wrapping_add(1);
        if self.memory.same_stack(sp, cfa) || self.switches > MAX_SWITCHES {
            return Err(Failure::NoProgress);
        }
        Ok(())
    }
}
