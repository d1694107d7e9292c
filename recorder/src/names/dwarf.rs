//! Source lines and inlined functions of one file, by address. DWARF units are read when an address in them
//! is looked up.
//!
//! The memory for parsed units is estimated. It is freed above 48 MiB per file, and above 160 MiB for all
//! files (`reader.rs`). Files and the paths in them are not trusted: a file with another build id is another
//! file.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    ops::Deref,
    sync::Arc,
};

use addr2line::Context;
use flate2::{Decompress, FlushDecompress, Status};
use gimli::{Dwarf, DwarfSections, EndianSlice, LittleEndian, SectionId};
use memmap2::{Advice, Mmap, MmapMut, UncheckedAdvice};
use object::{CompressedData, CompressionFormat, Endianness, Object, ObjectSection, read::elf::ElfFile64};

use crate::names::{
    declarations::{self, Declaration},
    demangle::demangle,
};

/// Debug information with larger unpacked sections is ignored, to save memory; function names and the
/// recorded program matter more.
const MAX_UNPACKED: u64 = 160 << 20;
/// Limit of parsed units in memory, bytes. Above it, all units are dropped.
const MAX_DIGESTED: u64 = 48 << 20;
/// The pages of files larger than this are released between two batches of lookups, bytes.
const LET_GO: usize = 16 << 20;
/// Within a long batch, they are released after this many lookups.
const REST_AFTER: u64 = 512;
/// Sections with a larger unpacked size get their own mapping, bytes.
const LARGE: usize = 1 << 20;
/// Limit of frames of one address. Inlining is never deeper.
const MAX_INLINED: usize = 64;

type Slice = EndianSlice<'static, LittleEndian>;

/// A function at an address, according to the debug information.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFrame {
    /// Its name, demangled; empty if there is none.
    pub name: Arc<str>,
    /// Source line, 0 if unknown.
    pub line: u32,
}

/// The debug information of one file.
pub struct Lines {
    /// Dropped before `sections`, because it reads their bytes.
    context: Option<Context<Slice>>,
    sections: Sections,
    /// Units parsed since the context was created, and their size.
    units: HashSet<usize>,
    digested: u64,
    lookups: u64,
    names: HashMap<&'static [u8], Arc<str>>,
}

/// Sections in memory. Their addresses do not change as long as this lives.
struct Sections {
    main: DwarfSections<&'static [u8]>,
    sup: Option<DwarfSections<&'static [u8]>>,
    maps: Vec<Arc<Mmap>>,
    unpacked: Vec<Unpacked>,
}

/// Contents of a decompressed section.
enum Unpacked {
    Mapped(MmapMut),
    Heap(Box<[u8]>),
}

impl Deref for Unpacked {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Unpacked::Mapped(bytes) => bytes,
            Unpacked::Heap(bytes) => bytes,
        }
    }
}

impl Lines {
    /// Opens the debug information of the file mapped at `file`; `supplementary` is the file into which dwz
    /// moved shared parts. `None` if there is no debug information, or too much of it to unpack.
    pub fn open(file: &Arc<Mmap>, supplementary: Option<&Arc<Mmap>>) -> Option<Lines> {
        let elf = ElfFile64::<Endianness>::parse(&file[..]).ok()?;
        elf.section_by_name_bytes(b".debug_info").or_else(|| elf.section_by_name_bytes(b".zdebug_info"))?;
        let mut unpacked = Vec::new();
        let mut budget = MAX_UNPACKED;
        let main = load(&elf, &mut unpacked, &mut budget)?;
        let sup = match supplementary {
            Some(map) => {
                Some(load(&ElfFile64::<Endianness>::parse(&map[..]).ok()?, &mut unpacked, &mut budget)?)
            }
            None => None,
        };
        let maps = std::iter::once(file).chain(supplementary).cloned().collect();
        let sections = Sections { main, sup, maps, unpacked };
        let mut lines = Lines {
            context: None,
            sections,
            units: HashSet::new(),
            digested: 0,
            lookups: 0,
            names: HashMap::new(),
        };
        lines.restart();
        lines.context.is_some().then_some(lines)
    }

    fn restart(&mut self) {
        self.context = None;
        self.names.clear();
        self.units.clear();
        self.digested = 0;
        self.context = Context::from_dwarf(self.dwarf()).ok();
    }

    fn dwarf(&self) -> Dwarf<Slice> {
        let slice = |bytes: &&'static [u8]| EndianSlice::new(bytes, LittleEndian);
        let mut dwarf: Dwarf<Slice> = self.sections.main.borrow(slice);
        if let Some(sup) = &self.sections.sup {
            dwarf.set_sup(sup.borrow(slice));
        }
        dwarf
    }

    /// Returns where the functions with this demangled name are defined. Reads the whole debug information.
    pub fn declarations(&self, name: &str) -> Vec<Declaration> {
        declarations::find(&self.dwarf(), name)
    }

    /// Returns the functions at file address `address`, innermost first: each is inlined into the next, the
    /// last one is not inlined. Empty if the debug information does not cover the address.
    pub fn frames(&mut self, address: u64) -> Vec<SourceFrame> {
        if self.digested > MAX_DIGESTED {
            self.restart();
        }
        self.lookups += 1;
        if self.lookups.is_multiple_of(REST_AFTER) {
            self.rest();
        }
        let Some(context) = &self.context else { return Vec::new() };
        if let Some(unit) = context.find_dwarf_and_unit(address).skip_all_loads()
            && self.units.insert(unit.header.offset().0)
        {
            self.digested += unit.header.length_including_self() as u64;
        }
        let mut found = Vec::new();
        let Ok(mut frames) = context.find_frames(address).skip_all_loads() else { return found };
        while let Ok(Some(frame)) = frames.next() {
            let line = frame.location.and_then(|l| l.line).unwrap_or(0);
            let name = match frame.function {
                Some(function) => {
                    let raw: &'static [u8] = function.name.slice();
                    self.names.entry(raw).or_insert_with(|| demangle(raw).text.into()).clone()
                }
                None => Arc::default(),
            };
            found.push(SourceFrame { name, line });
            if found.len() == MAX_INLINED {
                // So many frames cannot be inlining, so keep the function's own name.
                return Vec::new();
            }
        }
        found
    }

    /// Returns the memory in use, bytes: unpacked sections, and about one and a half times the parsed units.
    pub fn weight(&self) -> u64 {
        let unpacked: usize = self.sections.unpacked.iter().map(|b| b.len()).sum();
        unpacked as u64 + self.digested * 3 / 2 + (64 << 10)
    }

    /// Releases the file's pages after a batch. They remain in the kernel's page cache.
    pub fn rest(&self) {
        for map in self.sections.maps.iter().filter(|m| m.len() > LET_GO) {
            // SAFETY: a private mapping that is never written to: its pages come back from the file when read
            // again.
            let _ = unsafe { map.unchecked_advise(UncheckedAdvice::DontNeed) };
        }
    }
}

/// Loads the sections needed for lines and inlining; the others are empty.
fn load(
    elf: &ElfFile64<'_, Endianness>,
    unpacked: &mut Vec<Unpacked>,
    budget: &mut u64,
) -> Option<DwarfSections<&'static [u8]>> {
    DwarfSections::load(|id| {
        if matches!(
            id,
            SectionId::DebugLoc
                | SectionId::DebugLocLists
                | SectionId::DebugTypes
                | SectionId::DebugMacinfo
                | SectionId::DebugMacro
                | SectionId::DebugNames
        ) {
            return Ok(&[][..]);
        }
        let Some(section) = elf.section_by_name(id.name()) else { return Ok(&[][..]) };
        let data = section.compressed_data().map_err(|_| ())?;
        if data.format != CompressionFormat::None {
            *budget = budget.checked_sub(data.uncompressed_size).ok_or(())?;
        }
        let owned = match inflated(&data) {
            Some(bytes) => Some(Unpacked::Mapped(bytes)),
            None => match data.decompress().map_err(|_| ())? {
                Cow::Borrowed(_) => None,
                Cow::Owned(bytes) => Some(Unpacked::Heap(bytes.into_boxed_slice())),
            },
        };
        let bytes = match owned {
            Some(owned) => {
                unpacked.push(owned);
                unpacked.last().map(|b| &b[..]).unwrap_or_default()
            }
            None => data.data,
        };
        // SAFETY: the bytes lie in the mapped file or in memory that `unpacked` owns. Both live in the same
        // `Sections` as the users of this reference and do not change; `Lines` drops these users first and
        // returns copies only.
        Ok(unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) })
    })
    .map_err(|(): ()| ())
    .ok()
}

/// Decompresses a large zlib section into huge pages where available, because half of the time was spent on
/// page faults. `None` if it is small, compressed otherwise, or does not match its declared size.
fn inflated(data: &CompressedData<'_>) -> Option<MmapMut> {
    let size = usize::try_from(data.uncompressed_size).ok().filter(|size| *size >= LARGE)?;
    if data.format != CompressionFormat::Zlib {
        return None;
    }
    let mut bytes = MmapMut::map_anon(size).ok()?;
    // Only a hint.
    let _ = bytes.advise(Advice::HugePage);
    let mut zlib = Decompress::new(true);
    let done = zlib.decompress(data.data, &mut bytes, FlushDecompress::Finish).ok()?;
    (done == Status::StreamEnd && zlib.total_out() == data.uncompressed_size).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn packed(contents: &[u8], said: u64, format: CompressionFormat) -> (Vec<u8>, u64, CompressionFormat) {
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        zlib.write_all(contents).unwrap();
        (zlib.finish().unwrap(), said, format)
    }

    #[test]
    fn only_valid_large_zlib_sections_are_inflated() {
        let contents: Vec<u8> = (0..LARGE as u32 + 5).map(|n| (n / 7) as u8).collect();
        let of = |(bytes, said, format): (Vec<u8>, u64, CompressionFormat)| {
            inflated(&CompressedData { format, data: &bytes, uncompressed_size: said })
                .map(|map| map.to_vec())
        };
        let size = contents.len() as u64;
        assert!(of(packed(&contents, size, CompressionFormat::Zlib)).is_some_and(|bytes| bytes == contents));
        // A wrong size, truncated data, other formats, and sections that are too small.
        for said in [size - 1, size + 1, LARGE as u64, u64::MAX] {
            assert_eq!(of(packed(&contents, said, CompressionFormat::Zlib)), None, "{said} of {size}");
        }
        let (mut cut, said, format) = packed(&contents, size, CompressionFormat::Zlib);
        cut.truncate(cut.len() / 2);
        assert_eq!(of((cut, said, format)), None);
        assert_eq!(of(packed(&contents, size, CompressionFormat::Zstandard)), None);
        assert_eq!(of(packed(&contents[..100], 100, CompressionFormat::Zlib)), None);
    }
}
