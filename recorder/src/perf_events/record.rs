//! Parses the records of a perf ring (linux/perf_event.h, `enum perf_event_type`), with all lengths checked.

use flightline_in_signal::unwind::interrupted::{Regs, arch};

use super::attr::{registers, sample};

/// `PERF_RECORD_SAMPLE`.
const SAMPLE: u32 = 9;
/// Bytes of process, thread and time at the end of every record except samples.
const TRAILER: usize = 16;
/// Bytes of an event's number, which follows the trailer if records have it.
const IDENTIFIER: usize = 8;
/// Set in the header of a name record caused by exec.
const MISC_COMM_EXEC: u16 = 1 << 13;
/// Set in the header of a switch record: the thread was switched out; it was still runnable.
const MISC_SWITCH_OUT: u16 = 1 << 13;
const MISC_PREEMPTED: u16 = 1 << 14;
/// Numbers in a call chain from here on are context markers for the following addresses.
const CONTEXT_MAX: u64 = -4095i64 as u64;
const CONTEXT_KERNEL: u64 = -128i64 as u64;
const CONTEXT_USER: u64 = -512i64 as u64;

/// A sample.
#[derive(Debug)]
pub struct Sample<'a> {
    /// The number of its event, if records have it.
    pub number: Option<u64>,
    /// The PID.
    pub pid: u32,
    /// The TID.
    pub tid: u32,
    /// CLOCK_MONOTONIC ns.
    pub time_ns: u64,
    /// The count of this thread's event on this processor: CPU time in ns, or perf events.
    pub count: Option<u64>,
    /// Return addresses in the kernel, leaf first, as little-endian words.
    pub kernel: Vec<u64>,
    /// The program counter and return addresses in user space, leaf first, from the kernel's walk along frame
    /// pointers. For code without frame pointers, the values are arbitrary.
    pub user: Vec<u64>,
    /// User registers; `None` for kernel threads and 32-bit programs.
    pub regs: Option<Regs>,
    /// The user stack, from the stack pointer on.
    pub stack: &'a [u8],
}

/// A new mapping.
#[derive(Debug)]
pub struct Mapped<'a> {
    /// The PID.
    pub pid: u32,
    /// The first address, and the address after the last.
    pub range: (u64, u64),
    /// Offset in the file.
    pub offset: u64,
    /// Device, as `makedev` packs it.
    pub device: u64,
    /// Inode.
    pub inode: u64,
    /// True if it is executable.
    pub executable: bool,
    /// Path as in `/proc/<pid>/maps`.
    pub path: &'a [u8],
}

/// A record.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // samples are the most frequent, and each record is dropped before the next is read
pub enum Record<'a> {
    /// A sample.
    Sample(Sample<'a>),
    /// A mapping.
    Mapped(Mapped<'a>),
    /// A thread's name. The flag is true after exec.
    Name { pid: u32, tid: u32, name: &'a [u8], exec: bool },
    /// A thread started: process, parent process, thread, and the thread that created it.
    Begun { pid: u32, parent: u32, tid: u32, by: u32, time_ns: u64 },
    /// A thread ended.
    Ended { pid: u32, tid: u32, time_ns: u64 },
    /// The ring was full, and this number of records is missing here.
    Lost(u64),
    /// A thread was switched in or out. When it was switched out, the flag shows whether it was still
    /// runnable.
    Switched { pid: u32, tid: u32, out: Option<bool> },
    /// The kernel dropped samples of an event that came too fast.
    Throttled { number: u64 },
    /// The final count of an event of a thread that ended, ns.
    Counted { pid: u32, tid: u32, count_ns: u64 },
    /// Other records.
    Other,
}

impl Record<'_> {
    /// Returns the process of the record.
    pub fn pid(&self) -> Option<u32> {
        match self {
            Record::Sample(sample) => Some(sample.pid),
            Record::Mapped(mapped) => Some(mapped.pid),
            Record::Name { pid, .. }
            | Record::Begun { pid, .. }
            | Record::Ended { pid, .. }
            | Record::Switched { pid, .. }
            | Record::Counted { pid, .. } => Some(*pid),
            Record::Lost(_) | Record::Throttled { .. } | Record::Other => None,
        }
    }
}

/// Returns the offset of the time in a record.
pub fn time_at(kind: u32, len: usize) -> usize {
    if kind == SAMPLE { 16 } else { len - 8 }
}

/// Returns this offset for records with the number of their event.
pub fn numbered_time_at(kind: u32, len: usize) -> usize {
    if kind == SAMPLE { 24 } else { len.saturating_sub(16) }
}

/// The parts of a tracepoint sample without its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traced<'a> {
    /// The PID.
    pub pid: u32,
    /// The TID.
    pub tid: u32,
    /// CLOCK_MONOTONIC ns.
    pub time_ns: u64,
    /// The tracepoint's own record.
    pub raw: &'a [u8],
}

/// Returns the number of a sample's event; `None` for other records.
pub fn number(bytes: &[u8]) -> Option<u64> {
    let mut rest = Bytes(bytes);
    let kind = rest.u32()?;
    rest.u32()?;
    if kind == SAMPLE { rest.u64() } else { None }
}

/// Parses the start of a sample with its event's number and a tracepoint record, with or without a call
/// `chain`.
pub fn traced(bytes: &[u8], chain: bool) -> Option<Traced<'_>> {
    let mut rest = Bytes(bytes);
    rest.take(16)?;
    let (pid, tid, time_ns) = (rest.u32()?, rest.u32()?, rest.u64()?);
    if chain {
        let count = usize::try_from(rest.u64()?).ok()?;
        rest.take(count.checked_mul(8)?)?;
    }
    let len = usize::try_from(rest.u32()?).ok()?;
    Some(Traced { pid, tid, time_ns, raw: rest.take(len)? })
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(*self.take(4)?.first_chunk()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(*self.take(8)?.first_chunk()?))
    }

    /// Returns the text up to its NUL.
    fn text(&self) -> &'a [u8] {
        self.0.split(|b| *b == 0).next().unwrap_or(&[])
    }
}

/// Parses a record of an event with this `sample_type`. `None` if it is truncated or unknown.
pub fn parse(bytes: &[u8], sample_type: u64) -> Option<Record<'_>> {
    let mut rest = Bytes(bytes);
    let kind = rest.u32()?;
    let misc = (rest.u32()? & 0xffff) as u16;
    if kind == SAMPLE {
        return parse_sample(rest, sample_type).map(Record::Sample);
    }
    let number = if sample_type & sample::IDENTIFIER != 0 { IDENTIFIER } else { 0 };
    // Switch records of one thread, or of a whole processor.
    if matches!(kind, 14 | 15) {
        let mut who = Bytes(rest.0.get(rest.0.len().checked_sub(TRAILER + number)?..)?);
        let out = (misc & MISC_SWITCH_OUT != 0).then_some(misc & MISC_PREEMPTED != 0);
        return Some(Record::Switched { pid: who.u32()?, tid: who.u32()?, out });
    }
    let trailer = TRAILER + number;
    rest.0 = rest.0.get(..rest.0.len().checked_sub(trailer)?)?;
    Some(match kind {
        2 => {
            rest.u64()?;
            Record::Lost(rest.u64()?)
        }
        3 => {
            let (pid, tid) = (rest.u32()?, rest.u32()?);
            Record::Name { pid, tid, name: rest.text(), exec: misc & MISC_COMM_EXEC != 0 }
        }
        4 | 7 => {
            let (pid, parent, tid, by) = (rest.u32()?, rest.u32()?, rest.u32()?, rest.u32()?);
            let time_ns = rest.u64()?;
            match kind {
                4 => Record::Ended { pid, tid, time_ns },
                _ => Record::Begun { pid, parent, tid, by, time_ns },
            }
        }
        5 => {
            rest.u64()?;
            Record::Throttled { number: rest.u64()? }
        }
        8 => {
            let (pid, tid) = (rest.u32()?, rest.u32()?);
            Record::Counted { pid, tid, count_ns: rest.u64()? }
        }
        10 => {
            let (pid, _) = (rest.u32()?, rest.u32()?);
            let (start, len, offset) = (rest.u64()?, rest.u64()?, rest.u64()?);
            let (major, minor) = (rest.u32()?, rest.u32()?);
            let (inode, _generation) = (rest.u64()?, rest.u64()?);
            let (protection, _flags) = (rest.u32()?, rest.u32()?);
            Record::Mapped(Mapped {
                pid,
                range: (start, start.checked_add(len)?),
                offset,
                device: libc::makedev(major, minor),
                inode,
                executable: protection & libc::PROT_EXEC as u32 != 0,
                path: rest.text(),
            })
        }
        _ => Record::Other,
    })
}

fn parse_sample(mut rest: Bytes<'_>, sample_type: u64) -> Option<Sample<'_>> {
    let has = |bit: u64| sample_type & bit != 0;
    let number = if has(sample::IDENTIFIER) { Some(rest.u64()?) } else { None };
    let (pid, tid, time_ns) = (rest.u32()?, rest.u32()?, rest.u64()?);
    let count = if has(sample::READ) { Some(rest.u64()?) } else { None };
    let (mut kernel, mut user) = (Vec::new(), Vec::new());
    if has(sample::CALLCHAIN) {
        let count = usize::try_from(rest.u64()?).ok()?;
        let chain = rest.take(count.checked_mul(8)?)?;
        let mut context = 0;
        for word in chain.chunks_exact(8).filter_map(|w| w.first_chunk::<8>()) {
            match u64::from_le_bytes(*word) {
                begins @ CONTEXT_MAX.. => context = begins,
                address if context == CONTEXT_KERNEL => kernel.push(address),
                address if context == CONTEXT_USER => user.push(address),
                _ => {}
            }
        }
    }
    if has(sample::RAW) {
        let len = usize::try_from(rest.u32()?).ok()?;
        rest.take(len)?;
    }
    let abi = if has(sample::REGS_USER) { rest.u64()? } else { 0 };
    let mut regs = None;
    if abi != 0 {
        let mut found = Regs::unknown();
        for number in registers::ORDER {
            let value = rest.u64()?;
            if number == registers::PC {
                found.pc = value;
            } else {
                found.set(usize::from(number), value);
            }
        }
        if arch::RA == usize::from(registers::PC) {
            found.set(arch::RA, found.pc);
        }
        // The value 1 is a 32-bit program.
        regs = (abi == 2).then_some(found);
    }
    let mut stack: &[u8] = &[];
    if has(sample::STACK_USER) {
        let room = usize::try_from(rest.u64()?).ok()?;
        let copy = rest.take(room)?;
        let used = if room == 0 { 0 } else { usize::try_from(rest.u64()?).ok()? };
        stack = copy.get(..used)?;
    }
    Some(Sample { number, pid, tid, time_ns, count, kernel, user, regs, stack })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend(misc.to_le_bytes());
        bytes.extend((body.len() as u16 + 8).to_le_bytes());
        bytes.extend(body);
        bytes
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    fn whole_sample() -> Vec<u8> {
        let mut body = words(&[7 | 9 << 32, 1234, 55]);
        body.extend(words(&[4, CONTEXT_KERNEL, 0xffff_8000_0000_1000, -512i64 as u64, 0x4000]));
        body.extend(words(&[2]));
        body.extend(words(&(0..registers::ORDER.len() as u64).map(|i| 0x100 + i).collect::<Vec<_>>()));
        body.extend(words(&[24, 11, 22, 33, 16]));
        header(SAMPLE, 0, &body)
    }

    const TYPE: u64 = sample::TID
        | sample::TIME
        | sample::READ
        | sample::CALLCHAIN
        | sample::REGS_USER
        | sample::STACK_USER;

    #[test]
    fn sample_record_is_parsed() {
        let bytes = whole_sample();
        let Some(Record::Sample(sample)) = parse(&bytes, TYPE) else { panic!() };
        assert_eq!((sample.pid, sample.tid, sample.time_ns, sample.count), (7, 9, 1234, Some(55)));
        assert_eq!(sample.kernel, [0xffff_8000_0000_1000]);
        assert_eq!(sample.stack, words(&[11, 22]));
        let regs = sample.regs.unwrap();
        let at = |number: u8| 0x100 + registers::ORDER.iter().position(|n| *n == number).unwrap() as u64;
        assert_eq!(regs.pc, at(registers::PC));
        assert_eq!(regs.sp(), at(arch::SP as u8));
        assert_eq!(regs.get(arch::FP), Some(at(arch::FP as u8)));
        assert_eq!(u64::from_le_bytes(*bytes[time_at(SAMPLE, bytes.len())..].first_chunk().unwrap()), 1234);
    }

    #[test]
    fn tracepoint_sample_is_parsed() {
        let mut body = words(&[77, 7 | 9 << 32, 1234, 2, CONTEXT_KERNEL, 0xffff_8000_0000_1000]);
        body.extend(12u32.to_le_bytes());
        body.extend(b"tracepoint 1");
        let bytes = header(SAMPLE, 0, &body);
        let head = Traced { pid: 7, tid: 9, time_ns: 1234, raw: b"tracepoint 1" };
        assert_eq!((number(&bytes), traced(&bytes, true)), (Some(77), Some(head)));
        let sample_type = sample::IDENTIFIER | sample::TID | sample::TIME | sample::CALLCHAIN | sample::RAW;
        let Some(Record::Sample(sample)) = parse(&bytes, sample_type) else { panic!() };
        assert_eq!(sample.kernel, [0xffff_8000_0000_1000]);
        assert_eq!(bytes[numbered_time_at(SAMPLE, bytes.len())..][..8], 1234u64.to_le_bytes());
        for len in 8..bytes.len() {
            assert_eq!(traced(&bytes[..len], true), None, "cut at {len}");
        }
    }

    #[test]
    fn switch_records_are_parsed() {
        for (misc, out) in
            [(0, None), (MISC_SWITCH_OUT, Some(false)), (MISC_SWITCH_OUT | MISC_PREEMPTED, Some(true))]
        {
            let of_thread = header(14, misc, &words(&[7 | 9 << 32, 1, 77]));
            let of_processor = header(15, misc, &words(&[3, 7 | 9 << 32, 1, 77]));
            for bytes in [of_thread, of_processor] {
                match parse(&bytes, sample::IDENTIFIER) {
                    Some(Record::Switched { pid: 7, tid: 9, out: found }) => assert_eq!(found, out),
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    #[test]
    fn truncated_records_are_rejected() {
        let bytes = whole_sample();
        for len in 0..bytes.len() - 8 {
            assert!(parse(&bytes[..len], TYPE).is_none(), "cut at {len}");
        }
        // A stack larger than its space, and a call chain longer than the record.
        let mut damaged = bytes.clone();
        let last = damaged.len() - 8;
        damaged[last..].copy_from_slice(&1000u64.to_le_bytes());
        assert!(parse(&damaged, TYPE).is_none());
        let mut damaged = bytes;
        damaged[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(parse(&damaged, TYPE).is_none());
    }

    #[test]
    fn comm_and_mmap_records_are_parsed() {
        let trailer = words(&[7 | 9 << 32, 1]);
        let mut body = words(&[7 | 9 << 32]);
        body.extend(b"name\0\0\0\0");
        body.extend(&trailer);
        match parse(&header(3, MISC_COMM_EXEC, &body), TYPE) {
            Some(Record::Name { pid: 7, tid: 9, name: b"name", exec: true }) => {}
            other => panic!("{other:?}"),
        }
        let mut body = words(&[7 | 9 << 32, 0x1000, 0x2000, 0x3000, 8 | 1 << 32, 77, 0, 5]);
        body.extend(b"/lib/x.so\0\0\0\0\0\0\0");
        body.extend(&trailer);
        let bytes = header(10, 0, &body);
        let Some(Record::Mapped(mapped)) = parse(&bytes, TYPE) else { panic!() };
        assert_eq!((mapped.range, mapped.offset, mapped.inode), ((0x1000, 0x3000), 0x3000, 77));
        assert_eq!((mapped.executable, mapped.path), (true, &b"/lib/x.so"[..]));
        assert!(parse(&header(3, 0, b"short"), TYPE).is_none());
    }
}
