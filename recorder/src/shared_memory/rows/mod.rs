//! Builds the compact unwind table of one ELF file, which the walker searches (see
//! `flightline_in_signal::{layout, rows, rule}`).
//!
//! ```text
//! .eh_frame (or .debug_frame) ─▶ FDEs sorted by address ─▶ one (location, rule) per change ─▶ header · buckets · rows
//! ```
//! Adjacent rows with equal rules are merged. Addresses without an FDE get a row that marks a gap, so that
//! they never use the rule of the previous function. The interpreter in the handler handles rules that cannot
//! be packed. File contents are untrusted: memory is bounded, and no input causes a panic.

mod arena;

use std::fmt;

use flightline_in_signal::layout::{MAGIC, Row, RowsHeader};
use flightline_in_signal::unwind::rule::{Rule, Saved, Simple};
use gimli::{
    BaseAddresses, CfaRule, CieOrFde, DebugFrame, EhFrame, EndianSlice, LittleEndian, Register, RegisterRule,
    UnwindContext, UnwindSection, UnwindTableRow,
};
use object::{Architecture, Object, ObjectSection};

pub use arena::RowsArena;
pub(crate) use arena::new_file;

/// Limit of rows for one file (64 MiB).
pub const MAX_ROWS: usize = 8 << 20;
/// Limit of FDEs for one file.
pub const MAX_FDES: usize = 4 << 20;

/// The reason why no table could be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum RowsError {
    /// The file is not a readable ELF file.
    Elf(object::Error),
    /// The architecture is neither x86_64 nor aarch64.
    Architecture(Architecture),
    /// No unwind information in the file.
    NoUnwindInfo,
    /// Malformed unwind information at a section offset.
    Cfi(gimli::Error),
    /// More rows than [`MAX_ROWS`] or FDEs than [`MAX_FDES`].
    TooLarge,
}

impl fmt::Display for RowsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RowsError::Elf(error) => write!(f, "not a readable ELF file: {error}"),
            RowsError::Architecture(found) => {
                write!(f, "unwind rows of architecture {found:?} are not supported")
            }
            RowsError::NoUnwindInfo => f.write_str("neither .eh_frame nor .debug_frame"),
            RowsError::Cfi(error) => write!(f, "malformed unwind information: {error}"),
            RowsError::TooLarge => write!(f, "more than {MAX_ROWS} unwind rows"),
        }
    }
}

impl std::error::Error for RowsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RowsError::Elf(error) => Some(error),
            RowsError::Cfi(error) => Some(error),
            _ => None,
        }
    }
}

impl From<gimli::Error> for RowsError {
    fn from(error: gimli::Error) -> Self {
        RowsError::Cfi(error)
    }
}

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Register numbers of the file's architecture.
#[derive(Clone, Copy)]
struct Target {
    x86: bool,
    sp: Register,
    fp: Register,
    ra: Register,
}

/// Builds the unwind table of an ELF file (its bytes, mapped or read): header, buckets and rows in the format
/// of the arena. Locations are relative to the lowest covered file virtual address, which the header contains
/// as `base`.
pub fn build(elf: &[u8]) -> Result<Vec<u8>, RowsError> {
    let file = object::File::parse(elf).map_err(RowsError::Elf)?;
    let (target, vendor) = match file.architecture() {
        Architecture::X86_64 => {
            (Target { x86: true, sp: Register(7), fp: Register(6), ra: Register(16) }, gimli::Vendor::Default)
        }
        Architecture::Aarch64 => (
            Target { x86: false, sp: Register(31), fp: Register(29), ra: Register(30) },
            gimli::Vendor::AArch64,
        ),
        other => return Err(RowsError::Architecture(other)),
    };
    let mut bases = BaseAddresses::default();
    let section = |name: &str| {
        let section = file.section_by_name(name)?;
        Some((section.address(), section))
    };
    if let Some((address, _)) = section(".text") {
        bases = bases.set_text(address);
    }
    if let Some((address, _)) = section(".got") {
        bases = bases.set_got(address);
    }
    if let Some((address, _)) = section(".eh_frame_hdr") {
        bases = bases.set_eh_frame_hdr(address);
    }
    if let Some((address, found)) = section(".eh_frame") {
        let data = found.data().map_err(RowsError::Elf)?;
        if data.len() > 4 {
            let mut frame = EhFrame::new(data, LittleEndian);
            frame.set_address_size(8);
            frame.set_vendor(vendor);
            return collect(&frame, &bases.set_eh_frame(address), target);
        }
    }
    let Some((_, found)) = section(".debug_frame") else { return Err(RowsError::NoUnwindInfo) };
    let data = found.uncompressed_data().map_err(RowsError::Elf)?;
    let mut frame = DebugFrame::new(&data, LittleEndian);
    frame.set_address_size(8);
    frame.set_vendor(vendor);
    collect(&frame, &bases, target)
}

/// An FDE's address range and its offset in the section.
struct Extent<O> {
    start: u64,
    end: u64,
    at: O,
}

fn collect<'a, S>(section: &S, bases: &BaseAddresses, target: Target) -> Result<Vec<u8>, RowsError>
where
    S: UnwindSection<Slice<'a>>,
    S::Offset: Copy,
{
    let mut extents: Vec<Extent<S::Offset>> = Vec::new();
    let mut entries = section.entries(bases);
    let mut last_cie = None;
    // A malformed entry ends the list; earlier entries are still valid.
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let parsed = partial.parse(|section, bases, offset| cached(section, bases, offset, &mut last_cie));
        let Ok(fde) = parsed else { continue };
        let (start, end) = (fde.initial_address(), fde.end_address());
        // Discarded functions retain an FDE at address zero.
        if start == 0 || end <= start {
            continue;
        }
        if extents.len() >= MAX_FDES {
            return Err(RowsError::TooLarge);
        }
        extents.push(Extent { start, end, at: S::Offset::from(fde.offset()) });
    }
    extents.sort_unstable_by_key(|extent| (extent.start, extent.end));
    let Some(base) = extents.first().map(|extent| extent.start) else { return Err(RowsError::NoUnwindInfo) };
    let mut rows = RowList { base, rows: Vec::with_capacity(extents.len().min(MAX_ROWS) * 3) };
    let mut context = UnwindContext::new();
    let mut covered = base;
    for extent in &extents {
        if extent.start < covered {
            continue;
        }
        if extent.start > covered {
            rows.push(covered, Rule::Gap)?;
        }
        let fde = section.fde_from_offset(bases, extent.at, |section, bases, offset| {
            cached(section, bases, offset, &mut last_cie)
        })?;
        rows.push(extent.start, Rule::Complex)?;
        if fde.is_signal_trampoline() {
            covered = extent.end;
            continue;
        }
        let mut table = fde.rows(section, bases, &mut context)?;
        loop {
            match table.next_row() {
                Ok(Some(row)) if row.start_address() < extent.end => {
                    rows.push(row.start_address(), convert_row(row, target))?;
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                // The interpreter handles the rest of this function.
                Err(_) => {
                    rows.push(extent.start, Rule::Complex)?;
                    break;
                }
            }
        }
        covered = extent.end;
    }
    rows.push(covered, Rule::Gap)?;
    Ok(rows.into_bytes())
}

type Cached<'a, O> = Option<(O, gimli::CommonInformationEntry<Slice<'a>>)>;

/// Caches the CIE, because most FDEs of a file share one.
fn cached<'a, S>(
    section: &S,
    bases: &BaseAddresses,
    offset: S::Offset,
    last: &mut Cached<'a, S::Offset>,
) -> gimli::Result<gimli::CommonInformationEntry<Slice<'a>>>
where
    S: UnwindSection<Slice<'a>>,
    S::Offset: Copy,
{
    if let Some((at, cie)) = last
        && *at == offset
    {
        return Ok(cie.clone());
    }
    let cie = section.cie_from_offset(bases, offset)?;
    *last = Some((offset, cie.clone()));
    Ok(cie)
}

/// Converts a row to a rule of the walker, with the same decisions as the interpreter.
fn convert_row(row: &UnwindTableRow<usize>, target: Target) -> Rule {
    let ra = row.register(target.ra);
    if ra == Some(RegisterRule::Undefined) {
        return Rule::Root;
    }
    let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else { return Rule::Complex };
    let sp_moved = !matches!(row.register(target.sp), None | Some(RegisterRule::SameValue));
    let from_fp = register == target.fp;
    let (Ok(offset), false, true) = (u64::try_from(offset), sp_moved, from_fp || register == target.sp)
    else {
        return Rule::Complex;
    };
    let below = |rule: Option<RegisterRule<usize>>| match rule {
        None | Some(RegisterRule::SameValue) => Some(None),
        Some(RegisterRule::Offset(n)) if n < 0 => Some(Some(n.unsigned_abs())),
        _ => None,
    };
    let (Some(fp), Some(ra)) = (below(row.register(target.fp)), below(ra)) else { return Rule::Complex };
    let saved = match (target.x86, ra, fp) {
        (true, Some(8), None) | (false, None, None) => Saved::Nothing,
        (true, Some(8), Some(fp)) => Saved::Fp(fp),
        (false, Some(ra), Some(fp)) if ra + 8 == fp => Saved::Fp(fp),
        (false, Some(ra), None) => Saved::Ra(ra),
        _ => return Rule::Complex,
    };
    Rule::Simple(Simple { from_fp, offset, saved })
}

struct RowList {
    base: u64,
    rows: Vec<Row>,
}

impl RowList {
    /// Appends a row. A row at the same location is replaced; a row with the same rule as its predecessor is
    /// omitted.
    fn push(&mut self, address: u64, rule: Rule) -> Result<(), RowsError> {
        let Some(loc) = address.checked_sub(self.base).and_then(|n| u32::try_from(n).ok()) else {
            return Err(RowsError::TooLarge);
        };
        let rule = rule.pack();
        while self.rows.last().is_some_and(|last| last.loc >= loc) {
            self.rows.pop();
        }
        if self.rows.last().is_some_and(|last| last.rule == rule) {
            return Ok(());
        }
        if self.rows.len() >= MAX_ROWS {
            return Err(RowsError::TooLarge);
        }
        self.rows.push(Row { loc, rule });
        Ok(())
    }

    fn into_bytes(self) -> Vec<u8> {
        /// Average rows per bucket, so that a search touches one or two cache lines.
        const PER_BUCKET: usize = 4;
        let span = self.rows.last().map_or(0, |last| last.loc);
        let wanted = (self.rows.len() / PER_BUCKET).max(1) as u64;
        let shift = (u64::from(span) / wanted).max(1).ilog2();
        let buckets = (span >> shift) + 1;
        let mut firsts = Vec::with_capacity(buckets as usize + 2);
        let mut row = 0u32;
        for bucket in 0..=u64::from(buckets) {
            while self.rows.get(row as usize).is_some_and(|r| u64::from(r.loc) < bucket << shift) {
                row += 1;
            }
            firsts.push(row);
        }
        if firsts.len() % 2 == 1 {
            firsts.push(row);
        }
        let bytes = size_of::<RowsHeader>() + firsts.len() * 4 + self.rows.len() * size_of::<Row>();
        let mut out = Vec::with_capacity(bytes);
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&self.base.to_le_bytes());
        // The image is filled in when the table is stored.
        for word in [self.rows.len() as u32, buckets, shift, 0] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for first in firsts {
            out.extend_from_slice(&first.to_le_bytes());
        }
        for row in &self.rows {
            out.extend_from_slice(&row.loc.to_le_bytes());
            out.extend_from_slice(&row.rule.to_le_bytes());
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use flightline_in_signal::unwind::unwind_table::UnwindTable;

    use super::*;

    fn arena(bytes: &[u8]) -> Vec<AtomicU64> {
        bytes.chunks(8).map(|c| AtomicU64::new(u64::from_le_bytes(c.try_into().unwrap()))).collect()
    }

    fn own_executable() -> Vec<u8> {
        std::fs::read(std::env::current_exe().unwrap()).unwrap()
    }

    #[test]
    fn bucketed_search_matches_full_search() {
        let mut list = RowList { base: 0x1000, rows: Vec::new() };
        let rules = [Rule::Gap, Rule::Root, Rule::Complex];
        let mut address = 0x1000;
        for i in 0..5000u64 {
            list.push(address, rules[(i % 3) as usize]).unwrap();
            address += 1 + (i * i * 7919) % 97 + if i % 500 == 0 { 100_000 } else { 0 };
        }
        let rows = list.rows.clone();
        let words = arena(&list.into_bytes());
        let found = UnwindTable::at(&words, 0, 0).unwrap();
        for probe in (0xf00..address + 5000).step_by(13) {
            let before = rows.partition_point(|row| u64::from(row.loc) + 0x1000 <= probe);
            let expected = before.checked_sub(1).map_or(Rule::Gap, |at| Rule::unpack(rows[at].rule));
            // Addresses after the last bucket are unknown; the last row of a real table is a gap.
            let last = u64::from(rows.last().unwrap().loc) + 0x1000;
            if probe <= last {
                assert_eq!(found.rule(probe), Some(expected), "{probe:#x}");
            }
        }
    }

    #[test]
    fn no_address_outside_every_fde_has_a_rule() {
        let elf = own_executable();
        let words = arena(&build(&elf).unwrap());
        let rows = UnwindTable::at(&words, 0, 0).unwrap();
        let file = object::File::parse(&*elf).unwrap();
        let section = file.section_by_name(".eh_frame").unwrap();
        let mut frame = EhFrame::new(section.data().unwrap(), LittleEndian);
        frame.set_address_size(8);
        let bases = BaseAddresses::default().set_eh_frame(section.address());
        let mut extents = Vec::new();
        let mut entries = frame.entries(&bases);
        while let Some(entry) = entries.next().unwrap() {
            if let CieOrFde::Fde(partial) = entry {
                let fde = partial.parse(EhFrame::cie_from_offset).unwrap();
                extents.push((fde.initial_address(), fde.end_address()));
            }
        }
        extents.sort_unstable();
        let (mut covered, mut gaps) = (0, 0);
        for pair in extents.windows(2) {
            let [(start, end), (next, _)] = pair else { unreachable!() };
            assert_ne!(rows.rule(*start), Some(Rule::Gap), "{start:#x}");
            assert_ne!(rows.rule(end - 1), Some(Rule::Gap), "{end:#x}");
            covered += 1;
            if end < next {
                assert_eq!(rows.rule(*end), Some(Rule::Gap), "{end:#x}");
                assert_eq!(rows.rule(next - 1), Some(Rule::Gap), "{next:#x}");
                gaps += 1;
            }
        }
        assert!(covered > 1000 && gaps > 100, "{covered} functions, {gaps} gaps");
        assert_eq!(rows.rule(extents[0].0 - 1), Some(Rule::Gap));
        assert_eq!(rows.rule(extents.last().unwrap().1), Some(Rule::Gap));
    }

    #[test]
    fn damaged_files_are_refused_or_give_bounded_rows() {
        let elf = own_executable();
        let file = object::File::parse(&*elf).unwrap();
        let (at, len) = file.section_by_name(".eh_frame").unwrap().file_range().unwrap();
        let mut x = 88172645463325252u64;
        let mut random = move || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x
        };
        for round in 0..12 {
            let mut damaged = elf.clone();
            for _ in 0..200 {
                let place = if round % 3 == 0 { random() % 4096 } else { at + random() % len };
                damaged[place as usize] = random() as u8;
            }
            if let Ok(rows) = build(&damaged) {
                let words = arena(&rows);
                let found = UnwindTable::at(&words, 0, 0).unwrap();
                for _ in 0..1000 {
                    found.rule(random() % (8 << 20));
                }
            }
        }
        for cut in [0, 3, 64, 100, elf.len() / 2] {
            let _ = build(&elf[..cut]);
        }
    }
}
