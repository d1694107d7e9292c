//! DWARF expressions as they occur in unwind information: a small stack, no calls, a bounded number of steps.

use crate::unwind::eh_frame::Failure;
use crate::unwind::interrupted::Regs;
use crate::unwind::stack::Memory;

const WORDS: usize = 32;
const MAX_STEPS: u32 = 512;

/// The evaluation stack.
#[repr(C)]
pub struct Stack {
    words: [u64; WORDS],
    depth: usize,
}

struct Bytes {
    start: u64,
    at: u64,
    end: u64,
}

impl Bytes {
    fn fixed<M: Memory>(&mut self, memory: &mut M, bytes: u32) -> Result<u64, Failure> {
        let next = self.at.checked_add(u64::from(bytes)).ok_or(Failure::BadInfo)?;
        if next > self.end {
            return Err(Failure::BadInfo);
        }
        let value = memory.info(self.at, bytes).ok_or(Failure::BadInfo)?;
        self.at = next;
        Ok(value)
    }

    fn leb<M: Memory>(&mut self, memory: &mut M, signed: bool) -> Result<u64, Failure> {
        let mut value = 0u64;
        for i in 0..10u32 {
            let byte = self.fixed(memory, 1)?;
            let shift = i.wrapping_mul(7);
            value |= (byte & 0x7f).wrapping_shl(shift);
            if byte & 0x80 == 0 {
                let used = shift.wrapping_add(7);
                if signed && byte & 0x40 != 0 && used < 64 {
                    value |= u64::MAX.wrapping_shl(used);
                }
                return Ok(value);
            }
        }
        Err(Failure::BadInfo)
    }

    fn jump(&mut self, delta: i16) -> Result<(), Failure> {
        let to = self.at.wrapping_add_signed(i64::from(delta));
        if to < self.start || to > self.end {
            return Err(Failure::BadInfo);
        }
        self.at = to;
        Ok(())
    }
}

impl Stack {
    fn push(&mut self, value: u64) -> Result<(), Failure> {
        *self.words.get_mut(self.depth).ok_or(Failure::BadInfo)? = value;
        self.depth = self.depth.wrapping_add(1);
        Ok(())
    }

    fn pop(&mut self) -> Result<u64, Failure> {
        self.depth = self.depth.checked_sub(1).ok_or(Failure::BadInfo)?;
        self.words.get(self.depth).copied().ok_or(Failure::BadInfo)
    }

    /// The word `below` entries below the top.
    fn pick(&self, below: u64) -> Result<u64, Failure> {
        let index = u64::try_from(self.depth).ok().and_then(|d| d.checked_sub(1)?.checked_sub(below));
        self.words.get(index.ok_or(Failure::BadInfo)? as usize).copied().ok_or(Failure::BadInfo)
    }

    /// Evaluates the block `(start, length)`; `initial` is pushed first.
    pub fn run<M: Memory>(
        &mut self,
        memory: &mut M,
        regs: &Regs,
        (start, length): (u64, u32),
        initial: Option<u64>,
    ) -> Result<u64, Failure> {
        let end = start.checked_add(u64::from(length)).ok_or(Failure::BadInfo)?;
        let mut code = Bytes { start, at: start, end };
        self.depth = 0;
        if let Some(value) = initial {
            self.push(value)?;
        }
        for _ in 0..MAX_STEPS {
            if code.at >= code.end {
                return self.pop();
            }
            let operation = code.fixed(memory, 1)? as u8;
            self.operation(memory, regs, &mut code, operation)?;
        }
        Err(Failure::BadInfo)
    }

    fn operation<M: Memory>(
        &mut self,
        memory: &mut M,
        regs: &Regs,
        code: &mut Bytes,
        op: u8,
    ) -> Result<(), Failure> {
        let value = match op {
            // lit0..lit31
            0x30..=0x4f => u64::from(op.wrapping_sub(0x30)),
            // breg0..breg31, bregx
            0x70..=0x8f | 0x92 => {
                let number =
                    if op == 0x92 { code.leb(memory, false)? } else { u64::from(op.wrapping_sub(0x70)) };
                let offset = code.leb(memory, true)?;
                // Column 16 of x86_64 is the program counter here, as linkers' PLT expressions mean it.
                regs.get(number.min(64) as usize).ok_or(Failure::NeedRegister)?.wrapping_add(offset)
            }
            // addr, const8u, const8s; const1u … const4s; constu, consts
            0x03 | 0x0e | 0x0f => code.fixed(memory, 8)?,
            0x08 => code.fixed(memory, 1)?,
            0x09 => code.fixed(memory, 1)? as i8 as u64,
            0x0a => code.fixed(memory, 2)?,
            0x0b => code.fixed(memory, 2)? as i16 as u64,
            0x0c => code.fixed(memory, 4)?,
            0x0d => code.fixed(memory, 4)? as i32 as u64,
            0x10 => code.leb(memory, false)?,
            0x11 => code.leb(memory, true)?,
            // deref, deref_size
            0x06 => {
                let at = self.pop()?;
                memory.word(at).ok_or(Failure::BadStack)?
            }
            0x94 => {
                let bytes = code.fixed(memory, 1)?;
                let at = self.pop()?;
                let word = memory.word(at).ok_or(Failure::BadStack)?;
                match bytes {
                    1 => word & 0xff,
                    2 => word & 0xffff,
                    4 => word & 0xffff_ffff,
                    8 => word,
                    _ => return Err(Failure::BadInfo),
                }
            }
            // dup, over, pick
            0x12 => self.pick(0)?,
            0x14 => self.pick(1)?,
            0x15 => {
                let below = code.fixed(memory, 1)?;
                self.pick(below)?
            }
            // drop
            0x13 => return self.pop().map(drop),
            0x16 | 0x17 => return self.exchange(op == 0x17),
            // abs, neg, not, plus_uconst
            0x19 => (self.pop()? as i64).unsigned_abs(),
            0x1f => self.pop()?.wrapping_neg(),
            0x20 => !self.pop()?,
            0x23 => {
                let n = code.leb(memory, false)?;
                self.pop()?.wrapping_add(n)
            }
            // bra, skip
            0x28 => {
                let delta = code.fixed(memory, 2)? as i16;
                return if self.pop()? != 0 { code.jump(delta) } else { Ok(()) };
            }
            0x2f => {
                let delta = code.fixed(memory, 2)? as i16;
                return code.jump(delta);
            }
            // nop
            0x96 => return Ok(()),
            _ => self.binary(op)?,
        };
        self.push(value)
    }

    /// swap, or rot of the three topmost entries.
    fn exchange(&mut self, three: bool) -> Result<(), Failure> {
        let top = self.pop()?;
        let second = self.pop()?;
        if three {
            let third = self.pop()?;
            self.push(top)?;
            self.push(third)?;
        } else {
            self.push(top)?;
        }
        self.push(second)
    }

    fn binary(&mut self, op: u8) -> Result<u64, Failure> {
        let b = self.pop()?;
        let a = self.pop()?;
        let (x, y) = (a as i64, b as i64);
        Ok(match op {
            0x1a => a & b,
            0x1b => x.checked_div(y).ok_or(Failure::BadInfo)? as u64,
            0x1c => a.wrapping_sub(b),
            0x1d => a.checked_rem(b).ok_or(Failure::BadInfo)?,
            0x1e => a.wrapping_mul(b),
            0x21 => a | b,
            0x22 => a.wrapping_add(b),
            0x24 => a.checked_shl(b.min(64) as u32).unwrap_or(0),
            0x25 => a.checked_shr(b.min(64) as u32).unwrap_or(0),
            0x26 => x.wrapping_shr(b.min(63) as u32) as u64,
            0x27 => a ^ b,
            0x29 => u64::from(x == y),
            0x2a => u64::from(x >= y),
            0x2b => u64::from(x > y),
            0x2c => u64::from(x <= y),
            0x2d => u64::from(x < y),
            0x2e => u64::from(x != y),
            _ => return Err(Failure::BadInfo),
        })
    }
}
