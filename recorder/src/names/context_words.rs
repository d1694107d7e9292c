//! Finds the thread-local variables of tracing contexts in a process, from the words that the dynamic loader
//! fills in for the tracing library's own code. This is correct even if another file defines the variable
//! that the code uses.
//!
//! | relocation | word | meaning |
//! |---|---|---|
//! | `TLSDESC` | function, argument | a distance from the thread pointer, or (glibc) the address of module, offset, generation |
//! | `DTPMOD64` | module, offset | the same |
//! | `TPOFF64` | distance | the same |

use std::path::Path;

use flightline_in_signal::context::place;
use flightline_in_signal::os::sys;
use object::elf;
use object::read::ReadRef;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget};

use super::debug_files;
use super::images::{ImageId, Images};

/// A thread-local variable of a tracing library.
pub(crate) struct Variable {
    name: &'static str,
    /// A constant in the same file that must be 1.
    version: Option<&'static str>,
    /// The bits that mark locations of this variable.
    pub mark: u64,
}

/// The variables of all known tracing libraries.
pub(crate) const VARIABLES: [Variable; 2] = [
    Variable { name: "otel_thread_ctx_v1", version: None, mark: 0 },
    Variable {
        name: "custom_labels_current_set",
        version: Some("custom_labels_abi_version"),
        mark: place::LABELS,
    },
];

/// Limit of a variable's distance from the thread pointer.
const FURTHEST: i64 = 1 << 30;

#[cfg(target_arch = "x86_64")]
const KINDS: [elf::RelocationType; 3] =
    [elf::R_X86_64_TLSDESC, elf::R_X86_64_DTPMOD64, elf::R_X86_64_TPOFF64];
#[cfg(target_arch = "aarch64")]
const KINDS: [elf::RelocationType; 3] =
    [elf::R_AARCH64_TLSDESC, elf::R_AARCH64_TLS_DTPMOD, elf::R_AARCH64_TLS_TPREL];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Descriptor,
    Module,
    Distance,
    /// A variable of the program itself: `at` is the distance.
    OfProgram,
}

/// A word that the dynamic loader fills in: its address in the file, and the variable's offset in the
/// module's block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    at: u64,
    kind: Kind,
    offset: u64,
}

/// One per entry of [`VARIABLES`].
pub(crate) type Words = [Option<Word>; VARIABLES.len()];

/// Returns the words in a file. They are looked up once for all processes that map the file, and again if it
/// could not be read.
pub(crate) fn find_words(pid: u32, id: ImageId, images: &Images) -> Words {
    let image = images.get(id);
    if let Some(known) = image.context_words.get() {
        return *known;
    }
    if image.head.segment(elf::PT_TLS.0).is_none() {
        return Words::default();
    }
    let path = image.path.strip_prefix("/").unwrap_or(&image.path);
    let path = Path::new(&format!("/proc/{pid}/root")).join(path);
    let words = words_in(&path).or_else(|| words_in(&image.path));
    words.map(|words| *image.context_words.get_or_init(|| words)).unwrap_or_default()
}

/// Returns the words by which a file finds the variables that it defines. Reads only the symbol and
/// relocation tables.
fn words_in(path: &Path) -> Option<Words> {
    let map = debug_files::map(path)?;
    let elf = ElfFile64::<Endianness>::parse(&**map).ok()?;
    Some(VARIABLES.each_ref().map(|variable| word_in(&elf, variable)))
}

fn word_in<'d, R: ReadRef<'d>>(elf: &ElfFile64<'d, Endianness, R>, variable: &Variable) -> Option<Word> {
    let defined = |name: &str| elf.dynamic_symbols().find(|s| !s.is_undefined() && s.name() == Ok(name));
    let symbol = defined(variable.name)?;
    if let Some(version) = variable.version {
        let version = defined(version)?;
        let section = elf.section_by_index(version.section_index()?).ok()?;
        let value = section.data_range(version.address(), 4).ok()??;
        if value != 1u32.to_le_bytes() {
            return None;
        }
    }
    let offset = symbol.address();
    if let (Some(at), true) = (distance_in_program(elf, offset), variable.version.is_some()) {
        return Some(Word { at: at as u64, kind: Kind::OfProgram, offset });
    }
    // The word, and whether it may belong to another variable of the module.
    let mut words = Vec::new();
    for (at, relocation) in elf.dynamic_relocations()? {
        let RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
        let Some(kind) = KINDS.iter().position(|kind| *kind == r_type) else { continue };
        let kind = [Kind::Descriptor, Kind::Module, Kind::Distance][kind];
        let named = matches!(relocation.target(), RelocationTarget::Symbol(_));
        let ours = match relocation.target() {
            RelocationTarget::Symbol(index) => index == symbol.index() && relocation.addend() == 0,
            // Bound at link time. The offset follows the module's word.
            _ => kind == Kind::Module || relocation.addend() == offset as i64,
        };
        if ours {
            words.push((kind == Kind::Module && !named, Word { at, kind, offset }));
        }
    }
    // Prefer a relocation that names the variable to one that may belong to another.
    words.into_iter().min_by_key(|(doubtful, _)| *doubtful).map(|(_, word)| word)
}

/// Returns the distance from the thread pointer to a variable of a program, at this offset in its block
/// (Drepper, ELF Handling For Thread-Local Storage); `None` for a library.
fn distance_in_program<'d, R: ReadRef<'d>>(elf: &ElfFile64<'d, Endianness, R>, offset: u64) -> Option<i64> {
    let endian = elf.endian();
    let segment = |kind| elf.elf_program_headers().iter().find(|header| header.p_type(endian) == kind);
    segment(elf::PT_INTERP)?;
    let tls = segment(elf::PT_TLS)?;
    let align = tls.p_align(endian).max(1);
    let up = |n: u64| n.checked_next_multiple_of(align);
    if cfg!(target_arch = "x86_64") {
        let from = tls.p_vaddr(endian);
        let pointer = up(from.checked_add(tls.p_memsz(endian))?)?;
        Some(from.checked_add(offset)?.wrapping_sub(pointer) as i64)
    } else {
        const CONTROL_BLOCK: u64 = 16;
        i64::try_from(up(CONTROL_BLOCK)?.checked_add(offset)?).ok()
    }
}

impl Word {
    /// Returns the variable's location in a process, with its generation; `None` while it is unknown.
    pub fn read(&self, pid: u32, bias: u64) -> Option<[u64; 2]> {
        let at = bias.wrapping_add(self.at);
        match self.kind {
            Kind::OfProgram => distance(self.at),
            Kind::Distance => distance(words::<1>(pid, at)?[0]),
            Kind::Module => {
                let [module, offset] = words(pid, at)?;
                Some([0, place::dynamic(module, offset)?]).filter(|_| offset == self.offset)
            }
            Kind::Descriptor => {
                let [function, argument] = words(pid, at)?;
                if function == 0 {
                    return None;
                }
                // Try an address first, because a small address may look like a distance.
                if let Some([module, offset, generation]) = words(pid, argument)
                    && offset == self.offset
                    && let Some(place) = place::dynamic(module, offset)
                {
                    return Some([generation, place]);
                }
                distance(argument)
            }
        }
    }
}

fn distance(word: u64) -> Option<[u64; 2]> {
    let distance = word as i64;
    (distance != 0 && distance.abs() < FURTHEST).then(|| [0, place::fixed(distance)])
}

fn words<const N: usize>(pid: u32, at: u64) -> Option<[u64; N]> {
    let mut words = [0u64; N];
    // SAFETY: the array is as long as the given size.
    let got = unsafe { sys::read_process(pid, at, words.as_mut_ptr().cast(), size_of_val(&words)) };
    (got == size_of_val(&words)).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loader_words_are_read() {
        let pid = std::process::id();
        let read = |kind, offset, words: &[u64]| {
            Word { at: 0x10, kind, offset }.read(pid, (words.as_ptr() as u64).wrapping_sub(0x10))
        };
        let fixed = |distance| Some([0, place::fixed(distance)]);
        assert_eq!(read(Kind::Distance, 0, &[-0x88i64 as u64]), fixed(-0x88));
        assert_eq!(read(Kind::Distance, 0, &[0]), None);
        assert_eq!(read(Kind::Module, 0x20, &[5, 0x20]), Some([0, place::dynamic(5, 0x20).unwrap()]));
        assert_eq!(read(Kind::Module, 0x20, &[5, 0x28]), None, "another variable's");
        assert_eq!(read(Kind::Module, 0x20, &[0, 0x20]), None, "not there yet");
        let dynamic = [7u64, 0x20, 3];
        let argument = dynamic.as_ptr() as u64;
        assert_eq!(read(Kind::Descriptor, 0x20, &[1, argument]), Some([3, place::dynamic(7, 0x20).unwrap()]));
        assert_eq!(read(Kind::Descriptor, 0x28, &[1, argument]), None);
        assert_eq!(read(Kind::Descriptor, 0x20, &[1, -0x40i64 as u64]), fixed(-0x40));
        assert_eq!(read(Kind::Descriptor, 0x20, &[0, 0]), None, "not there yet");
        assert_eq!(
            Word { at: 8, kind: Kind::Descriptor, offset: 0 }.read(pid, 0),
            None,
            "nothing is mapped there"
        );
        assert_eq!(place::dynamic(1 << 24, 0), None);
        for distance in [-1, -8, 1 << 20, -(1 << 29)] {
            assert_eq!(place::read(place::fixed(distance)), Some(place::TlsLocation::Fixed(distance as u64)));
        }
        assert_eq!(
            place::read(place::dynamic(9, 0xffff_fff8).unwrap()),
            Some(place::TlsLocation::Dynamic(9, 0xffff_fff8))
        );
    }

    #[test]
    fn files_without_context_variable_have_no_words() {
        assert_eq!(words_in(Path::new("/nowhere")), None);
        assert_eq!(words_in(Path::new("/proc/self/maps")), None);
    }
}
