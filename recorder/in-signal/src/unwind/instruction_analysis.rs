//! Finds the caller of hand-written code without unwind information. The instructions are simulated, on
//! copies of the registers, until they return. Their effect on the stack reveals the location of the return
//! address and of the saved registers, wherever the function was interrupted.
//!
//! Only instructions that move the stack pointer or restore a register are simulated; every other result is
//! unknown. At a conditional jump the next instruction is tried first, then the target. The result is
//! accepted only if the return address follows a call in a known module.

use crate::unwind::interrupted::{Regs, arch};
use crate::unwind::rule::{Rule, Saved, Simple};
use crate::unwind::x86::{Code, Instruction, Map, decode};

/// Maximum number of instructions simulated for one frame.
const MAX_STEPS: u32 = 4096;
/// Maximum number of instructions simulated in one walk.
pub const MAX_WALK_STEPS: u32 = 8192;
/// Number of untaken branches that are stored.
const BRANCHES: usize = 32;
/// Number of taken jumps that are stored, so that none is taken twice.
const TAKEN: usize = 256;
/// Number of words written by the simulated code that are stored.
const WRITTEN: usize = 8;

/// x86 numbers of the registers by DWARF number.
const BY_DWARF: [u8; 16] = [0, 2, 1, 3, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];
const SP: u8 = 4;
const BP: u8 = 5;
/// rax, rdx: the result of a call. Other registers are read after a call only if the callee preserves them.
/// Functions that only assembly calls may preserve more than the ABI requires.
const RESULTS: u16 = 0b101;

#[derive(Clone, Copy)]
#[repr(C)]
struct State {
    pc: u64,
    r: [u64; 16],
    /// Bit i: register i is known.
    known: u16,
    /// Words written up to here.
    written: u32,
    /// Register value at the start that the stack pointer is relative to.
    sp_from: Base,
    /// Origin of the frame pointer's value.
    fp_from: FramePointer,
    /// Address of the return address at the moment when the saved frame pointer was restored; 0 if it was not restored. Code that drops a
    /// variable number of arguments moves the return address before it returns.
    left: u64,
}

/// Register value at the start that the stack pointer is relative to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Base {
    /// The stack pointer at the start.
    Stack,
    /// The frame pointer at the start.
    Frame,
    Other,
}

/// Origin of the frame pointer's value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FramePointer {
    /// Unchanged since the start.
    Unchanged,
    /// Copied from the stack pointer, which is relative to its value at the start.
    Stack,
    /// Loaded from this address.
    Saved(u64),
    Other,
}

/// Working memory; lives in scratch memory because it is larger than a small alternate stack.
#[repr(C)]
pub struct EpilogueSimulator {
    state: State,
    branches: [State; BRANCHES],
    taken: [u64; TAKEN],
    written: [(u64, u64, FramePointer); WRITTEN],
    branch_count: usize,
    taken_count: usize,
    /// Instructions that this walk may still simulate.
    left: u32,
}

/// Access to memory and code for the simulation.
pub trait CodeMemory: Code {
    /// A word of the stack.
    fn word(&mut self, address: u64) -> Option<u64>;
    /// Returns true if `address` can be a return address.
    fn returns_to(&mut self, address: u64) -> bool;
}

enum Next {
    Go(u64),
    /// The function returns, and drops this many bytes from the stack in addition to the return address.
    Return(u64),
    /// A jump to another function, which returns to this one's caller if it is a tail call.
    Leave,
    Dead,
}

impl State {
    fn get(&self, number: u8) -> Option<u64> {
        if self.known.wrapping_shr(u32::from(number)) & 1 == 0 {
            return None;
        }
        self.r.get(usize::from(number)).copied()
    }

    fn set(&mut self, number: u8, value: Option<u64>) {
        match number {
            SP => self.sp_from = Base::Other,
            BP => self.fp_from = FramePointer::Other,
            _ => {}
        }
        let bit = 1u16.wrapping_shl(u32::from(number));
        match (value, self.r.get_mut(usize::from(number))) {
            (Some(value), Some(register)) => {
                *register = value;
                self.known |= bit;
            }
            _ => self.known &= !bit,
        }
    }

    /// Moves the stack pointer by a constant distance, so that its base stays the same.
    fn move_sp(&mut self, value: Option<u64>) {
        let from = self.sp_from;
        self.set(SP, value);
        self.sp_from = from;
    }

    fn set_fp(&mut self, value: Option<u64>, from: FramePointer) {
        self.set(BP, value);
        self.fp_from = from;
        if let (FramePointer::Saved(at), Some(sp)) = (from, self.get(SP))
            && sp == at.wrapping_add(8)
        {
            self.left = sp;
        }
    }
}

/// The base of a stack pointer that was set from the frame pointer.
fn stack_base(frame_pointer: FramePointer) -> Base {
    match frame_pointer {
        FramePointer::Unchanged => Base::Frame,
        FramePointer::Stack => Base::Stack,
        FramePointer::Saved(_) | FramePointer::Other => Base::Other,
    }
}

impl EpilogueSimulator {
    /// Resets the number of instructions for a new walk.
    pub fn begin_walk(&mut self) {
        self.left = MAX_WALK_STEPS;
    }

    /// Returns true if this walk has simulated its maximum number of instructions.
    pub fn is_exhausted(&self) -> bool {
        self.left == 0
    }

    /// Runs from `regs` to the return. On success `regs` are the caller's, as far as they are known. Returns the rule for the same
    /// step from the same address; it is complex if the step depends on more than stack and frame pointer.
    pub fn run<W: CodeMemory>(&mut self, memory: &mut W, regs: &mut Regs) -> Option<Rule> {
        if cfg!(not(target_arch = "x86_64")) {
            return None;
        }
        let start = regs.sp();
        let (sp_from, fp_from) = (Base::Other, FramePointer::Other);
        self.state = State { pc: regs.pc, r: [0; 16], known: 0, written: 0, sp_from, fp_from, left: 0 };
        for (dwarf, number) in BY_DWARF.iter().enumerate() {
            self.state.set(*number, regs.get(dwarf));
        }
        (self.state.sp_from, self.state.fp_from) = (Base::Stack, FramePointer::Unchanged);
        (self.branch_count, self.taken_count) = (0, 0);
        for _ in 0..MAX_STEPS {
            self.left = self.left.checked_sub(1)?;
            let step = decode(memory, self.state.pc).map_or(Next::Dead, |i| self.step(memory, &i));
            let dropped = match step {
                Next::Go(pc) => {
                    self.state.pc = pc;
                    continue;
                }
                Next::Return(dropped) => Some(dropped),
                Next::Leave => Some(0),
                Next::Dead => None,
            };
            let sp = self.state.get(SP).or((self.state.left != 0).then_some(self.state.left));
            if let (Some(dropped), Some(sp)) = (dropped, sp)
                && sp >= start
                && let Some(ra) = self.load(memory, sp)
                && memory.returns_to(ra)
            {
                let rule = self.rule(regs, sp.wrapping_add(8), dropped).unwrap_or(Rule::Complex);
                self.state.set(SP, Some(sp.wrapping_add(8).wrapping_add(dropped)));
                regs.pc = ra;
                regs.valid = 0;
                for (dwarf, number) in BY_DWARF.iter().enumerate() {
                    if let Some(value) = self.state.get(*number) {
                        regs.set(dwarf, value);
                    }
                }
                return Some(rule);
            }
            let last = self.branch_count.checked_sub(1)?;
            self.state = *self.branches.get(last)?;
            self.branch_count = last;
        }
        None
    }

    /// The step from `start` to the caller whose return address is right below `cfa`, as a simple rule.
    fn rule(&self, start: &Regs, cfa: u64, dropped: u64) -> Option<Rule> {
        let usual = start.get(arch::FP).is_some_and(|fp| fp.wrapping_add(16) == cfa);
        let (from_fp, base) = match self.state.sp_from {
            Base::Stack if dropped == 0 => (false, start.sp()),
            Base::Frame if dropped == 0 => (true, start.get(arch::FP)?),
            // The rule does not include the arguments that the function drops. A caller with a frame pointer does not need them.
            _ if usual => (true, cfa.wrapping_sub(16)),
            _ => return None,
        };
        let saved = match self.state.fp_from {
            FramePointer::Unchanged => Saved::Nothing,
            FramePointer::Saved(at) => Saved::Fp(cfa.checked_sub(at)?),
            FramePointer::Stack | FramePointer::Other => return None,
        };
        let rule = Rule::Simple(Simple { from_fp, offset: cfa.checked_sub(base)?, saved });
        (Rule::unpack(rule.pack()) == rule).then_some(rule)
    }

    fn written_at(&self, address: u64) -> Option<(u64, FramePointer)> {
        let count = (self.state.written as usize).min(WRITTEN);
        let written = self.written.get(..count)?.iter().rev().find(|(at, ..)| *at == address);
        written.map(|(_, value, from)| (*value, *from))
    }

    fn load<W: CodeMemory>(&self, memory: &mut W, address: u64) -> Option<u64> {
        self.written_at(address).map(|(value, _)| value).or_else(|| memory.word(address))
    }

    /// Origin of a frame pointer that is loaded from `address`.
    fn read_from(&self, address: Option<u64>) -> FramePointer {
        let Some(address) = address else { return FramePointer::Other };
        self.written_at(address).map_or(FramePointer::Saved(address), |(_, from)| from)
    }

    /// Stores a value; `from` is the register that it comes from, if any.
    fn store(&mut self, address: u64, value: Option<u64>, from: Option<u8>) {
        // An unknown value reads as no return address and no frame.
        let from = if from == Some(BP) { self.state.fp_from } else { FramePointer::Other };
        if let Some(place) = self.written.get_mut(self.state.written as usize) {
            *place = (address, value.unwrap_or(0), from);
            self.state.written = self.state.written.wrapping_add(1);
        }
    }

    fn push(&mut self, value: Option<u64>, from: Option<u8>) {
        let sp = self.state.get(SP).map(|sp| sp.wrapping_sub(8));
        self.state.move_sp(sp);
        if let Some(sp) = sp {
            self.store(sp, value, from);
        }
    }

    /// Returns the popped word and, for the case that it becomes the frame pointer, its origin.
    fn pop<W: CodeMemory>(&mut self, memory: &mut W) -> (Option<u64>, FramePointer) {
        let sp = self.state.get(SP);
        self.state.move_sp(sp.map(|sp| sp.wrapping_add(8)));
        let from = self.read_from(sp);
        (sp.and_then(|sp| self.load(memory, sp)), from)
    }

    /// Copies a register to another.
    fn copy(&mut self, to: u8, from: u8) {
        let (value, sp_from, fp_from) = (self.state.get(from), self.state.sp_from, self.state.fp_from);
        self.state.set(to, value);
        match (to, from) {
            (SP, BP) => self.state.sp_from = stack_base(fp_from),
            (BP, SP) if sp_from == Base::Stack => self.state.fp_from = FramePointer::Stack,
            (SP, SP) => self.state.sp_from = sp_from,
            (BP, BP) => self.state.fp_from = fp_from,
            _ => {}
        }
    }

    /// Each jump is taken only once: a second time would be a loop.
    fn jump(&mut self, target: u64) -> Next {
        let count = self.taken_count.min(TAKEN);
        let seen = self.taken.get(..count).is_none_or(|taken| taken.contains(&target));
        let Some(place) = self.taken.get_mut(count) else { return Next::Dead };
        if seen {
            return Next::Dead;
        }
        *place = target;
        self.taken_count = count.wrapping_add(1);
        Next::Go(target)
    }

    fn branch(&mut self, target: u64, next: u64) -> Next {
        let count = self.taken_count.min(TAKEN);
        let seen = self.taken.get(..count).is_none_or(|taken| taken.contains(&target));
        if !seen && let Some(place) = self.branches.get_mut(self.branch_count) {
            *place = State { pc: target, ..self.state };
            self.branch_count = self.branch_count.wrapping_add(1);
            if let Some(place) = self.taken.get_mut(count) {
                *place = target;
                self.taken_count = count.wrapping_add(1);
            }
        }
        Next::Go(next)
    }

    fn after_call(&mut self) {
        self.state.known &= !RESULTS;
    }

    /// The address of a memory operand relative to the stack or frame pointer.
    fn address(&self, i: &Instruction) -> Option<u64> {
        let place = i.place?;
        Some(self.state.get(place.base?)?.wrapping_add(place.disp as u64))
    }

    fn on_stack(&self, i: &Instruction) -> Option<u64> {
        let base = i.place?.base?;
        if base == SP || base == BP { self.address(i) } else { None }
    }

    fn step<W: CodeMemory>(&mut self, memory: &mut W, i: &Instruction) -> Next {
        match i.map {
            Map::One => self.one_byte(memory, i),
            Map::Two => self.two_bytes(i),
            Map::Other => {
                // pextr*, pmovmskb, extractps, BMI: a register that is written is never the stack pointer.
                let result = if matches!(i.opcode, 0x14..=0x17) { i.rm } else { Some(i.reg) };
                let writes = matches!(i.opcode, 0x14..=0x17 | 0x2c | 0x2d | 0x50 | 0xd7 | 0xf0..=0xf7);
                if let (true, Some(result)) = (writes, result) {
                    self.state.set(result, None);
                }
                if i.opcode == 0x7e
                    && let Some(rm) = i.rm
                {
                    self.state.set(rm, None);
                }
                Next::Go(i.next)
            }
        }
    }

    fn two_bytes(&mut self, i: &Instruction) -> Next {
        match i.opcode {
            0x0b => return Next::Dead,
            0x05 => [0, 1, 11].iter().for_each(|r| self.state.set(*r, None)),
            0xa2 => [0, 1, 2, 3].iter().for_each(|r| self.state.set(*r, None)),
            0x31 | 0x01 => [0, 1, 2].iter().for_each(|r| self.state.set(*r, None)),
            0x80..=0x8f => return self.branch(i.next.wrapping_add(i.immediate as u64), i.next),
            0x40..=0x4f | 0xaf | 0xb6..=0xb8 | 0xbc..=0xbf | 0x2c | 0x2d | 0x50 | 0xc5 | 0xd7 => {
                self.state.set(i.reg, None);
            }
            0xc8..=0xcf => self.state.set(i.reg, None),
            0x7e
            | 0x90..=0x9f
            | 0xa4
            | 0xa5
            | 0xab..=0xad
            | 0xb0
            | 0xb1
            | 0xb3
            | 0xba
            | 0xbb
            | 0xc0
            | 0xc1 => {
                if let Some(rm) = i.rm {
                    self.state.set(rm, None);
                }
                if matches!(i.opcode, 0xb0 | 0xb1) {
                    self.state.set(0, None);
                }
                if matches!(i.opcode, 0xc0 | 0xc1) {
                    self.state.set(i.reg, None);
                }
            }
            _ => {}
        }
        Next::Go(i.next)
    }

    fn one_byte<W: CodeMemory>(&mut self, memory: &mut W, i: &Instruction) -> Next {
        match i.opcode {
            0xc3 => return Next::Return(0),
            0xc2 => return Next::Return(i.immediate as u64 & 0xffff),
            0xca | 0xcb | 0xcc | 0xcd | 0xcf | 0xf1 | 0xf4 | 0xc8 => return Next::Dead,
            0xe9 | 0xeb => return self.jump(i.next.wrapping_add(i.immediate as u64)),
            0x70..=0x7f | 0xe0..=0xe3 => {
                if i.opcode >= 0xe0 {
                    self.state.set(1, None);
                }
                return self.branch(i.next.wrapping_add(i.immediate as u64), i.next);
            }
            0xe8 => self.after_call(),
            0xff => match i.extension {
                2 | 3 => self.after_call(),
                // A jump through a memory slot, as in the PLT, is a tail call. The target of a jump by
                // register is unknown.
                4 if i.rm.is_none() => return Next::Leave,
                4 | 5 => return Next::Dead,
                6 => {
                    let value = i.rm.and_then(|rm| self.state.get(rm));
                    self.push(value, i.rm);
                }
                _ => self.forget_rm(i),
            },
            0x50..=0x57 => {
                let value = self.state.get(i.reg);
                self.push(value, Some(i.reg));
            }
            0x68 | 0x6a => self.push(Some(i.immediate as u64), None),
            0x9c => self.push(None, None),
            0x58..=0x5f => {
                let (value, from) = self.pop(memory);
                match i.reg {
                    BP => self.state.set_fp(value, from),
                    reg => self.state.set(reg, value),
                }
            }
            0x9d => {
                self.pop(memory);
            }
            0x8f => {
                let (value, _) = self.pop(memory);
                if let Some(rm) = i.rm {
                    self.state.set(rm, value);
                }
            }
            0xc9 => {
                self.copy(SP, BP);
                let (value, from) = self.pop(memory);
                self.state.set_fp(value, from);
            }
            0x89 => match (i.wide, i.rm) {
                (true, Some(rm)) => self.copy(rm, i.reg),
                (false, Some(rm)) => self.state.set(rm, None),
                (true, None) => {
                    let value = self.state.get(i.reg);
                    if let Some(address) = self.on_stack(i) {
                        self.store(address, value, Some(i.reg));
                    }
                }
                (false, None) => {}
            },
            0x8b => match (i.wide, i.rm) {
                (false, _) => self.state.set(i.reg, None),
                (true, Some(rm)) => self.copy(i.reg, rm),
                (true, None) => {
                    let address = self.on_stack(i);
                    let value = address.and_then(|address| self.load(memory, address));
                    let from = self.read_from(address);
                    match i.reg {
                        BP => self.state.set_fp(value, from),
                        reg => self.state.set(reg, value),
                    }
                }
            },
            0x8d => {
                let value = if i.wide { self.address(i) } else { None };
                let base = i.place.and_then(|place| place.base);
                let (sp_from, fp_from) = (self.state.sp_from, self.state.fp_from);
                self.state.set(i.reg, value);
                match (i.reg, base) {
                    (SP, Some(SP)) => self.state.sp_from = sp_from,
                    (SP, Some(BP)) => self.state.sp_from = stack_base(fp_from),
                    _ => {}
                }
            }
            0x81 | 0x83 => self.immediate(i),
            0x90 if i.reg == 0 => {}
            0x90..=0x97 => {
                self.state.set(0, None);
                self.state.set(i.reg, None);
            }
            _ => self.forget(i),
        }
        Next::Go(i.next)
    }

    /// Simulates `add`, `sub`, `and` of a register and a number; `cmp` has no effect.
    fn immediate(&mut self, i: &Instruction) {
        let Some(rm) = i.rm else { return };
        let (now, n) = (self.state.get(rm), i.immediate as u64);
        let value = match (i.extension, now, i.wide) {
            (7, now, _) => now,
            (0, Some(now), true) => Some(now.wrapping_add(n)),
            (5, Some(now), true) => Some(now.wrapping_sub(n)),
            (4, Some(now), true) => Some(now & n),
            _ => None,
        };
        let (sp_from, fp_from) = (self.state.sp_from, self.state.fp_from);
        self.state.set(rm, value);
        match (i.extension, rm) {
            // A comparison writes nothing.
            (0 | 5 | 7, SP) => self.state.sp_from = sp_from,
            (7, BP) => self.state.fp_from = fp_from,
            _ => {}
        }
    }

    fn forget_rm(&mut self, i: &Instruction) {
        if let Some(rm) = i.rm {
            self.state.set(rm, None);
        }
    }

    /// Simulates the rest of the one-byte opcodes: their results are unknown.
    fn forget(&mut self, i: &Instruction) {
        match i.opcode {
            // cmp and test compare; floating point has registers of its own
            0x38..=0x3d | 0x84 | 0x85 | 0xa8 | 0xa9 | 0xd8..=0xdf => {}
            0x00..=0x3f => match i.opcode & 7 {
                0 | 1 => self.forget_rm(i),
                2 | 3 => self.state.set(i.reg, None),
                _ => self.state.set(0, None),
            },
            0x63 | 0x69 | 0x6b | 0x8a => self.state.set(i.reg, None),
            0x86 | 0x87 => {
                self.forget_rm(i);
                self.state.set(i.reg, None);
            }
            0x80 if i.extension == 7 => {}
            0x80 | 0x88 | 0xc0 | 0xc1 | 0xc6 | 0xc7 | 0xd0..=0xd3 | 0xfe => self.forget_rm(i),
            0x98 | 0x99 | 0xd7 | 0xa0..=0xa3 => [0, 2].iter().for_each(|r| self.state.set(*r, None)),
            0x6c..=0x6f | 0xa4..=0xa7 | 0xaa..=0xaf => {
                [0, 1, 6, 7].iter().for_each(|r| self.state.set(*r, None));
            }
            0xb0..=0xbf => self.state.set(i.reg, None),
            0xf6 | 0xf7 => match i.extension {
                0 | 1 => {}
                2 | 3 => self.forget_rm(i),
                _ => [0, 2].iter().for_each(|r| self.state.set(*r, None)),
            },
            _ => {}
        }
    }
}
