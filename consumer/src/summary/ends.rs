//! Fatal signals of recorded processes, and pauses of the recording.

use std::collections::BTreeMap;

use jfr_format::event::{EventRef, StructRef, Value};
use serde_json::{Value as Json, json};

use crate::fields;
use crate::print::clock;

const FATAL_SIGNAL: &str = "flightline.FatalSignal";
const LAST_SAMPLE: &str = "flightline.LastSample";
const OUTAGE: &str = "flightline.Outage";

/// Maximum number of stored events of each kind; further ones are counted.
const KEPT: usize = 64;
/// Lines of each kind in the text.
const SHOWN: usize = 8;
/// Frames of a stack in the text.
const FRAMES: usize = 4;
/// Maximum length of a name; longer names are cut.
const NAME: usize = 200;

/// A signal that ended a process.
#[derive(Clone, Debug, Default)]
struct Death {
    at_nanos: i64,
    signal: String,
    reason: String,
    address: u64,
    sender: u64,
    thread: String,
    tid: i64,
    process: String,
    /// Leaf first.
    frames: Vec<String>,
}

/// A time in which the output accepted no data.
#[derive(Clone, Debug, Default)]
struct Pause {
    at_nanos: i64,
    took_nanos: i64,
    reason: String,
    samples: u64,
    cpu: u64,
}

/// Collects both.
#[derive(Clone, Debug, Default)]
pub(super) struct Ends {
    deaths: Vec<Death>,
    more_deaths: u64,
    /// Last samples of other threads, by process and the thread that received the signal.
    others: BTreeMap<(String, i64), u64>,
    pauses: Vec<Pause>,
    more_pauses: u64,
}

impl Ends {
    /// Returns true if events of this type belong here.
    pub(super) fn knows(name: &str) -> bool {
        matches!(name, FATAL_SIGNAL | LAST_SAMPLE | OUTAGE)
    }

    /// Adds an event. Fields that cannot be decoded are left out.
    pub(super) fn take(&mut self, event: &EventRef<'_>) {
        match &*event.class().name {
            FATAL_SIGNAL if self.deaths.len() < KEPT => self.deaths.push(Death::from_event(event)),
            FATAL_SIGNAL => self.more_deaths += 1,
            LAST_SAMPLE => {
                let (_, _, process) = event_thread(event);
                let by = (process, number(event, "thread"));
                if self.others.len() < KEPT || self.others.contains_key(&by) {
                    *self.others.entry(by).or_default() += 1;
                }
            }
            OUTAGE if self.pauses.len() < KEPT => self.pauses.push(Pause::from_event(event)),
            OUTAGE => self.more_pauses += 1,
            _ => {}
        }
    }

    /// Merges a later part.
    pub(super) fn merge(&mut self, later: Self) {
        let room = KEPT.saturating_sub(self.deaths.len());
        self.more_deaths += later.more_deaths + later.deaths.len().saturating_sub(room) as u64;
        self.deaths.extend(later.deaths.into_iter().take(room));
        for (by, count) in later.others {
            if self.others.len() < KEPT || self.others.contains_key(&by) {
                *self.others.entry(by).or_default() += count;
            }
        }
        let room = KEPT.saturating_sub(self.pauses.len());
        self.more_pauses += later.more_pauses + later.pauses.len().saturating_sub(room) as u64;
        self.pauses.extend(later.pauses.into_iter().take(room));
    }

    fn other_processes(&self, death: &Death) -> u64 {
        self.others.get(&(death.process.clone(), death.tid)).copied().unwrap_or(0)
    }

    /// Returns a sentence for each.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        let mut lines = |sentences: Vec<String>, more: u64, what: &str| {
            let more = more + sentences.len().saturating_sub(SHOWN) as u64;
            for sentence in sentences.iter().take(SHOWN) {
                out.push_str(&format!("\n{sentence}\n"));
            }
            if more > 0 {
                out.push_str(&format!("\n({more} more {what})\n"));
            }
        };
        let deaths = self.deaths.iter().map(|death| death.sentence(self.other_processes(death)));
        lines(deaths.collect(), self.more_deaths, "processes ended by a signal");
        lines(self.pauses.iter().map(Pause::sentence).collect(), self.more_pauses, "pauses");
        out
    }

    /// Returns signals and pauses as JSON.
    pub(super) fn to_json(&self) -> (Json, Json) {
        let deaths = self.deaths.iter().map(|death| {
            json!({
                "time": clock::iso(death.at_nanos), "signal": death.signal, "reason": death.reason,
                "address": format!("{:#x}", death.address), "sender": death.sender, "process": death.process,
                "thread": death.thread, "threadId": death.tid, "frames": death.frames,
                "otherThreads": self.other_processes(death),
            })
        });
        let pauses = self.pauses.iter().map(|pause| {
            json!({
                "time": clock::iso(pause.at_nanos), "durationNanos": pause.took_nanos, "reason": pause.reason,
                "samples": pause.samples, "cpu": pause.cpu,
            })
        });
        (Json::Array(deaths.collect()), Json::Array(pauses.collect()))
    }
}

impl Death {
    fn from_event(event: &EventRef<'_>) -> Self {
        let (thread, tid, process) = event_thread(event);
        let unsigned = |name| number(event, name) as u64;
        Self {
            at_nanos: event.start_nanos().unwrap_or(0),
            signal: text(event, "signal"),
            reason: text(event, "reason"),
            address: unsigned("address"),
            sender: unsigned("sender"),
            thread,
            tid,
            process,
            frames: frames(event),
        }
    }

    /// `SIGSEGV (SEGV_MAPERR at 0x10) ended server (4711) at …: in parse, called by read, main, thread worker (4712)`.
    fn sentence(&self, others: u64) -> String {
        let faults = ["SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE"].contains(&self.signal.as_str());
        let why = match (self.reason.as_str(), self.sender) {
            ("", _) => String::new(),
            (reason, 1..) => format!(" ({reason} from process {})", self.sender),
            ("SI_KERNEL", _) => " (SI_KERNEL)".to_owned(),
            (reason, _) if faults => format!(" ({reason} at {:#x})", self.address),
            (reason, _) => format!(" ({reason})"),
        };
        let process = if self.process.is_empty() { "the process" } else { &self.process };
        let mut frames = self.frames.iter();
        let place = frames.next().map(|first| {
            let callers: Vec<&str> = frames.map(String::as_str).collect();
            let callers = if callers.is_empty() {
                String::new()
            } else {
                format!(", called by {}", callers.join(", "))
            };
            format!(" in {first}{callers};")
        });
        let others = match others {
            0 => String::new(),
            1 => "; the last sample of 1 other thread is there too".to_owned(),
            n => format!("; the last samples of {n} other threads are there too"),
        };
        format!(
            "Ended: {}{why} ended {process} at {}:{} thread {} ({}){others}",
            self.signal,
            clock::iso(self.at_nanos),
            place.unwrap_or_default(),
            self.thread,
            self.tid,
        )
    }
}

impl Pause {
    fn from_event(event: &EventRef<'_>) -> Self {
        let unsigned = |name| u64::try_from(number(event, name)).unwrap_or(0);
        Self {
            at_nanos: event.start_nanos().unwrap_or(0),
            took_nanos: event.chunk().span_nanos(number(event, "duration").max(0)),
            reason: text(event, "reason"),
            samples: unsigned("samples"),
            cpu: unsigned("cpuTime"),
        }
    }

    fn sentence(&self) -> String {
        let reason = if self.reason.is_empty() { "the output took nothing" } else { &self.reason };
        format!(
            "Paused: for {} from {}, because {reason}: {} samples, {:.3} s of CPU time, were lost",
            clock::span(self.took_nanos),
            clock::iso(self.at_nanos),
            self.samples,
            self.cpu as f64 / 1e9,
        )
    }
}

fn number(event: &EventRef<'_>, name: &str) -> i64 {
    fields::number(&event.fields(), name).unwrap_or(0)
}

fn text(event: &EventRef<'_>, name: &str) -> String {
    field_text(&event.fields(), name)
}

fn field_text(of: &StructRef<'_>, name: &str) -> String {
    let text = fields::text(of, name).unwrap_or_default();
    text.chars().take(NAME).map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Returns name and id of the event's thread, and its process.
fn event_thread(event: &EventRef<'_>) -> (String, i64, String) {
    let record = |of: &StructRef<'_>, name: &str| {
        of.field(name)
            .ok()
            .flatten()
            .and_then(|value| value.record().ok().flatten().map(|r| field_text(&r, "name")))
    };
    let thread = event.field("eventThread").ok().flatten().and_then(|value| value.record().ok().flatten());
    let Some(thread) = thread else { return Default::default() };
    let id = thread.field("osThreadId").ok().flatten().and_then(|id| id.as_i64()).unwrap_or(0);
    (field_text(&thread, "osName"), id, record(&thread, "group").unwrap_or_default())
}

/// Returns the innermost functions of the event's stack.
fn frames(event: &EventRef<'_>) -> Vec<String> {
    let stack = event.field("stackTrace").ok().flatten().and_then(|value| value.record().ok().flatten());
    let Some(Value::Array(frames)) = stack.and_then(|stack| stack.field("frames").ok().flatten()) else {
        return Vec::new();
    };
    let name = |frame: Value<'_>| {
        let method = frame.record().ok()??.field("method").ok()??.record().ok()??;
        Some(field_text(&method, "name")).filter(|name| !name.is_empty())
    };
    frames.iter().take(FRAMES).filter_map(|frame| name(frame.ok()?)).collect()
}
