//! One unwind rule in 32 bits, the same packing on every architecture.
//!
//! ```text
//! bit  1..0   tag: 0 gap (no information) · 1 simple · 2 root (return address undefined) · 3 complex (interpret)
//! bit  2      base of the CFA: 0 stack pointer, 1 frame pointer
//! bit  4..3   saved: 0 nothing but the return address at CFA−8 (x86_64) or in the link register (aarch64)
//!                    1 frame pointer at CFA − 8·slot; return address at CFA−8 (x86_64) or right above it (aarch64)
//!                    2 return address at CFA − 8·slot, frame pointer unchanged (aarch64)
//! bit 17..5   slot, 13 bits
//! bit 31..18  (CFA − base) / 8, 14 bits
//! ```
//! A rule that does not fit is complex. A gap is a separate rule, so that an address outside every function
//! never gets the rule of the function before it.

/// Rule to find the caller of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// No unwind information covers the address.
    Gap,
    /// Base register + offset.
    Simple(Simple),
    /// The return address is undefined: outermost frame.
    Root,
    /// Interpret the unwind information itself.
    Complex,
}

/// A rule of base plus offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Simple {
    /// The CFA counts from the frame pointer, not from the stack pointer.
    pub from_fp: bool,
    /// CFA − base in bytes.
    pub offset: u64,
    /// The saved registers.
    pub saved: Saved,
}

/// Registers saved by a frame, as distances below its CFA in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// x86_64: only the return address at CFA−8. aarch64: nothing, the return address is in the link register.
    Nothing,
    /// Frame pointer at this distance; return address at CFA−8 (x86_64) or 8 bytes above it (aarch64).
    Fp(u64),
    /// Return address at this distance (aarch64 only).
    Ra(u64),
}

const GAP: u32 = 0;
const SIMPLE: u32 = 1;
const ROOT: u32 = 2;
const COMPLEX: u32 = 3;
const SLOT_MAX: u64 = (1 << 13) - 1;
const OFFSET_MAX: u64 = (1 << 14) - 1;

impl Rule {
    /// Packs the rule; a simple one that does not fit becomes complex.
    pub const fn pack(self) -> u32 {
        let Rule::Simple(simple) = self else {
            return match self {
                Rule::Gap => GAP,
                Rule::Root => ROOT,
                _ => COMPLEX,
            };
        };
        let (saved, below) = match simple.saved {
            Saved::Nothing => (0, 0),
            Saved::Fp(below) => (1, below),
            Saved::Ra(below) => (2, below),
        };
        let whole = simple.offset.is_multiple_of(8) && below.is_multiple_of(8);
        let (offset, slot) = (simple.offset / 8, below / 8);
        if !whole || offset > OFFSET_MAX || slot > SLOT_MAX || (saved != 0 && slot == 0) {
            return COMPLEX;
        }
        SIMPLE | (simple.from_fp as u32) << 2 | saved << 3 | (slot as u32) << 5 | (offset as u32) << 18
    }

    /// Unpacks any word; unknown patterns are complex.
    #[inline]
    pub const fn unpack(word: u32) -> Rule {
        match word & 3 {
            GAP => Rule::Gap,
            ROOT => Rule::Root,
            SIMPLE => {
                let below = ((word >> 5) as u64 & SLOT_MAX) * 8;
                let saved = match word >> 3 & 3 {
                    0 => Saved::Nothing,
                    1 => Saved::Fp(below),
                    2 => Saved::Ra(below),
                    _ => return Rule::Complex,
                };
                Rule::Simple(Simple { from_fp: word & 4 != 0, offset: (word >> 18) as u64 * 8, saved })
            }
            _ => Rule::Complex,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fitting_rules_round_trip_through_packing() {
        for from_fp in [false, true] {
            for offset in (0..=OFFSET_MAX * 8).step_by(1000).chain([OFFSET_MAX * 8]) {
                let offset = offset & !7;
                for saved in [Saved::Nothing, Saved::Fp(16), Saved::Ra(8), Saved::Fp(SLOT_MAX * 8)] {
                    let rule = Rule::Simple(Simple { from_fp, offset, saved });
                    assert_eq!(Rule::unpack(rule.pack()), rule);
                }
            }
        }
        for rule in [Rule::Gap, Rule::Root, Rule::Complex] {
            assert_eq!(Rule::unpack(rule.pack()), rule);
        }
    }

    #[test]
    fn rule_that_does_not_fit_is_complex() {
        for (offset, saved) in [
            ((OFFSET_MAX + 1) * 8, Saved::Nothing),
            (12, Saved::Nothing),
            (16, Saved::Fp(12)),
            (16, Saved::Fp(0)),
            (16, Saved::Ra((SLOT_MAX + 1) * 8)),
        ] {
            let rule = Rule::Simple(Simple { from_fp: false, offset, saved });
            assert_eq!(Rule::unpack(rule.pack()), Rule::Complex);
        }
    }
}
