//! Names of event types that `-e` accepts: aliases, synonyms, and the types selected by default.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::decode::VARIED;
use crate::model::{EXECUTION_SAMPLE as CPU, WALL_CLOCK_SAMPLE as WALL};

/// Short names of event types. Each has groups of types; the first group that was recorded is selected.
/// Both types of `cpu` measure the same time. JDK 25 can record both; `jdk.CPUTimeSample` is the more
/// exact one (JEP 509). `alloc` selects the JVM's heap if there is one.
const ALIASES: &[(&str, &[&[&str]])] = &[
    ("cpu", &[&["jdk.CPUTimeSample"], &[CPU], &["datadog.ExecutionSample"]]),
    ("wall", &[&[WALL], &["datadog.MethodSample"]]),
    (
        "alloc",
        &[
            &[
                "jdk.ObjectAllocationSample",
                "jdk.ObjectAllocationInNewTLAB",
                "jdk.ObjectAllocationOutsideTLAB",
            ],
            &["datadog.ObjectSample"],
            &["profiler.Malloc"],
        ],
    ),
    ("live", &[&["profiler.LiveObject"], &["flightline.LiveAllocation"], &["datadog.HeapLiveObject"]]),
    // A JVM's native locks have their own alias.
    ("lock", &[&["jdk.JavaMonitorEnter", "jdk.JavaMonitorWait", "jdk.ThreadPark"], &["profiler.NativeLock"]]),
    ("nativelock", &[&["profiler.NativeLock"]]),
    (
        "io",
        &[&[
            "jdk.FileRead",
            "jdk.FileWrite",
            "jdk.FileForce",
            "jdk.SocketRead",
            "jdk.SocketWrite",
            "flightline.SocketConnect",
            "flightline.SocketAccept",
        ]],
    ),
    ("block", &[&["flightline.BlockIo"]]),
    ("growth", &[&["flightline.MemoryGrowth"]]),
    ("nativemem", &[&["profiler.Malloc"]]),
    ("trace", &[&["jdk.MethodTrace", "flightline.FunctionCall"]]),
    ("exception", &[&["jdk.JavaExceptionThrow", "jdk.JavaErrorThrow", "flightline.Throw"]]),
    ("throw", &[&["jdk.JavaExceptionThrow", "jdk.JavaErrorThrow", "flightline.Throw"]]),
];

/// Default selection: the first of these that was recorded.
pub(crate) const PREFERRED: &[&str] = &[
    "jdk.CPUTimeSample",
    CPU,
    "datadog.ExecutionSample",
    WALL,
    "datadog.MethodSample",
    "profiler.LiveObject",
    "flightline.LiveAllocation",
    "datadog.HeapLiveObject",
    "jdk.NativeMethodSample",
];

/// The types to load first if no event is selected: samples of CPU time and of the wall clock, which are
/// often the only ones.
pub const FIRST_LOADED: &[&str] = PREFERRED.split_at(5).0;

/// Returns true if flame graphs show the number of samples of the type, because its samples have equal
/// weights or are counts.
pub(super) fn is_counted(name: &str) -> bool {
    FIRST_LOADED.contains(&name) || name == "jdk.NativeMethodSample" || name == VARIED
}

/// Returns the type to load if the recording has none of [`FIRST_LOADED`]. `events` has the number of
/// events by type.
pub fn else_loaded(events: &BTreeMap<String, u64>) -> Option<&str> {
    if let Some(name) = PREFERRED.iter().find(|&&name| events.contains_key(name)) {
        return Some(name);
    }
    most(events.iter().map(|(name, &count)| (name.as_str(), count)))
}

/// Types that are shown only if `-e` selects them. Each thread has a `jdk.ThreadStart`, even in a
/// recording without samples, and `profiler.Free` has no stack.
const NEVER_FIRST: [&str; 2] = ["jdk.ThreadStart", "profiler.Free"];

/// Returns the type with most events; of several, the first by name, for any input order.
pub(super) fn most<'a>(types: impl Iterator<Item = (&'a str, u64)>) -> Option<&'a str> {
    let sampled = types.filter(|(name, _)| !NEVER_FIRST.contains(name));
    sampled.max_by_key(|&(name, count)| (count, Reverse(name))).map(|(name, _)| name)
}

/// Synonyms of aliases, from other tools and common usage.
const SYNONYMS: [(&str, &str); 10] = [
    ("allocation", "alloc"),
    ("allocations", "alloc"),
    ("ctimer", "cpu"),
    ("exceptions", "exception"),
    ("execution", "cpu"),
    ("itimer", "cpu"),
    ("locks", "lock"),
    ("memory", "alloc"),
    ("monitors", "lock"),
    ("wallclock", "wall"),
];

/// Returns the alias of a synonym, or the name itself.
pub(super) fn canonical(name: &str) -> &str {
    SYNONYMS.iter().find(|(word, _)| *word == name).map_or(name, |(_, alias)| alias)
}

/// Returns the groups of types of an alias or a synonym.
pub(super) fn alias_groups(name: &str) -> Option<&'static [&'static [&'static str]]> {
    let name = canonical(name);
    ALIASES.iter().find(|(alias, _)| *alias == name).map(|&(_, groups)| groups)
}

/// Expands `names` and aliases to full names of event types.
pub fn event_names(names: &[String]) -> Vec<String> {
    let mut full = Vec::new();
    for name in names {
        match alias_groups(name) {
            Some(groups) => full.extend(groups.iter().flat_map(|g| g.iter()).map(|&e| e.to_owned())),
            None => {
                full.extend(spellings(name));
                // The name may be a variant of this type.
                full.push(VARIED.to_owned());
            }
        }
    }
    full
}

/// Expands `names` to the event types to load before [`fold`](super::fold()) selects events. `wall`
/// includes the type that async-profiler used for its wall clock before version 4.
pub fn loaded_names(names: &[String]) -> Vec<String> {
    let of_wall = names.iter().any(|name| canonical(name) == "wall").then(|| CPU.to_owned());
    event_names(names).into_iter().chain(of_wall).collect()
}

/// Returns true if `name` selects no samples of threads that slept.
pub(crate) fn is_awake_only(name: &str) -> bool {
    canonical(name) == "cpu"
}

/// Expands `name` to the event types in the recording. An alias expands to its first group that has any
/// events.
pub fn recorded_types(name: &str, events: &BTreeMap<String, u64>) -> Vec<String> {
    let there = |event: &&str| events.get(*event).is_some_and(|&count| count > 0);
    match alias_groups(name) {
        Some(groups) => {
            let found = groups.iter().map(|group| group.iter().copied().filter(|event| there(event)));
            let found = found.map(|group| group.map(str::to_owned).collect::<Vec<_>>());
            found.into_iter().find(|group| !group.is_empty()).unwrap_or_default()
        }
        None => spellings(name).into_iter().filter(|event| there(&event.as_str())).collect(),
    }
}

/// Returns the short name of the group that contains an event type.
pub fn alias(event: &str) -> Option<&'static str> {
    let among = |groups: &[&[&str]]| groups.iter().any(|group| group.contains(&event));
    ALIASES.iter().find(|(_, groups)| among(groups)).map(|&(alias, _)| alias)
}

/// Returns the names that `-e` accepts for these types: first short names of groups, then types that are
/// in no group.
pub fn offered(types: &BTreeMap<String, u64>) -> Vec<String> {
    let there = |name: &str| types.get(name).is_some_and(|&events| events > 0);
    let met = |groups: &&'static [&'static [&'static str]]| {
        groups.iter().find(|names| names.iter().any(|name| there(name))).copied()
    };
    let mut groups: Vec<(&str, &[&str])> = Vec::new();
    // A synonym; `flightline record -e` uses the other word.
    for (alias, of) in ALIASES.iter().filter(|(alias, _)| *alias != "exception") {
        // Skip a second name for a group that is already listed.
        if let Some(names) = met(of).filter(|names| !groups.iter().any(|(_, known)| known == names)) {
            groups.push((alias, names));
        }
    }
    let alone = types.keys().filter(|name| there(name) && alias(name).is_none());
    groups.iter().map(|(alias, _)| (*alias).to_owned()).chain(alone.cloned()).collect()
}

/// Returns the events of a recording other than `drawn`, as `-e` accepts them, with their numbers of
/// samples, most samples first. `events` has the number of events by type, see
/// [`recorded`](super::recorded).
pub fn others(events: &BTreeMap<String, u64>, drawn: &BTreeSet<String>) -> Vec<(String, u64)> {
    let mut covered = drawn.clone();
    let mut others: Vec<(String, u64)> = Vec::new();
    // A type in the second group of an alias is listed under its own name.
    for name in offered(events).into_iter().chain(events.keys().cloned()) {
        let types = recorded_types(&name, events);
        let types = if types.is_empty() { vec![name.clone()] } else { types };
        if NEVER_FIRST.contains(&&*name) || types.iter().all(|of| covered.contains(of)) {
            continue;
        }
        let samples =
            types.iter().filter_map(|of| events.get(of)).fold(0, |sum: u64, n| sum.saturating_add(*n));
        covered.extend(types);
        others.push((name, samples));
    }
    others.retain(|&(_, samples)| samples > 0);
    others.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    others
}

pub(super) fn spellings(name: &str) -> Vec<String> {
    match name.contains('.') {
        true => vec![name.to_owned()],
        false => {
            ["jdk.", "profiler.", "flightline.", "datadog."].map(|prefix| format!("{prefix}{name}")).to_vec()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_event_is_never_thread_start() {
        let of = |events: &[(&str, u64)]| {
            let events: BTreeMap<String, u64> =
                events.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
            else_loaded(&events).map(str::to_owned)
        };
        assert_eq!(of(&[("jdk.ThreadStart", 9)]), None);
        assert_eq!(of(&[("jdk.ThreadStart", 9), ("my.Event", 2)]).as_deref(), Some("my.Event"));
        assert_eq!(
            of(&[("jdk.ThreadStart", 9), ("jdk.NativeMethodSample", 1), ("my.Event", 2)]).as_deref(),
            Some("jdk.NativeMethodSample")
        );
        // Live memory is preferred to all allocations.
        assert_eq!(
            of(&[("profiler.Malloc", 900), ("flightline.LiveAllocation", 3)]).as_deref(),
            Some("flightline.LiveAllocation")
        );
    }

    #[test]
    fn other_events_are_sorted_by_samples() {
        let others = |events: &[(&str, u64)], drawn: &[&str]| {
            let events = events.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
            others(&events, &drawn.iter().map(|&name| name.to_owned()).collect())
        };
        let events = [
            ("jdk.ExecutionSample", 9),
            // The first group of `cpu`.
            ("jdk.CPUTimeSample", 3),
            ("jdk.ThreadPark", 2),
            ("jdk.JavaMonitorEnter", 2),
            ("profiler.Malloc", 5),
            ("profiler.Free", 5),
            ("jdk.ThreadStart", 8),
            ("my.Event", 4),
            ("my.Empty", 0),
        ];
        let owned = |offered: [(&str, u64); 4]| offered.map(|(name, count)| (name.to_owned(), count));
        let offered = owned([("alloc", 5), ("lock", 4), ("my.Event", 4), ("cpu", 3)]);
        assert_eq!(others(&events, &["jdk.ExecutionSample"]), offered);
        let offered = owned([("jdk.ExecutionSample", 9), ("alloc", 5), ("lock", 4), ("my.Event", 4)]);
        assert_eq!(others(&events, &["jdk.CPUTimeSample"]), offered);
        assert_eq!(others(&events[..1], &["jdk.ExecutionSample"]), []);
    }
}
