//! Interpreter of mapped unwind information (`.eh_frame_hdr`, `.eh_frame`) for use in a handler: no heap, all loops
//! bounded, all reads through [`Memory`].
//!
//! ```text
//! .eh_frame_hdr: version 1 · enc(eh_frame) · enc(count) · enc(table) │ eh_frame │ count │ table: (pc, FDE) sorted
//! .eh_frame:     CIE: length · 0  · version · augmentation · code align · data align · RA column · [z: …] · program
//!                FDE: length · → CIE · first pc · pc range · [z: …] · program
//! ```

use crate::layout::ModuleEntry;
use crate::unwind::expression;
use crate::unwind::interrupted::{Regs, arch, strip};
use crate::unwind::rule::{Rule, Saved, Simple};
use crate::unwind::stack::Memory;

/// Reason why a step failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No FDE covers the address.
    NoInfo,
    /// The information is malformed or uses an unsupported feature.
    BadInfo,
    /// A stack word could not be read.
    BadStack,
    /// A register is needed whose value in this frame is unknown.
    NeedRegister,
    /// The return address is undefined: outermost frame.
    Root,
    /// The stack has more frames than there is room for.
    Depth,
    /// The canonical frame address did not grow.
    NoProgress,
}

/// Location of a register's value in the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum RegisterRule {
    /// Not mentioned.
    Unspecified,
    /// Explicitly unchanged.
    Same,
    /// The value is lost.
    Undefined,
    /// At CFA + n.
    Offset(i64),
    /// The value is CFA + n.
    ValOffset(i64),
    /// In another register.
    Register(u32),
    /// At the address an expression yields (start, length).
    Expression(u64, u32),
    /// The value is the result of an expression (start, length).
    ValExpression(u64, u32),
}

/// Rule for the CFA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum CfaRule {
    /// Not set yet.
    None,
    /// Register + offset.
    Register(u32, i64),
    /// Value of an expression (start, length).
    Expression(u64, u32),
}

/// One row of the unwind table.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Row {
    /// CFA.
    pub cfa: CfaRule,
    /// Registers.
    pub registers: [RegisterRule; arch::COUNT],
}

impl Row {
    const EMPTY: Row = Row { cfa: CfaRule::None, registers: [RegisterRule::Unspecified; arch::COUNT] };

    fn set(&mut self, number: u64, rule: RegisterRule) {
        // Vector registers and the like are not tracked.
        if let Some(register) = self.registers.get_mut(number as usize) {
            *register = rule;
        }
    }
}

const REMEMBERED: usize = 8;
/// More instructions than any real FDE has up to one address.
const MAX_INSTRUCTIONS: u32 = 20_000;
/// More bytes than any real FDE or CIE has.
const MAX_ENTRY: u64 = 1 << 20;

/// State of the interpreter; lives in scratch memory because it is larger than a small alternate stack.
#[repr(C)]
pub struct Machine {
    row: Row,
    initial: Row,
    remembered: [Row; REMEMBERED],
    depth: usize,
    expression: expression::Stack,
    signal_frame: bool,
    ra_column: u64,
    /// Stored next to the interpreter's state, for code without unwind information.
    pub(crate) simulator: crate::unwind::instruction_analysis::EpilogueSimulator,
}

/// A position in unwind information.
#[derive(Clone, Copy)]
struct Cursor {
    at: u64,
    end: u64,
}

type Parsed<T> = Result<T, Failure>;

impl Cursor {
    #[inline]
    fn fixed<M: Memory>(&mut self, memory: &mut M, bytes: u32) -> Parsed<u64> {
        let next = self.at.checked_add(u64::from(bytes)).ok_or(Failure::BadInfo)?;
        if next > self.end {
            return Err(Failure::BadInfo);
        }
        let value = memory.info(self.at, bytes).ok_or(Failure::BadInfo)?;
        self.at = next;
        Ok(value)
    }

    #[inline]
    fn uleb<M: Memory>(&mut self, memory: &mut M) -> Parsed<u64> {
        let mut value = 0u64;
        for i in 0..10u32 {
            let byte = self.fixed(memory, 1)?;
            value |= (byte & 0x7f).wrapping_shl(i.wrapping_mul(7));
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Failure::BadInfo)
    }

    fn sleb<M: Memory>(&mut self, memory: &mut M) -> Parsed<i64> {
        let mut value = 0u64;
        for i in 0..10u32 {
            let byte = self.fixed(memory, 1)?;
            let shift = i.wrapping_mul(7);
            value |= (byte & 0x7f).wrapping_shl(shift);
            if byte & 0x80 == 0 {
                let used = shift.wrapping_add(7);
                if byte & 0x40 != 0 && used < 64 {
                    value |= u64::MAX.wrapping_shl(used);
                }
                return Ok(value as i64);
            }
        }
        Err(Failure::BadInfo)
    }

    fn skip(&mut self, bytes: u64) -> Parsed<()> {
        let next = self.at.checked_add(bytes).ok_or(Failure::BadInfo)?;
        if next > self.end {
            return Err(Failure::BadInfo);
        }
        self.at = next;
        Ok(())
    }

    /// A pointer in the encoding of `DW_EH_PE_*`; `data` is the base of datarel.
    fn pointer<M: Memory>(&mut self, memory: &mut M, encoding: u8, data: u64) -> Parsed<u64> {
        let here = self.at;
        let value = match encoding & 0x0f {
            0x00 | 0x04 | 0x0c => self.fixed(memory, 8)?,
            0x01 => self.uleb(memory)?,
            0x02 => self.fixed(memory, 2)?,
            0x03 => self.fixed(memory, 4)?,
            0x09 => self.sleb(memory)? as u64,
            0x0a => self.fixed(memory, 2)? as i16 as u64,
            0x0b => self.fixed(memory, 4)? as i32 as u64,
            _ => return Err(Failure::BadInfo),
        };
        match encoding & 0xf0 {
            0x00 => Ok(value),
            0x10 => Ok(value.wrapping_add(here)),
            0x30 => Ok(value.wrapping_add(data)),
            _ => Err(Failure::BadInfo),
        }
    }

    /// Reads an entry's length and id; afterwards `end` is the end of the entry. Returns (id, position of id).
    fn entry<M: Memory>(&mut self, memory: &mut M) -> Parsed<(u64, u64)> {
        let mut length = self.fixed(memory, 4)?;
        let wide = length == 0xffff_ffff;
        if wide {
            length = self.fixed(memory, 8)?;
        }
        if length == 0 || length > MAX_ENTRY {
            return Err(Failure::BadInfo);
        }
        let end = self.at.checked_add(length).ok_or(Failure::BadInfo)?;
        if end > self.end {
            return Err(Failure::BadInfo);
        }
        self.end = end;
        let position = self.at;
        Ok((self.fixed(memory, if wide { 8 } else { 4 })?, position))
    }
}

struct Cie {
    program: Cursor,
    code_align: u64,
    data_align: i64,
    ra_column: u64,
    augmented: bool,
    encoding: u8,
    signal_frame: bool,
}

fn parse_cie<M: Memory>(memory: &mut M, at: u64, end: u64) -> Parsed<Cie> {
    let mut cursor = Cursor { at, end };
    let (id, _) = cursor.entry(memory)?;
    if id != 0 {
        return Err(Failure::BadInfo);
    }
    let version = cursor.fixed(memory, 1)?;
    let mut letters = [0u8; 8];
    let mut used = 0usize;
    loop {
        let letter = cursor.fixed(memory, 1)? as u8;
        if letter == 0 {
            break;
        }
        *letters.get_mut(used).ok_or(Failure::BadInfo)? = letter;
        used = used.wrapping_add(1);
    }
    if version == 4 {
        cursor.skip(2)?;
    } else if version != 1 && version != 3 {
        return Err(Failure::BadInfo);
    }
    let code_align = cursor.uleb(memory)?;
    let data_align = cursor.sleb(memory)?;
    let ra_column = if version == 1 { cursor.fixed(memory, 1)? } else { cursor.uleb(memory)? };
    let mut cie = Cie {
        program: cursor,
        code_align,
        data_align,
        ra_column,
        augmented: false,
        encoding: 0,
        signal_frame: false,
    };
    let mut after = None;
    for letter in letters.iter().take(used) {
        match letter {
            b'z' => {
                let length = cursor.uleb(memory)?;
                let mut rest = cursor;
                rest.skip(length)?;
                after = Some(rest);
                cie.augmented = true;
            }
            b'R' => cie.encoding = cursor.fixed(memory, 1)? as u8,
            b'P' => {
                let encoding = cursor.fixed(memory, 1)? as u8;
                cursor.pointer(memory, encoding & 0x0f, 0)?;
            }
            b'L' => cursor.skip(1)?,
            b'S' => cie.signal_frame = true,
            // aarch64: signed with the B key; tagged frame.
            b'B' | b'G' => {}
            // The data after an unknown letter can still be skipped if its length is given.
            _ if cie.augmented => break,
            _ => return Err(Failure::BadInfo),
        }
    }
    cie.program = after.unwrap_or(cursor);
    Ok(cie)
}

/// Address of the FDE that may cover `pc`, from the sorted table.
fn search<M: Memory>(memory: &mut M, module: &ModuleEntry, pc: u64) -> Parsed<u64> {
    let header = module.eh_frame_hdr;
    let mut cursor = Cursor { at: header, end: module.eh_readable_end };
    let encodings = cursor.fixed(memory, 4)?.to_le_bytes();
    let [version, frame, count, table, ..] = encodings;
    // Every linker writes the table as (datarel | sdata4) pairs; nothing else can be searched in place.
    if version != 1 || table != 0x3b || count == 0xff {
        return Err(Failure::NoInfo);
    }
    cursor.pointer(memory, frame, header)?;
    let count = cursor.pointer(memory, count, header)?;
    let wanted = pc.wrapping_sub(header) as i64;
    let (mut low, mut high) = (0u64, count.min(1 << 28));
    let first = cursor.at;
    let mut pair = |i: u64| -> Parsed<(i64, i64)> {
        let at = i.checked_mul(8).and_then(|n| n.checked_add(first)).ok_or(Failure::BadInfo)?;
        let word = Cursor { at, end: module.eh_readable_end }.fixed(memory, 8)?;
        Ok((i64::from(word as u32 as i32), i64::from((word >> 32) as u32 as i32)))
    };
    while low < high {
        let middle = low.midpoint(high);
        if pair(middle)?.0 <= wanted {
            low = middle.wrapping_add(1);
        } else {
            high = middle;
        }
    }
    let (_, fde) = pair(low.checked_sub(1).ok_or(Failure::NoInfo)?)?;
    Ok(header.wrapping_add(fde as u64))
}

impl Machine {
    /// Evaluates the row for `pc` in `module`. [`Memory::set_info`] must have been called.
    pub fn evaluate<M: Memory>(&mut self, memory: &mut M, module: &ModuleEntry, pc: u64) -> Parsed<()> {
        let fde = search(memory, module, pc)?;
        let mut cursor = Cursor { at: fde, end: module.eh_readable_end };
        let (back, position) = cursor.entry(memory)?;
        if back == 0 {
            return Err(Failure::BadInfo);
        }
        let cie_at = position.checked_sub(back).ok_or(Failure::BadInfo)?;
        let cie = parse_cie(memory, cie_at, module.eh_readable_end)?;
        let first = cursor.pointer(memory, cie.encoding, module.eh_frame_hdr)?;
        let range = cursor.pointer(memory, cie.encoding & 0x0f, 0)?;
        if pc < first || pc.wrapping_sub(first) >= range {
            return Err(Failure::NoInfo);
        }
        if cie.augmented {
            let length = cursor.uleb(memory)?;
            cursor.skip(length)?;
        }
        self.signal_frame = cie.signal_frame;
        self.ra_column = cie.ra_column;
        self.depth = 0;
        self.row = Row::EMPTY;
        self.run(memory, &cie, cie.program, u64::MAX, 0)?;
        self.initial = self.row;
        self.run(memory, &cie, cursor, pc, first)
    }

    /// Runs a program until the location passes `pc`.
    fn run<M: Memory>(
        &mut self,
        memory: &mut M,
        cie: &Cie,
        program: Cursor,
        pc: u64,
        first: u64,
    ) -> Parsed<()> {
        let mut cursor = program;
        let mut location = first;
        for _ in 0..MAX_INSTRUCTIONS {
            if cursor.at >= cursor.end {
                return Ok(());
            }
            let byte = cursor.fixed(memory, 1)?;
            let low = byte & 0x3f;
            let advance = match byte >> 6 {
                1 => Some(low),
                2 => {
                    let offset = factored(cursor.uleb(memory)? as i64, cie)?;
                    self.row.set(low, RegisterRule::Offset(offset));
                    None
                }
                3 => {
                    self.restore(low);
                    None
                }
                _ => match low {
                    0x01 => {
                        location = cursor.pointer(memory, cie.encoding, 0)?;
                        Some(0)
                    }
                    0x02 => Some(cursor.fixed(memory, 1)?),
                    0x03 => Some(cursor.fixed(memory, 2)?),
                    0x04 => Some(cursor.fixed(memory, 4)?),
                    _ => {
                        self.instruction(memory, &mut cursor, cie, low as u8)?;
                        None
                    }
                },
            };
            if let Some(delta) = advance {
                location = location.wrapping_add(delta.wrapping_mul(cie.code_align));
                if location > pc {
                    return Ok(());
                }
            }
        }
        Err(Failure::BadInfo)
    }

    fn restore(&mut self, number: u64) {
        if let Some(rule) = self.initial.registers.get(number as usize).copied() {
            self.row.set(number, rule);
        }
    }

    /// One instruction of the `DW_CFA_*` list that neither advances nor packs an operand.
    fn instruction<M: Memory>(&mut self, memory: &mut M, c: &mut Cursor, cie: &Cie, code: u8) -> Parsed<()> {
        use RegisterRule as Reg;
        match code {
            // nop
            0x00 => {}
            // offset_extended, offset_extended_sf, GNU_negative_offset_extended
            0x05 | 0x11 | 0x2f => {
                let register = c.uleb(memory)?;
                let n = match code {
                    0x05 => c.uleb(memory)? as i64,
                    0x11 => c.sleb(memory)?,
                    _ => (c.uleb(memory)? as i64).wrapping_neg(),
                };
                self.row.set(register, Reg::Offset(factored(n, cie)?));
            }
            // val_offset, val_offset_sf
            0x14 | 0x15 => {
                let register = c.uleb(memory)?;
                let n = if code == 0x14 { c.uleb(memory)? as i64 } else { c.sleb(memory)? };
                self.row.set(register, Reg::ValOffset(factored(n, cie)?));
            }
            // restore_extended, undefined, same_value
            0x06 => self.restore(c.uleb(memory)?),
            0x07 => self.row.set(c.uleb(memory)?, Reg::Undefined),
            0x08 => self.row.set(c.uleb(memory)?, Reg::Same),
            // register
            0x09 => {
                let register = c.uleb(memory)?;
                let other = c.uleb(memory)?;
                self.row.set(register, Reg::Register(other.min(u64::from(u32::MAX)) as u32));
            }
            // remember_state, restore_state
            0x0a => {
                *self.remembered.get_mut(self.depth).ok_or(Failure::BadInfo)? = self.row;
                self.depth = self.depth.wrapping_add(1);
            }
            0x0b => {
                self.depth = self.depth.checked_sub(1).ok_or(Failure::BadInfo)?;
                self.row = *self.remembered.get(self.depth).ok_or(Failure::BadInfo)?;
            }
            // def_cfa, def_cfa_sf, def_cfa_register, def_cfa_offset, def_cfa_offset_sf
            0x0c | 0x12 => {
                let register = c.uleb(memory)?.min(u64::from(u32::MAX)) as u32;
                let n = if code == 0x0c { c.uleb(memory)? as i64 } else { factored(c.sleb(memory)?, cie)? };
                self.row.cfa = CfaRule::Register(register, n);
            }
            0x0d => {
                let register = c.uleb(memory)?.min(u64::from(u32::MAX)) as u32;
                let CfaRule::Register(_, n) = self.row.cfa else { return Err(Failure::BadInfo) };
                self.row.cfa = CfaRule::Register(register, n);
            }
            0x0e | 0x13 => {
                let n = if code == 0x0e { c.uleb(memory)? as i64 } else { factored(c.sleb(memory)?, cie)? };
                let CfaRule::Register(register, _) = self.row.cfa else { return Err(Failure::BadInfo) };
                self.row.cfa = CfaRule::Register(register, n);
            }
            // def_cfa_expression, expression, val_expression
            0x0f => {
                let (start, length) = block(memory, c)?;
                self.row.cfa = CfaRule::Expression(start, length);
            }
            0x10 => {
                let register = c.uleb(memory)?;
                let (start, length) = block(memory, c)?;
                self.row.set(register, Reg::Expression(start, length));
            }
            0x16 => {
                let register = c.uleb(memory)?;
                let (start, length) = block(memory, c)?;
                self.row.set(register, Reg::ValExpression(start, length));
            }
            // AARCH64_negate_ra_state (with and without pc): signatures are stripped in any state.
            0x2c | 0x2d => {}
            // GNU_args_size
            0x2e => {
                c.uleb(memory)?;
            }
            _ => return Err(Failure::BadInfo),
        }
        Ok(())
    }

    /// Returns true if the evaluated frame is a signal trampoline.
    pub fn is_signal_frame(&self) -> bool {
        self.signal_frame
    }

    fn register(&self, number: usize) -> RegisterRule {
        self.row.registers.get(number).copied().unwrap_or(RegisterRule::Unspecified)
    }

    /// Returns the evaluated row as a packed rule; a complex rule if the packed form cannot express it.
    pub fn rule(&self) -> Rule {
        use RegisterRule as Reg;
        let ra = self.register(self.ra_column as usize);
        if ra == Reg::Undefined {
            return Rule::Root;
        }
        let special = !matches!(self.register(arch::SP), Reg::Unspecified | Reg::Same);
        let (CfaRule::Register(base, offset), false) = (self.row.cfa, self.signal_frame || special) else {
            return Rule::Complex;
        };
        let from_fp = match base as usize {
            arch::SP => false,
            arch::FP => true,
            _ => return Rule::Complex,
        };
        let fp = match self.register(arch::FP) {
            Reg::Unspecified | Reg::Same => None,
            Reg::Offset(n) if n < 0 => Some(n.unsigned_abs()),
            _ => return Rule::Complex,
        };
        match (u64::try_from(offset), saved(self.ra_column as usize, ra, fp)) {
            (Ok(offset), Some(saved)) => Rule::unpack(Rule::Simple(Simple { from_fp, offset, saved }).pack()),
            _ => Rule::Complex,
        }
    }

    /// Steps `regs` to the caller by the evaluated row. Returns the CFA.
    pub fn step<M: Memory>(&mut self, memory: &mut M, regs: &mut Regs) -> Parsed<u64> {
        use RegisterRule as Reg;
        let ra_column = self.ra_column as usize;
        if self.register(ra_column) == Reg::Undefined {
            return Err(Failure::Root);
        }
        let cfa = match self.row.cfa {
            CfaRule::Register(base, offset) => {
                regs.get(base as usize).ok_or(Failure::NeedRegister)?.wrapping_add_signed(offset)
            }
            CfaRule::Expression(start, length) => self.expression.run(memory, regs, (start, length), None)?,
            CfaRule::None => return Err(Failure::BadInfo),
        };
        let mut caller = Regs::unknown();
        for number in 0..arch::COUNT {
            let value = match self.register(number) {
                Reg::Unspecified => {
                    let kept = self.signal_frame || arch::PRESERVED >> number & 1 == 1 || number == ra_column;
                    if kept { regs.get(number) } else { None }
                }
                Reg::Same => regs.get(number),
                Reg::Undefined => None,
                Reg::Offset(n) => {
                    let at = cfa.wrapping_add_signed(n);
                    match memory.word(at) {
                        // The word is popped already and lies below a copied stack: the register still has
                        // the value.
                        None if number != ra_column && at < regs.sp() => regs.get(number),
                        // Fail only if the word is needed for the walk itself.
                        None if number == ra_column || number == arch::FP => return Err(Failure::BadStack),
                        word => word,
                    }
                }
                Reg::ValOffset(n) => Some(cfa.wrapping_add_signed(n)),
                Reg::Register(other) => regs.get(other as usize),
                Reg::Expression(start, length) => {
                    let at = self.expression.run(memory, regs, (start, length), Some(cfa))?;
                    Some(memory.word(at).ok_or(Failure::BadStack)?)
                }
                Reg::ValExpression(start, length) => {
                    Some(self.expression.run(memory, regs, (start, length), Some(cfa))?)
                }
            };
            if let Some(value) = value {
                caller.set(number, value);
            }
        }
        if matches!(self.register(arch::SP), Reg::Unspecified | Reg::Same) {
            caller.set(arch::SP, cfa);
        }
        caller.pc = strip(caller.get(ra_column).ok_or(Failure::NeedRegister)?);
        if !self.signal_frame {
            // A call overwrites the link register, so the caller's own value is unknown.
            caller.valid &= !(1 << arch::RA);
        }
        *regs = caller;
        Ok(cfa)
    }
}

/// Returns the saved registers in the packed form, if it can express them.
fn saved(ra_column: usize, ra: RegisterRule, fp: Option<u64>) -> Option<Saved> {
    use RegisterRule as Reg;
    if ra_column != arch::RA {
        return None;
    }
    if cfg!(target_arch = "x86_64") {
        return (ra == Reg::Offset(-8)).then(|| fp.map_or(Saved::Nothing, Saved::Fp));
    }
    match (ra, fp) {
        (Reg::Unspecified | Reg::Same, None) => Some(Saved::Nothing),
        (Reg::Offset(n), Some(fp)) if n < 0 && n.unsigned_abs().wrapping_add(8) == fp => Some(Saved::Fp(fp)),
        (Reg::Offset(n), None) if n < 0 => Some(Saved::Ra(n.unsigned_abs())),
        _ => None,
    }
}

fn factored(n: i64, cie: &Cie) -> Parsed<i64> {
    n.checked_mul(cie.data_align).ok_or(Failure::BadInfo)
}

/// An expression block: its start and length.
fn block<M: Memory>(memory: &mut M, cursor: &mut Cursor) -> Parsed<(u64, u32)> {
    let length = cursor.uleb(memory)?;
    let start = cursor.at;
    cursor.skip(length)?;
    Ok((start, length as u32))
}
