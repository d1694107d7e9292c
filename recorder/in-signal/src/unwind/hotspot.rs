//! Steps through Java frames: code in the code cache of a HotSpot JVM.
//!
//! Compiled code and most stubs have a frame of fixed size, stored in the header of their code blob. The
//! segment map of the code heap finds the blob of an address. Interpreted frames are found by the frame
//! pointer. An interrupted prologue or epilogue is recognized by its instructions. The drain finds the names
//! ([`crate::layout::java_frame`] has the words that describe a frame).
//!
//! Code heaps are read by plain loads: HotSpot never unmaps them, and only committed parts are read. Another
//! thread can change a blob during the walk, so every value is checked before it is used. An address outside
//! the stack that a wrong value leads to is only read by a copy that can fail.

use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::layout::{CodeHeap, JvmLayout, java_frame};
use crate::unwind::eh_frame::Failure;
use crate::unwind::interrupted::arch;
use crate::unwind::loader;
use crate::unwind::stack::Memory;
use crate::unwind::walk::{MAX_GUESSED_FRAME, Walk};
use crate::unwind::x86::{Code, Instruction, Map, decode};

/// Offsets from the frame pointer of an interpreted frame.
const METHOD: u64 = 24;
const BYTECODE: u64 = 64;
const SENDER_SP: u64 = 8;

/// Maximum number of steps back in a segment map, each over at most 254 segments.
const MAX_SEGMENT_STEPS: u32 = 4096;
/// Maximum number of instructions of a prologue or epilogue.
const MAX_INSTRUCTIONS: u32 = 32;

/// Maximum number of registers that an intrinsic pushes below the frame of its method.
const MAX_PUSHES: u64 = 4;

/// Largest size of a method's arguments and locals that an adapter or the interpreter moves.
const MAX_ARGUMENTS: i64 = 1 << 16;

const RSP: u8 = 4;
const RBP: u8 = 5;
/// DWARF numbers of rbx and r13: the `Method*` at the entry of the interpreter, the bytecode pointer.
const RBX: usize = 3;
const R13: usize = 13;

/// The reserved code cache.
#[derive(Clone, Copy)]
pub(crate) struct CodeCache<'a> {
    layout: Option<&'a JvmLayout>,
    start: u64,
    size: u64,
}

impl<'a> CodeCache<'a> {
    /// The code cache of a process; empty if it has no JVM.
    #[inline]
    pub(crate) fn new(layout: Option<&'a JvmLayout>) -> CodeCache<'a> {
        let size = layout.map_or(0, |layout| layout.code_size.load(Acquire));
        let start = layout.map_or(0, |layout| layout.code_start.load(Relaxed));
        CodeCache { layout, start, size }
    }

    /// Returns true if an address lies in the code cache.
    #[inline]
    pub(crate) fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.size
    }
}

/// The code blob that contains an address.
#[derive(Clone, Copy)]
struct Blob {
    /// Start and end, without the header.
    start: u64,
    end: u64,
    /// First instruction.
    code: u64,
    /// One past the prologue; `None`: the JVM does not describe it.
    complete: Option<u64>,
    /// Bytes of a frame with its return address; 0: not fixed.
    frame: u64,
    compile_id: u32,
}

/// Instructions of a code heap. The range of [`Memory::info`] is the heap's committed part.
struct Instructions<'a, M>(&'a mut M);

impl<M: Memory> Code for Instructions<'_, M> {
    #[inline]
    fn byte(&mut self, at: u64) -> Option<u8> {
        self.0.info(at, 1).map(|byte| byte as u8)
    }
}

/// The caller of a frame.
#[derive(Clone, Copy)]
struct Caller {
    /// Stack pointer in the caller; the return address is right below it.
    sp: u64,
    fp: Option<u64>,
}

impl<M: Memory> Walk<'_, M> {
    /// Describes the frame in the code cache whose address was just written, and steps to its caller.
    /// `Ok(false)`: the code is not known, and other ways to step remain.
    #[cold]
    #[inline(never)]
    pub(crate) fn java_frame(&mut self, frames: &mut [u64]) -> Result<bool, Failure> {
        let (cache, pc) = (self.code_cache, self.regs.pc);
        let Some(layout) = cache.layout else { return Ok(false) };
        let [from, to] = layout.interpreter.each_ref().map(|word| word.load(Relaxed));
        if pc >= from && pc < to {
            return self.interpreted(frames).map(|()| true);
        }
        // A return address may be the end of its code.
        let at = if self.exact { pc } else { pc.wrapping_sub(1) };
        let Some(blob) = self.blob(layout, at) else { return Ok(false) };
        if let Some(last) = self.result.depth.checked_sub(1).and_then(|last| frames.get_mut(last)) {
            *last = java_frame::code(pc.wrapping_sub(cache.start), blob.compile_id);
        }
        if self.exact && blob.frame != 0 {
            if blob.complete.is_none() && self.simulate_epilogue(None, None) {
                return Ok(true);
            }
            // The simulation has set another range.
            self.memory.set_info(blob.start, blob.end, true);
            let caller = self.interrupted_prologue(&blob).or_else(|| self.interrupted_epilogue(&blob));
            if let Some(caller) = caller
                && self.return_to(caller)
            {
                return Ok(true);
            }
        }
        let sp = self.regs.sp();
        if blob.frame != 0 {
            let caller = sp.wrapping_add(blob.frame);
            let fp = self.memory.word(caller.wrapping_sub(16));
            // Calls of barriers save registers below the frame.
            let found = self.return_to(Caller { sp: caller, fp })
                || self.simulate_epilogue(None, None)
                || (self.exact && self.frame_below_pushes(caller));
            return if found { Ok(true) } else { Err(Failure::NoInfo) };
        }
        self.stub()
    }

    /// Steps out of compiled code that has pushed registers below its frame. Intrinsics do so around their loops,
    /// such as that of `String.compareTo`.
    fn frame_below_pushes(&mut self, caller: u64) -> bool {
        (1..=MAX_PUSHES).any(|pushes| {
            let sp = caller.wrapping_add(8 * pushes);
            let fp = self.memory.word(sp.wrapping_sub(16));
            self.return_to(Caller { sp, fp })
        })
    }

    /// Steps out of a stub without a fixed frame.
    fn stub(&mut self) -> Result<bool, Failure> {
        let fp = self.regs.get(arch::FP);
        if self.exact {
            if self.adapter() || self.simulate_epilogue(None, None) {
                return Ok(true);
            }
            let sp = self.regs.sp().wrapping_add(8);
            if self.memory.word(sp.wrapping_sub(8)).is_some_and(|ra| self.code_cache.contains(ra))
                && self.return_to(Caller { sp, fp })
            {
                return Ok(true);
            }
        }
        let Some(frame) = self.frame_by_pointer() else { return Err(Failure::NoInfo) };
        let fp = self.memory.word(frame);
        // The entry barrier of compiled methods has a word of -1 between the return address and the frame.
        let cookie = self.memory.word(frame.wrapping_add(8)) == Some(u64::MAX);
        let sp = frame.wrapping_add(if cookie { 24 } else { 16 });
        if self.return_to(Caller { sp, fp }) { Ok(true) } else { Err(Failure::NoInfo) }
    }

    /// Steps out of an adapter between compiled and interpreted code, which moves the arguments. While it does,
    /// the caller's stack pointer is in r13.
    fn adapter(&mut self) -> bool {
        let Some((sp, ra)) = self.sender_in_register() else { return false };
        let fp = self.regs.get(arch::FP);
        self.go_to(ra, sp, fp);
        true
    }

    /// The caller's stack pointer in r13, and the return address, while arguments or locals are being moved.
    /// The return address is below that stack pointer, on top of the stack or, in between, in rax.
    fn sender_in_register(&mut self) -> Option<(u64, u64)> {
        let (sp, sender) = (self.regs.sp(), self.regs.get(R13)?);
        let near = sender.wrapping_add(8) >= sp && sender.wrapping_sub(sp) as i64 <= MAX_ARGUMENTS;
        if !near || sender & 7 != 0 {
            return None;
        }
        let cache = self.code_cache;
        let is_code = |ra: &u64| cache.contains(*ra);
        let below = self.memory.word(sender.wrapping_sub(8)).filter(is_code);
        let ra = below.or_else(|| self.memory.word(sp).filter(is_code));
        Some((sender, ra.or_else(|| self.regs.get(0).filter(is_code))?))
    }

    /// The frame pointer, if it can point to the current frame.
    fn frame_by_pointer(&self) -> Option<u64> {
        let (fp, sp) = (self.regs.get(arch::FP)?, self.regs.sp());
        (fp >= sp && fp.wrapping_sub(sp) < MAX_GUESSED_FRAME && fp & 7 == 0).then_some(fp)
    }

    /// Continues at a caller. Returns false, and changes nothing, if its return address is not in known code.
    fn return_to(&mut self, caller: Caller) -> bool {
        if caller.sp <= self.regs.sp() || caller.sp & 7 != 0 {
            return false;
        }
        let Some(ra) = self.memory.word(caller.sp.wrapping_sub(8)) else { return false };
        let known = self.is_code(ra);
        if known {
            self.go_to(ra, caller.sp, caller.fp);
        }
        known
    }

    /// Returns true if a return address lies in the code cache or in a module.
    fn is_code(&self, ra: u64) -> bool {
        self.code_cache.contains(ra)
            || self.lookup.modules.find(ra.wrapping_sub(1)).is_some()
            || (self.memory.ask_loader() && loader::find_object(ra.wrapping_sub(1)).is_some())
    }

    /// Describes an interpreted frame and steps to its caller.
    fn interpreted(&mut self, frames: &mut [u64]) -> Result<(), Failure> {
        let entry = if self.exact { self.interpreter_entry() } else { None };
        let (method, bytecode, caller) = match entry {
            Some(entry) => entry,
            None => {
                let fp = self.frame_by_pointer().ok_or(Failure::NoInfo)?;
                let mut below = |distance: u64| self.memory.word(fp.wrapping_sub(distance));
                let method = below(METHOD).ok_or(Failure::BadStack)?;
                let saved = below(BYTECODE).ok_or(Failure::BadStack)?;
                let sender = below(SENDER_SP).ok_or(Failure::BadStack)?;
                let (caller_fp, ra) = (self.memory.word(fp), self.memory.word(fp.wrapping_add(8)));
                let near = sender > fp && sender.wrapping_sub(fp) < MAX_GUESSED_FRAME;
                let (true, Some(ra)) = (near, ra) else { return Err(Failure::NoInfo) };
                // The interpreter saves its bytecode pointer only before a call.
                let now = self.regs.get(R13).filter(|now| self.exact && now.abs_diff(saved) < 1 << 16);
                (method, now.unwrap_or(saved), (ra, Caller { sp: sender, fp: caller_fp }))
            }
        };
        let (ra, caller) = caller;
        if !self.is_code(ra) {
            return Err(Failure::NoInfo);
        }
        let words = java_frame::interpreted(method, bytecode);
        if let Some(last) = self.result.depth.checked_sub(1)
            && let Some([first, second]) = frames.get_mut(last..last.wrapping_add(2))
        {
            [*first, *second] = words;
            self.result.depth = self.result.depth.wrapping_add(1);
        } else {
            return Err(Failure::Depth);
        }
        self.go_to(ra, caller.sp, caller.fp);
        Ok(())
    }

    /// The method that the interpreter is entering, before it has a frame. Until then r13 is the stack pointer
    /// of the caller; afterwards it is the bytecode pointer, which is never on the stack.
    fn interpreter_entry(&mut self) -> Option<(u64, u64, (u64, Caller))> {
        let (sp, sender) = (self.regs.sp(), self.regs.get(R13)?);
        let (method, fp) = (self.regs.get(RBX)?, self.regs.get(arch::FP)?);
        if fp >= sp && fp < sender && self.memory.word(fp.wrapping_sub(SENDER_SP)) == Some(sender) {
            // The frame exists, and its method is about to be stored.
            let (caller, ra) = (self.memory.word(fp), self.memory.word(fp.wrapping_add(8))?);
            return Some((method, 0, (ra, Caller { sp: sender, fp: caller })));
        }
        let (sp, ra) = self.sender_in_register()?;
        Some((method, 0, (ra, Caller { sp, fp: Some(fp) })))
    }

    /// The caller of code that was interrupted before its frame is complete. The rest of the prologue shows
    /// by how much the stack pointer will still move.
    fn interrupted_prologue(&mut self, blob: &Blob) -> Option<Caller> {
        let (mut at, complete) = (self.regs.pc, blob.complete?);
        if at < blob.code || at >= complete {
            return None;
        }
        let (mut ahead, mut saves_fp) = (0u64, false);
        for _ in 0..MAX_INSTRUCTIONS {
            if at >= complete {
                break;
            }
            let i = decode(&mut Instructions(&mut *self.memory), at)?;
            match (i.map, i.opcode) {
                (Map::One, 0x50..=0x57) => {
                    ahead = ahead.wrapping_add(8);
                    saves_fp |= i.reg == RBP;
                }
                (Map::One, 0x81 | 0x83) if i.extension == 5 && i.rm == Some(RSP) => {
                    ahead = ahead.wrapping_add(i.immediate as u64);
                }
                // A frame that is allocated at once stores rbp afterwards.
                (Map::One, 0x89) if i.reg == RBP && i.wide && on_stack(&i) => saves_fp = true,
                _ => {}
            }
            at = i.next;
        }
        let sp = self.regs.sp().wrapping_add(blob.frame.checked_sub(ahead)?);
        let fp = if saves_fp { self.regs.get(arch::FP) } else { self.memory.word(sp.wrapping_sub(16)) };
        Some(Caller { sp, fp })
    }

    /// The caller of code that was interrupted while or after it removed its frame.
    fn interrupted_epilogue(&mut self, blob: &Blob) -> Option<Caller> {
        let (start, mut sp) = (self.regs.sp(), self.regs.sp());
        let mut fp = self.regs.get(arch::FP);
        let mut at = self.regs.pc;
        for _ in 0..MAX_INSTRUCTIONS {
            let i = decode(&mut Instructions(&mut *self.memory), at)?;
            match (i.map, i.opcode) {
                (Map::One, 0x81 | 0x83) if i.extension == 0 && i.rm == Some(RSP) => {
                    sp = sp.wrapping_add(i.immediate as u64);
                }
                (Map::One, 0x58..=0x5f) if i.reg != RSP => {
                    if i.reg == RBP {
                        fp = self.memory.word(sp);
                    }
                    sp = sp.wrapping_add(8);
                }
                // Polls for a safepoint: a compare and a jump that is rarely taken, or a load.
                (Map::One, 0x38..=0x3d | 0x84 | 0x85 | 0x70..=0x7f) | (Map::Two, 0x80..=0x8f | 0x77) => {}
                (Map::One, 0x81 | 0x83) if i.extension == 7 => {}
                (Map::One, 0x8b) if i.reg != RSP && i.reg != RBP => {}
                (Map::One, 0xc3) => break,
                // A jump to other code after the frame was removed.
                (Map::One, 0xe9) if sp != start => {
                    let target = i.next.wrapping_add(i.immediate as u64);
                    if target >= blob.start && target < blob.end {
                        return None;
                    }
                    break;
                }
                (Map::Other, 0x77) => {}
                _ => return None,
            }
            at = i.next;
        }
        let sp = sp.wrapping_add(8);
        (sp.wrapping_sub(start) <= blob.frame).then_some(Caller { sp, fp })
    }

    /// Finds the blob that contains an address. Afterwards, [`Memory::info`] reads the code heap.
    fn blob(&mut self, layout: &JvmLayout, at: u64) -> Option<Blob> {
        // Heaps do not overlap, so the one that begins last before the address contains it.
        let start = |heap: &&CodeHeap| heap.start.load(Relaxed);
        let heap = layout.heaps.iter().filter(|heap| (1..=at).contains(&start(heap))).max_by_key(start)?;
        let heap_end = self.committed(&heap.end, &heap.end_at, at);
        if at >= heap_end {
            return None;
        }
        let start = self.block(layout, heap, at)?;
        self.code_range = (heap.start.load(Relaxed), heap_end);
        self.memory.set_info(heap.start.load(Relaxed), heap_end, true);
        let offsets = &layout.blob;
        let mut field = |offset: &AtomicU32, bytes: u32| {
            self.memory.info(start.wrapping_add(u64::from(offset.load(Relaxed))), bytes)
        };
        let size = field(&offsets.size, 4)?;
        let frame = field(&offsets.frame_size, 4)?;
        let [complete_at, complete_bytes] = &offsets.frame_complete;
        let complete = match complete_bytes.load(Relaxed) {
            2 => i64::from(field(complete_at, 2)? as i16),
            _ => i64::from(field(complete_at, 4)? as i32),
        };
        let [code_at, code_bytes] = &offsets.code;
        let code = match code_bytes.load(Relaxed) {
            8 => field(code_at, 8)?,
            bytes => start.wrapping_add(field(code_at, bytes)?),
        };
        let compile_id = field(&offsets.compile_id, 4).unwrap_or(0) as u32;
        let end = start.checked_add(size)?;
        let frame = frame.wrapping_mul(8);
        let valid = at >= start && at < end && end <= heap_end && code >= start && code <= end;
        if !valid || frame >= MAX_GUESSED_FRAME {
            return None;
        }
        let complete = u64::try_from(complete).ok().map(|complete| code.wrapping_add(complete));
        Some(Blob { start, end, code, complete, frame, compile_id })
    }

    /// Returns the start of the blob in the block that contains an address.
    fn block(&mut self, layout: &JvmLayout, heap: &CodeHeap, at: u64) -> Option<u64> {
        let start = heap.start.load(Relaxed);
        let shift = layout.segment_shift.load(Relaxed);
        let segments = heap.segments.load(Relaxed);
        let mut i = at.wrapping_sub(start).wrapping_shr(shift);
        let last = segments.wrapping_add(i);
        let end = self.committed(&heap.segments_end, &heap.segments_end_at, last);
        self.memory.set_info(segments, end, true);
        for _ in 0..MAX_SEGMENT_STEPS {
            match self.memory.info(segments.wrapping_add(i), 1)? {
                0 => {
                    let block = start.wrapping_add(i.wrapping_shl(shift));
                    return Some(block.wrapping_add(u64::from(layout.block_header.load(Relaxed))));
                }
                0xff => return None,
                back => i = i.checked_sub(back)?,
            }
        }
        None
    }

    /// Returns the end of committed memory: the last known one or, if `address` is not below it, the present
    /// one.
    #[inline]
    fn committed(&mut self, known: &AtomicU64, present_at: &AtomicU64, address: u64) -> u64 {
        let known = known.load(Relaxed);
        if address < known || address.wrapping_sub(known) > 1 << 31 {
            return known;
        }
        self.memory.word(present_at.load(Relaxed)).unwrap_or(known).max(known)
    }
}

/// Returns true if the memory operand of an instruction is relative to the stack pointer.
fn on_stack(i: &Instruction) -> bool {
    i.place.is_some_and(|place| place.base == Some(RSP))
}
