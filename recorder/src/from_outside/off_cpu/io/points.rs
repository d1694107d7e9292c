//! The tracepoints of system calls and of block devices, parsed with the format that this kernel describes.

use crate::{from_outside::off_cpu::tracepoints::Field, perf_events::tracepoint::describe};

/// Number of arguments of a system call.
const ARGS: usize = 6;

/// `raw_syscalls:sys_enter` and `sys_exit`: the start and the end of any system call.
#[derive(Debug)]
pub struct CallPoints {
    /// ID of `sys_enter`.
    pub enter: u64,
    /// ID of `sys_exit`.
    pub exit: u64,
    enter_call: Field,
    args: Field,
    exit_call: Field,
    result: Field,
}

/// A record of `sys_enter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enter {
    /// The call's number.
    pub call: i64,
    /// Its arguments.
    pub args: [u64; ARGS],
}

/// A record of `sys_exit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The call's number.
    pub call: i64,
    /// The return value, or the negative errno.
    pub result: i64,
}

impl CallPoints {
    /// Reads the formats from this kernel.
    pub fn find() -> Result<CallPoints, String> {
        let (enter, exit) = (describe("raw_syscalls", "sys_enter")?, describe("raw_syscalls", "sys_exit")?);
        Ok(CallPoints {
            enter: enter.id,
            exit: exit.id,
            enter_call: Field::find(&enter, "id")?,
            args: Field::find(&enter, "args")?,
            exit_call: Field::find(&exit, "id")?,
            result: Field::find(&exit, "ret")?,
        })
    }

    /// Parses a record of `sys_enter`.
    pub fn entered(&self, raw: &[u8]) -> Option<Enter> {
        let mut args = [0; ARGS];
        let bytes = self.args.bytes(raw)?;
        for (arg, word) in args.iter_mut().zip(bytes.chunks_exact(8)) {
            *arg = u64::from_le_bytes(*word.first_chunk()?);
        }
        Some(Enter { call: self.enter_call.number(raw)? as i64, args })
    }

    /// Parses a record of `sys_exit`.
    pub fn left(&self, raw: &[u8]) -> Option<Exit> {
        Some(Exit { call: self.exit_call.number(raw)? as i64, result: self.result.number(raw)? as i64 })
    }
}

/// `block:block_io_start` and `block:block_rq_complete`: a request is queued, and completed.
#[derive(Debug)]
pub struct BlockPoints {
    /// ID of `block_io_start`.
    pub start: u64,
    /// ID of `block_rq_complete`.
    pub done: u64,
    started: Where,
    finished: Where,
    flags: Field,
    error: Field,
}

/// The position of the request's fields in a record.
#[derive(Debug)]
struct Where {
    device: Field,
    sector: Field,
    sectors: Field,
}

/// The address of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockAddress {
    /// Device, as the kernel packs it: the minor number in the lower 20 bits.
    pub device: u32,
    /// First sector, of 512 bytes.
    pub sector: u64,
}

impl BlockPoints {
    /// Reads the formats from this kernel. `block_io_start` exists since Linux 6.5.
    pub fn find() -> Result<BlockPoints, String> {
        let (start, done) = (describe("block", "block_io_start")?, describe("block", "block_rq_complete")?);
        let place = |point| {
            let field = |name| Field::find(point, name);
            Ok::<_, String>(Where {
                device: field("dev")?,
                sector: field("sector")?,
                sectors: field("nr_sector")?,
            })
        };
        Ok(BlockPoints {
            start: start.id,
            done: done.id,
            started: place(&start)?,
            finished: place(&done)?,
            flags: Field::find(&start, "rwbs")?,
            error: Field::find(&done, "error")?,
        })
    }

    /// Parses a record of `block_io_start`: the address, the number of sectors, and the flags in blktrace's
    /// notation.
    pub fn started<'a>(&self, raw: &'a [u8]) -> Option<(BlockAddress, u64, &'a [u8])> {
        let (place, sectors) = self.started.read(raw)?;
        let flags = self.flags.bytes(raw)?;
        Some((place, sectors, flags.split(|b| *b == 0).next().unwrap_or(&[])))
    }

    /// Parses a record of `block_rq_complete`: the address, the number of completed sectors, and the errno or
    /// 0.
    pub fn done(&self, raw: &[u8]) -> Option<(BlockAddress, u64, i32)> {
        let (place, sectors) = self.finished.read(raw)?;
        Some((place, sectors, (self.error.number(raw)? as u32 as i32).saturating_abs()))
    }
}

impl Where {
    fn read(&self, raw: &[u8]) -> Option<(BlockAddress, u64)> {
        let place =
            BlockAddress { device: self.device.number(raw)? as u32, sector: self.sector.number(raw)? };
        Some((place, self.sectors.number(raw)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_records_are_read_by_their_layout() {
        let field = |offset, size| Field { offset, size };
        let points = CallPoints {
            enter: 1,
            exit: 2,
            enter_call: field(8, 8),
            args: field(16, 48),
            exit_call: field(8, 8),
            result: field(16, 8),
        };
        let mut raw = vec![0; 64];
        raw[8] = 17;
        raw[16..24].copy_from_slice(&3u64.to_le_bytes());
        raw[56..64].copy_from_slice(&9u64.to_le_bytes());
        assert_eq!(points.entered(&raw), Some(Enter { call: 17, args: [3, 0, 0, 0, 0, 9] }));
        assert_eq!(points.entered(&raw[..63]), None, "cut");
        raw[16..24].copy_from_slice(&(-11i64).to_le_bytes());
        assert_eq!(points.left(&raw), Some(Exit { call: 17, result: -11 }));
        assert_eq!(points.left(&raw[..23]), None, "cut");
    }

    #[test]
    fn request_records_are_read_by_their_layout() {
        let field = |offset, size| Field { offset, size };
        let place = || Where { device: field(8, 4), sector: field(16, 8), sectors: field(24, 4) };
        let points = BlockPoints {
            start: 1,
            done: 2,
            started: place(),
            finished: place(),
            flags: field(34, 10),
            error: field(28, 4),
        };
        let mut raw = vec![0; 44];
        raw[8..12].copy_from_slice(&(254u32 << 20 | 1).to_le_bytes());
        raw[16..24].copy_from_slice(&77u64.to_le_bytes());
        raw[24] = 8;
        raw[28..32].copy_from_slice(&(-5i32).to_le_bytes());
        raw[34..37].copy_from_slice(b"WS\0");
        let place = BlockAddress { device: 254 << 20 | 1, sector: 77 };
        assert_eq!(points.started(&raw), Some((place, 8, &b"WS"[..])));
        assert_eq!(points.done(&raw), Some((place, 8, 5)));
        assert_eq!(points.started(&raw[..43]), None, "cut");
        assert_eq!(points.done(&raw[..31]), None, "cut");
    }
}
