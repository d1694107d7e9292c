//! Function names of a Go program, from its table `.gopclntab`, which remains when symbols are stripped.
//!
//! ```text
//! header      magic u32, 0 u16, unit of code u8, size of a pointer u8, then words: functions, files, start of the text (not
//!             from Go 1.26 on), offsets of names, units, files, lines, functions
//! functions   (offset from the start of the text u32, offset of its record u32) by address, and the end
//! record      offset from the start of the text u32, offset of its name u32, …
//! ```

use std::{collections::HashMap, ops::Range, sync::Arc};

use memmap2::Mmap;
use object::{Endianness, Object, ObjectSection, RelocationTarget, SectionKind, read::elf::ElfFile64};

/// Magic numbers of Go 1.18, and of 1.20 and later.
const MAGICS: [u32; 2] = [0xffff_fff0, 0xffff_fff1];
/// Limit of functions.
const MAX_FUNCTIONS: u64 = 1 << 21;

/// Functions of a Go program by address.
pub struct Functions {
    file: Arc<Mmap>,
    names: Range<usize>,
    /// First address and offset of the name, sorted by address.
    functions: Vec<(u64, u32)>,
    end: u64,
}

impl Functions {
    /// Reads the table; `None` if the file is not a Go program of a known version.
    pub fn read(elf: &ElfFile64<'_, Endianness>, file: &Arc<Mmap>) -> Option<Functions> {
        let section = [&b".gopclntab"[..], b".data.rel.ro.gopclntab"];
        let section = section.iter().find_map(|name| elf.section_by_name_bytes(name))?;
        let (at, _) = section.file_range()?;
        let at = usize::try_from(at).ok()?;
        let table = section.data().ok()?;
        if !MAGICS.contains(&word(table, 0)?) || table.get(7) != Some(&8) {
            return None;
        }
        let header = |i: usize| long(table, 8 + 8 * i);
        let count = header(0)?.min(MAX_FUNCTIONS);
        let text = match header(2)? {
            0 => text_by_module_data(elf, section.address())?,
            text => text,
        };
        let (names, functions) = (usize::try_from(header(3)?).ok()?, usize::try_from(header(7)?).ok()?);
        let records = table.get(functions..)?;
        let entry = |i: usize| Some((word(records, 8 * i)?, word(records, 8 * i + 4)?));
        let count = usize::try_from(count).ok()?;
        let mut found = Vec::with_capacity(count.min(records.len() / 8));
        for i in 0..count {
            let (start, record) = entry(i)?;
            let name = word(records, usize::try_from(record).ok()?.checked_add(4)?)?;
            found.push((text.wrapping_add(start.into()), name));
        }
        if !found.is_sorted_by_key(|(start, _)| *start) {
            return None;
        }
        let end = text.wrapping_add(word(records, 8 * count)?.into());
        let names = at.checked_add(names)?..at.checked_add(table.len())?;
        Some(Functions { file: file.clone(), names, functions: found, end })
    }

    /// Returns the index and first address of the function that contains an address.
    pub fn find(&self, address: u64) -> Option<(usize, u64)> {
        let at = self.functions.partition_point(|(start, _)| *start <= address).checked_sub(1)?;
        self.functions.get(at).filter(|_| address < self.end).map(|(start, _)| (at, *start))
    }

    /// Returns the name of a function.
    pub fn name(&self, index: usize) -> Option<&[u8]> {
        let (_, at) = self.functions.get(index)?;
        let text = self.file.get(self.names.clone())?.get(*at as usize..)?;
        let len = text.iter().take(1 << 16).position(|b| *b == 0)?;
        text.get(..len)
    }
}

/// Offsets in the runtime's description of a module (`moduledata`). It begins with the address of the table;
/// the first address of its functions and the start of the text follow six slices and a pointer.
const LOWEST: u64 = 8 * (1 + 6 * 3 + 1);
const TEXT: u64 = LOWEST + 16;

/// Returns the start of the code for the table at `table`. If Go is linked with C, this differs from the
/// start of `.text`.
fn text_by_module_data(elf: &ElfFile64<'_, Endianness>, table: u64) -> Option<u64> {
    let sensible = |lowest: u64, text: u64| text > 0 && lowest >= text && lowest - text < 1 << 30;
    // In a position-independent program, the dynamic loader fills in these words.
    let relative: HashMap<u64, u64> = elf
        .dynamic_relocations()
        .into_iter()
        .flatten()
        .filter(|(_, r)| r.target() == RelocationTarget::Absolute)
        .map(|(at, r)| (at, r.addend() as u64))
        .collect();
    let made = relative.iter().filter(|(_, to)| **to == table).find_map(|(at, _)| {
        let (lowest, text) = (*relative.get(&(at + LOWEST))?, *relative.get(&(at + TEXT))?);
        sensible(lowest, text).then_some(text)
    });
    made.or_else(|| {
        let written = elf.sections().filter(|s| s.kind() == SectionKind::Data);
        written.filter_map(|s| s.data().ok()).find_map(|data| {
            (0..data.len()).step_by(8).filter(|at| long(data, *at) == Some(table)).find_map(|at| {
                let (lowest, text) = (long(data, at + LOWEST as usize)?, long(data, at + TEXT as usize)?);
                sensible(lowest, text).then_some(text)
            })
        })
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_le_bytes)
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at.checked_add(8)?)?.try_into().ok().map(u64::from_le_bytes)
}
