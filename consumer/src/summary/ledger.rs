//! Flightline's own account: CPU time per thread, sampled and lost, and the causes of loss.

use std::collections::BTreeMap;

use jfr_format::event::EventRef;

/// CPU time of one thread, in ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadTime {
    /// By its clock.
    pub cpu: u64,
    /// What samples stand for.
    pub sampled: u64,
    /// What was lost, by whatever cause.
    pub lost: u64,
}

/// What one cause has cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// Samples.
    pub samples: u64,
    /// CPU time they stood for, in ns.
    pub cpu: u64,
}

/// The account of a recording.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// By thread label.
    pub threads: BTreeMap<String, ThreadTime>,
    /// By cause.
    pub losses: BTreeMap<String, Cause>,
    /// Samples whose stack was cut, by cause.
    pub truncated: BTreeMap<String, u64>,
    /// What the recorder had to say.
    pub notices: Vec<String>,
}

const THREAD_CPU: &str = "flightline.ThreadCpu";
const SAMPLE_LOSS: &str = "flightline.SampleLoss";
const SAMPLE_TRUNCATED: &str = "flightline.SampleTruncated";
const NOTICE: &str = "flightline.Notice";

impl Ledger {
    /// Whether events of this type belong to the account.
    pub(super) fn knows(name: &str) -> bool {
        matches!(name, THREAD_CPU | SAMPLE_LOSS | SAMPLE_TRUNCATED | NOTICE)
    }

    /// Enters an event. Each tells what came up since the one before; one that cannot be decoded is left out.
    pub(super) fn take(&mut self, event: &EventRef<'_>) {
        let number = |name| {
            let value = event.field(name).ok().flatten().and_then(|v| v.as_i64());
            value.and_then(|v| u64::try_from(v).ok()).unwrap_or(0)
        };
        let text = |name| {
            let value = event.field(name).ok().flatten().and_then(|v| v.text().ok().flatten());
            value.map(|t| t.into_owned()).unwrap_or_default()
        };
        match &*event.class().name {
            THREAD_CPU => {
                let thread = self.threads.entry(thread_label(event)).or_default();
                thread.cpu = thread.cpu.saturating_add(number("cpuTime"));
                thread.sampled = thread.sampled.saturating_add(number("sampled"));
                thread.lost = thread.lost.saturating_add(number("lost"));
            }
            SAMPLE_LOSS => {
                let cause = self.losses.entry(text("cause")).or_default();
                cause.samples = cause.samples.saturating_add(number("samples"));
                cause.cpu = cause.cpu.saturating_add(number("cpuTime"));
            }
            SAMPLE_TRUNCATED => {
                let samples = self.truncated.entry(text("cause")).or_default();
                *samples = samples.saturating_add(number("samples"));
            }
            NOTICE => self.notices.push(text("message")),
            _ => {}
        }
    }
}

fn thread_label(event: &EventRef<'_>) -> String {
    let thread = event.field("eventThread").ok().flatten().and_then(|v| v.record().ok().flatten());
    let Some(thread) = thread else { return "[no thread]".into() };
    let name = thread.field("osName").ok().flatten().and_then(|v| v.text().ok().flatten());
    let id = thread.field("osThreadId").ok().flatten().and_then(|v| v.as_i64()).unwrap_or(0);
    format!("{} ({id})", name.unwrap_or_default())
}
