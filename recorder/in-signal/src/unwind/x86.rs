//! Decodes lengths and operands of x86_64 instructions, as far as the simulation of code up to its return
//! needs them (see `instruction_analysis.rs`).

/// Reads one byte of code, `None` if the address is not readable.
pub trait Code {
    /// The byte at an address.
    fn byte(&mut self, at: u64) -> Option<u8>;
}

/// The opcode map of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Map {
    /// One-byte opcodes.
    One,
    /// `0f xx`.
    Two,
    /// Longer opcodes, those of VEX and EVEX too.
    Other,
}

/// A ModRM operand that is not a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryOperand {
    /// Base register; `None`: absolute, relative to the instruction, or with an index.
    pub base: Option<u8>,
    /// Displacement.
    pub disp: i64,
}

/// One decoded instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Its opcode map.
    pub map: Map,
    /// Its opcode byte.
    pub opcode: u8,
    /// Operands of 64 bits (REX.W).
    pub wide: bool,
    /// The register of ModRM's `reg` field, or of the opcode's low bits, extended by REX.
    pub reg: u8,
    /// ModRM's `reg` field without extension.
    pub extension: u8,
    /// The register of ModRM's `rm` field, if it names one.
    pub rm: Option<u8>,
    /// The memory of ModRM's `rm` field, if it names one.
    pub place: Option<MemoryOperand>,
    /// Immediate value, sign-extended.
    pub immediate: i64,
    /// Address of the next instruction.
    pub next: u64,
}

struct Reader<'a, C> {
    code: &'a mut C,
    at: u64,
}

impl<C: Code> Reader<'_, C> {
    #[inline]
    fn byte(&mut self) -> Option<u8> {
        let byte = self.code.byte(self.at)?;
        self.at = self.at.wrapping_add(1);
        Some(byte)
    }

    /// A little-endian number of 0, 1, 2, 4 or 8 bytes, sign-extended.
    fn number(&mut self, bytes: u32) -> Option<i64> {
        let mut value = 0u64;
        for i in 0..bytes {
            value |= u64::from(self.byte()?).wrapping_shl(i.wrapping_mul(8));
        }
        if bytes == 0 || bytes >= 8 {
            return Some(value as i64);
        }
        let unused = 64u32.wrapping_sub(bytes.wrapping_mul(8));
        Some((value.wrapping_shl(unused) as i64).wrapping_shr(unused))
    }
}

/// Returns whether a ModRM byte follows a one-byte opcode, and the number of its immediate bytes (`full` = 2
/// or 4 by operand size). `None`: no instruction in 64-bit mode.
fn one_byte(opcode: u8, full: u32, wide: bool) -> Option<(bool, u32)> {
    Some(match opcode {
        0x00..=0x3f => match opcode & 7 {
            0..=3 => (true, 0),
            4 => (false, 1),
            5 => (false, full),
            _ => return None,
        },
        0x63 | 0x84..=0x8f | 0xd0..=0xd3 | 0xd8..=0xdf | 0xf6 | 0xf7 | 0xfe | 0xff => (true, 0),
        0x68 | 0xa9 => (false, full),
        0x69 | 0x81 | 0xc7 => (true, full),
        0x6b | 0x80 | 0x83 | 0xc0 | 0xc1 | 0xc6 => (true, 1),
        0x6a | 0x70..=0x7f | 0xa8 | 0xb0..=0xb7 | 0xcd | 0xe0..=0xe7 | 0xeb => (false, 1),
        0xa0..=0xa3 => (false, 8),
        0xb8..=0xbf => (false, if wide { 8 } else { full }),
        0xc2 | 0xca => (false, 2),
        0xc8 => (false, 3),
        0xe8 | 0xe9 => (false, 4),
        0x50..=0x5f | 0x6c..=0x6f | 0x90..=0x99 | 0x9b..=0x9f | 0xa4..=0xa7 | 0xaa..=0xaf => (false, 0),
        0xc3 | 0xc9 | 0xcb | 0xcc | 0xcf | 0xd7 | 0xec..=0xef | 0xf1 | 0xf4 | 0xf5 | 0xf8..=0xfd => {
            (false, 0)
        }
        _ => return None,
    })
}

/// Does the same for `0f xx`.
fn two_bytes(opcode: u8) -> Option<(bool, u32)> {
    Some(match opcode {
        0x05..=0x09 | 0x0b | 0x0e | 0x30..=0x37 | 0x77 | 0xa0..=0xa2 | 0xa8..=0xaa | 0xc8..=0xcf => {
            (false, 0)
        }
        0x04 | 0x0a | 0x0c => return None,
        0x80..=0x8f => (false, 4),
        0x0f | 0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6 => (true, 1),
        _ => (true, 0),
    })
}

/// Decodes the instruction at an address.
pub fn decode<C: Code>(code: &mut C, at: u64) -> Option<Instruction> {
    let mut from = Reader { code, at };
    let (mut rex, mut short, mut opcode) = (0u8, false, from.byte()?);
    for _ in 0..14 {
        match opcode {
            0x66 => short = true,
            0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x67 | 0xf0 | 0xf2 | 0xf3 => {}
            0x40..=0x4f => {
                rex = opcode;
                opcode = from.byte()?;
                break;
            }
            _ => break,
        }
        opcode = from.byte()?;
    }
    let full = if short { 2 } else { 4 };
    let mut map = Map::One;
    let (has_modrm, mut bytes);
    match opcode {
        // VEX and EVEX: they write no general-purpose register except those of `gpr_written`.
        0xc4 | 0xc5 | 0x62 => {
            let first = from.byte()?;
            let payload = match opcode {
                0xc5 => 0,
                0xc4 => 1,
                _ => 2,
            };
            let table = if opcode == 0xc5 { 1 } else { first & if opcode == 0xc4 { 0x1f } else { 7 } };
            from.number(payload)?;
            rex = 0x40 | ((first & 0x80) ^ 0x80) >> 5;
            opcode = from.byte()?;
            map = if table == 1 { Map::Two } else { Map::Other };
            let with_byte = matches!(opcode, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6);
            has_modrm = !(table == 1 && opcode == 0x77);
            bytes = u32::from(table == 3 || (table == 1 && with_byte));
        }
        0x0f => {
            opcode = from.byte()?;
            map = Map::Two;
            match opcode {
                0x38 | 0x3a => {
                    map = Map::Other;
                    bytes = u32::from(opcode == 0x3a);
                    opcode = from.byte()?;
                    has_modrm = true;
                }
                _ => (has_modrm, bytes) = two_bytes(opcode)?,
            }
        }
        _ => (has_modrm, bytes) = one_byte(opcode, full, rex & 8 != 0)?,
    }
    let mut found = Instruction {
        map,
        opcode,
        wide: rex & 8 != 0,
        reg: (opcode & 7) | (rex & 1) << 3,
        extension: 0,
        rm: None,
        place: None,
        immediate: 0,
        next: 0,
    };
    if has_modrm {
        let modrm = from.byte()?;
        let (mode, rm) = (modrm >> 6, modrm & 7);
        found.extension = modrm >> 3 & 7;
        found.reg = found.extension | (rex & 4) << 1;
        if mode == 3 {
            found.rm = Some(rm | (rex & 1) << 3);
        } else {
            let mut base = Some(rm | (rex & 1) << 3);
            if rm == 4 {
                let sib = from.byte()?;
                let index = (sib >> 3 & 7) | (rex & 2) << 2;
                base = (index == 4).then_some((sib & 7) | (rex & 1) << 3);
                if mode == 0 && sib & 7 == 5 {
                    base = None;
                    from.number(4)?;
                }
            } else if mode == 0 && rm == 5 {
                base = None;
                from.number(4)?;
            }
            let disp = from.number(match mode {
                1 => 1,
                2 => 4,
                _ => 0,
            })?;
            found.place = Some(MemoryOperand { base, disp });
        }
        // In this group only `test` has an immediate.
        if map == Map::One && matches!(opcode, 0xf6 | 0xf7) && found.extension < 2 {
            bytes = if opcode == 0xf6 { 1 } else { full };
        }
    }
    found.immediate = from.number(bytes)?;
    found.next = from.at;
    Some(found)
}
