//! Decodes the line number table of a method.
//!
//! The table follows the bytecodes of a `ConstMethod`. It is a sequence of steps of bytecode index and line,
//! both from 0 on:
//!
//! ```text
//! 0            end
//! 0xff         two signed compressed numbers follow: steps of bytecode index and line
//! other byte   bits 3 to 7: step of the bytecode index; bits 0 to 2: step of the line
//! ```

use super::scopes::{decode_sign, read_unsigned5};

/// Limit of entries. A method has at most 65,535 bytes of bytecodes.
const MAX_ENTRIES: usize = 65_536;

/// The start of a line in the bytecodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineStart {
    /// Bytecode index.
    pub bci: u16,
    /// Source line.
    pub line: u32,
}

/// Decodes a table. Returns the entries before the first invalid byte, in the order of the table.
pub fn decode(mut bytes: &[u8], without_zero_bytes: bool) -> Box<[LineStart]> {
    let (mut lines, mut bci, mut line) = (Vec::new(), 0i32, 0i32);
    while lines.len() < MAX_ENTRIES {
        let Some((steps, rest)) = step(bytes, without_zero_bytes) else { break };
        bytes = rest;
        bci = bci.wrapping_add(steps.0);
        line = line.wrapping_add(steps.1);
        let (Ok(bci), Ok(line)) = (u16::try_from(bci), u32::try_from(line)) else { break };
        lines.push(LineStart { bci, line });
    }
    lines.into()
}

/// Returns the steps of the next entry, and the bytes after it.
fn step(bytes: &[u8], without_zero_bytes: bool) -> Option<((i32, i32), &[u8])> {
    let (first, mut rest) = bytes.split_first()?;
    match first {
        0 => None,
        0xff => {
            let mut number = || {
                let (value, len) = read_unsigned5(rest, without_zero_bytes)?;
                rest = rest.get(len..)?;
                Some(decode_sign(value))
            };
            let steps = (number()?, number()?);
            Some((steps, rest))
        }
        byte => Some(((i32::from(byte >> 3), i32::from(byte & 7)), rest)),
    }
}

/// Returns the line of a bytecode, by HotSpot's rule: the table need not be sorted. 0 if there is none.
pub fn find(lines: &[LineStart], bci: u16) -> u32 {
    let mut best = LineStart { bci: 0, line: 0 };
    for start in lines {
        if start.bci == bci {
            return start.line;
        }
        if start.bci < bci && start.bci >= best.bci {
            best = *start;
        }
    }
    best.line
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::names::hotspot::scopes::tests::write_unsigned5;

    /// Encodes a table as HotSpot does.
    pub fn encode(lines: &[(u16, u32)], without_zero_bytes: bool) -> Vec<u8> {
        let (mut bytes, mut last) = (Vec::new(), (0, 0));
        for (bci, line) in lines {
            let (bci, line) = (i32::from(*bci), *line as i32);
            let steps = (bci - last.0, line - last.1);
            last = (bci, line);
            // 0 and 0xff have another meaning.
            let short = (steps.0 << 3 | steps.1) as u8;
            let fits = (0..32).contains(&steps.0) && (0..8).contains(&steps.1);
            if fits && short != 0 && short != 0xff {
                bytes.push(short);
            } else {
                bytes.push(0xff);
                for step in [steps.0, steps.1] {
                    write_unsigned5((step << 1 ^ step >> 31) as u32, without_zero_bytes, &mut bytes);
                }
            }
        }
        bytes.push(0);
        bytes
    }

    const LINES: [(u16, u32); 7] =
        [(0, 120), (5, 121), (36, 128), (36, 128), (70, 3), (60, 90_000), (65_000, 7)];

    #[test]
    fn line_tables_are_decoded() {
        for without_zero_bytes in [false, true] {
            let bytes = encode(&LINES, without_zero_bytes);
            let lines = decode(&bytes, without_zero_bytes);
            let found: Vec<_> = lines.iter().map(|start| (start.bci, start.line)).collect();
            assert_eq!(found, LINES);
            assert_eq!(decode(&bytes[..bytes.len() - 1], without_zero_bytes), lines, "without an end");
        }
        // A single byte: bytecode index 2, line 5.
        assert_eq!(*decode(&[2 << 3 | 5, 0, 2 << 3], true), [LineStart { bci: 2, line: 5 }]);
        assert_eq!(*decode(&[0xff, 3, 3], false), [], "negative");
        assert_eq!(*decode(&[], false), []);
    }

    #[test]
    fn lines_are_found_by_bytecode_index() {
        let lines = decode(&encode(&LINES, true), true);
        let line = |bci| find(&lines, bci);
        assert_eq!([line(0), line(4), line(5), line(35)], [120, 120, 121, 121]);
        assert_eq!([line(36), line(61), line(71), line(u16::MAX)], [128, 90_000, 3, 7]);
        assert_eq!(find(&[], 3), 0);
        assert_eq!(find(&[LineStart { bci: 9, line: 1 }], 8), 0, "before the first line");
    }

    #[test]
    fn arbitrary_bytes_are_decoded_without_panic() {
        let mut state = 1u64;
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..40)
                .map(|_| {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (state >> 56) as u8
                })
                .collect();
            let lines = decode(&bytes, bytes[0] & 1 == 0);
            assert!(lines.len() <= bytes.len());
            find(&lines, 100);
        }
        assert_eq!(decode(&[8; 2 * MAX_ENTRIES], false).len(), 65_535, "limited by the bytecode index");
        assert_eq!(decode(&[1; 2 * MAX_ENTRIES], false).len(), MAX_ENTRIES);
    }
}
