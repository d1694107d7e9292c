//! The attributes of perf events that sample threads from outside.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use flightline_in_signal::layout::{EventSpec, event_flags};

/// Bytes of stack copied with a sample of a perf event, as with `perf record --call-graph dwarf`, because
/// these may occur at any rate.
const EVENT_STACK_BYTES: u32 = 8 << 10;

/// Registers of a sample, by the kernel's numbers, in the order in which a sample holds them, as DWARF numbers.
#[cfg(target_arch = "x86_64")]
pub mod registers {
    /// ax bx cx dx si di bp sp ip, r8 to r15.
    pub const MASK: u64 = 0x1ff | 0xff << 16;
    /// DWARF numbers in the order of the mask's bits; the program counter is [`PC`].
    pub const ORDER: [u8; 17] = [0, 3, 2, 1, 4, 5, 6, 7, PC, 8, 9, 10, 11, 12, 13, 14, 15];
    /// The program counter (the column of the return address).
    pub const PC: u8 = 16;
}

/// Registers of a sample, by the kernel's numbers, in the order in which a sample holds them, as DWARF numbers.
#[cfg(target_arch = "aarch64")]
pub mod registers {
    /// x0 to x30, sp, pc.
    pub const MASK: u64 = (1 << 33) - 1;
    /// DWARF numbers in the order of the mask's bits; the program counter is [`PC`].
    pub const ORDER: [u8; 33] = {
        let mut order = [0; 33];
        let mut i = 0;
        while i < 33 {
            order[i] = i as u8;
            i += 1;
        }
        order
    };
    /// The program counter.
    pub const PC: u8 = 32;
}

/// Bits that select the fields of a sample; see [`crate::perf_events::record`], which parses it.
pub mod sample {
    /// Process and thread.
    pub const TID: u64 = 1 << 1;
    /// Time.
    pub const TIME: u64 = 1 << 2;
    /// The event's count.
    pub const READ: u64 = 1 << 4;
    /// Call chain: the kernel stack, and the user stack by frame pointers.
    pub const CALLCHAIN: u64 = 1 << 5;
    /// Registers of the program.
    pub const REGS_USER: u64 = 1 << 12;
    /// A copy of the user stack.
    pub const STACK_USER: u64 = 1 << 13;
    /// The tracepoint's own record.
    pub const RAW: u64 = 1 << 10;
    /// The event's number. It comes first in samples and last in other records.
    pub const IDENTIFIER: u64 = 1 << 16;
}

mod flag {
    pub const DISABLED: u64 = 1;
    pub const INHERIT: u64 = 1 << 1;
    pub const EXCLUDE_KERNEL: u64 = 1 << 5;
    pub const EXCLUDE_HV: u64 = 1 << 6;
    pub const MMAP: u64 = 1 << 8;
    pub const COMM: u64 = 1 << 9;
    pub const INHERIT_STAT: u64 = 1 << 11;
    pub const ENABLE_ON_EXEC: u64 = 1 << 12;
    pub const TASK: u64 = 1 << 13;
    pub const WATERMARK: u64 = 1 << 14;
    pub const SAMPLE_ID_ALL: u64 = 1 << 18;
    pub const EXCLUDE_CALLCHAIN_KERNEL: u64 = 1 << 21;
    pub const MMAP2: u64 = 1 << 23;
    pub const COMM_EXEC: u64 = 1 << 24;
    pub const USE_CLOCKID: u64 = 1 << 25;
    pub const CONTEXT_SWITCH: u64 = 1 << 26;
    pub const INHERIT_THREAD: u64 = 1 << 35;
}

/// The sampling mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// CPU time is sampled. Otherwise the events report only the threads, names and mappings.
    pub clock: bool,
    /// Records carry the number of their event, because events of several kinds share a ring.
    pub numbered: bool,
    /// Sampling interval in CPU time of a thread on one processor, ns.
    pub period_ns: u64,
    /// Include time in the kernel, and kernel stacks.
    pub kernel: bool,
    /// Samples contain the event's count, so that all of its time has weight (Linux 6.12 and later).
    pub counts: bool,
    /// Inherited by child processes too, not only by threads.
    pub children: bool,
    /// Enabled when the thread executes a program.
    pub from_exec: bool,
    /// Bytes of stack copied with each sample.
    pub stack_bytes: u32,
    /// Bytes in a ring at which the reader is woken.
    pub wake_bytes: u32,
}

/// `perf_event_attr`, version 7 (linux/perf_event.h).
#[repr(C)]
#[derive(Default)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_watermark: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved_2: u16,
    aux_sample_size: u32,
    reserved_3: u32,
    sig_data: u64,
}

const _: () = assert!(size_of::<Attr>() == 128);

impl Sampling {
    /// Returns the bits of [`sample`] that samples of these events have.
    pub fn sample_type(&self) -> u64 {
        sample::TID
            | sample::TIME
            | sample::REGS_USER
            | sample::STACK_USER
            | sample::CALLCHAIN
            | if self.counts { sample::READ } else { 0 }
            | if self.numbered { sample::IDENTIFIER } else { 0 }
    }

    /// Returns the flags of all events of a thread: inheritance, and when the event starts.
    fn scope_flags(&self) -> u64 {
        flag::DISABLED
            | flag::INHERIT
            | flag::WATERMARK
            | flag::SAMPLE_ID_ALL
            | flag::USE_CLOCKID
            | if self.children { 0 } else { flag::INHERIT_THREAD }
            | if self.from_exec { flag::ENABLE_ON_EXEC } else { 0 }
    }

    /// Opens the perf event `spec` of thread `tid` (0: the caller) on processor `cpu`, disabled. A uprobe
    /// must be a tracepoint ([`UprobeDefinition`](crate::perf_events::uprobe_definition::UprobeDefinition)),
    /// because the event is inherited. Its samples have the same fields as those of CPU time
    /// ([`Sampling::sample_type`]), and share their ring ([`share_ring`]).
    pub fn open_event(&self, spec: &EventSpec, tid: u32, cpu: u32) -> io::Result<OwnedFd> {
        let mut flags = self.scope_flags();
        if spec.flags & event_flags::USER_ONLY != 0 {
            flags |= flag::EXCLUDE_KERNEL | flag::EXCLUDE_HV;
        }
        if !self.kernel {
            flags |= flag::EXCLUDE_CALLCHAIN_KERNEL;
        }
        let attr = Attr {
            kind: spec.kind,
            size: size_of::<Attr>() as u32,
            config: spec.config,
            config1: spec.config1,
            config2: spec.config2,
            sample_period: spec.period.max(1),
            sample_type: self.sample_type(),
            flags,
            wakeup_watermark: self.wake_bytes,
            sample_regs_user: registers::MASK,
            sample_stack_user: self.stack_bytes.min(EVENT_STACK_BYTES),
            clockid: libc::CLOCK_MONOTONIC,
            ..Attr::default()
        };
        attr.open(tid as libc::pid_t, cpu as libc::c_int)
    }

    /// Opens the event of thread `tid` (0: the caller) on processor `cpu`, disabled.
    pub fn open(&self, tid: u32, cpu: u32) -> io::Result<OwnedFd> {
        const TYPE_SOFTWARE: u32 = 1;
        const CPU_CLOCK: u64 = 0;
        const DUMMY: u64 = 9;
        let mut flags =
            self.scope_flags() | flag::MMAP | flag::MMAP2 | flag::COMM | flag::COMM_EXEC | flag::TASK;
        if self.clock {
            flags |= flag::INHERIT_STAT;
        }
        if !self.kernel {
            flags |= flag::EXCLUDE_KERNEL | flag::EXCLUDE_HV | flag::EXCLUDE_CALLCHAIN_KERNEL;
        }
        let attr = Attr {
            kind: TYPE_SOFTWARE,
            size: size_of::<Attr>() as u32,
            config: if self.clock { CPU_CLOCK } else { DUMMY },
            sample_period: if self.clock { self.period_ns } else { 0 },
            sample_type: self.sample_type(),
            flags,
            wakeup_watermark: self.wake_bytes,
            sample_regs_user: registers::MASK,
            sample_stack_user: self.stack_bytes,
            clockid: libc::CLOCK_MONOTONIC,
            ..Attr::default()
        };
        attr.open(tid as libc::pid_t, cpu as libc::c_int)
    }
}

impl Attr {
    /// `pid` 0: the caller, -1: all; `cpu` -1: all.
    fn open(&self, pid: libc::pid_t, cpu: libc::c_int) -> io::Result<OwnedFd> {
        const FD_CLOEXEC: libc::c_ulong = 8;
        // SAFETY: the kernel reads `size` bytes of a structure that long and returns a new descriptor or -1.
        let fd =
            unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const *self, pid, cpu, -1, FD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor without another owner.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
    }
}

/// A tracepoint sampled on one processor, each time that it is hit.
#[derive(Clone, Copy, Debug)]
pub struct Tracing {
    /// Its ID.
    pub id: u64,
    /// Bits of [`sample`].
    pub sample_type: u64,
    /// Call chains include the kernel's part.
    pub kernel: bool,
    /// Bytes of stack copied with each sample, if the sample type includes stacks.
    pub stack_bytes: u32,
    /// Bytes in a ring at which the reader is woken.
    pub wake_bytes: u32,
}

const TYPE_TRACEPOINT: u32 = 2;

impl Tracing {
    /// Opens it as a counter on processor `cpu` for all threads there, disabled. Needs CAP_PERFMON.
    pub fn count(&self, cpu: u32) -> io::Result<OwnedFd> {
        let attr = Attr {
            kind: TYPE_TRACEPOINT,
            size: size_of::<Attr>() as u32,
            config: self.id,
            flags: flag::DISABLED,
            ..Attr::default()
        };
        attr.open(-1, cpu as libc::c_int)
    }

    /// Opens it on processor `cpu` for all threads there, disabled. Needs CAP_PERFMON.
    pub fn open(&self, cpu: u32) -> io::Result<OwnedFd> {
        let regs = if self.sample_type & sample::REGS_USER != 0 { registers::MASK } else { 0 };
        let stack = if self.sample_type & sample::STACK_USER != 0 { self.stack_bytes } else { 0 };
        let attr = Attr {
            kind: TYPE_TRACEPOINT,
            size: size_of::<Attr>() as u32,
            config: self.id,
            sample_period: 1,
            sample_type: self.sample_type,
            flags: flag::DISABLED
                | flag::WATERMARK
                | flag::SAMPLE_ID_ALL
                | flag::USE_CLOCKID
                | if self.kernel { 0 } else { flag::EXCLUDE_CALLCHAIN_KERNEL },
            wakeup_watermark: self.wake_bytes,
            sample_regs_user: regs,
            sample_stack_user: stack,
            clockid: libc::CLOCK_MONOTONIC,
            ..Attr::default()
        };
        attr.open(-1, cpu as libc::c_int)
    }
}

/// An event without samples, which reports other records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Telling {
    /// Start and end of threads, mappings and names.
    pub tasks: bool,
    /// Switches of threads.
    pub switches: bool,
    /// Bytes in a ring at which the reader is woken.
    pub wake_bytes: u32,
}

impl Telling {
    /// Bits of [`sample`] that identify the thread of its records.
    pub const SAMPLE_TYPE: u64 = sample::IDENTIFIER | sample::TID | sample::TIME;

    fn open_on(&self, more: u64, tid: libc::pid_t, cpu: u32) -> io::Result<OwnedFd> {
        const TYPE_SOFTWARE: u32 = 1;
        const DUMMY: u64 = 9;
        let tasks = flag::MMAP | flag::MMAP2 | flag::COMM | flag::COMM_EXEC | flag::TASK;
        let attr = Attr {
            kind: TYPE_SOFTWARE,
            size: size_of::<Attr>() as u32,
            config: DUMMY,
            sample_type: Telling::SAMPLE_TYPE,
            flags: flag::DISABLED
                | flag::WATERMARK
                | flag::SAMPLE_ID_ALL
                | flag::USE_CLOCKID
                | if self.tasks { tasks } else { 0 }
                | if self.switches { flag::CONTEXT_SWITCH } else { 0 }
                | more,
            wakeup_watermark: self.wake_bytes,
            clockid: libc::CLOCK_MONOTONIC,
            ..Attr::default()
        };
        attr.open(tid, cpu as libc::c_int)
    }

    /// Opens it for all threads on processor `cpu`, disabled. Needs CAP_PERFMON.
    pub fn open(&self, cpu: u32) -> io::Result<OwnedFd> {
        self.open_on(0, -1, cpu)
    }

    /// Opens it for thread `tid` (0: the caller) on processor `cpu`, disabled; with `children`, child
    /// processes inherit it, otherwise only threads. With `from_exec`, it is enabled when the thread executes
    /// a program. Every user may open it for their own threads.
    pub fn open_for_thread(
        &self,
        tid: u32,
        cpu: u32,
        children: bool,
        from_exec: bool,
    ) -> io::Result<OwnedFd> {
        let mut more = flag::INHERIT | flag::EXCLUDE_KERNEL | flag::EXCLUDE_HV;
        if !children {
            more |= flag::INHERIT_THREAD;
        }
        if from_exec {
            more |= flag::ENABLE_ON_EXEC;
        }
        self.open_on(more, tid as libc::pid_t, cpu)
    }
}

/// Opens an event that sends a trap to the calling thread after each `period_ns` of its CPU time, like those
/// in programs. It counts until it is closed.
pub fn open_trap(period_ns: u64) -> Option<OwnedFd> {
    const SOFTWARE: u32 = 1;
    const REMOVE_ON_EXEC: u64 = 1 << 36;
    const SIGTRAP: u64 = 1 << 37;
    let open = |more: u64| {
        let attr = Attr {
            kind: SOFTWARE,
            size: size_of::<Attr>() as u32,
            sample_period: period_ns,
            flags: REMOVE_ON_EXEC | SIGTRAP | more,
            ..Attr::default()
        };
        attr.open(0, -1).ok()
    };
    open(0).or_else(|| open(flag::EXCLUDE_KERNEL | flag::EXCLUDE_HV))
}

fn control(event: BorrowedFd<'_>, request: libc::c_ulong, argument: libc::c_ulong) -> io::Result<()> {
    // SAFETY: requests of perf events that take an integer, or a pointer to data that the caller holds for
    // that long.
    match unsafe { libc::ioctl(event.as_raw_fd(), request as _, argument) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Enables an event and all events inherited from it.
pub fn enable(event: BorrowedFd<'_>) -> io::Result<()> {
    control(event, 0x2400, 0)
}

/// Disables an event and all events inherited from it.
pub fn disable(event: BorrowedFd<'_>) -> io::Result<()> {
    control(event, 0x2401, 0)
}

/// Resets the count of an event to 0.
pub fn reset(event: BorrowedFd<'_>) -> io::Result<()> {
    control(event, 0x2403, 0)
}

/// Returns the count of an event.
pub fn read_count(event: BorrowedFd<'_>) -> io::Result<u64> {
    let mut count = [0; 8];
    let got = nix::unistd::read(event, &mut count)?;
    if got == count.len() { Ok(u64::from_ne_bytes(count)) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Makes an event write to the ring of another event of the same processor.
pub fn share_ring(event: BorrowedFd<'_>, ring: BorrowedFd<'_>) -> io::Result<()> {
    control(event, 0x2405, ring.as_raw_fd() as libc::c_ulong)
}

/// Filters the samples of a tracepoint with an expression in tracefs syntax: `prev_pid==7||next_pid==7`. Can
/// be set once.
pub fn set_filter(event: BorrowedFd<'_>, filter: &CStr) -> io::Result<()> {
    control(event, 0x4008_2406, filter.as_ptr() as libc::c_ulong)
}

/// Returns the number that identifies the records of an event.
pub fn number(event: BorrowedFd<'_>) -> io::Result<u64> {
    let mut number = 0u64;
    control(event, 0x8008_2407, (&raw mut number) as libc::c_ulong)?;
    Ok(number)
}
