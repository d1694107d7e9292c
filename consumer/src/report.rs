//! Automatic analysis of a recording, from its tables: CPU time, allocation, waits, garbage collector
//! pauses, exceptions, slow I/O. It does not need a JVM.
//!
//! ```text
//! views (VIEWS) ─► tables ─► Measures ─► findings ─► text | JSON | HTML
//! ```
//! The limits of the findings are rules of thumb. Where JDK Mission Control has a rule for the same
//! question, the finding names it.

mod findings;
mod page;
mod text;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::view::{Datum, Enabled, Table};

pub use findings::{Area, Finding, Severity};
pub use page::{Picture, write_page};
pub use text::write_text;

/// The views that a report is made of.
pub const VIEWS: &[&str] = &[
    "recording",
    "jvm-information",
    "system-information",
    "gc-configuration",
    "heap-configuration",
    "cpu-time-hot-methods",
    "hot-methods",
    "wall-clock-methods",
    "cpu-load",
    "allocation-by-class",
    "allocation-by-application",
    "allocation-by-site",
    "native-allocation",
    "contention-by-class",
    "contention-by-site",
    "native-locks",
    "parking-by-site",
    "pinned-threads",
    "gc-pauses",
    "gc-causes",
    "gc",
    "exception-count",
    "exception-by-type",
    "exception-by-site",
    "slowest-io",
    "file-reads-by-path",
    "file-writes-by-path",
    "socket-reads-by-host",
    "socket-writes-by-host",
    "memory-leaks-by-class",
];

/// Tables and settings of a recording.
#[derive(Clone, Copy, Debug)]
pub struct Tables<'a> {
    /// The tables of the views in [`VIEWS`].
    pub all: &'a [Table],
    /// Settings of event types by name.
    pub enabled: &'a BTreeMap<String, Enabled>,
}

impl<'a> Tables<'a> {
    /// Returns the table of a view, if it has rows.
    pub fn get(self, view: &str) -> Option<&'a Table> {
        self.all.iter().find(|table| table.name == view && !table.is_empty())
    }

    /// Returns the first of these views that has rows.
    fn first(self, views: &[&'static str]) -> Option<(&'static str, &'a Table)> {
        views.iter().find_map(|view| Some((*view, self.get(view)?)))
    }
}

/// Returns a value of a table, by row and column title.
fn cell<'a>(table: &'a Table, row: usize, title: &str) -> Option<&'a Datum> {
    let column = table.headings.iter().position(|heading| heading.title == title)?;
    table.rows.get(row)?.get(column).filter(|datum| !matches!(datum, Datum::Null))
}

/// Returns a value as a number.
fn number(table: &Table, row: usize, title: &str) -> Option<f64> {
    match cell(table, row, title)? {
        Datum::Int(value, _) => Some(*value as f64),
        Datum::Real(value, _) => Some(*value),
        _ => None,
    }
}

/// Returns a value as text.
fn shown(table: &Table, row: usize, title: &str) -> Option<String> {
    cell(table, row, title).map(crate::view::cell_text).filter(|text| !text.is_empty())
}

/// Returns the sum of a column.
fn sum(table: &Table, title: &str) -> f64 {
    (0..table.rows.len()).filter_map(|row| number(table, row, title)).sum()
}

/// Figures by which two recordings are compared. Rates are per second of the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measures {
    /// Duration of the recording in s, from the first event to the last.
    pub seconds: f64,
    /// CPU load of the JVM; 1 means all processors.
    pub cpu_load: Option<f64>,
    /// Allocated bytes per second.
    pub allocated: Option<f64>,
    /// Time that threads waited for monitors or native locks, in s per second. By default, short waits
    /// are not recorded.
    pub locked: Option<f64>,
    /// Share of the time that the garbage collector stopped the program.
    pub paused: Option<f64>,
    /// The longest pause of the garbage collector, in s.
    pub longest_pause: Option<f64>,
    /// Garbage collections per second.
    pub collections: Option<f64>,
    /// Exceptions per second.
    pub exceptions: Option<f64>,
    /// Time in recorded I/O, in s per second.
    pub io: Option<f64>,
}

const NANOS: f64 = 1e9;

impl Measures {
    /// Computes the measures of a recording.
    pub fn from_tables(tables: Tables<'_>) -> Self {
        let value = |view: &str, title: &str| number(tables.get(view)?, 0, title);
        let seconds = value("recording", "Length").unwrap_or(0.0) / NANOS;
        let per_second = |amount: f64| if seconds > 0.0 { amount / seconds } else { 0.0 };
        let total = |view: &str, title: &str| tables.get(view).map(|table| per_second(sum(table, title)));
        let pauses = value("gc-pauses", "Total").map(|nanos| per_second(nanos / NANOS));
        Self {
            seconds,
            cpu_load: value("cpu-load", "JVM User, Average")
                .map(|user| user + value("cpu-load", "JVM System, Average").unwrap_or(0.0)),
            allocated: total("allocation-by-class", "Bytes").or_else(|| total("native-allocation", "Bytes")),
            locked: total("contention-by-class", "Total")
                .or_else(|| total("native-locks", "Total"))
                .map(|nanos| nanos / NANOS),
            paused: pauses,
            longest_pause: value("gc-pauses", "Longest").map(|nanos| nanos / NANOS),
            collections: total("gc-causes", "Count"),
            exceptions: value("exception-count", "During the Recording")
                .map(per_second)
                .or_else(|| total("exception-by-type", "Count")),
            io: total("slowest-io", "Duration").map(|nanos| nanos / NANOS),
        }
    }

    /// Returns name, value and unit of each measure.
    fn all(&self) -> [(&'static str, Option<f64>, &'static str); 8] {
        [
            ("CPU load of the JVM", self.cpu_load, "%"),
            ("Allocation", self.allocated, "B/s"),
            ("Waits for locks", self.locked, "s/s"),
            ("Pauses of the collector", self.paused, "%"),
            ("Longest pause", self.longest_pause, "s"),
            ("Collections", self.collections, "/s"),
            ("Exceptions", self.exceptions, "/s"),
            ("Input and output", self.io, "s/s"),
        ]
    }

    /// Converts them to JSON, in SI units and per second of the recording.
    pub fn to_json(&self) -> Value {
        json!({
            "seconds": self.seconds,
            "cpuLoad": self.cpu_load,
            "allocatedBytesPerSecond": self.allocated,
            "lockedSecondsPerSecond": self.locked,
            "pausedShare": self.paused,
            "longestPauseSeconds": self.longest_pause,
            "collectionsPerSecond": self.collections,
            "exceptionsPerSecond": self.exceptions,
            "ioSecondsPerSecond": self.io,
        })
    }
}

/// A function whose share of the CPU time changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    /// Name.
    pub function: String,
    /// Share of the samples of the recording before, 0 to 1.
    pub before: f64,
    /// Share of the samples of this recording.
    pub after: f64,
}

/// The baseline recording of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Before {
    /// Name of the recording.
    pub name: String,
    /// Its measures.
    pub measures: Measures,
    /// Functions whose share of the CPU time changed significantly.
    pub changed: Vec<Changed>,
}

/// A report.
#[derive(Debug)]
pub struct Report<'a> {
    /// Name of the recording.
    pub name: String,
    /// Its tables.
    pub tables: Tables<'a>,
    /// Its measures.
    pub measures: Measures,
    /// Findings, most severe first.
    pub findings: Vec<Finding>,
    /// The baseline recording.
    pub before: Option<Before>,
}

impl<'a> Report<'a> {
    /// Analyzes the tables of the views in [`VIEWS`].
    pub fn new(name: String, tables: Tables<'a>, before: Option<Before>) -> Self {
        let measures = Measures::from_tables(tables);
        let findings = findings::all(tables, &measures, before.as_ref());
        Self { name, tables, measures, findings, before }
    }

    /// Returns a short description of the program, the machine and the time.
    pub fn headline(&self) -> String {
        let of = |view: &str, title: &str| shown(self.tables.get(view)?, 0, title);
        let parts = [
            of("jvm-information", "Version").map(|version| match version.split_once(" for ") {
                Some((name, _)) => name.to_owned(),
                None => version,
            }),
            of("jvm-information", "PID").map(|pid| format!("PID {}", pid.replace(',', ""))),
            of("recording", "First Event"),
            of("recording", "Length"),
            of("recording", "Events").map(|events| format!("{events} events")),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
    }

    /// Converts the report to JSON.
    pub fn to_json(&self) -> Value {
        let finding = |finding: &Finding| {
            json!({
                "severity": finding.severity.name(),
                "area": finding.area.name(),
                "text": finding.text,
                "advice": finding.advice,
                "view": finding.view,
                "rule": finding.rule,
            })
        };
        let before = self.before.as_ref().map(|before| {
            let changed =
                |one: &Changed| json!({"function": one.function, "before": one.before, "after": one.after});
            json!({
                "name": before.name,
                "measures": before.measures.to_json(),
                "changed": before.changed.iter().map(changed).collect::<Vec<_>>(),
            })
        });
        json!({
            "recording": self.name,
            "about": self.headline(),
            "findings": self.findings.iter().map(finding).collect::<Vec<_>>(),
            "measures": self.measures.to_json(),
            "before": before,
        })
    }
}

impl Report<'_> {
    /// Returns the name of each measure, and its value before and in this recording.
    fn compared(&self) -> Vec<[String; 3]> {
        let Some(before) = &self.before else { return Vec::new() };
        let shown =
            |value: Option<f64>, unit| value.map_or_else(|| "-".to_owned(), |value| measure(value, unit));
        let pairs = self.measures.all().into_iter().zip(before.measures.all());
        pairs
            .map(|((name, now, unit), (_, then, _))| [name.to_owned(), shown(then, unit), shown(now, unit)])
            .collect()
    }
}

/// Formats a measure with its unit.
fn measure(value: f64, unit: &str) -> String {
    match unit {
        "%" => format!("{:.1} %", value * 100.0),
        "B/s" => format!("{}/s", crate::amount::bytes(value.max(0.0) as u64)),
        "s" => crate::amount::amount((value * NANOS).max(0.0) as u64, "ns"),
        "s/s" => format!("{value:.2} s per second"),
        _ => format!("{value:.1}{unit}"),
    }
}
