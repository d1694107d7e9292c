//! Walks another, stopped process, and compares with framehop on the same process as the oracle.

use std::fs;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use flightline_in_signal::layout::{MODULE_TABLES, ModuleEntry, ModuleTable, walk_end};
use flightline_in_signal::os::sys;
use flightline_in_signal::unwind::eh_frame::Machine;
use flightline_in_signal::unwind::interrupted::Regs;
use flightline_in_signal::unwind::modules::Modules;
use flightline_in_signal::unwind::rule_cache::{RuleCache, Tag};
use flightline_in_signal::unwind::stack::{Memory, Windows};
use flightline_in_signal::unwind::walk::{Lookup, Walked, walk};
use framehop::Unwinder as _;
use object::{Object, ObjectSection, ObjectSegment};

/// One line of /proc/PID/maps.
pub struct Map {
    pub start: u64,
    pub end: u64,
    pub exec: bool,
    pub offset: u64,
    pub path: String,
}

pub fn maps(pid: u32) -> Vec<Map> {
    let text = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let exec = words.next()?.contains('x');
        let offset = u64::from_str_radix(words.next()?, 16).ok()?;
        let path = words.nth(2).unwrap_or("").to_owned();
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some(Map { start: number(start)?, end: number(end)?, exec, offset, path })
    };
    text.lines().filter_map(line).collect()
}

pub fn read(pid: u32, address: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    // SAFETY: the buffer has `len` bytes.
    let got = unsafe { sys::read_process(pid, address, bytes.as_mut_ptr(), len) };
    bytes.truncate(got);
    bytes
}

/// The stack of a stopped process, copied once; other memory is read in windows.
pub struct Remote {
    pid: u32,
    stack: (u64, Vec<u8>),
    info: (u64, u64),
    windows: Box<Windows>,
}

impl Remote {
    pub fn new(pid: u32, sp: u64, maps: &[Map]) -> Remote {
        let hi = maps.iter().find(|m| m.start <= sp && sp < m.end).map_or(sp, |m| m.end);
        let stack = (sp, read(pid, sp, (hi - sp) as usize));
        // SAFETY: all zero is a valid value of plain integers.
        let mut windows: Box<Windows> = unsafe { Box::new_zeroed().assume_init() };
        windows.clear();
        Remote { pid, stack, info: (0, 0), windows }
    }
}

impl Memory for Remote {
    fn word(&mut self, address: u64) -> Option<u64> {
        if let Some(at) = address.checked_sub(self.stack.0)
            && let Some(word) = self.stack.1.get(at as usize..).and_then(|rest| rest.first_chunk::<8>())
        {
            return Some(u64::from_le_bytes(*word));
        }
        self.windows.read(self.pid, address, 8)
    }
    fn set_info(&mut self, from: u64, to: u64, _plain: bool) {
        self.info = (from, to);
    }
    fn info(&mut self, address: u64, bytes: u32) -> Option<u64> {
        let inside = address >= self.info.0 && address + u64::from(bytes) <= self.info.1;
        if inside { self.windows.read(self.pid, address, bytes) } else { None }
    }
    fn plain_word(&self, _address: u64) -> Option<u64> {
        None
    }
    fn prefetch(&self, _sp: u64) {}
    fn switched(&mut self, _sp: u64) {}
    fn same_stack(&self, a: u64, b: u64) -> bool {
        let known = |x: u64| x >= self.stack.0 && x < self.stack.0 + self.stack.1.len() as u64;
        known(a) == known(b)
    }
}

type HopUnwinder = framehop::x86_64::UnwinderX86_64<Vec<u8>>;

/// The modules of one process, for both unwinders.
pub struct Process {
    pub pid: u32,
    pub maps: Vec<Map>,
    tables: Box<[ModuleTable; MODULE_TABLES]>,
    current: AtomicU32,
    arena: Vec<AtomicU64>,
    rule_cache: Box<RuleCache>,
    machine: Box<Machine>,
    hop: HopUnwinder,
    hop_cache: framehop::x86_64::CacheX86_64,
}

/// The unwinding method of the walker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Mapped unwind information only, without cache.
    Interpreter,
    /// Unwind tables of every module, without cache.
    Rows,
    /// Unwind tables, and a rule cache that persists between walks.
    RuleCache,
}

impl Process {
    pub fn new(pid: u32) -> Process {
        // SAFETY: all zero is a valid empty table set, rule cache and interpreter state.
        let (mut tables, rule_cache, machine) = unsafe {
            let tables: Box<[ModuleTable; MODULE_TABLES]> = Box::new_zeroed().assume_init();
            let rule_cache: Box<RuleCache> = Box::new_zeroed().assume_init();
            let machine: Box<Machine> = Box::new_zeroed().assume_init();
            (tables, rule_cache, machine)
        };
        let maps = maps(pid);
        let mut arena: Vec<AtomicU64> = vec![AtomicU64::new(0)];
        let mut hop = HopUnwinder::new();
        let mut count = 0;
        for map in maps.iter().filter(|m| m.exec && (m.path.starts_with('/') || m.path == "[vdso]")) {
            let elf = if map.path == "[vdso]" {
                read(pid, map.start, (map.end - map.start) as usize)
            } else {
                fs::read(&map.path).unwrap_or_default()
            };
            let Some(mut entry) = module(&elf, map) else { continue };
            if let Ok(rows) = flightline_recorder::build_unwind_rows(&elf) {
                entry.rows_off = arena.len() as u64 * 8;
                let words = rows.chunks(8).map(|c| u64::from_le_bytes(c.try_into().unwrap()));
                arena.extend(words.map(AtomicU64::new));
            }
            let end = maps.iter().find(|m| m.start <= entry.eh_frame_hdr && entry.eh_frame_hdr < m.end);
            entry.eh_readable_start = end.map_or(0, |m| m.start);
            entry.eh_readable_end = end.map_or(0, |m| m.end);
            if let Some(module) = hop_module(&elf, map, entry.bias) {
                hop.add_module(module);
            }
            // Table 0 has unwind tables; table 1 has the same modules without.
            tables[0].entries[count].store(entry);
            tables[1].entries[count].store(ModuleEntry { rows_off: 0, ..entry });
            count += 1;
        }
        tables[0].count = AtomicU32::new(count as u32);
        tables[1].count = AtomicU32::new(count as u32);
        let hop_cache = framehop::x86_64::CacheX86_64::new();
        Process { pid, maps, tables, current: AtomicU32::new(0), arena, rule_cache, machine, hop, hop_cache }
    }

    pub fn walk(&mut self, regs: &Regs, way: Way) -> (Vec<u64>, Walked) {
        self.current.store(if way == Way::Interpreter { 1 } else { 0 }, Ordering::Relaxed);
        let modules = Modules::now(&self.tables, &self.current);
        // SAFETY: all zero is an empty cache.
        let fresh: Box<RuleCache> = unsafe { Box::new_zeroed().assume_init() };
        let rule_cache = if way == Way::RuleCache { &*self.rule_cache } else { &*fresh };
        let lookup = Lookup { modules, rows: &self.arena, rule_cache, tag: Tag(0), jvm: None };
        let mut memory = Remote::new(self.pid, regs.sp(), &self.maps);
        let mut frames = vec![0; 2048];
        let walked = walk(&lookup, regs, &mut memory, &mut self.machine, &mut frames);
        frames.truncate(walked.depth);
        (frames, walked)
    }

    /// Returns framehop's frames, and true if it reached the root.
    pub fn framehop(&mut self, regs: &Regs) -> (Vec<u64>, bool) {
        let mut memory = Remote::new(self.pid, regs.sp(), &self.maps);
        let mut word = |address: u64| memory.word(address).ok_or(());
        let start = framehop::x86_64::UnwindRegsX86_64::new(regs.pc, regs.sp(), regs.r[6]);
        let mut frames = Vec::new();
        let mut iter = self.hop.iter_frames(regs.pc, start, &mut self.hop_cache, &mut word);
        loop {
            match iter.next() {
                Ok(Some(frame)) if frames.len() < 2048 => frames.push(frame.address()),
                Ok(None) => return (frames, true),
                _ => return (frames, false),
            }
        }
    }

    pub fn reached_root(walked: &Walked) -> bool {
        walked.end == walk_end::ROOT
    }
}

fn module(elf: &[u8], map: &Map) -> Option<ModuleEntry> {
    let file = object::File::parse(elf).ok()?;
    let bias = bias(&file, map)?;
    let hdr = file.section_by_name(".eh_frame_hdr").map_or(0, |s| s.address().wrapping_add(bias));
    Some(ModuleEntry {
        start: map.start,
        end: map.end,
        bias,
        eh_frame_hdr: hdr,
        eh_readable_end: 0,
        rows_off: 0,
        flags: 0,
        path_id: 0,
        eh_readable_start: 0,
    })
}

fn bias(file: &object::File<'_>, map: &Map) -> Option<u64> {
    let segment = file.segments().find(|s| {
        let (offset, len) = s.file_range();
        map.offset + (map.end - map.start) > offset && map.offset < offset + len && {
            let object::SegmentFlags::Elf { p_flags, .. } = s.flags() else { return false };
            p_flags.0 & 1 != 0
        }
    })?;
    Some(
        map.start
            .wrapping_sub(map.offset)
            .wrapping_add(segment.file_range().0)
            .wrapping_sub(segment.address()),
    )
}

fn hop_module(elf: &[u8], map: &Map, bias: u64) -> Option<framehop::Module<Vec<u8>>> {
    let file = object::File::parse(elf).ok()?;
    let range = |name: &str| file.section_by_name(name).map(|s| s.address()..s.address() + s.size());
    let data = |name: &str| file.section_by_name(name).and_then(|s| s.data().ok().map(<[u8]>::to_vec));
    let info = framehop::ExplicitModuleSectionInfo {
        base_svma: 0,
        text_svma: range(".text"),
        text: data(".text"),
        got_svma: range(".got"),
        eh_frame_svma: range(".eh_frame"),
        eh_frame: data(".eh_frame"),
        eh_frame_hdr_svma: range(".eh_frame_hdr"),
        eh_frame_hdr: data(".eh_frame_hdr"),
        ..Default::default()
    };
    Some(framehop::Module::new(map.path.clone(), map.start..map.end, bias, info))
}
