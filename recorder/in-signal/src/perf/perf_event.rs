//! Opens perf events that send a trap (`sigtrap`) to the thread that they count. Their mapped pages keep them
//! alive.

use crate::os::sys;
use crate::perf::perf_ring;

/// `PERF_TYPE_SOFTWARE`.
pub const SOFTWARE: u32 = 1;
/// `PERF_TYPE_BREAKPOINT`.
pub const BREAKPOINT: u32 = 5;

/// `perf_event_attr`, version 7 (128 bytes, linux/perf_event.h).
#[repr(C)]
#[derive(Default)]
struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
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

const _: () = assert!(size_of::<PerfEventAttr>() == 128);

/// The event that is counted, and its period.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Event {
    /// Type, as the kernel numbers it.
    pub kind: u32,
    /// The event within its type.
    pub config: u64,
    /// More of the event's configuration; for a breakpoint its address.
    pub config1: u64,
    /// More of the event's configuration; for a breakpoint its length.
    pub config2: u64,
    /// For breakpoints: the kind of access.
    pub bp_type: u32,
    /// Events from one overflow to the next.
    pub period: u64,
    /// Events in the kernel do not count.
    pub user_only: bool,
}

/// How an event fires.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Firing {
    /// Disabled after its first overflow.
    Once,
    /// At each period.
    Repeatedly,
}

/// The data that an overflow writes to the event's ring.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// There is no ring.
    Nothing,
    /// Time and the kernel's part of the stack.
    KernelStack,
    /// Time, the kernel's part of the stack and the counter.
    Counter,
}

/// Opens an event on `tid` (0: the caller), maps it, closes its descriptor. Returns the handle (see [`perf_ring`]).
pub(crate) fn open(
    event: &Event,
    tid: u32,
    firing: Firing,
    recorded: Recorded,
    sig_data: u64,
) -> Result<u64, i32> {
    const DISABLED: u64 = 1;
    const EXCLUDE_KERNEL: u64 = 1 << 5;
    const EXCLUDE_HV: u64 = 1 << 6;
    const WATERMARK: u64 = 1 << 14;
    const EXCLUDE_CALLCHAIN_USER: u64 = 1 << 22;
    const USE_CLOCKID: u64 = 1 << 25;
    const REMOVE_ON_EXEC: u64 = 1 << 36;
    const SIGTRAP: u64 = 1 << 37;
    const SAMPLE_TIME: u64 = 1 << 2;
    const SAMPLE_READ: u64 = 1 << 4;
    const SAMPLE_CALLCHAIN: u64 = 1 << 5;
    const ENABLED_AND_RUNNING: u64 = 1 | 2;
    const CLOCK_MONOTONIC: i32 = 1;
    const FD_CLOEXEC: usize = 8;
    const EPERM: i32 = 1;
    const ENOMEM: i32 = 12;
    let ring = recorded != Recorded::Nothing;
    let reads = recorded == Recorded::Counter;
    let mut attr = PerfEventAttr {
        kind: event.kind,
        size: size_of::<PerfEventAttr>() as u32,
        config: event.config,
        config1: event.config1,
        config2: event.config2,
        bp_type: event.bp_type,
        sample_period: event.period,
        flags: REMOVE_ON_EXEC
            | SIGTRAP
            | if event.user_only { EXCLUDE_KERNEL | EXCLUDE_HV } else { 0 }
            | if firing == Firing::Once { DISABLED } else { 0 },
        sig_data,
        ..PerfEventAttr::default()
    };
    if ring {
        attr.flags |= WATERMARK | EXCLUDE_CALLCHAIN_USER | USE_CLOCKID;
        attr.clockid = CLOCK_MONOTONIC;
        // No thread polls the ring: the trap announces its records.
        attr.wakeup_events = u32::MAX >> 1;
        attr.sample_type = SAMPLE_TIME | SAMPLE_CALLCHAIN | if reads { SAMPLE_READ } else { 0 };
        attr.read_format = if reads { ENABLED_AND_RUNNING } else { 0 };
        attr.sample_max_stack = perf_ring::KERNEL_FRAMES as u16;
    }
    let any_cpu = usize::MAX;
    let no_group = usize::MAX;
    let args = [(&raw const attr) as usize, tid as usize, any_cpu, no_group, FD_CLOEXEC, 0];
    // SAFETY: the kernel reads `attr.size` bytes of a local.
    let opened = sys::check(unsafe { sys::call(sys::nr::PERF_EVENT_OPEN, args) });
    let fd = match opened {
        Ok(fd) => fd as i32,
        // The stack limit exceeds kernel.perf_event_max_stack, or the kernel provides no stacks: open the
        // event alone.
        Err(_) if ring => return open(event, tid, firing, Recorded::Nothing, sig_data),
        Err(errno) => return Err(errno),
    };
    // The kernel reports exhausted locked memory as a lack of permission; the next thread may find some
    // again.
    let mut handle = perf_ring::map(fd, ring).map_err(|errno| if errno == EPERM { ENOMEM } else { errno });
    if let (Ok(mapped), Firing::Once) = (handle, firing)
        && let Err(errno) = sys::enable_event_once(fd)
    {
        // SAFETY: mapped above and not shared with any other code.
        unsafe { perf_ring::unmap(mapped) };
        handle = Err(errno);
    }
    sys::close(fd);
    handle
}
