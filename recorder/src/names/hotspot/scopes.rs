//! Decodes the debug information of a compiled method: which methods are inlined at an address.
//!
//! ```text
//! PcDesc   pc_offset i32, scope_decode_offset i32, obj_decode_offset i32, flags i32      sorted by pc_offset
//! scope    sender's decode offset, index of the method in the metadata (from 1 on), bytecode index + 1, …
//! ```
//!
//! A `PcDesc` describes the instructions before its offset, up to the previous `PcDesc`; a call has one at its
//! return address. The first and the last are sentinels. The numbers of a scope are compressed ("UNSIGNED5"):
//! up to five bytes, the least significant first, of which all but the last are at least 192. Releases from 20
//! on add 1 to each byte.

/// Bytes of a `PcDesc`.
pub const PC_DESC_SIZE: usize = 16;
/// Limit of inlined methods at an address. HotSpot's default is 15, and more for forced inlining.
pub const MAX_INLINED: usize = 256;
/// The `pc_offset` of the sentinel at the end.
const UPPER_OFFSET_LIMIT: i32 = i32::MAX;
/// Bytes of one compressed number.
pub const MAX_NUMBER: usize = 5;

/// The part of a `PcDesc` that names need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcDesc {
    /// Offset from the start of the code.
    pub pc_offset: i32,
    /// Offset of the scope; 0 if there is none.
    pub scope_offset: i32,
}

/// A method at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Index in the metadata, from 1 on.
    pub method_index: u32,
    /// Bytecode index; -1 before the first bytecode.
    pub bci: i32,
}

/// Parses an array of `PcDesc`s.
pub fn parse_pc_descs(bytes: &[u8]) -> Box<[PcDesc]> {
    let number = |entry: &[u8], at: usize| {
        entry.get(at..).and_then(|rest| rest.first_chunk::<4>()).map_or(0, |word| i32::from_le_bytes(*word))
    };
    let entries = bytes.chunks_exact(PC_DESC_SIZE);
    entries.map(|entry| PcDesc { pc_offset: number(entry, 0), scope_offset: number(entry, 4) }).collect()
}

/// Returns the `PcDesc` of an address, which is an offset from the start of the code.
pub fn find_pc_desc(pcs: &[PcDesc], offset: i32, is_return_address: bool) -> Option<PcDesc> {
    // A call's PcDesc is at its return address. An interrupted instruction at this address belongs to the next
    // one.
    let inside = if is_return_address { offset.checked_sub(1)? } else { offset };
    let found = pcs.get(pcs.partition_point(|desc| desc.pc_offset <= inside))?;
    (found.pc_offset != UPPER_OFFSET_LIMIT).then_some(*found)
}

/// Reads a compressed number, and returns it with the number of bytes that it takes.
pub fn read_unsigned5(bytes: &[u8], without_zero_bytes: bool) -> Option<(u32, usize)> {
    const SHIFT: u32 = 6;
    let (excluded, last) = if without_zero_bytes { (1, 191) } else { (0, 192) };
    let mut sum = 0u32;
    for (at, byte) in bytes.iter().take(MAX_NUMBER).enumerate() {
        let value = u32::from(byte.checked_sub(excluded)?);
        // The most significant bits of a fifth byte may not fit.
        sum = sum.wrapping_add(value.wrapping_shl(SHIFT * at as u32));
        if value < last || at + 1 == MAX_NUMBER {
            return Some((sum, at + 1));
        }
    }
    None
}

/// Returns a signed number from the compressed form.
pub fn decode_sign(value: u32) -> i32 {
    (value >> 1) as i32 ^ -((value & 1) as i32)
}

/// Decodes the scope at `offset` and those of its callers, innermost first. `read` returns up to the number of
/// bytes of the encoded scopes from an offset on.
pub fn decode_scopes(
    offset: i32,
    without_zero_bytes: bool,
    mut read: impl FnMut(u32, usize) -> Option<Vec<u8>>,
) -> Option<Vec<Scope>> {
    let (mut scopes, mut offset) = (Vec::new(), u32::try_from(offset).ok()?);
    while offset != 0 {
        if scopes.len() == MAX_INLINED {
            return None;
        }
        let bytes = read(offset, 3 * MAX_NUMBER)?;
        let mut at = 0;
        let mut number = || {
            let (value, len) = read_unsigned5(bytes.get(at..)?, without_zero_bytes)?;
            at += len;
            Some(value)
        };
        let (sender, method_index, bci) = (number()?, number()?, number()?);
        let bci = i32::try_from(bci).ok()?.checked_sub(1)?;
        if method_index == 0 {
            return None;
        }
        scopes.push(Scope { method_index, bci });
        // A caller is encoded before the methods that are inlined into it.
        if sender >= offset {
            return None;
        }
        offset = sender;
    }
    Some(scopes)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Encodes a number as HotSpot does.
    pub fn write_unsigned5(value: u32, without_zero_bytes: bool, to: &mut Vec<u8>) {
        let (excluded, last) = if without_zero_bytes { (1, 191u32) } else { (0, 192) };
        let mut rest = value;
        for _ in 0..MAX_NUMBER - 1 {
            if rest < last {
                break;
            }
            rest -= last;
            to.push((last + rest % 64 + excluded) as u8);
            rest /= 64;
        }
        to.push((rest + excluded) as u8);
    }

    const NUMBERS: [u32; 14] =
        [0, 1, 127, 190, 191, 192, 193, 254, 255, 256, 12_287, 12_480, 1_000_000, u32::MAX - 1];

    #[test]
    fn compressed_numbers_are_read() {
        for without_zero_bytes in [false, true] {
            for number in NUMBERS {
                let mut bytes = Vec::new();
                write_unsigned5(number, without_zero_bytes, &mut bytes);
                let len = bytes.len();
                bytes.push(0x55);
                assert_eq!(read_unsigned5(&bytes, without_zero_bytes), Some((number, len)), "{number}");
                assert_eq!(read_unsigned5(&bytes[..len - 1], without_zero_bytes), None, "truncated");
                assert!(!without_zero_bytes || !bytes.contains(&0));
            }
        }
        // From the documentation of HotSpot's format.
        assert_eq!(read_unsigned5(&[191], false), Some((191, 1)));
        assert_eq!(read_unsigned5(&[192, 0], false), Some((192, 2)));
        assert_eq!(read_unsigned5(&[191], true), Some((190, 1)));
        assert_eq!(read_unsigned5(&[192, 1], true), Some((191, 2)));
        assert_eq!(read_unsigned5(&[0, 1], true), None, "the byte 0 is not used");
        assert!(read_unsigned5(&[255; 5], false).is_some_and(|(_, len)| len == 5));
        assert!(read_unsigned5(&[255; 9], true).is_some_and(|(_, len)| len == 5));
    }

    #[test]
    fn signs_are_decoded() {
        assert_eq!([0, 1, 2, 3, 4].map(decode_sign), [0, -1, 1, -2, 2]);
        assert_eq!(decode_sign(u32::MAX), i32::MIN);
        assert_eq!(decode_sign(u32::MAX - 1), i32::MAX);
    }

    fn pcs() -> Vec<PcDesc> {
        let desc = |pc_offset, scope_offset| PcDesc { pc_offset, scope_offset };
        vec![desc(-1, 0), desc(16, 5), desc(32, 9), desc(40, 5), desc(UPPER_OFFSET_LIMIT, 0)]
    }

    #[test]
    fn pc_desc_at_and_after_return_address_is_found() {
        let pcs = pcs();
        let offset = |at, is_return_address| find_pc_desc(&pcs, at, is_return_address).map(|d| d.pc_offset);
        // The call before offset 16 returns there; the instruction at 16 belongs to the code before 32.
        assert_eq!(offset(16, true), Some(16));
        assert_eq!(offset(16, false), Some(32));
        assert_eq!([offset(0, false), offset(15, false)], [Some(16), Some(16)]);
        assert_eq!([offset(17, true), offset(31, false)], [Some(32), Some(32)]);
        assert_eq!(offset(40, true), Some(40));
        assert_eq!([offset(40, false), offset(41, true)], [None, None], "after the last one");
        assert_eq!([offset(i32::MAX, false), offset(i32::MIN, true)], [None, None]);
        assert_eq!(find_pc_desc(&[], 3, false), None);
    }

    #[test]
    fn pc_descs_are_parsed() {
        let words = [-1, 0, 0, 0, 16, 5, 7, 2, 99];
        let bytes: Vec<u8> = words.iter().flat_map(|word: &i32| word.to_le_bytes()).collect();
        let found = parse_pc_descs(&bytes);
        assert_eq!(
            *found,
            [PcDesc { pc_offset: -1, scope_offset: 0 }, PcDesc { pc_offset: 16, scope_offset: 5 }]
        );
    }

    /// Encodes scopes, each the caller of the next; returns the stream and the offset of the innermost.
    pub fn encode(scopes: &[(u32, i32)], without_zero_bytes: bool) -> (Vec<u8>, i32) {
        let (mut stream, mut sender) = (vec![0xff], 0);
        for (method, bci) in scopes {
            let at = stream.len() as u32;
            for number in [sender, *method, (bci + 1) as u32] {
                write_unsigned5(number, without_zero_bytes, &mut stream);
            }
            // Locals, expressions and monitors follow.
            stream.extend([1, 1, 1]);
            sender = at;
        }
        (stream, sender as i32)
    }

    fn read(stream: &[u8]) -> impl Fn(u32, usize) -> Option<Vec<u8>> {
        |at, len| stream.get(at as usize..).map(|rest| rest[..len.min(rest.len())].to_vec())
    }

    #[test]
    fn inlined_scopes_are_decoded_innermost_first() {
        for without_zero_bytes in [false, true] {
            let (stream, innermost) = encode(&[(1, 300), (700, -1), (3, 65_534)], without_zero_bytes);
            let found = decode_scopes(innermost, without_zero_bytes, read(&stream)).unwrap();
            let found: Vec<_> = found.iter().map(|scope| (scope.method_index, scope.bci)).collect();
            assert_eq!(found, [(3, 65_534), (700, -1), (1, 300)]);
        }
        assert_eq!(decode_scopes(0, true, |_, _| None), Some(vec![]));
        assert_eq!(decode_scopes(-1, true, |_, _| None), None);
    }

    #[test]
    fn scopes_that_lead_in_circles_are_rejected() {
        // The caller of the scope at 1 is at 1, or at 2.
        for sender in [1, 2] {
            let stream = [9, sender, 1, 1, sender, 1, 1, 1, 1];
            assert_eq!(decode_scopes(1, false, read(&stream)), None);
        }
        let (stream, innermost) = encode(&[(1, 0); MAX_INLINED + 1], false);
        assert_eq!(decode_scopes(innermost, false, read(&stream)), None, "too many");
        let (stream, innermost) = encode(&[(1, 0); MAX_INLINED], false);
        assert!(decode_scopes(innermost, false, read(&stream)).is_some());
    }

    #[test]
    fn arbitrary_bytes_are_decoded_without_panic() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..20_000 {
            let len = random() as usize % 64;
            let bytes: Vec<u8> = (0..len).map(|_| random() as u8).collect();
            let (offset, flag) = (random() as i32 % 64, random() % 2 == 0);
            let _ = read_unsigned5(&bytes, flag);
            if let Some(scopes) = decode_scopes(offset, flag, read(&bytes)) {
                assert!(scopes.len() <= MAX_INLINED);
            }
            let _ = find_pc_desc(&parse_pc_descs(&bytes), random() as i32, flag);
        }
    }
}
