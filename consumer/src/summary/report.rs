//! Formats a summary as text and as JSON.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::Write;

use jfr_format::read::TypeCount;
use serde_json::{Value, json};

use super::ChunkFacts;
use super::ends::Ends;
use super::facts::Facts;
use super::ledger::{Ledger, ThreadTime};
use crate::error::Error;
use crate::fold::{self, Functions};
use crate::format::amount;
use crate::format::time;

/// The content of a summary.
#[derive(Clone, Debug, Default)]
pub struct Report {
    version: (u16, u16),
    chunks: usize,
    incomplete: usize,
    bytes: u64,
    start_nanos: i64,
    end_nanos: i64,
    facts: Facts,
    /// Print the application's arguments.
    arguments: bool,
    events: BTreeMap<String, TypeCount>,
    ledger: Ledger,
    ends: Ends,
    samples: Samples,
    /// Numbers of events of the types with stack traces.
    sample_types: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, Default)]
struct Samples {
    /// The events that are counted, as accepted by `-e`.
    event: String,
    total: u64,
    unit: String,
    truncated: u64,
    without_stack: u64,
    /// Samples of sleeping threads, which are not in `total`.
    asleep: u64,
    /// Samples with a stack whose leaf has no name.
    nameless: u64,
    /// Libraries and programs of those leaves, most samples first.
    nameless_in: Vec<(String, u64)>,
    top: Vec<Function>,
}

#[derive(Clone, Debug)]
struct Function {
    name: String,
    module: Option<String>,
    own: u64,
    total: u64,
}

/// Events that are part of the chunk format.
const STRUCTURE: [&str; 2] = ["jdk.Metadata", "jdk.CheckPoint"];
/// Number of files to list whose functions have no names.
const NAMELESS_FILES: usize = 3;
/// Truncated stacks are mentioned if they are at least one in this many.
const WORTH_STACKS: u64 = 50;
/// Missing symbols are mentioned if the leaf has no name in at least one of this many samples.
const WORTH_NAMES: u64 = 50;

/// Threads in the text.
const SHOWN_THREADS: usize = 30;
/// Values of a label in the text.
const SHOWN_VALUES: usize = 8;

/// The figures of a recording for one line of a list.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Overview {
    /// The main class or JAR file of a JVM, or the path of a program.
    pub program: Option<String>,
    /// Name and version of the JVM.
    pub jvm: Option<String>,
    /// Start, in nanoseconds since 1970.
    pub start_nanos: i64,
    /// Duration in nanoseconds.
    pub duration_nanos: i64,
    /// Number of chunks.
    pub chunks: usize,
    /// Size in bytes.
    pub bytes: u64,
    /// Events without metadata and checkpoints.
    pub events: u64,
    /// The type of samples that `flightline flame` selects by default, and their number.
    pub samples: Option<(String, u64)>,
    /// Samples that Flightline's recorder reported as lost.
    pub lost_samples: u64,
    /// Events of other engines that it reported as lost.
    pub lost_events: u64,
    /// Times that a JVM reported lost data (`jdk.DataLoss`).
    pub data_losses: u64,
}

impl Overview {
    /// Returns the start in ISO 8601, and the duration with its unit.
    pub fn times(&self) -> (String, String) {
        (time::iso(self.start_nanos), time::span(self.duration_nanos))
    }

    /// Returns the overview as a JSON object.
    pub fn to_json(&self) -> Value {
        json!({
            "program": self.program,
            "jvm": self.jvm,
            "start": time::iso(self.start_nanos),
            "durationNanos": self.duration_nanos,
            "chunks": self.chunks,
            "bytes": self.bytes,
            "events": self.events,
            "samples": self.samples.as_ref().map(|(name, count)| json!({"type": name, "count": count})),
            "lostSamples": self.lost_samples,
            "lostEvents": self.lost_events,
            "dataLosses": self.data_losses,
        })
    }
}

impl Report {
    pub(super) fn new(
        functions: Functions,
        event: String,
        ledger: Ledger,
        events: BTreeMap<String, TypeCount>,
        chunks: &[ChunkFacts],
        top: usize,
    ) -> Self {
        let start_nanos = chunks.iter().map(|c| c.start_nanos).min().unwrap_or(0);
        let end = |c: &ChunkFacts| c.start_nanos.saturating_add(c.duration_nanos);
        Self {
            version: chunks.first().map_or((0, 0), |c| c.version),
            chunks: chunks.len(),
            incomplete: chunks.iter().filter(|c| !c.complete).count(),
            bytes: chunks.iter().map(|c| c.size).sum(),
            start_nanos,
            end_nanos: chunks.iter().map(end).max().unwrap_or(start_nanos),
            facts: Facts::default(),
            arguments: false,
            events,
            ledger,
            ends: Ends::default(),
            samples: Samples::new(functions, event, top),
            sample_types: BTreeMap::new(),
        }
    }

    /// Headers of streams have no duration; the events determine it.
    pub(super) fn with_end(mut self, last: Option<i64>) -> Self {
        if self.end_nanos <= self.start_nanos {
            self.end_nanos = last.unwrap_or(self.start_nanos).max(self.start_nanos);
        }
        self
    }

    pub(super) fn with_ends(mut self, ends: Ends) -> Self {
        self.ends = ends;
        self
    }

    pub(super) fn with_facts(mut self, facts: Facts) -> Self {
        self.facts = facts;
        self
    }

    pub(super) fn with_samples(mut self, types: BTreeMap<String, u64>) -> Self {
        self.sample_types = types;
        self
    }

    /// Includes the application's arguments, without secrets. By default they are omitted.
    pub fn with_arguments(mut self, arguments: bool) -> Self {
        self.arguments = arguments;
        self
    }

    /// Returns the figures of the recording for one line of a list.
    pub fn overview(&self) -> Overview {
        let names = fold::FIRST_LOADED.iter().copied().find(|&name| self.sample_types.contains_key(name));
        let name = names.or_else(|| fold::else_loaded(&self.sample_types));
        let events = self.events.iter().filter(|(name, _)| !STRUCTURE.contains(&name.as_str()));
        Overview {
            program: self.facts.program(),
            jvm: self.facts.jvm_version(),
            start_nanos: self.start_nanos,
            duration_nanos: self.duration_nanos(),
            chunks: self.chunks,
            bytes: self.bytes,
            events: events.map(|(_, count)| count.events).sum(),
            samples: name.map(|name| (name.to_owned(), self.sample_types.get(name).copied().unwrap_or(0))),
            lost_samples: self.ledger.losses.values().map(|loss| loss.samples).sum(),
            lost_events: self.ledger.events_lost.values().sum(),
            data_losses: self.events.get("jdk.DataLoss").map_or(0, |count| count.events),
        }
    }

    fn duration_nanos(&self) -> i64 {
        self.end_nanos.saturating_sub(self.start_nanos)
    }

    /// Writes the report for people.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn write_text(&self, out: &mut dyn Write) -> Result<(), Error> {
        let text =
            [self.head(), self.ends.text(), self.event_table(), self.ledger_text(), self.top_text()].concat();
        out.write_all(text.as_bytes()).map_err(Error::Write)
    }

    fn head(&self) -> String {
        let mut out = String::new();
        let mut line =
            |name: &str, value: String| out.push_str(&format!("{:<11}{value}\n", format!("{name}:")));
        line("Version", format!("{}.{}", self.version.0, self.version.1));
        let incomplete =
            if self.incomplete > 0 { format!(" ({} incomplete)", self.incomplete) } else { String::new() };
        line("Chunks", format!("{}{incomplete}", self.chunks));
        line("Size", format!("{} bytes", self.bytes));
        line("Start", time::iso(self.start_nanos));
        line("Duration", time::span(self.duration_nanos()));
        for (name, value) in self.facts.lines(self.arguments) {
            line(name, value);
        }
        if !self.ledger.labels.is_empty() {
            let labels = self.ledger.labels.iter().map(|(name, values)| {
                let values: Vec<&str> = values.iter().take(SHOWN_VALUES).map(String::as_str).collect();
                format!("{name}={}", values.join("|"))
            });
            line("Labels", labels.collect::<Vec<_>>().join(", "));
        }
        out
    }

    fn event_table(&self) -> String {
        let mut rows: Vec<(&String, &TypeCount)> = self.events.iter().collect();
        rows.sort_by(|a, b| b.1.events.cmp(&a.1.events).then(a.0.cmp(b.0)));
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max(10);
        let mut out = format!("\n{:<width$} {:>12} {:>14}\n", "Event type", "Count", "Size (bytes)");
        for (name, count) in rows.iter().filter(|(_, count)| count.events > 0) {
            out.push_str(&format!("{name:<width$} {:>12} {:>14}\n", count.events, count.bytes));
        }
        let empty = rows.iter().filter(|(_, count)| count.events == 0).count();
        if empty > 0 {
            out.push_str(&format!("({empty} more types declared, without events)\n"));
        }
        out
    }

    /// Returns process, thread and its times.
    fn threads(&self) -> impl Iterator<Item = (&str, String, &ThreadTime)> {
        self.ledger.threads.iter().flat_map(|((process, id), holders)| {
            holders.iter().map(move |(name, time)| (process.as_str(), format!("{name} ({id})"), time))
        })
    }

    fn ledger_text(&self) -> String {
        let Ledger { threads, losses, events_lost, truncated, notices, .. } = &self.ledger;
        let mut out = String::new();
        if !threads.is_empty() {
            let mut rows: Vec<_> = self.threads().collect();
            rows.sort_by_key(|(_, _, time)| std::cmp::Reverse(time.cpu));
            let names: Vec<String> =
                rows.iter().map(|(process, name, _)| format!("{name}  {process}")).collect();
            let shown = names.iter().take(SHOWN_THREADS);
            let width = shown.map(|name| name.chars().count()).max().unwrap_or(0).max(6);
            out.push_str(&format!(
                "\n{:<width$} {:>11} {:>11} {:>11}\n",
                "Thread", "CPU s", "sampled s", "lost s"
            ));
            for (name, (_, _, time)) in names.iter().zip(&rows).take(SHOWN_THREADS) {
                let [cpu, sampled, lost] = [time.cpu, time.sampled, time.lost].map(seconds);
                out.push_str(&format!("{name:<width$} {cpu:>11.3} {sampled:>11.3} {lost:>11.3}\n"));
            }
            if let Some(more) = rows.get(SHOWN_THREADS..).filter(|more| !more.is_empty()) {
                let sum =
                    |of: fn(&ThreadTime) -> u64| seconds(more.iter().map(|(_, _, time)| of(time)).sum());
                let name = format!("{} more threads (--json has all)", more.len());
                let [cpu, sampled, lost] = [sum(|t| t.cpu), sum(|t| t.sampled), sum(|t| t.lost)];
                out.push_str(&format!("{name:<width$} {cpu:>11.3} {sampled:>11.3} {lost:>11.3}\n"));
            }
        }
        if !losses.is_empty() || !events_lost.is_empty() {
            out.push_str("\nLost, by cause:\n");
            for (cause, loss) in losses {
                let cpu = seconds(loss.cpu);
                out.push_str(&format!("  {cause}: {} samples, {cpu:.3} s of CPU time\n", loss.samples));
            }
            for (what, count) in events_lost {
                out.push_str(&format!("  {what}: {count} events\n"));
            }
        }
        if !truncated.is_empty() {
            out.push_str("\nStacks cut, by cause:\n");
            for (cause, samples) in truncated {
                out.push_str(&format!("  {cause}: {samples} samples\n"));
            }
        }
        for notice in notices {
            out.push_str(&format!("\nNote: {notice}\n"));
        }
        out
    }

    fn top_text(&self) -> String {
        let Samples { event, total, unit, truncated, without_stack, asleep, nameless, nameless_in, top } =
            &self.samples;
        if *total == 0 {
            return String::new();
        }
        let mut out = format!(
            "\n{event}: {}; {} with a truncated stack, {} without one, {} in functions without a name\n",
            amount(*total, unit),
            percent(*truncated, *total),
            percent(*without_stack, *total),
            percent(*nameless, *total),
        );
        if event == "flightline.OffCpu" && truncated.saturating_mul(WORTH_STACKS) >= *total {
            out.push_str("Truncated: record with a larger --off-cpu-stack, such as 32k\n");
        }
        if *asleep > 0 {
            out.push_str(&format!("{asleep} more samples of threads that slept: flightline flame -e wall\n"));
        }
        if nameless.saturating_mul(WORTH_NAMES) >= *total && !nameless_in.is_empty() {
            let files = nameless_in.iter().map(|(file, own)| format!("{file} {}", percent(*own, *total)));
            out.push_str(&format!(
                "Without names: {}. Debug files (a -dbgsym or -debuginfo package) give them, also later: flightline symbolize\n",
                files.collect::<Vec<_>>().join(", ")
            ));
        }
        out.push_str(&format!("\n{:>8} {:>8}  Function\n", "self", "total"));
        for function in top {
            let module = function.module.as_ref().map(|m| format!("  ({m})")).unwrap_or_default();
            let [own, all] = [function.own, function.total].map(|part| percent(part, *total));
            out.push_str(&format!("{own:>8} {all:>8}  {}{module}\n", function.name));
        }
        out
    }

    /// Writes the report as JSON. Times are in ns.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn write_json(&self, out: &mut dyn Write) -> Result<(), Error> {
        serde_json::to_writer_pretty(&mut *out, &self.to_json()).map_err(|e| Error::Write(e.into()))?;
        writeln!(out).map_err(Error::Write)
    }

    fn to_json(&self) -> Value {
        let Ledger { losses, events_lost, truncated, notices, labels, .. } = &self.ledger;
        let (signals, pauses) = self.ends.to_json();
        let Samples { event, total, unit, truncated: cut, without_stack, asleep, nameless, nameless_in, top } =
            &self.samples;
        json!({
            "version": format!("{}.{}", self.version.0, self.version.1),
            "chunks": self.chunks,
            "incompleteChunks": self.incomplete,
            "bytes": self.bytes,
            "start": time::iso(self.start_nanos),
            "durationNanos": self.duration_nanos(),
            "facts": self.facts.to_json(self.arguments),
            "labels": labels,
            "events": self.events.iter().map(|(name, count)| json!({
                "type": name, "count": count.events, "bytes": count.bytes,
            })).collect::<Vec<_>>(),
            "threads": self.threads().map(|(process, name, time)| json!({
                "process": process, "thread": name, "cpu": time.cpu, "sampled": time.sampled, "lost": time.lost,
            })).collect::<Vec<_>>(),
            "lost": losses.iter().map(|(cause, loss)| json!({
                "cause": cause, "samples": loss.samples, "cpu": loss.cpu,
            })).collect::<Vec<_>>(),
            "eventsLost": events_lost,
            "stacksCut": truncated,
            "notices": notices,
            "fatalSignals": signals,
            "pauses": pauses,
            "samples": {
                "event": event, "total": total, "unit": unit, "truncated": cut, "withoutStack": without_stack, "asleep": asleep,
                "withoutName": nameless,
                "withoutNameIn": nameless_in.iter().map(|(file, own)| json!({"file": file, "self": own})).collect::<Vec<_>>(),
                "top": top.iter().map(|f| json!({
                    "function": f.name, "module": f.module, "self": f.own, "total": f.total,
                })).collect::<Vec<_>>(),
            },
        })
    }
}

impl Samples {
    fn new(of: Functions, event: String, top: usize) -> Self {
        let Functions { mut functions, total, unit, truncated, without_stack, asleep } = of;
        functions.retain(|f| f.own > 0);
        let nameless = functions.iter().filter(|f| is_nameless(&f.label.text)).map(|f| f.own).sum();
        let nameless_in = nameless_files(&functions);
        functions.sort_unstable_by(|a, b| {
            let by_name = |f: &fold::Function| (f.label.text.clone(), f.label.module.clone(), f.label.kind);
            b.own.cmp(&a.own).then_with(|| by_name(a).cmp(&by_name(b)))
        });
        functions.truncate(top);
        let top = functions.into_iter().map(|f| Function {
            name: f.label.text.to_string(),
            module: f.label.module.as_deref().map(str::to_owned),
            own: f.own,
            total: f.total,
        });
        Self {
            event,
            total,
            unit: unit.to_owned(),
            truncated,
            without_stack,
            asleep,
            nameless,
            nameless_in,
            top: top.collect(),
        }
    }
}

/// Returns files by the number of samples in their functions without a name. Generated code has no file.
fn nameless_files(functions: &[fold::Function]) -> Vec<(String, u64)> {
    let mut found = BTreeMap::<&str, u64>::new();
    for function in functions.iter().filter(|function| is_nameless(&function.label.text)) {
        if let Some(module) = function.label.module.as_deref() {
            *found.entry(module).or_default() += function.own;
        }
    }
    let mut found: Vec<(String, u64)> = found.into_iter().map(|(file, own)| (file.to_owned(), own)).collect();
    found.sort_by_key(|(_, own)| Reverse(*own));
    found.truncate(NAMELESS_FILES);
    found
}

/// Returns true if a frame's name is an address, with or without a library, or a tool's placeholder.
fn is_nameless(text: &str) -> bool {
    let hex = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let address = text.rsplit_once('+').map_or(text, |(_, offset)| offset);
    address.strip_prefix("0x").is_some_and(hex) || matches!(text, "[unknown]" | "[unknown_Java]" | "unknown")
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

fn percent(part: u64, of: u64) -> String {
    format!("{:.2}%", 100.0 * part as f64 / of.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::FrameKind;
    use crate::tree::Label;

    #[test]
    fn files_without_names_are_listed_with_a_remedy() {
        let function = |text: &str, module: Option<&str>, own| {
            let label = Label { text: text.into(), module: module.map(Arc::from), kind: FrameKind::Native };
            fold::Function { label, own, total: own }
        };
        let functions = vec![
            function("a.so+0x10", Some("a.so"), 2),
            function("b.so+0x10", Some("b.so"), 5),
            function("a.so+0x20", Some("a.so"), 4),
            function("0x7f00", None, 9),
            function("main", Some("prog"), 80),
        ];
        let of =
            Functions { functions, total: 100, unit: "samples", truncated: 0, without_stack: 0, asleep: 0 };
        let report = Report { samples: Samples::new(of, "cpu".into(), 3), ..Report::default() };
        let text = report.top_text();
        assert!(
            text.contains("20.00% in functions without a name\nWithout names: a.so 6.00%, b.so 5.00%. Debug"),
            "{text}"
        );
        let functions = vec![function("a.so+0x10", Some("a.so"), 1)];
        let few =
            Functions { functions, total: 100, unit: "samples", truncated: 0, without_stack: 0, asleep: 0 };
        let text = Report { samples: Samples::new(few, "cpu".into(), 3), ..Report::default() }.top_text();
        assert!(text.contains("1.00% in functions") && !text.contains("Without names"), "{text}");
    }

    #[test]
    fn truncated_off_cpu_stacks_suggest_larger_copies() {
        let hint = |event: &str, truncated| {
            let functions = Functions {
                functions: vec![],
                total: 100,
                unit: "ns",
                truncated,
                without_stack: 0,
                asleep: 0,
            };
            let samples = Samples::new(functions, event.into(), 3);
            Report { samples, ..Report::default() }.top_text().contains("--off-cpu-stack, such as 32k")
        };
        assert!(hint("flightline.OffCpu", 2) && !hint("flightline.OffCpu", 1));
        assert!(!hint("cpu", 50));
    }

    /// Losses of other engines are reported in addition to CPU time, once for all chunks.
    #[test]
    fn lost_events_are_reported_by_cause() {
        let part = |what: &str, count| Ledger {
            events_lost: [(what.to_owned(), count)].into(),
            ..Ledger::default()
        };
        let mut ledger = part("off-cpu: ring full", 7);
        ledger.merge(part("off-cpu: ring full", 5));
        ledger.merge(part("lock", 1));
        let report = Report { ledger, ..Report::default() };
        let text = report.ledger_text();
        assert!(
            text.ends_with("\nLost, by cause:\n  lock: 1 events\n  off-cpu: ring full: 12 events\n"),
            "{text}"
        );
        assert_eq!(report.to_json()["eventsLost"]["off-cpu: ring full"], 12);
    }

    #[test]
    fn nameless_functions_are_recognized() {
        for text in ["libz.so.1+0x2a0", "0x7f00", "[unknown]", "a+b+0x1"] {
            assert!(is_nameless(text), "{text}");
        }
        for text in ["main", "operator+", "0xmain", "f+0x", "Foo::unknown", "lib+0xyz"] {
            assert!(!is_nameless(text), "{text}");
        }
    }
}
