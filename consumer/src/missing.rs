//! Data missing from a flame graph: the losses that the recording reports, relative to the data shown.

use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::sync::Arc;

use crate::decode::VARIED;
use crate::decode::losses::{CPU_TIME_LOST, DATA_LOSS, EVENT_LOSS, SAMPLE_LOSS, STREAM_LOSS};
use crate::fold::{self, FoldOptions};
use crate::format::{amount, bytes};
use crate::model::{Losses, Lost, Model, Unit, Weight};

/// Percentage from which losses are reported. The first and last moments of each thread are never
/// sampled.
const WORTH_PERCENT: f64 = 1.0;

/// Losses of the events in a flame graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Missing {
    percent: f64,
    causes: Vec<String>,
}

impl Missing {
    /// Returns the losses of events of these types, where `there` is the weight of the recorded ones.
    fn new(losses: &Losses, types: &BTreeSet<Arc<str>>, there: Weight, unit: Unit) -> Option<Self> {
        let any = |name: &str| types.iter().any(|of| **of == *name);
        let (mut lost, mut causes) = (Lost::default(), Vec::new());
        for (told_by, of, one) in losses.iter() {
            let cause = match told_by {
                SAMPLE_LOSS if any("jdk.ExecutionSample") => match one.nanos {
                    0 => continue,
                    nanos => format!("{of} {}", amount(nanos, "ns")),
                },
                EVENT_LOSS if types.iter().any(|name| concerns_type(of, name)) => {
                    format!("{} of {of}", one.events)
                }
                STREAM_LOSS if of.is_empty() => format!("{} of the stream", bytes(one.bytes)),
                STREAM_LOSS if any(of) => format!("{} on the way", one.events),
                CPU_TIME_LOST if any("jdk.CPUTimeSample") => format!("{} samples", one.events),
                DATA_LOSS => format!("{} by the JVM", bytes(one.bytes)),
                _ => continue,
            };
            lost.add(one);
            causes.push(cause);
        }
        // CPU samples represent time, so a sample with a longer period counts more.
        let (lost_of, there) = match unit {
            Unit::Nanoseconds if lost.nanos > 0 => (lost.nanos, there.value),
            _ => (lost.events, there.count),
        };
        let percent = 100.0 * lost_of as f64 / (lost_of as f64 + there as f64).max(1.0);
        (percent >= WORTH_PERCENT || lost.bytes > 0).then_some(Self { percent, causes })
    }

    /// Returns a short text for a flame graph; `None` if the share is not known.
    pub fn share(&self) -> Option<String> {
        (self.percent >= WORTH_PERCENT).then(|| format!("{:.1} % lost", self.percent))
    }
}

impl Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.share() {
            Some(share) => write!(f, "{share}: {}", self.causes.join(", ")),
            None => write!(f, "lost: {}", self.causes.join(", ")),
        }
    }
}

/// Returns the losses of the events that `options` select, if the recording reports at least one percent.
pub fn selected_losses(model: &Model, options: &FoldOptions) -> Option<Missing> {
    if model.losses.is_empty() {
        return None;
    }
    let (types, there, unit) = fold::selected_totals(model, options)?;
    Missing::new(&model.losses, &types, there, unit)
}

/// Returns true if losses with this name concern events of this type.
fn concerns_type(lost: &str, event_type: &str) -> bool {
    let of = lost.split_once(':').map_or(lost, |(engine, _)| engine);
    match of {
        "perf" => event_type == VARIED,
        "kernel-io" => matches!(fold::alias(event_type), Some("io" | "block" | "growth")),
        of => fold::alias(event_type) == Some(of),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(told: &[(&'static str, &str, u64, u64)]) -> Losses {
        let mut losses = Losses::default();
        for &(told_by, of, events, nanos) in told {
            losses.add(told_by, of.to_owned(), Lost { events, nanos, bytes: 0 });
        }
        losses
    }

    fn share_text(losses: &Losses, event: &str, there: (u64, u64), unit: Unit) -> Option<String> {
        let there = Weight { count: there.0, value: there.1 };
        Missing::new(losses, &[Arc::from(event)].into(), there, unit).map(|missing| missing.to_string())
    }

    #[test]
    fn only_selected_event_losses_are_reported() {
        let lost = losses(&[
            (SAMPLE_LOSS, "ring full", 5, 50_000_000),
            (SAMPLE_LOSS, "not armed", 0, 10_000_000),
            (EVENT_LOSS, "alloc", 100, 0),
            (EVENT_LOSS, "kernel-io: output full", 7, 0),
        ]);
        let cpu = share_text(&lost, "jdk.ExecutionSample", (54, 540_000_000), Unit::Nanoseconds);
        assert_eq!(cpu.as_deref(), Some("10.0 % lost: not armed 10.0 ms, ring full 50.0 ms"));
        let alloc = share_text(&lost, "profiler.Malloc", (300, 1 << 20), Unit::Bytes);
        assert_eq!(alloc.as_deref(), Some("25.0 % lost: 100 of alloc"));
        assert!(
            share_text(&lost, "jdk.FileRead", (1, 1), Unit::Nanoseconds).unwrap().starts_with("87.5 % lost")
        );
        assert_eq!(share_text(&lost, "profiler.WallClockSample", (300, 300), Unit::Nanoseconds), None);
    }

    #[test]
    fn losses_below_one_percent_are_not_reported() {
        let lost = losses(&[(SAMPLE_LOSS, "not armed", 0, 10)]);
        assert_eq!(share_text(&lost, "jdk.ExecutionSample", (9, 1000), Unit::Nanoseconds), None);
        assert!(share_text(&lost, "jdk.ExecutionSample", (9, 990), Unit::Nanoseconds).is_some());
    }

    #[test]
    fn jvm_data_loss_is_reported_in_bytes() {
        let mut lost = Losses::default();
        lost.add(DATA_LOSS, String::new(), Lost { bytes: 4096, ..Lost::default() });
        let told = share_text(&lost, "jdk.ExecutionSample", (1000, 0), Unit::Samples);
        assert_eq!(told.as_deref(), Some("lost: 4.0 KiB by the JVM"));
    }
}
