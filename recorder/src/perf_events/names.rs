//! Events with a name in the kernel's header (linux/perf_event.h), spelled like perf's.

use super::Meaning;

/// `PERF_TYPE_HARDWARE`.
pub const HARDWARE: u32 = 0;
/// `PERF_TYPE_SOFTWARE`.
pub const SOFTWARE: u32 = 1;
/// `PERF_TYPE_TRACEPOINT`.
pub const TRACEPOINT: u32 = 2;
/// `PERF_TYPE_HW_CACHE`.
pub const CACHE: u32 = 3;
/// `PERF_TYPE_RAW`.
pub const RAW: u32 = 4;

/// About a thousand samples per second on a busy processor.
pub const HARDWARE_PERIOD: u64 = 1_000_000;
/// Misses are rarer than accesses.
const MISS_PERIOD: u64 = 10_000;
/// CPU time as an event, ns.
const CLOCK_PERIOD: u64 = 10_000_000;

/// Names, event number, default period.
const NUMBERED_HARDWARE: &[(&[&str], u64, u64)] = &[
    (&["cycles", "cpu-cycles"], 0, HARDWARE_PERIOD),
    (&["instructions"], 1, HARDWARE_PERIOD),
    (&["cache-references"], 2, HARDWARE_PERIOD),
    (&["cache-misses"], 3, MISS_PERIOD),
    (&["branches", "branch-instructions"], 4, HARDWARE_PERIOD),
    (&["branch-misses"], 5, MISS_PERIOD),
    (&["bus-cycles"], 6, HARDWARE_PERIOD),
    (&["stalled-cycles-frontend", "idle-cycles-frontend"], 7, HARDWARE_PERIOD),
    (&["stalled-cycles-backend", "idle-cycles-backend"], 8, HARDWARE_PERIOD),
    (&["ref-cycles"], 9, HARDWARE_PERIOD),
];

/// Names, event number, default period, whether the event occurs only in the kernel.
const NUMBERED_SOFTWARE: &[(&[&str], u64, u64, bool)] = &[
    (&["cpu-clock"], 0, CLOCK_PERIOD, false),
    (&["task-clock"], 1, CLOCK_PERIOD, false),
    (&["page-faults", "faults"], 2, 1, false),
    (&["context-switches", "cs"], 3, 1, true),
    (&["cpu-migrations", "migrations"], 4, 1, true),
    (&["minor-faults"], 5, 1, false),
    (&["major-faults"], 6, 1, false),
    (&["alignment-faults"], 7, 1, false),
    (&["emulation-faults"], 8, 1, false),
    (&["cgroup-switches"], 11, 1, true),
];

const CACHES: [&str; 7] = ["L1-dcache", "L1-icache", "LLC", "dTLB", "iTLB", "branch", "node"];
const ACCESSES: [(&str, &str); 3] =
    [("loads", "load-misses"), ("stores", "store-misses"), ("prefetches", "prefetch-misses")];

/// The events in the output of `flightline list`.
pub const ALL: &[(&str, &str)] = &[
    ("page-faults", "page faults, in the program or in system calls"),
    ("minor-faults", "page faults without disk access"),
    ("major-faults", "page faults with disk access"),
    ("context-switches", "context switches"),
    ("cpu-migrations", "migrations of a thread to another CPU"),
    ("alignment-faults", "unaligned accesses that the kernel fixed up"),
    ("emulation-faults", "instructions that the kernel emulated"),
    ("cgroup-switches", "switches to another control group"),
    ("cpu-clock", "CPU time, ns"),
    ("cycles", "CPU cycles"),
    ("instructions", "instructions done"),
    ("cache-references", "accesses to the last-level cache"),
    ("cache-misses", "last-level cache misses"),
    ("branches", "branch instructions"),
    ("branch-misses", "branch mispredictions"),
    ("stalled-cycles-frontend", "stalled cycles in the front end: no instructions available"),
    ("stalled-cycles-backend", "stalled cycles in the back end: resources busy"),
    ("L1-dcache-load-misses", "one of L1-dcache, L1-icache, LLC, dTLB, iTLB, branch, node; loads, stores, …"),
];

/// Returns an event by its name.
pub fn find(name: &str) -> Option<Meaning> {
    let hardware = NUMBERED_HARDWARE.iter().find(|(names, ..)| names.contains(&name));
    if let Some((_, number, period)) = hardware {
        return Some(Meaning::new(HARDWARE, *number, *period));
    }
    let software = NUMBERED_SOFTWARE.iter().find(|(names, ..)| names.contains(&name));
    if let Some((_, number, period, in_kernel)) = software {
        let meaning = Meaning::new(SOFTWARE, *number, *period);
        return Some(if *in_kernel { meaning.in_kernel() } else { meaning });
    }
    cache(name)
}

/// Parses `LLC-loads`, `dTLB-store-misses`: cache, operation and result are a byte each.
fn cache(name: &str) -> Option<Meaning> {
    for (cache, prefix) in CACHES.iter().enumerate() {
        let Some(rest) = name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('-')) else { continue };
        for (operation, (all, misses)) in ACCESSES.iter().enumerate() {
            let (result, period) = match rest {
                rest if rest == *all => (0u64, HARDWARE_PERIOD),
                rest if rest == *misses => (1, MISS_PERIOD),
                _ => continue,
            };
            let config = cache as u64 | (operation as u64) << 8 | result << 16;
            return Some(Meaning::new(CACHE, config, period));
        }
    }
    None
}

/// Returns the message about an unknown name, with the most similar names.
pub fn unknown(name: &str) -> String {
    let known = ALL.iter().map(|(known, _)| *known);
    let near = known
        .filter(|known| known.contains(name) || strsim::levenshtein(known, name) <= 3)
        .collect::<Vec<_>>();
    match near.first() {
        Some(near) => format!("unknown event; did you mean {near}?"),
        None => "unknown event; `flightline list` shows the available events".into(),
    }
}
