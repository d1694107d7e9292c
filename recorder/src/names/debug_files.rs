//! Finds the separate debug files of a stripped program, and checks that they belong to it.
//!
//! The locations are `<root>/.build-id/ab/cdef….debug`, the three locations of the debug link, the cache of
//! debuginfod, and the file into which dwz moved the common parts of several debug files.

use std::{
    ffi::OsStr,
    fs::{File, Metadata, OpenOptions},
    os::{
        fd::AsRawFd,
        unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use memmap2::{Mmap, MmapMut};
use object::{Endianness, Object, ObjectSection, read::elf::ElfFile64};

/// The directory in which distributions install debug files.
const INSTALLED: &str = "/usr/lib/debug";
/// Limit of the unpacked size of `.gnu_debugdata`.
const MAX_UNPACKED: usize = 64 << 20;

/// Directories with debug files, in the order in which they are searched.
#[derive(Clone, Debug)]
pub struct DebugDirs {
    dirs: Vec<PathBuf>,
    cache: Option<PathBuf>,
}

impl Default for DebugDirs {
    fn default() -> DebugDirs {
        DebugDirs::new(&[])
    }
}

impl DebugDirs {
    /// Returns `first`, then the standard directories.
    pub fn new(first: &[PathBuf]) -> DebugDirs {
        let mut dirs = first.to_vec();
        dirs.push(INSTALLED.into());
        let home = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let cache = home("DEBUGINFOD_CACHE_PATH").or_else(|| {
            let base = home("XDG_CACHE_HOME").or_else(|| home("HOME").map(|h| h.join(".cache")));
            base.map(|b| b.join("debuginfod_client"))
        });
        DebugDirs { dirs, cache }
    }

    /// Searches these directories under another root first, because debug files installed in a container
    /// match its programs.
    pub fn under(&self, root: &Path) -> DebugDirs {
        let inside = self.dirs.iter().map(|d| root.join(d.strip_prefix("/").unwrap_or(d)));
        DebugDirs { dirs: inside.chain(self.dirs.iter().cloned()).collect(), cache: self.cache.clone() }
    }

    /// Returns the debug file of the program `elf`, which is at `path`.
    pub fn find(&self, elf: &ElfFile64<'_, Endianness>, path: &Path) -> Option<(Arc<Mmap>, PathBuf)> {
        let id = elf.build_id().ok().flatten().filter(|id| id.len() > 1);
        let by_link =
            elf.gnu_debuglink().ok().flatten().map(|(name, crc)| (self.link_places(name, path), crc));
        let candidates = id.map(|id| self.by_build_id(id)).unwrap_or_default().into_iter();
        let candidates = candidates.map(|p| (p, None)).chain(
            by_link.into_iter().flat_map(|(places, crc)| places.into_iter().map(move |p| (p, Some(crc)))),
        );
        for (candidate, crc) in candidates {
            let Some(map) = map(&candidate) else { continue };
            let fits = match (id, crc) {
                (Some(id), _) => ElfFile64::<Endianness>::parse(&map[..])
                    .is_ok_and(|debug| debug.build_id().ok().flatten().is_none_or(|other| other == id)),
                (None, Some(crc)) => crc32(&map) == crc,
                (None, None) => false,
            };
            if fits {
                return Some((map, candidate));
            }
        }
        None
    }

    /// Returns the file that `.gnu_debugaltlink` of the file at `path` names.
    pub fn supplementary(&self, elf: &ElfFile64<'_, Endianness>, path: &Path) -> Option<Arc<Mmap>> {
        let (name, id) = elf.gnu_debugaltlink().ok().flatten()?;
        let name = Path::new(OsStr::from_bytes(name));
        // A relative name is relative to the real location of the file, not to a link to it.
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let mut places = vec![real.parent().unwrap_or(Path::new("/")).join(name)];
        if let Some(dwz) = name.file_name() {
            places.extend(self.dirs.iter().map(|d| d.join(".dwz").join(dwz)));
        }
        places.extend(self.by_build_id(id));
        places.iter().find_map(|place| {
            let map = map(place)?;
            let elf = ElfFile64::<Endianness>::parse(&map[..]).ok()?;
            (elf.build_id().ok().flatten() == Some(id)).then(|| map.clone())
        })
    }

    fn by_build_id(&self, id: &[u8]) -> Vec<PathBuf> {
        self.by_hex(&hex(id))
    }

    /// Returns the possible locations of the debug file for a build id in hexadecimal.
    pub fn by_hex(&self, hex: &str) -> Vec<PathBuf> {
        let Some((start, rest)) = hex.split_at_checked(2).filter(|(_, rest)| !rest.is_empty()) else {
            return Vec::new();
        };
        let file = format!(".build-id/{start}/{rest}.debug");
        let cached = self.cache.iter().map(|c| c.join(hex).join("debuginfo"));
        self.dirs.iter().map(|d| d.join(&file)).chain(cached).collect()
    }

    /// Returns the locations where a debug link is looked up.
    fn link_places(&self, name: &[u8], path: &Path) -> Vec<PathBuf> {
        let name = Path::new(OsStr::from_bytes(name));
        let (Some(dir), Some(name)) = (path.parent(), name.file_name()) else { return Vec::new() };
        let installed = self.dirs.iter().map(|d| d.join(dir.strip_prefix("/").unwrap_or(dir)));
        [dir.to_owned(), dir.join(".debug")]
            .into_iter()
            .chain(installed)
            .map(|d| d.join(name))
            .filter(|p| p != path)
            .collect()
    }
}

/// Returns the symbols left in a stripped program, compressed: `.gnu_debugdata`, an ELF file in xz.
pub fn left_in(elf: &ElfFile64<'_, Endianness>) -> Option<Arc<Mmap>> {
    use std::io::Read;
    let packed = elf.section_by_name_bytes(b".gnu_debugdata")?.data().ok()?;
    let mut bytes = Vec::new();
    lzma_rust2::XzReader::new(packed, false).take(MAX_UNPACKED as u64).read_to_end(&mut bytes).ok()?;
    let mut copy = MmapMut::map_anon(bytes.len()).ok()?;
    copy.copy_from_slice(&bytes);
    copy.make_read_only().ok().map(Arc::new)
}

/// Opens a regular file at a path that a recorded program may have chosen. Opening a pipe would block until
/// it has a writer, and opening a device can have any effect.
pub fn open(path: &Path) -> Option<(File, Metadata)> {
    // O_PATH only locates the file. It is then opened through this descriptor, because the path may lead
    // elsewhere a moment later.
    let place = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path).ok()?;
    let meta = place.metadata().ok().filter(Metadata::is_file)?;
    let file = File::open(format!("/proc/self/fd/{}", place.as_raw_fd())).ok()?;
    Some((file, meta))
}

/// Maps a regular file.
pub fn map(path: &Path) -> Option<Arc<Mmap>> {
    let (file, _) = open(path)?;
    // SAFETY: a private read-only mapping; see `images.rs` about files that change while mapped.
    unsafe { Mmap::map(&file) }.ok().map(Arc::new)
}

/// Formats bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// CRC-32 of a debug link (reflected, polynomial 0xedb88320).
fn crc32(bytes: &[u8]) -> u32 {
    let table: [u32; 256] = std::array::from_fn(|i| {
        (0..8).fold(i as u32, |c, _| if c & 1 == 1 { (c >> 1) ^ 0xedb8_8320 } else { c >> 1 })
    });
    !bytes.iter().fold(!0, |crc, b| (crc >> 8) ^ table[usize::from(crc as u8 ^ b)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let (pipe, file) = (dir.path().join("pipe"), dir.path().join("file"));
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::fs::write(&file, "x").unwrap();
        assert!(open(&file).is_some_and(|(_, meta)| meta.len() == 1));
        // The pipe never gets a writer.
        assert!([&pipe, dir.path(), Path::new("/dev/zero")].iter().all(|path| open(path).is_none()));
    }

    #[test]
    fn crc_matches_the_standard_check_value() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn debug_file_candidates_are_listed_in_order() {
        let dirs = DebugDirs { dirs: vec!["/a".into(), "/b".into()], cache: Some("/c".into()) };
        let by_id = dirs.by_build_id(&[0xab, 0xcd, 0xef]);
        assert_eq!(
            by_id,
            ["/a/.build-id/ab/cdef.debug", "/b/.build-id/ab/cdef.debug", "/c/abcdef/debuginfo"]
                .map(PathBuf::from)
        );
        assert!(dirs.by_build_id(&[0xab]).is_empty());
        let by_link = dirs.link_places(b"x.debug", Path::new("/usr/bin/x"));
        assert_eq!(
            by_link,
            ["/usr/bin/x.debug", "/usr/bin/.debug/x.debug", "/a/usr/bin/x.debug", "/b/usr/bin/x.debug"]
                .map(PathBuf::from)
        );
        let inside = dirs.under(Path::new("/proc/7/root"));
        assert_eq!(inside.dirs, ["/proc/7/root/a", "/proc/7/root/b", "/a", "/b"].map(PathBuf::from));
    }
}
