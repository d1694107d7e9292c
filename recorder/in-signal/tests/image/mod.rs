//! A small process image made by hand: a stack, unwind information, modules.

use std::sync::atomic::{AtomicU32, AtomicU64};

use flightline_in_signal::layout::{JvmLayout, MODULE_TABLES, ModuleEntry, ModuleTable};
use flightline_in_signal::unwind::eh_frame::Machine;
use flightline_in_signal::unwind::interrupted::Regs;
use flightline_in_signal::unwind::modules::Modules;
use flightline_in_signal::unwind::rule_cache::{RuleCache, Tag};
use flightline_in_signal::unwind::stack::Memory;
use flightline_in_signal::unwind::walk::{Lookup, Walked, walk};

/// First address of the module's code; addresses of functions are offsets from here.
pub const CODE: u64 = 0x10_0000;
/// Address of `.eh_frame_hdr`.
pub const HDR: u64 = 0x20_0000;
/// Lowest address of the stack.
pub const STACK: u64 = 0x7000_0000;

/// Memory that consists of a few areas. As in the handler, a read outside the allowed range is refused.
pub struct Areas {
    pub areas: Vec<(u64, Vec<u8>)>,
    pub stack_words: usize,
    info: (u64, u64),
    pub reads: u64,
}

impl Areas {
    fn bytes(&self, address: u64, len: usize) -> Option<&[u8]> {
        self.areas.iter().find_map(|(start, bytes)| {
            let at = usize::try_from(address.checked_sub(*start)?).ok()?;
            bytes.get(at..at.checked_add(len)?)
        })
    }
}

impl Memory for Areas {
    fn word(&mut self, address: u64) -> Option<u64> {
        self.reads += 1;
        self.bytes(address, 8).map(|b| u64::from_le_bytes(b.try_into().unwrap()))
    }
    fn set_info(&mut self, from: u64, to: u64, _plain: bool) {
        self.info = (from, to);
    }
    fn info(&mut self, address: u64, bytes: u32) -> Option<u64> {
        self.reads += 1;
        let end = address.checked_add(u64::from(bytes))?;
        if address < self.info.0 || end > self.info.1 {
            return None;
        }
        let bytes = self.bytes(address, bytes as usize)?;
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        Some(u64::from_le_bytes(word))
    }
    fn plain_word(&self, _address: u64) -> Option<u64> {
        None
    }
    fn prefetch(&self, _sp: u64) {}
    fn switched(&mut self, _sp: u64) {}
    fn same_stack(&self, a: u64, b: u64) -> bool {
        let known = |x: u64| x >= STACK && x < STACK + self.stack_words as u64 * 8;
        known(a) == known(b)
    }
}

/// One function: extent, unwind program, whether it is a signal trampoline.
pub struct Function {
    pub start: u64,
    pub end: u64,
    pub program: Vec<u8>,
    pub signal: bool,
}

pub fn function(start: u64, end: u64, program: &[u8]) -> Function {
    Function { start, end, program: program.to_vec(), signal: false }
}

fn entry(out: &mut Vec<u8>, body: &[u8]) -> usize {
    let at = out.len();
    let pad = body.len().next_multiple_of(4) - body.len();
    out.extend(((body.len() + pad) as u32).to_le_bytes());
    out.extend(body);
    out.extend(std::iter::repeat_n(0, pad));
    at
}

/// Builds `.eh_frame_hdr` and `.eh_frame` of the functions for address [`HDR`].
pub fn unwind_info(functions: &[Function]) -> Vec<u8> {
    let header = 12 + functions.len() as u64 * 8;
    let (mut table, frame) = parts(functions, HDR, HDR + header);
    table.extend(frame);
    table
}

/// Builds them with `.eh_frame` first, as BOLT and gold write it. Returns the bytes for address [`HDR`], and
/// the address of the table.
pub fn frame_first(functions: &[Function]) -> (Vec<u8>, u64) {
    let length = parts(functions, HDR, HDR).1.len() as u64;
    let (table, mut frame) = parts(functions, HDR + length, HDR);
    frame.extend(table);
    (frame, HDR + length)
}

/// Builds `.eh_frame_hdr` for address `header`, and `.eh_frame` for address `frame_at`.
fn parts(functions: &[Function], header: u64, frame_at: u64) -> (Vec<u8>, Vec<u8>) {
    let (ra, initial): (u8, &[u8]) = if cfg!(target_arch = "x86_64") {
        (16, &[0x0c, 7, 8, 0x80 | 16, 1]) // CFA = rsp+8, ra at CFA−8
    } else {
        (30, &[0x0c, 31, 0]) // CFA = sp
    };
    let mut frame = Vec::new();
    let mut table = Vec::new();
    let mut cies = [0, 0];
    for (signal, cie) in cies.iter_mut().enumerate() {
        let mut body = vec![0, 0, 0, 0, 1];
        body.extend(if signal == 1 { b"zRS\0".as_slice() } else { b"zR\0".as_slice() });
        // code align 1, data align −8, RA column, one byte of augmentation: pcrel | sdata4
        body.extend([1, 0x78, ra, 1, 0x1b]);
        body.extend(initial);
        *cie = entry(&mut frame, &body);
    }
    for f in functions {
        let at = frame.len() as u64 + frame_at;
        let mut body = Vec::new();
        body.extend(((frame.len() + 4 - cies[usize::from(f.signal)]) as u32).to_le_bytes());
        body.extend((((CODE + f.start) as i64 - (at + 8) as i64) as i32).to_le_bytes());
        body.extend(((f.end - f.start) as u32).to_le_bytes());
        body.push(0);
        body.extend(&f.program);
        table.push(((CODE + f.start) as i64 - header as i64, at as i64 - header as i64));
        entry(&mut frame, &body);
    }
    table.sort_unstable();
    let mut out = vec![1, 0x1b, 0x03, 0x3b];
    out.extend((frame_at as i32 - header as i32 - 4).to_le_bytes());
    out.extend((table.len() as u32).to_le_bytes());
    for (pc, fde) in table {
        out.extend((pc as i32).to_le_bytes());
        out.extend((fde as i32).to_le_bytes());
    }
    (out, frame)
}

/// Everything a walk needs.
pub struct Image {
    pub memory: Areas,
    pub tables: Box<[ModuleTable; MODULE_TABLES]>,
    pub jvm: Box<JvmLayout>,
    current: AtomicU32,
    rule_cache: Box<RuleCache>,
    machine: Box<Machine>,
    rows: Vec<AtomicU64>,
}

pub fn zeroed<T>() -> Box<T> {
    // SAFETY: used for plain integers and for types that are valid when all zero.
    unsafe { Box::<T>::new_zeroed().assume_init() }
}

impl Image {
    pub fn new(info: Vec<u8>, stack: &[u64]) -> Image {
        let mut tables: Box<[ModuleTable; MODULE_TABLES]> = zeroed();
        tables[0].count = AtomicU32::new(1);
        let entry = ModuleEntry {
            start: CODE,
            end: CODE + 0x1_0000,
            bias: 0,
            eh_frame_hdr: if info.is_empty() { 0 } else { HDR },
            eh_readable_end: HDR + info.len() as u64,
            rows_off: 0,
            flags: 0,
            path_id: 0,
            eh_readable_start: HDR,
        };
        tables[0].entries[0].store(entry);
        let words = stack.iter().flat_map(|w| w.to_le_bytes()).collect();
        let areas = vec![(HDR, info), (STACK, words)];
        let memory = Areas { areas, stack_words: stack.len(), info: (0, 0), reads: 0 };
        Image {
            memory,
            tables,
            jvm: zeroed(),
            current: AtomicU32::new(0),
            rule_cache: zeroed(),
            machine: zeroed(),
            rows: Vec::new(),
        }
    }

    pub fn walk(&mut self, regs: &Regs, limit: usize) -> (Vec<u64>, Walked) {
        let modules = Modules::now(&self.tables, &self.current);
        let lookup = Lookup {
            modules,
            rows: &self.rows,
            rule_cache: &self.rule_cache,
            tag: Tag(1),
            jvm: Some(&self.jvm),
        };
        let mut frames = vec![0; limit];
        let walked = walk(&lookup, regs, &mut self.memory, &mut self.machine, &mut frames);
        frames.truncate(walked.depth);
        (frames, walked)
    }
}
