//! Perf events by name: the meaning of a name for the kernel, whether it is permitted here, and the remedy if
//! not.
//!
//! | name | event |
//! |---|---|
//! | `cycles`, `cache-misses`, `L1-dcache-load-misses`, … | hardware and cache events |
//! | `page-faults`, `context-switches`, … | software events of the kernel |
//! | `r1a8` | raw event of the processor, hexadecimal |
//! | `pmu/event=0x3c,umask=1/` | event of a unit in `/sys/bus/event_source/devices` |
//! | `sched:sched_switch` | tracepoint |
//! | `uprobe:libc.so.6:malloc`, `uretprobe:…` | function of a program or library entered, left; of other processes by [`uprobe_definition`] |
//!
//! attr.rs opens events, ring.rs maps the memory that they write into, record.rs reads it, machine.rs lists processors and threads.

use std::os::unix::fs::MetadataExt;

use flightline_in_signal::engine::events::probe;
use flightline_in_signal::engine::trace;
use flightline_in_signal::layout::{EVENT_PATH_BYTES, EventSpec, TraceSpec, event_flags};
use nix::errno::Errno;

use crate::{
    error::Error,
    settings::{PerfEvent, Settings, Trace},
};

pub(crate) mod attr;
pub mod function;
pub(crate) mod machine;
pub mod names;
mod pmu;
pub(crate) mod record;
pub(crate) mod ring;
pub mod tracepoint;
pub mod uprobe_definition;

/// The meaning of an event name.
#[derive(Clone)]
pub struct Meaning {
    /// The attributes for the kernel, without the period.
    pub spec: EventSpec,
    /// Default number of events per sample.
    pub period: u64,
    /// The event occurs only in the kernel, so it is invisible without permission to record the kernel.
    pub in_kernel: bool,
}

impl Meaning {
    fn new(kind: u32, config: u64, period: u64) -> Meaning {
        let spec =
            EventSpec { kind, flags: 0, config, config1: 0, config2: 0, period, path: [0; EVENT_PATH_BYTES] };
        Meaning { spec, period, in_kernel: false }
    }

    fn in_kernel(self) -> Meaning {
        Meaning { in_kernel: true, ..self }
    }
}

/// Returns the meaning of `name` on this kernel.
///
/// # Errors
/// The problem with the name, and the remedy.
pub fn meaning(name: &str) -> Result<Meaning, String> {
    if let Some(found) = names::find(name) {
        return Ok(found);
    }
    for (prefix, returns) in [("uprobe:", false), ("uretprobe:", true)] {
        if let Some(rest) = name.strip_prefix(prefix) {
            return uprobe(rest, returns);
        }
    }
    if name.contains('/') {
        return pmu::find(name);
    }
    if let Some(raw) = name.strip_prefix('r').and_then(|hex| u64::from_str_radix(hex, 16).ok()) {
        return Ok(Meaning::new(names::RAW, raw, names::HARDWARE_PERIOD));
    }
    match name.split_once(':') {
        Some((group, event)) => tracepoint::find(group, event),
        None => Err(names::unknown(name)),
    }
}

fn uprobe(rest: &str, returns: bool) -> Result<Meaning, String> {
    let Some((file, symbol)) = rest.rsplit_once(':') else {
        return Err("give a file and a function, such as uprobe:libc.so.6:malloc".into());
    };
    let function = function::find(file, symbol)?;
    let kind = pmu::kind("uprobe").ok_or("this kernel does not support uprobes (CONFIG_UPROBE_EVENTS)")?;
    let bit = if returns { pmu::field("uprobe", "retprobe", 1).unwrap_or(1) } else { 0 };
    let mut meaning = Meaning::new(kind, bit, 1);
    let path = function.path.as_os_str().as_encoded_bytes();
    let to = meaning.spec.path.get_mut(..path.len()).filter(|to| to.len() < EVENT_PATH_BYTES);
    to.ok_or_else(|| format!("{}: the path is too long for a uprobe", function.path.display()))?
        .copy_from_slice(path);
    meaning.spec.flags = event_flags::PATH | event_flags::USER_ONLY;
    meaning.spec.config2 = function.offset;
    Ok(meaning)
}

/// Returns the specifications of these events, after opening them in the calling thread as a test.
///
/// # Errors
/// The first event that cannot be recorded here, and the reason.
pub fn specs(events: &[PerfEvent]) -> Result<Vec<EventSpec>, Error> {
    let spec = |event: &PerfEvent| {
        let wrong = |problem| Error::Setting { name: "event", problem: format!("{}: {problem}", event.name) };
        let meaning = meaning(&event.name).map_err(wrong)?;
        let mut spec = allowed(&meaning).map_err(wrong)?;
        spec.period = event.period.unwrap_or(meaning.period).clamp(1, 1 << 40);
        Ok(spec)
    };
    events.iter().map(spec).collect()
}

/// Returns the functions whose slow calls are recorded. A function without a file is looked up in the
/// program.
///
/// # Errors
/// The first function that cannot be recorded here, and the reason.
pub fn traces(settings: &Settings) -> Result<Vec<TraceSpec>, Error> {
    let spec = |function_trace: &Trace| {
        let wrong = |problem| Error::Setting {
            name: "trace",
            problem: format!("{}: {problem}", function_trace.function),
        };
        // The colons of `ns::function` are not separators.
        let at = function_trace.function.match_indices(':').map(|(at, _)| at).find(|&at| {
            let other = |i: usize| function_trace.function.as_bytes().get(i) == Some(&b':');
            !other(at + 1) && !at.checked_sub(1).is_some_and(other)
        });
        let function = match (at, &settings.processes.program) {
            (Some(at), _) => {
                function::find(&function_trace.function[..at], &function_trace.function[at + 1..])
            }
            (None, Some(program)) => function::find(&program.to_string_lossy(), &function_trace.function),
            (None, None) => Err("give the file, too, such as libfoo.so:function:10ms".into()),
        };
        let function = function.map_err(wrong)?;
        trace::probe().map_err(|errno| wrong(explain_no_breakpoints(Errno::from_raw(errno))))?;
        let meta = std::fs::metadata(&function.path).map_err(|e| wrong(crate::error::plain(&e)))?;
        Ok(TraceSpec {
            device: meta.dev(),
            inode: meta.ino(),
            address: function.address,
            threshold_ns: u64::try_from(function_trace.threshold.as_nanos()).unwrap_or(u64::MAX),
        })
    };
    settings.calls.trace.iter().map(spec).collect()
}

/// Returns the reason why functions cannot be traced here; `None` if they can.
pub fn trace_refused() -> Option<String> {
    trace::probe().err().map(|errno| explain_no_breakpoints(Errno::from_raw(errno)))
}

fn explain_no_breakpoints(refused: Errno) -> String {
    let reason = refused.desc();
    match refused {
        Errno::EACCES | Errno::EPERM => format!(
            "{reason}: hardware breakpoints need kernel.perf_event_paranoid 2 or less (it is {}), and no \
             seccomp filter (containers)",
            paranoid()
        ),
        Errno::ENOSPC => format!("{reason}: a debugger or another profiler uses the hardware breakpoints"),
        Errno::EINVAL => format!("{reason}: the kernel is older than 5.13"),
        _ => format!("{reason}: this machine has no hardware breakpoints"),
    }
}

/// Returns the message about a process in which a function is not traced.
pub fn untraced(function: &str, pid: u32, errno: i32) -> String {
    let why = match Errno::from_raw(errno) {
        Errno::ENOENT => "its file was not loaded when recording started".to_owned(),
        Errno::EAGAIN => "it has too many threads; only the first 1024 are traced".into(),
        other => explain_no_breakpoints(other),
    };
    format!("{function} is not traced in process {pid}: {why}")
}

/// Returns the specification with the features that the kernel permits to the calling thread.
///
/// # Errors
/// The reason for the refusal, and the remedy.
pub fn allowed(meaning: &Meaning) -> Result<EventSpec, String> {
    let mut spec = meaning.spec;
    let Err(errno) = probe(&spec) else { return Ok(spec) };
    let refused = Errno::from_raw(errno);
    if matches!(refused, Errno::EACCES | Errno::EPERM) && !meaning.in_kernel {
        spec.flags |= event_flags::USER_ONLY;
        if probe(&spec).is_ok() {
            return Ok(spec);
        }
    }
    Err(explain(meaning, refused))
}

/// Returns `kernel.perf_event_paranoid`.
pub fn paranoid() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    text.trim().to_owned()
}

fn explain(meaning: &Meaning, refused: Errno) -> String {
    let reason = refused.desc();
    let kind = meaning.spec.kind;
    match refused {
        Errno::EACCES | Errno::EPERM if kind == names::TRACEPOINT => format!(
            "{reason}: tracepoints need CAP_PERFMON, or kernel.perf_event_paranoid -1 (it is {})",
            paranoid()
        ),
        Errno::EACCES | Errno::EPERM if meaning.spec.flags & event_flags::PATH != 0 => {
            format!("{reason}: uprobes need CAP_SYS_ADMIN, or CAP_PERFMON on older kernels")
        }
        Errno::EACCES | Errno::EPERM => format!(
            "{reason}: kernel.perf_event_paranoid is {}; needs {} or CAP_PERFMON, and no seccomp filter (containers)",
            paranoid(),
            if meaning.in_kernel { "1 or less" } else { "2 or less" }
        ),
        Errno::ENOENT | Errno::EOPNOTSUPP | Errno::ENODEV
            if kind == names::HARDWARE || kind == names::CACHE =>
        {
            format!(
                "{reason}: the CPU does not support this event, or the virtual machine does not expose its counters"
            )
        }
        Errno::ENOENT | Errno::EOPNOTSUPP | Errno::ENODEV if kind == names::RAW => {
            format!("{reason}: no performance monitoring unit on this machine (virtual machine?)")
        }
        Errno::EINVAL => format!("{reason}: the kernel is older than 5.13, or cannot sample this event"),
        Errno::ENOSYS => format!("{reason}: this kernel lacks it, or a seccomp filter (container) blocks it"),
        _ => reason.to_owned(),
    }
}

/// Returns the message about a process in which an event could not be opened.
pub fn refused(name: &str, pid: u32, errno: i32) -> String {
    let why = match Errno::from_raw(errno) {
        Errno::EMFILE | Errno::ENFILE => "its limit of open files is reached (ulimit -n)".to_owned(),
        Errno::ENOMEM => {
            "its limit of locked memory is reached (ulimit -l, kernel.perf_event_mlock_kb)".into()
        }
        Errno::EPERM | Errno::ENOSYS => {
            "it runs under a system-call filter, or the kernel is older than 5.19".into()
        }
        other => other.desc().to_owned(),
    };
    format!("{name} is not recorded in (all threads of) process {pid}: {why}")
}

/// An event of [`list`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Availability {
    /// Name as in `-e`.
    pub name: String,
    /// A description.
    pub about: &'static str,
    /// The reason why it cannot be recorded here, if so.
    pub refused: Option<String>,
    /// Only events in user space are counted.
    pub user_only: bool,
}

/// Tests events of every kind in the calling thread.
pub fn list() -> Vec<Availability> {
    let one = |name: &str, about: &'static str| {
        let allowed = meaning(name).and_then(|meaning| Ok((meaning.clone(), allowed(&meaning)?)));
        let user_only = allowed
            .as_ref()
            .is_ok_and(|(meaning, spec)| (spec.flags & !meaning.spec.flags) & event_flags::USER_ONLY != 0);
        Availability { name: name.to_owned(), about, refused: allowed.err(), user_only }
    };
    let named = names::ALL.iter().map(|(name, about)| one(name, about));
    let examples = [
        ("r3c", "a raw event of the processor, in hexadecimal"),
        ("sched:sched_switch", "a tracepoint; their names: `perf list tracepoint`"),
        ("uprobe:libc.so.6:malloc", "a function of a program or library is entered (uretprobe: left)"),
    ];
    named.chain(examples.iter().map(|(name, about)| one(name, about))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(name: &str) -> String {
        meaning(name).err().unwrap_or_else(|| panic!("{name} was accepted"))
    }

    #[test]
    fn event_names_are_resolved_for_every_kind() {
        let config = |name| {
            let spec = meaning(name).unwrap_or_else(|e| panic!("{name}: {e}")).spec;
            (spec.kind, spec.config)
        };
        assert_eq!(config("page-faults"), (1, 2));
        assert_eq!(config("faults"), (1, 2));
        assert_eq!(config("cycles"), (0, 0));
        assert_eq!(config("cache-misses"), (0, 3));
        assert_eq!(config("L1-dcache-load-misses"), (3, 0x10000));
        assert_eq!(config("LLC-stores"), (3, 0x102));
        assert_eq!(config("r1a8"), (4, 0x1a8));
        assert!(refusal("page-fault").contains("page-faults"), "{}", refusal("page-fault"));
        assert!(refusal("nosuchpmu/x=1/").contains("nosuchpmu"));
        assert!(refusal("uprobe:malloc").contains("uprobe:libc.so.6:malloc"));
        assert!(refusal("uprobe:libc.so.6:no_such_function_here").contains("no_such_function_here"));
    }

    #[test]
    fn uprobe_event_has_file_and_offset() {
        // The C library object of this process.
        let meaning = match meaning("uprobe:libc.so.6:malloc") {
            Ok(meaning) => meaning,
            Err(why) => {
                assert!(why.contains("does not support uprobes") || why.contains("libc.so.6"), "{why}");
                return;
            }
        };
        let path = meaning.spec.path.split(|b| *b == 0).next().unwrap();
        assert!(std::path::Path::new(std::str::from_utf8(path).unwrap()).is_file());
        assert!(meaning.spec.config2 > 0);
    }

    #[test]
    fn every_listed_event_is_usable_or_has_a_reason() {
        for event in list() {
            if let Some(why) = &event.refused {
                assert!(why.len() > 10, "{}: {why:?}", event.name);
            }
        }
        assert!(list().iter().any(|e| e.name == "page-faults"));
    }
}
