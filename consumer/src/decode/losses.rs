//! Events that report losses: the names of their fields, also for `live`, and how they are added to a
//! model.

use jfr_format::event::EventRef;

use crate::model::{Losses, Lost};

pub(crate) const SAMPLE_LOSS: &str = "flightline.SampleLoss";
pub(crate) const EVENT_LOSS: &str = "flightline.EventLoss";
/// Losses of one reader of a stream.
pub(crate) const STREAM_LOSS: &str = "flightline.StreamLoss";
pub(crate) const DATA_LOSS: &str = "jdk.DataLoss";
pub(crate) const CPU_TIME_LOST: &str = "jdk.CPUTimeSamplesLost";

/// The fields of an event type that reports losses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LossPlan {
    /// The event type.
    pub(crate) name: &'static str,
    pub(crate) cause: Cause,
    pub(crate) event: &'static str,
    pub(crate) events: &'static str,
    pub(crate) bytes: &'static str,
    pub(crate) cpu: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Cause {
    Field(&'static str),
    Always(&'static str),
}

/// Each loss is reported by only one of them, so that they can be added up by kind.
pub(crate) const LOSSES: &[LossPlan] = &[
    LossPlan {
        name: SAMPLE_LOSS,
        cause: Cause::Field("cause"),
        event: "",
        events: "samples",
        bytes: "",
        cpu: "cpuTime",
    },
    LossPlan {
        name: EVENT_LOSS,
        cause: Cause::Always("no room"),
        event: "event",
        events: "count",
        bytes: "",
        cpu: "",
    },
    LossPlan {
        name: STREAM_LOSS,
        cause: Cause::Field("cause"),
        event: "eventType",
        events: "events",
        bytes: "bytes",
        cpu: "",
    },
    LossPlan {
        name: DATA_LOSS,
        cause: Cause::Always("data loss"),
        event: "",
        events: "",
        bytes: "amount",
        cpu: "",
    },
];

/// Readers of a stream get it as an ordinary event.
const OF_CPU_TIME: LossPlan = LossPlan {
    name: CPU_TIME_LOST,
    cause: Cause::Always("samples lost"),
    event: "",
    events: "lostSamples",
    bytes: "",
    cpu: "",
};

fn plan(name: &str) -> Option<&'static LossPlan> {
    LOSSES.iter().chain([&OF_CPU_TIME]).find(|plan| plan.name == name)
}

/// Returns true if events of this type report losses.
pub(crate) fn knows(name: &str) -> bool {
    plan(name).is_some()
}

/// Adds the losses that an event reports since the one before.
pub(crate) fn take(losses: &mut Losses, event: &EventRef<'_>) {
    let Some(plan) = plan(&event.class().name) else { return };
    let field = |name| event.field(name).ok().flatten();
    let number = |name| field(name).and_then(|v| u64::try_from(v.as_i64()?).ok()).unwrap_or(0);
    let of = match plan.cause {
        Cause::Field(cause) if plan.event.is_empty() => cause,
        _ => plan.event,
    };
    let text = field(of).and_then(|v| v.text().ok().flatten());
    let of = text.map(|t| t.into_owned()).unwrap_or_default();
    let lost = Lost { events: number(plan.events), nanos: number(plan.cpu), bytes: number(plan.bytes) };
    losses.add(plan.name, of, lost);
}
