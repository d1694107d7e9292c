//! What is mapped where in one process: from the loader's words and `/proc/<pid>/maps`, for us and for its handlers.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use flightline_in_signal::layout::{InitModule, MODULES_PER_TABLE, ModuleEntry, module_flags};

use crate::{
    images::{ANONYMOUS, ImageId, Images},
    proc_file::ProcFile,
};

/// Mappings that went away and are remembered for samples still on their way.
const MAX_GONE: usize = 1024;

/// An executable mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// Address − file address.
    pub bias: u64,
    /// What is mapped.
    pub image: ImageId,
    eh_frame_hdr: u64,
    eh_readable_end: u64,
    flags: u32,
}

/// A line of `/proc/<pid>/maps`.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    start: u64,
    end: u64,
    executable: bool,
    offset: u64,
    device: u64,
    inode: u64,
    path: &'a str,
}

/// The executable mappings of one process.
#[derive(Default)]
pub struct ModuleMap {
    current: Vec<Mapping>,
    gone: Vec<Mapping>,
    log: Vec<(InitModule, PathBuf)>,
    /// Incremented when an address may mean something else than before.
    pub version: u64,
}

impl ModuleMap {
    /// Takes in what the program's loader told since the last call.
    pub fn read_log(&mut self, file: &ProcFile, images: &mut Images) {
        use std::os::unix::ffi::OsStringExt;
        let mut added = false;
        for module in file.init_modules(self.log.len()) {
            let path = PathBuf::from(std::ffi::OsString::from_vec(file.string(module.path)));
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

    /// Puts in a mapping that the loader told of, in the place of older ones that it overlaps: the log is in order of time.
    fn replace(&mut self, mapping: Mapping) -> bool {
        let overlaps = |m: &Mapping| m.start < mapping.end && mapping.start < m.end;
        if self.current.iter().any(|m| overlaps(m) && m.image == mapping.image) {
            return false;
        }
        let old: Vec<Mapping> = self.current.extract_if(.., |m| overlaps(m)).collect();
        self.gone.extend(old);
        self.current.push(mapping);
        self.current.sort_unstable_by_key(|m| m.start);
        true
    }

    /// Reads `/proc/<pid>/maps`. `Ok(None)` if that process is not the one that maps `file` (another pid namespace),
    /// otherwise whether anything changed.
    pub fn read_maps(&mut self, file: &ProcFile, images: &mut Images) -> io::Result<Option<bool>> {
        let text = fs::read(format!("/proc/{}/maps", file.pid))?;
        let text = String::from_utf8_lossy(&text);
        let root = PathBuf::from(format!("/proc/{}/root", file.pid));
        let mut ours = false;
        let mut found = Vec::with_capacity(self.current.len() + 8);
        for line in text.lines().filter_map(parse) {
            ours |= line.inode == file.inode && line.path.contains(flightline_in_signal::layout::PROC_SUFFIX);
            if line.executable && !line.path.starts_with("[vsyscall") {
                found.push(self.mapping(&line, &root, images));
            }
        }
        if !ours {
            // A process that has given up its memory has an empty map until it is reaped.
            return Ok(if found.is_empty() { Some(false) } else { None });
        }
        found.sort_unstable_by_key(|m| m.start);
        found.dedup_by(|b, a| b.start < a.end);
        if found == self.current {
            return Ok(Some(false));
        }
        let vanished = self.current.iter().filter(|m| !found.contains(m));
        let vanished: Vec<Mapping> = vanished.copied().collect();
        self.gone.extend(vanished);
        let excess = self.gone.len().saturating_sub(MAX_GONE);
        self.gone.drain(..excess);
        self.current = found;
        self.version += 1;
        Ok(Some(true))
    }

    fn mapping(&self, line: &Line<'_>, root: &Path, images: &mut Images) -> Mapping {
        let mut mapping = Mapping {
            start: line.start,
            end: line.end,
            bias: line.start,
            image: ANONYMOUS,
            eh_frame_hdr: 0,
            eh_readable_end: 0,
            flags: 0,
        };
        let told = self.log.iter().rev().find(|(m, _)| m.start <= line.start && line.end <= m.end);
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
                images.of_file(path, Some(root), expected, &[])
            };
            let head = &images.get(mapping.image).head;
            mapping.bias = head.bias(line.start, line.offset).unwrap_or(line.start.wrapping_sub(line.offset));
            if let Some((hdr, end)) = head.eh_frame_hdr() {
                mapping.eh_frame_hdr = mapping.bias.wrapping_add(hdr);
                mapping.eh_readable_end = mapping.bias.wrapping_add(end);
            }
        }
        // The loader knows better than we do, as long as it speaks of the same module: addresses are used again.
        let id = &images.get(mapping.image).head.build_id;
        let told = told.filter(|(m, _)| build_id(m).is_empty() || id.is_empty() || id == build_id(m));
        if let Some((module, _)) = told
            && (module.flags & module_flags::VDSO != 0 || mapping.image != ANONYMOUS)
        {
            mapping.bias = module.bias;
            mapping.eh_frame_hdr = module.eh_frame_hdr;
            mapping.eh_readable_end = module.eh_readable_end;
            mapping.flags |= module.flags & (module_flags::PERMANENT | module_flags::VDSO);
        }
        mapping
    }

    /// The mapping that holds an address now, or held it lately.
    pub fn find(&self, address: u64) -> Option<&Mapping> {
        let after = self.current.partition_point(|m| m.start <= address);
        let here = after.checked_sub(1).and_then(|i| self.current.get(i)).filter(|m| address < m.end);
        here.or_else(|| self.gone.iter().rev().find(|m| m.start <= address && address < m.end))
    }

    /// Whether an address is in a present mapping.
    pub fn holds(&self, address: u64) -> bool {
        let after = self.current.partition_point(|m| m.start <= address);
        after.checked_sub(1).and_then(|i| self.current.get(i)).is_some_and(|m| address < m.end)
    }

    /// The present mappings.
    pub fn current(&self) -> &[Mapping] {
        &self.current
    }

    /// The table for the program's handlers.
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
            pad: 0,
        };
        self.current.iter().take(MODULES_PER_TABLE).map(entry).collect()
    }
}

fn build_id(module: &InitModule) -> &[u8] {
    module.build_id.get(..module.build_id_len as usize).unwrap_or(&[])
}

fn from_log(module: &InitModule, path: &Path, root: Option<&Path>, images: &mut Images) -> Mapping {
    let image = if module.flags & module_flags::VDSO != 0 {
        images.vdso()
    } else if path.is_absolute() {
        images.of_file(path, root, None, build_id(module))
    } else {
        images.without_file(path)
    };
    Mapping {
        start: module.start,
        end: module.end,
        bias: module.bias,
        image,
        eh_frame_hdr: module.eh_frame_hdr,
        eh_readable_end: module.eh_readable_end,
        flags: module.flags & (module_flags::PERMANENT | module_flags::VDSO),
    }
}

/// `start-end perms offset major:minor inode   path`
fn parse(line: &str) -> Option<Line<'_>> {
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
    fn lines_of_maps() {
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
    fn vanished_mappings_are_remembered() {
        let mapping = |start, image| Mapping {
            start,
            end: start + 0x1000,
            bias: 0,
            image,
            eh_frame_hdr: 0,
            eh_readable_end: 0,
            flags: 0,
        };
        let map = ModuleMap {
            current: vec![mapping(0x1000, 1), mapping(0x4000, 2)],
            gone: vec![mapping(0x2000, 3), mapping(0x4800, 4)],
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
