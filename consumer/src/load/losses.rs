//! Events that tell of losses: what their fields are called, here and for `live`, and how the model gets what they say.

use jfr_format::event::EventRef;

use crate::model::{Losses, Lost};

pub(crate) const SAMPLE_LOSS: &str = "flightline.SampleLoss";
pub(crate) const EVENT_LOSS: &str = "flightline.EventLoss";
/// What one reader of a stream did not get.
pub(crate) const STREAM_LOSS: &str = "flightline.StreamLoss";
pub(crate) const DATA_LOSS: &str = "jdk.DataLoss";
pub(crate) const CPU_TIME_LOST: &str = "jdk.CPUTimeSamplesLost";

/// What a type of losses calls what it tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LossPlan {
    /// The event type, if it is not a field.
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

/// Each amount is told by one of them only, so that they can be added up by kind.
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

/// Who follows a stream gets it as any other event.
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

/// Whether events of this type tell of losses.
pub(super) fn knows(name: &str) -> bool {
    plan(name).is_some()
}

/// Adds what an event of such a type tells, which is new since the one before.
pub(super) fn take(losses: &mut Losses, event: &EventRef<'_>) {
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
