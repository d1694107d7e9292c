//! Analyzes the tables by area.

use super::{Before, Measures, NANOS, Tables, measure, number, shown, sum};
use crate::view::{Table, recording_instructions};

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Probably the cause of a problem.
    High,
    /// May need attention.
    Medium,
    /// No problem.
    Low,
    /// The recording has no events for it.
    Unknown,
}

impl Severity {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
            Self::Unknown => "unknown",
        }
    }

    /// `high` from the first limit, `medium` from the second.
    fn from_limits(value: f64, high: f64, medium: f64) -> Self {
        match value {
            _ if value >= high => Self::High,
            _ if value >= medium => Self::Medium,
            _ => Self::Low,
        }
    }
}

/// A question about a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// Methods that used CPU time.
    Cpu,
    /// Classes and methods that allocated.
    Allocation,
    /// Waits for locks.
    Locks,
    /// Garbage collector pauses, and their causes.
    Collector,
    /// Growth of the heap.
    Heap,
    /// Exceptions that were thrown.
    Exceptions,
    /// Slow I/O.
    Io,
    /// Completeness of the recording.
    Recording,
    /// Differences from another recording.
    Compared,
}

impl Area {
    /// All, in the order of a report.
    pub const ALL: [Self; 9] = [
        Self::Cpu,
        Self::Allocation,
        Self::Locks,
        Self::Collector,
        Self::Heap,
        Self::Exceptions,
        Self::Io,
        Self::Recording,
        Self::Compared,
    ];

    /// The area's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "CPU time",
            Self::Allocation => "Allocation",
            Self::Locks => "Locks",
            Self::Collector => "Garbage collection",
            Self::Heap => "Heap",
            Self::Exceptions => "Exceptions",
            Self::Io => "Input and output",
            Self::Recording => "Recording",
            Self::Compared => "Comparison",
        }
    }

    /// The views with details.
    pub fn views(self) -> &'static [&'static str] {
        match self {
            Self::Cpu => &["cpu-time-hot-methods", "hot-methods", "wall-clock-methods", "cpu-load"],
            Self::Allocation => &[
                "allocation-by-class",
                "allocation-by-application",
                "allocation-by-site",
                "native-allocation",
            ],
            Self::Locks => &[
                "contention-by-class",
                "contention-by-site",
                "native-locks",
                "parking-by-site",
                "pinned-threads",
            ],
            Self::Collector => &["gc-pauses", "gc-causes", "gc", "gc-configuration"],
            Self::Heap => &["heap-configuration", "memory-leaks-by-class"],
            Self::Exceptions => &["exception-count", "exception-by-type", "exception-by-site"],
            Self::Io => &[
                "slowest-io",
                "file-reads-by-path",
                "file-writes-by-path",
                "socket-reads-by-host",
                "socket-writes-by-host",
            ],
            Self::Recording => &["recording", "jvm-information", "system-information"],
            Self::Compared => &[],
        }
    }
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Severity.
    pub severity: Severity,
    /// Area.
    pub area: Area,
    /// Description in one or two sentences.
    pub text: String,
    /// Advice; may be empty.
    pub advice: String,
    /// The view with the details; may be empty.
    pub view: &'static str,
    /// The rule of JDK Mission Control for the same question; may be empty.
    pub rule: &'static str,
}

impl Finding {
    fn new(area: Area, severity: Severity, text: String, view: &'static str) -> Self {
        Self { severity, area, text, advice: String::new(), view, rule: "" }
    }

    fn advice(mut self, advice: &str) -> Self {
        if self.severity <= Severity::Medium {
            self.advice = advice.to_owned();
        }
        self
    }

    fn rule(mut self, rule: &'static str) -> Self {
        self.rule = rule;
        self
    }

    /// The recording has no such events.
    fn unknown(area: Area, event: &str) -> Self {
        let text = format!("The recording has no events {event}.");
        Self {
            advice: format!("To record them: {}", recording_instructions(event)),
            ..Self::new(area, Severity::Unknown, text, "")
        }
    }
}

/// Returns all findings, most severe first, then in the order of areas.
pub(super) fn all(tables: Tables<'_>, measures: &Measures, before: Option<&Before>) -> Vec<Finding> {
    let mut all =
        vec![cpu(tables), allocation(tables, measures), locks(tables, measures), collector(tables, measures)];
    all.extend(load(tables));
    all.extend(explicit_collections(tables));
    all.extend(heap(tables));
    all.push(exceptions(tables, measures));
    all.push(io(tables));
    all.extend(pinned(tables));
    all.extend(recording(tables));
    all.extend(before.into_iter().flat_map(|before| compared(measures, before)));
    all.sort_by_key(|finding| finding.severity);
    all
}

/// The finding for a recording without events of these types: none was enabled, or none happened.
fn no_events(tables: Tables<'_>, area: Area, event: &str, types: &[&str]) -> Finding {
    let settings = types.iter().filter_map(|name| tables.enabled.get(*name));
    let mut enabled = settings.filter(|of| of.is_enabled == Some(true)).peekable();
    if enabled.peek().is_none() {
        return Finding::unknown(area, types[0]);
    }
    let threshold = enabled.find_map(|of| of.threshold.as_deref().filter(|least| !least.starts_with("0 ")));
    let text = match threshold {
        Some(least) => format!("{event} took {least} or longer."),
        None => format!("{event} happened."),
    };
    Finding::new(area, Severity::Low, text, "")
}

/// The first rows of a table: `App.fib(int) 79.0 %, …`.
fn leaders(table: &Table, name: &str, share: &str, count: usize) -> String {
    let row = |row: usize| {
        let name = shown(table, row, name)?;
        // The table has the parameters.
        let name = name.split_once('(').map_or(name.as_str(), |(name, _)| name);
        Some(format!("{name} {}", shown(table, row, share)?))
    };
    (0..table.rows.len().min(count)).filter_map(row).collect::<Vec<_>>().join(", ")
}

/// The names with the largest sums of `column`, whose rows may differ in other columns: `G1 Evacuation Pause 25, …`.
fn sums(table: &Table, name: &str, column: &str, count: usize) -> String {
    let mut sums: Vec<(String, f64)> = Vec::new();
    for row in 0..table.rows.len() {
        let Some((name, value)) = shown(table, row, name).zip(number(table, row, column)) else { continue };
        match sums.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += value,
            None => sums.push((name, value)),
        }
    }
    sums.sort_by(|a, b| b.1.total_cmp(&a.1));
    let text = sums.iter().take(count).map(|(name, sum)| format!("{name} {sum}"));
    text.collect::<Vec<_>>().join(", ")
}

/// Number of samples needed for shares that are accurate to a few points.
const FEW_SAMPLES: f64 = 100.0;

fn cpu(tables: Tables<'_>) -> Finding {
    let Some((view, table)) = tables.first(&["cpu-time-hot-methods", "hot-methods"]) else {
        return match tables.get("wall-clock-methods") {
            Some(table) => Finding::new(
                Area::Cpu,
                Severity::Low,
                format!("Threads were mostly in {}.", leaders(table, "Function", "Percent", 3)),
                "wall-clock-methods",
            ),
            None => Finding::unknown(Area::Cpu, "jdk.ExecutionSample"),
        };
    };
    let share = number(table, 0, "Percent").unwrap_or(0.0);
    let samples = sum(table, "Samples");
    let few = if samples < FEW_SAMPLES { " There are few samples: the shares are rough." } else { "" };
    let text = format!("Most CPU time was used in {}.{few}", leaders(table, "Method", "Percent", 3));
    Finding::new(Area::Cpu, Severity::from_limits(share, 0.5, 0.25), text, view)
        .advice("Look at the flame graph for its callers.")
        .rule("Method Profiling")
}

fn load(tables: Tables<'_>) -> Option<Finding> {
    let table = tables.get("cpu-load")?;
    let average = |title: &str| number(table, 0, title);
    let jvm = average("JVM User, Average")? + average("JVM System, Average")?;
    let others = (average("Machine, Average")? - jvm).max(0.0);
    let text = format!(
        "The JVM used {} of all processors, other processes used {}.",
        measure(jvm, "%"),
        measure(others, "%")
    );
    let severity = Severity::from_limits(jvm, 0.9, 0.7).min(Severity::from_limits(others, 0.5, 0.25));
    Some(
        Finding::new(Area::Cpu, severity, text, "cpu-load")
            .advice("A busy machine makes every latency longer. Look for the other processes, or give the JVM more processors.")
            .rule("High JVM CPU Load, Competing Processes"),
    )
}

const GIB: f64 = (1u64 << 30) as f64;

fn allocation(tables: Tables<'_>, measures: &Measures) -> Finding {
    let Some(rate) = measures.allocated else {
        return Finding::unknown(Area::Allocation, "jdk.ObjectAllocationSample");
    };
    if let (None, Some(table)) = (tables.get("allocation-by-class"), tables.get("native-allocation")) {
        let text = format!(
            "{} were allocated natively, most by {}.",
            measure(rate, "B/s"),
            leaders(table, "Function", "Percent", 3)
        );
        return Finding::new(
            Area::Allocation,
            Severity::from_limits(rate, 2.0 * GIB, GIB / 2.0),
            text,
            "native-allocation",
        );
    }
    let by = |view: &str, name: &str| tables.get(view).map(|table| leaders(table, name, "Pressure", 3));
    let text = format!(
        "{} were allocated, most of it for {}; in {}.",
        measure(rate, "B/s"),
        by("allocation-by-class", "Class").unwrap_or_default(),
        by("allocation-by-application", "Method").unwrap_or_default()
    );
    Finding::new(
        Area::Allocation,
        Severity::from_limits(rate, 2.0 * GIB, GIB / 2.0),
        text,
        "allocation-by-class",
    )
    .advice("Allocate less where most is allocated: the collector runs less often.")
    .rule("Allocated Classes")
}

fn locks(tables: Tables<'_>, measures: &Measures) -> Finding {
    let Some(((view, table), rate)) =
        tables.first(&["contention-by-class", "native-locks"]).zip(measures.locked)
    else {
        const WAITS: [&str; 3] = ["jdk.JavaMonitorEnter", "jdk.ThreadPark", "profiler.NativeLock"];
        return no_events(tables, Area::Locks, "No wait for a lock", &WAITS);
    };
    let name = if view == "native-locks" { "Stack" } else { "Class" };
    let text = format!(
        "Threads waited for locks {} in all ({} waits, the longest {}), most for {}.",
        crate::amount::amount(sum(table, "Total") as u64, "ns"),
        sum(table, "Count"),
        shown(table, 0, "Longest").unwrap_or_default(),
        leaders(table, name, "Total", 3)
    );
    Finding::new(Area::Locks, Severity::from_limits(rate, 0.5, 0.05), text, view)
        .advice("Look at the stacks of the waits, and at who held the lock.")
        .rule("Java Blocking")
}

fn collector(tables: Tables<'_>, measures: &Measures) -> Finding {
    let Some((share, longest)) = measures.paused.zip(measures.longest_pause) else {
        return Finding::unknown(Area::Collector, "jdk.GCPhasePause");
    };
    let causes = tables.get("gc-causes").map(|table| sums(table, "Cause", "Count", 3)).unwrap_or_default();
    let text = format!(
        "The collector stopped the program for {} of the time; the longest pause took {}. Collections by cause: {causes}.",
        measure(share, "%"),
        measure(longest, "s"),
    );
    let severity = Severity::from_limits(share, 0.1, 0.05).min(Severity::from_limits(longest, 1.0, 0.2));
    Finding::new(Area::Collector, severity, text, "gc-causes")
        .advice("Allocate less, give the heap more room, or choose a collector with shorter pauses (ZGC, Shenandoah).")
        .rule("GC Pauses")
}

/// Collections by System.gc().
fn explicit_collections(tables: Tables<'_>) -> Option<Finding> {
    let table = tables.get("gc-causes")?;
    let is_explicit =
        |row: &usize| shown(table, *row, "Cause").is_some_and(|cause| cause.contains("System.gc()"));
    let row = (0..table.rows.len()).find(is_explicit)?;
    let text = format!(
        "The program called System.gc() {} times, which took {}.",
        shown(table, row, "Count")?,
        shown(table, row, "Pauses").unwrap_or_default()
    );
    Some(
        Finding::new(Area::Collector, Severity::Medium, text, "gc-causes")
            .advice("Remove the calls, or start the JVM with -XX:+DisableExplicitGC.")
            .rule("GCs Caused by System.gc()"),
    )
}

/// Collections needed to judge the growth of the heap.
const MANY_COLLECTIONS: usize = 4;
/// Growth in bytes that is reported.
const MUCH: f64 = 32.0 * 1024.0 * 1024.0;

/// Judges whether more memory is in use after each collection.
fn heap(tables: Tables<'_>) -> Option<Finding> {
    let table = tables.get("gc")?;
    let after: Vec<f64> = (0..table.rows.len()).filter_map(|row| number(table, row, "Heap After")).collect();
    if after.len() < MANY_COLLECTIONS {
        return None;
    }
    // Uses the minimum of each half, because a young collection also leaves unused objects.
    let least = |part: &[f64]| part.iter().copied().fold(f64::INFINITY, f64::min);
    let (first, last) = (least(&after[..after.len() / 2]), least(&after[after.len() / 2..]));
    let shown = |bytes: f64| crate::amount::bytes(bytes as u64);
    let grew = last > 1.5 * first && last - first > MUCH;
    let text = match grew {
        true => format!("The heap in use after collections grew from {} to {}.", shown(first), shown(last)),
        false => format!("The heap in use after collections stayed near {}.", shown(last)),
    };
    let severity = if grew { Severity::Medium } else { Severity::Low };
    Some(
        Finding::new(Area::Heap, severity, text, "gc")
            .advice("If it goes on to grow, look for a leak: record jdk.OldObjectSample (settings `profile`) for longer.")
            .rule("Heap Live Set Trend"),
    )
}

fn exceptions(tables: Tables<'_>, measures: &Measures) -> Finding {
    let Some(rate) = measures.exceptions else {
        return Finding::unknown(Area::Exceptions, "jdk.ExceptionStatistics");
    };
    let by_type = tables.get("exception-by-type").map(|table| leaders(table, "Class", "Count", 3));
    let most = by_type.map_or_else(String::new, |most| format!(", recorded: {most}"));
    let text = format!("{rate:.1} exceptions were thrown per second{most}.");
    Finding::new(Area::Exceptions, Severity::from_limits(rate, 5_000.0, 500.0), text, "exception-by-type")
        .advice("Exceptions that control the flow of a program cost time: each walks its stack.")
        .rule("Thrown Exceptions")
}

fn io(tables: Tables<'_>) -> Finding {
    let Some(table) = tables.get("slowest-io") else {
        const CALLS: [&str; 4] = ["jdk.FileRead", "jdk.FileWrite", "jdk.SocketRead", "jdk.SocketWrite"];
        return no_events(tables, Area::Io, "No read or write", &CALLS);
    };
    let longest = number(table, 0, "Duration").unwrap_or(0.0) / NANOS;
    let text = format!(
        "The slowest was {}: {} took {}. All that were recorded took {}.",
        shown(table, 0, "Kind").unwrap_or_default(),
        shown(table, 0, "Where").unwrap_or_else(|| "an unnamed one".to_owned()),
        shown(table, 0, "Duration").unwrap_or_default(),
        crate::amount::amount(sum(table, "Duration") as u64, "ns"),
    );
    Finding::new(Area::Io, Severity::from_limits(longest, 1.0, 0.1), text, "slowest-io")
        .advice("Look at the paths and hosts, and at the stacks (flightline flame -e io --total).")
        .rule("File Read Peak Duration, Socket Read Peak Duration")
}

fn pinned(tables: Tables<'_>) -> Option<Finding> {
    let table = tables.get("pinned-threads")?;
    let text = format!(
        "Virtual threads held their carriers {} times, {} in all, most in {}.",
        sum(table, "Count"),
        crate::amount::amount(sum(table, "Total") as u64, "ns"),
        leaders(table, "Method", "Total", 2)
    );
    Some(
        Finding::new(Area::Locks, Severity::Medium, text, "pinned-threads")
            .advice("Other virtual threads cannot run during that time. Do not block in native frames; before JDK 24, not in synchronized code either."),
    )
}

fn recording(tables: Tables<'_>) -> Option<Finding> {
    let lost = number(tables.get("recording")?, 0, "Data Lost").filter(|&lost| lost > 0.0)?;
    let text =
        format!("The JVM lost {} of events: its buffers were full.", crate::amount::bytes(lost as u64));
    Some(Finding::new(Area::Recording, Severity::Medium, text, "recording").advice(
        "Give the recorder more memory (-XX:FlightRecorderOptions:memorysize=64m), or record fewer events.",
    ))
}

/// A change by this factor is unusual.
const FACTOR: f64 = 1.5;
/// Number of changed functions that are named.
const NAMED: usize = 5;
/// Minimum change of a function's share that is reported.
const POINTS: f64 = 0.02;

fn compared(measures: &Measures, before: &Before) -> Vec<Finding> {
    let pairs = measures.all().into_iter().zip(before.measures.all());
    let mut found: Vec<Finding> = pairs
        .filter_map(|((name, now, unit), (_, then, _))| {
            let (now, then) = (now?, then?);
            let grew = now > then * FACTOR;
            if !grew && now * FACTOR >= then || now.max(then) < floor(unit) {
                return None;
            }
            let severity = if grew { Severity::Medium } else { Severity::Low };
            let verb = if grew { "more" } else { "less" };
            let text = format!("{name}: {verb}, {} instead of {}.", measure(now, unit), measure(then, unit));
            Some(Finding::new(Area::Compared, severity, text, ""))
        })
        .collect();
    let changed: Vec<String> = before
        .changed
        .iter()
        .filter(|one| (one.after - one.before).abs() >= POINTS)
        .take(NAMED)
        .map(|one| format!("{} {:+.1} points", one.function, 100.0 * (one.after - one.before)))
        .collect();
    if !changed.is_empty() {
        let text = format!("Shares of the CPU time changed: {}.", changed.join(", "));
        found.push(Finding::new(Area::Compared, Severity::Medium, text, ""));
    }
    if found.is_empty() {
        let text = format!("Nothing is unusual compared with {}.", before.name);
        found.push(Finding::new(Area::Compared, Severity::Low, text, ""));
    }
    found
}

/// The minimum value of a unit that is compared.
fn floor(unit: &str) -> f64 {
    match unit {
        "%" => 0.02,
        "B/s" => 1024.0 * 1024.0,
        "s" => 0.02,
        "s/s" => 0.02,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{Datum, Heading, Unit};

    #[test]
    fn collections_with_same_cause_are_summed() {
        let heading =
            |title: &str, number| Heading { title: title.into(), unit: Unit::One, number, empty: false };
        let row = |cause: &str, collector: &str, count| {
            vec![Datum::Text(cause.into()), Datum::Text(collector.into()), Datum::Int(count, Unit::One)]
        };
        let table = Table {
            name: "gc-causes".into(),
            title: String::new(),
            headings: vec![heading("Cause", false), heading("Name", false), heading("Count", true)],
            rows: vec![row("System.gc()", "G1Full", 9), row("Pause", "G1New", 8), row("Pause", "G1Old", 3)],
            form: false,
            more: 0,
            full: false,
            events: 20,
            needs: Vec::new(),
            explained: String::new(),
        };
        assert_eq!(sums(&table, "Cause", "Count", 3), "Pause 11, System.gc() 9");
        assert_eq!(sums(&table, "Cause", "Count", 1), "Pause 11");
    }
}
