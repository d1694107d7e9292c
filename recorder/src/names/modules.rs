//! The memory map of one process, from the dynamic loader's log and `/proc/<pid>/maps`, for the drain and for
//! the process's handlers.

use std::{
    fs,
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use flightline_in_signal::layout::{INIT_MODULES, InitModule, MODULES_PER_TABLE, ModuleEntry, module_flags};

use crate::{
    names::debug_files,
    names::images::{ANONYMOUS, ImageId, Images},
    shared_memory::proc_file::ProcFile,
};

/// Limit of unmapped mappings that are remembered for samples in the ring. Samples that wait for symbols have
/// their own map.
const MAX_GONE: usize = 256;
/// Limit of executable mappings that a dying process may report.
const MAX_LAST: usize = 4096;
/// Limit of bytes that are read of a saved map.
const MAX_SAVED: u64 = 16 << 20;

/// An executable mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// Address − file address.
    pub bias: u64,
    /// The mapped image.
    pub image: ImageId,
    eh_frame_hdr: u64,
    eh_readable_start: u64,
    eh_readable_end: u64,
    flags: u32,
}

/// A line of `/proc/<pid>/maps`.
#[derive(Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// First address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// True if it is executable.
    pub executable: bool,
    /// Offset in the file.
    pub offset: u64,
    /// Device as `makedev` packs it.
    pub device: u64,
    /// Inode; 0 without file.
    pub inode: u64,
    /// Path or a name in brackets.
    pub path: &'a str,
}

/// The executable mappings of one process.
#[derive(Default, Clone)]
pub struct ModuleMap {
    current: Vec<Mapping>,
    unmapped: Vec<Mapping>,
    log: Vec<(InitModule, PathBuf)>,
    /// The map that a dying process saved has been read.
    last_read: bool,
    /// Incremented when an address may have changed its meaning.
    pub version: u64,
}

impl ModuleMap {
    /// Adds what the program's loader has logged since the last call.
    pub fn read_log(&mut self, file: &ProcFile, images: &mut Images) {
        use std::os::unix::ffi::OsStringExt;
        let mut added = false;
        for module in file.init_modules(self.log.len()) {
            let path = PathBuf::from(std::ffi::OsString::from_vec(file.string(module.path)));
            let path = file.module_path(path);
            if module.start < module.end {
                let mapping = from_log(&module, &path, None, images);
                added |= self.replace(mapping);
            }
            self.log.push((module, path));
        }
        if added {
            self.version += 1;
        }
    }

    /// Adds a mapping from the loader's log and removes older ones that it overlaps. The log is in order of
    /// time.
    fn replace(&mut self, mapping: Mapping) -> bool {
        let overlaps = |m: &Mapping| m.start < mapping.end && mapping.start < m.end;
        if self.current.iter().any(|m| overlaps(m) && m.image == mapping.image) {
            return false;
        }
        let old: Vec<Mapping> = self.current.extract_if(.., |m| overlaps(m)).collect();
        self.leave(old);
        self.current.push(mapping);
        self.current.sort_unstable_by_key(|m| m.start);
        true
    }

    /// Remembers unmapped mappings.
    fn leave(&mut self, mappings: Vec<Mapping>) {
        self.unmapped.extend(mappings);
        let excess = self.unmapped.len().saturating_sub(MAX_GONE);
        self.unmapped.drain(..excess);
    }

    /// Returns a copy of the current map, for samples that wait.
    pub fn as_it_is(&self) -> ModuleMap {
        let ModuleMap { current, unmapped, version, .. } = self;
        ModuleMap {
            current: current.clone(),
            unmapped: unmapped.clone(),
            log: Vec::new(),
            last_read: false,
            version: *version,
        }
    }

    /// Returns the images that addresses of this map may lie in.
    pub fn images(&self) -> impl Iterator<Item = ImageId> {
        self.current.iter().chain(&self.unmapped).map(|mapping| mapping.image)
    }

    /// Reads `/proc/<pid>/maps`. Returns `Ok(None)` if that process does not map `file` (another PID
    /// namespace), otherwise whether anything changed.
    pub fn read_maps(&mut self, file: &ProcFile, images: &mut Images) -> io::Result<Option<bool>> {
        let text = fs::read(format!("/proc/{}/maps", file.pid))?;
        let text = String::from_utf8_lossy(&text);
        let is_ours = |line: Line<'_>| {
            line.inode == file.inode && line.path.contains(flightline_in_signal::layout::PROC_SUFFIX)
        };
        let ours = text.lines().filter_map(parse).any(is_ours);
        if !ours {
            // A process that has released its memory has an empty map until it is reaped.
            let empty = !text.lines().filter_map(parse).any(|line| line.executable);
            return Ok(empty.then_some(false));
        }
        let changed = self.take_maps(&text, Some(&process_root(file.pid)), images);
        if changed {
            // Without this file, a recovery knows only the loader's log: no JIT-compiled code, no vDSO.
            let _ = save(&file.maps_path(), &text);
        }
        Ok(Some(changed))
    }

    /// Reads `/proc/<pid>/maps` of a process whose PID is certain. Returns true if anything changed.
    pub fn read_process_maps(&mut self, pid: u32, images: &mut Images) -> io::Result<bool> {
        let text = fs::read(format!("/proc/{pid}/maps"))?;
        let text = String::from_utf8_lossy(&text);
        // After the process has released its memory, the map is empty; the old mappings are still needed.
        Ok(!text.is_empty() && self.take_maps(&text, Some(&process_root(pid)), images))
    }

    /// Reads the last map that [`ModuleMap::read_maps`] saved, for a process whose drain was killed.
    pub fn read_saved(&mut self, file: &ProcFile, images: &mut Images) {
        let Some((saved, _)) = debug_files::open(&file.maps_path()) else { return };
        let mut bytes = Vec::new();
        if saved.take(MAX_SAVED).read_to_end(&mut bytes).is_ok() {
            self.take_maps(&String::from_utf8_lossy(&bytes), None, images);
        }
    }

    /// Reads the map that the process saved when a signal ended it, which may contain libraries without
    /// earlier samples. The file is written by the program, so what it may add is limited.
    pub fn read_last(&mut self, file: &ProcFile, images: &mut Images) {
        if std::mem::replace(&mut self.last_read, true) {
            return;
        }
        // The program may have put any kind of file there; opening it must not block.
        let plain = fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW)
            .open(file.maps_path())
            .ok()
            .filter(|saved| saved.metadata().is_ok_and(|meta| meta.is_file()));
        let mut bytes = Vec::new();
        if plain.is_none_or(|saved| saved.take(MAX_SAVED).read_to_end(&mut bytes).is_err()) {
            return;
        }
        let text = String::from_utf8_lossy(&bytes);
        let root = process_root(file.pid);
        let root = root.exists().then_some(root);
        let executable = |line: &Line<'_>| line.executable && !line.path.starts_with("[vsyscall");
        let mut changed = false;
        for line in text.lines().filter_map(parse).filter(executable).take(MAX_LAST) {
            let known = |m: &Mapping| {
                m.start < line.end && line.start < m.end && images.get(m.image).path == Path::new(line.path)
            };
            if line.path.starts_with('/') && !self.current.iter().any(known) {
                let mapping = self.mapping(&line, root.as_deref(), images);
                changed |= self.replace(mapping);
            }
        }
        if changed {
            self.version += 1;
        }
    }

    fn take_maps(&mut self, text: &str, root: Option<&Path>, images: &mut Images) -> bool {
        let mut found = Vec::with_capacity(self.current.len() + 8);
        for line in text.lines().filter_map(parse) {
            if line.executable && !line.path.starts_with("[vsyscall") {
                found.push(self.mapping(&line, root, images));
            }
        }
        found.sort_unstable_by_key(|m| m.start);
        found.dedup_by(|b, a| b.start < a.end);
        if found == self.current {
            return false;
        }
        let vanished = self.current.iter().filter(|m| !found.contains(m));
        let vanished: Vec<Mapping> = vanished.copied().collect();
        self.leave(vanished);
        self.current = found;
        self.version += 1;
        true
    }

    /// Adds a mapping that the kernel reported.
    pub fn mapped(&mut self, pid: u32, line: &Line<'_>, images: &mut Images) {
        if line.start < line.end && line.executable {
            let mapping = self.mapping(line, Some(&process_root(pid)), images);
            if self.replace(mapping) {
                self.version += 1;
            }
        }
    }

    fn mapping(&self, line: &Line<'_>, root: Option<&Path>, images: &mut Images) -> Mapping {
        let mut mapping = Mapping {
            start: line.start,
            end: line.end,
            bias: line.start,
            image: ANONYMOUS,
            eh_frame_hdr: 0,
            eh_readable_start: 0,
            eh_readable_end: 0,
            flags: 0,
        };
        let logged = self.log.iter().rev().find(|(m, _)| m.start <= line.start && line.end <= m.end);
        let deleted = line.path.strip_suffix(" (deleted)");
        let path = Path::new(deleted.unwrap_or(line.path));
        if line.path == "[vdso]" {
            mapping.image = images.vdso();
            mapping.flags = module_flags::PERMANENT | module_flags::VDSO;
        } else if path.is_absolute() && line.inode != 0 {
            let expected = Some((line.device, line.inode));
            mapping.image = if deleted.is_some() {
                images.without_file(path)
            } else {
                images.image_for_file(path, root, expected, &[])
            };
            if let Some(root) = root.filter(|_| images.get(mapping.image).head.segments.is_empty()) {
                // The path is deleted, or differs in another mount namespace; map_files still leads to the
                // mapped file.
                let link = format!("map_files/{:x}-{:x}", line.start, line.end);
                let mapped = images.image_for_mapping(&root.with_file_name(link), path);
                mapping.image = mapped.unwrap_or(mapping.image);
            }
            let head = &images.get(mapping.image).head;
            mapping.bias = head.bias(line.start, line.offset).unwrap_or(line.start.wrapping_sub(line.offset));
            if let Some((hdr, start, end)) = head.eh_frame_hdr() {
                mapping.eh_frame_hdr = mapping.bias.wrapping_add(hdr);
                mapping.eh_readable_start = mapping.bias.wrapping_add(start);
                mapping.eh_readable_end = mapping.bias.wrapping_add(end);
            }
        }
        // The loader's log is more precise, as long as it describes the same module: addresses are reused.
        let id = &images.get(mapping.image).head.build_id;
        // A full log does not show which module replaced another, so only the same file is accepted.
        let full = self.log.len() >= INIT_MODULES;
        let same = |m: &InitModule| id == build_id(m) && (!full || !id.is_empty());
        let unknown = |m: &InitModule| !full && (build_id(m).is_empty() || id.is_empty());
        let vdso = |m: &InitModule| m.flags & module_flags::VDSO != 0;
        let logged = logged.filter(|(m, _)| vdso(m) || same(m) || unknown(m));
        if let Some((module, _)) = logged
            && (module.flags & module_flags::VDSO != 0 || mapping.image != ANONYMOUS)
        {
            mapping.bias = module.bias;
            mapping.eh_frame_hdr = module.eh_frame_hdr;
            mapping.eh_readable_start = module.eh_readable_start;
            mapping.eh_readable_end = module.eh_readable_end;
            mapping.flags |= module.flags & (module_flags::PERMANENT | module_flags::VDSO);
        }
        mapping
    }

    /// Returns the mapping that contains an address now, or contained it recently.
    pub fn find(&self, address: u64) -> Option<&Mapping> {
        let after = self.current.partition_point(|m| m.start <= address);
        let here = after.checked_sub(1).and_then(|i| self.current.get(i)).filter(|m| address < m.end);
        here.or_else(|| self.unmapped.iter().rev().find(|m| m.start <= address && address < m.end))
    }

    /// Returns true if an address is in a current mapping.
    pub fn holds(&self, address: u64) -> bool {
        let after = self.current.partition_point(|m| m.start <= address);
        after.checked_sub(1).and_then(|i| self.current.get(i)).is_some_and(|m| address < m.end)
    }

    /// Returns the current mappings.
    pub fn current(&self) -> &[Mapping] {
        &self.current
    }

    /// Returns the table for the program's handlers.
    pub fn table(&self, images: &Images) -> Vec<ModuleEntry> {
        let entry = |m: &Mapping| ModuleEntry {
            start: m.start,
            end: m.end,
            bias: m.bias,
            eh_frame_hdr: m.eh_frame_hdr,
            eh_readable_end: m.eh_readable_end,
            rows_off: images.get(m.image).rows_off,
            flags: m.flags,
            path_id: m.image,
            eh_readable_start: m.eh_readable_start,
        };
        self.current.iter().take(MODULES_PER_TABLE).map(entry).collect()
    }
}

/// Returns the path of a process's root directory.
fn process_root(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/root"))
}

/// Saves the executable part of a map. The file is complete at any time.
fn save(path: &Path, text: &str) -> io::Result<()> {
    let executable = text.lines().filter(|line| parse(line).is_some_and(|line| line.executable));
    let executable: String = executable.flat_map(|line| [line, "\n"]).collect();
    let new = path.with_extension("maps-new");
    fs::write(&new, executable)?;
    fs::rename(new, path)
}

fn build_id(module: &InitModule) -> &[u8] {
    module.build_id.get(..module.build_id_len as usize).unwrap_or(&[])
}

fn from_log(module: &InitModule, path: &Path, root: Option<&Path>, images: &mut Images) -> Mapping {
    let image = if module.flags & module_flags::VDSO != 0 {
        images.vdso()
    } else if path.is_absolute() {
        images.image_for_file(path, root, None, build_id(module))
    } else {
        images.without_file(path)
    };
    Mapping {
        start: module.start,
        end: module.end,
        bias: module.bias,
        image,
        eh_frame_hdr: module.eh_frame_hdr,
        eh_readable_start: module.eh_readable_start,
        eh_readable_end: module.eh_readable_end,
        flags: module.flags & (module_flags::PERMANENT | module_flags::VDSO),
    }
}

/// `start-end perms offset major:minor inode   path`
pub(crate) fn parse(line: &str) -> Option<Line<'_>> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let (permissions, rest) = rest.split_once(' ')?;
    let (offset, rest) = rest.split_once(' ')?;
    let (device, rest) = rest.split_once(' ')?;
    let (inode, path) = rest.split_once(' ').unwrap_or((rest, ""));
    let (major, minor) = device.split_once(':')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    Some(Line {
        start: hex(start)?,
        end: hex(end)?,
        executable: permissions.as_bytes().get(2) == Some(&b'x'),
        offset: hex(offset)?,
        device: libc::makedev(hex(major)? as u32, hex(minor)? as u32),
        inode: inode.parse().ok()?,
        path: path.trim_start(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_lines_are_parsed() {
        let line = "7f00deadb000-7f00deadc000 r-xp 00001000 fd:01 1234567                    /usr/lib/a b.so (deleted)";
        let expected = Line {
            start: 0x7f00_dead_b000,
            end: 0x7f00_dead_c000,
            executable: true,
            offset: 0x1000,
            device: libc::makedev(0xfd, 1),
            inode: 1_234_567,
            path: "/usr/lib/a b.so (deleted)",
        };
        assert_eq!(parse(line), Some(expected));
        let anonymous = parse("7f00deadb000-7f00deadc000 rw-p 00000000 00:00 0 ").unwrap();
        assert_eq!((anonymous.path, anonymous.executable), ("", false));
        for bad in ["", "x", "1-2", "1-2 r-xp 0 0:0 x", "g-h r-xp 0 0:0 0", "1-2 r-xp 0 0 0"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn removed_mapping_count_is_bounded() {
        let mut map = ModuleMap::default();
        for image in 0..10 * MAX_GONE as u32 {
            let (start, end) = (0x1000, 0x2000 + u64::from(image % 7) * 0x1000);
            let (eh_frame_hdr, eh_readable_start, eh_readable_end) = (0, 0, 0);
            let bias = 0;
            let mapping = Mapping {
                start,
                end,
                bias,
                image,
                eh_frame_hdr,
                eh_readable_start,
                eh_readable_end,
                flags: 0,
            };
            assert!(map.replace(mapping));
        }
        assert_eq!((map.current.len(), map.unmapped.len()), (1, MAX_GONE));
    }

    #[test]
    fn vanished_mappings_are_remembered() {
        let mapping = |start, image| Mapping {
            start,
            end: start + 0x1000,
            bias: 0,
            image,
            eh_frame_hdr: 0,
            eh_readable_start: 0,
            eh_readable_end: 0,
            flags: 0,
        };
        let map = ModuleMap {
            current: vec![mapping(0x1000, 1), mapping(0x4000, 2)],
            unmapped: vec![mapping(0x2000, 3), mapping(0x4800, 4)],
            ..ModuleMap::default()
        };
        let image = |address| map.find(address).map(|m| m.image);
        assert_eq!(image(0x1fff), Some(1));
        assert_eq!(image(0x2000), Some(3));
        assert_eq!(image(0x4900), Some(2), "what is there now comes first");
        assert_eq!(image(0x5100), Some(4));
        assert_eq!(image(0x0fff), None);
        assert!(map.holds(0x1000) && !map.holds(0x2000));
    }
}
