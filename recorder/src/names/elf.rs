//! The headers of an ELF file: the kind of program and its segments.
//!
//! ```text
//! Elf64_Ehdr   4 class   5 data   16 e_type   18 e_machine   32 e_phoff   54 e_phentsize   56 e_phnum
//! Elf64_Phdr   0 p_type   4 p_flags   8 p_offset   16 p_vaddr   32 p_filesz   40 p_memsz
//! ```

use std::{fs::File, os::unix::fs::FileExt};

use object::elf::{
    EM_AARCH64, EM_X86_64, ET_DYN, ET_EXEC, PF_X, PT_DYNAMIC, PT_GNU_EH_FRAME, PT_INTERP, PT_LOAD, PT_NOTE,
};

/// The `e_machine` for which this program was built.
pub const NATIVE_MACHINE: u16 = if cfg!(target_arch = "aarch64") { EM_AARCH64.0 } else { EM_X86_64.0 };

const MAX_SEGMENTS: usize = 512;
const MAX_TEXT: usize = 1 << 16;

/// A program header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// `p_type`.
    pub kind: u32,
    /// `p_flags`.
    pub flags: u32,
    /// `p_offset`.
    pub offset: u64,
    /// `p_vaddr`.
    pub vaddr: u64,
    /// `p_filesz`.
    pub filesz: u64,
    /// `p_memsz`.
    pub memsz: u64,
}

/// The contents of an ELF file's first pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// 1 = 32 bits, 2 = 64 bits.
    pub class: u8,
    /// `e_type`.
    pub kind: u16,
    /// `e_machine`.
    pub machine: u16,
    /// Program headers; empty for other classes than 64 bits.
    pub segments: Vec<Segment>,
    /// The path of the dynamic loader.
    pub interpreter: Option<String>,
    /// GNU build id, empty if there is none.
    pub build_id: Vec<u8>,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn piece(file: &File, at: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

impl Head {
    /// Reads the headers. `None` if the file is not a little-endian ELF file, or is truncated within its
    /// headers.
    pub fn read(file: &File) -> Option<Head> {
        let header = piece(file, 0, 64)?;
        if header.get(..4)? != b"\x7fELF" || header[5] != 1 {
            return None;
        }
        let mut head = Head {
            class: header[4],
            kind: u16_at(&header, 16)?,
            machine: u16_at(&header, 18)?,
            ..Head::default()
        };
        if head.class != 2 {
            return Some(head);
        }
        let (at, size, count) = (u64_at(&header, 32)?, u16_at(&header, 54)?, u16_at(&header, 56)?);
        if size != 56 {
            return (count == 0).then_some(head);
        }
        let table = piece(file, at, 56 * usize::from(count).min(MAX_SEGMENTS))?;
        for entry in table.chunks_exact(56) {
            head.segments.push(Segment {
                kind: u32_at(entry, 0)?,
                flags: u32_at(entry, 4)?,
                offset: u64_at(entry, 8)?,
                vaddr: u64_at(entry, 16)?,
                filesz: u64_at(entry, 32)?,
                memsz: u64_at(entry, 40)?,
            });
        }
        head.interpreter = head.segment(PT_INTERP.0).and_then(|s| {
            let text = piece(file, s.offset, usize::try_from(s.filesz).ok()?.min(MAX_TEXT))?;
            let text = text.split(|b| *b == 0).next()?;
            Some(String::from_utf8_lossy(text).into_owned())
        });
        head.build_id = head
            .segments
            .iter()
            .filter(|s| s.kind == PT_NOTE.0)
            .find_map(|s| build_id(&piece(file, s.offset, usize::try_from(s.filesz).ok()?.min(MAX_TEXT))?))
            .unwrap_or_default();
        Some(head)
    }

    /// Returns the first segment of a type.
    pub fn segment(&self, kind: u32) -> Option<Segment> {
        self.segments.iter().copied().find(|s| s.kind == kind)
    }

    /// Returns true if the kernel can run it on this machine.
    pub fn native(&self) -> bool {
        self.class == 2 && self.machine == NATIVE_MACHINE
    }

    /// Returns true if it is a program without dynamic loader.
    pub fn is_static(&self) -> bool {
        (self.kind == ET_EXEC.0 || self.kind == ET_DYN.0)
            && self.interpreter.is_none()
            && (self.kind == ET_EXEC.0 || self.segment(PT_DYNAMIC.0).is_some())
    }

    /// Returns address − file address for an executable mapping of file offset `offset` at `start`.
    pub fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        self.segments
            .iter()
            .filter(|s| s.kind == PT_LOAD.0 && s.flags & PF_X.0 != 0)
            .find(|s| s.offset & !0xfff <= offset && offset < s.offset.saturating_add(s.filesz))
            .map(|s| start.wrapping_sub(offset).wrapping_sub(s.vaddr.wrapping_sub(s.offset)))
    }

    /// Returns the file addresses of `.eh_frame_hdr`, and of the start and end of the segment that holds it
    /// and `.eh_frame`.
    pub fn eh_frame_hdr(&self) -> Option<(u64, u64, u64)> {
        let hdr = self.segment(PT_GNU_EH_FRAME.0)?;
        let load = self.segments.iter().find(|s| {
            s.kind == PT_LOAD.0 && s.vaddr <= hdr.vaddr && hdr.vaddr < s.vaddr.saturating_add(s.filesz)
        })?;
        Some((hdr.vaddr, load.vaddr, load.vaddr.saturating_add(load.filesz)))
    }
}

/// Returns NT_GNU_BUILD_ID from a note segment.
fn build_id(notes: &[u8]) -> Option<Vec<u8>> {
    note(notes, b"GNU\0", 3).filter(|id| !id.is_empty() && id.len() <= 64).map(<[u8]>::to_vec)
}

/// Returns the description of the first note with this name and type in a note segment.
pub fn note<'a>(notes: &'a [u8], name: &[u8], kind: u32) -> Option<&'a [u8]> {
    let mut at = 0usize;
    while let (Some(name_len), Some(desc), Some(found)) =
        (u32_at(notes, at), u32_at(notes, at + 4), u32_at(notes, at + 8))
    {
        let name_at = at + 12;
        let name_end = name_at.checked_add(name_len as usize)?;
        let desc_at = name_end.checked_next_multiple_of(4)?;
        let end = desc_at.checked_add(desc as usize)?;
        if found == kind && notes.get(name_at..name_end) == Some(name) {
            return notes.get(desc_at..end);
        }
        at = end.checked_next_multiple_of(4)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_elf_header_is_read() {
        let head = Head::read(&File::open("/proc/self/exe").unwrap()).unwrap();
        assert!(head.native() && !head.is_static());
        assert!(head.interpreter.as_deref().unwrap().contains("ld-"));
        let (hdr, start, end) = head.eh_frame_hdr().unwrap();
        assert!(start <= hdr && hdr < end);
    }

    #[test]
    fn mapping_bias_is_computed() {
        let text = Segment {
            kind: PT_LOAD.0,
            flags: PF_X.0,
            offset: 0x1234,
            vaddr: 0x3234,
            filesz: 0x5000,
            memsz: 0x5000,
        };
        let head = Head { segments: vec![text], ..Head::default() };
        assert_eq!(head.bias(0x7f00_0000_3000, 0x1000), Some(0x7f00_0000_0000));
        assert_eq!(head.bias(0x7f00_0000_3000, 0x9000), None);
    }

    #[test]
    fn malformed_notes_terminate() {
        let mut note = vec![4, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0];
        note.extend(b"GNU\0\xab\xcd\0\0");
        assert_eq!(build_id(&note), Some(vec![0xab, 0xcd]));
        assert_eq!(build_id(&note[..note.len() - 3]), None);
        assert_eq!(build_id(&[0xff; 40]), None);
        assert_eq!(build_id(&[0; 40]), None);
    }

    #[test]
    fn truncated_files_are_not_elf() {
        let whole = std::fs::read("/proc/self/exe").unwrap();
        let dir = tempfile::tempdir().unwrap();
        for cut in [0, 3, 63, 64, 100, 119] {
            let path = dir.path().join(cut.to_string());
            std::fs::write(&path, &whole[..cut]).unwrap();
            assert_eq!(Head::read(&File::open(&path).unwrap()), None, "cut at {cut}");
        }
    }
}
