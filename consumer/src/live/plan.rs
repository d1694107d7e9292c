//! How events of a type are converted. Decided at the first event of the type in a chunk.

use std::collections::HashMap;
use std::sync::Arc;

use jfr_format::pool::KeyHash;
use jfr_format::read::{Binding, Chunk, Class, Field};

use super::item::Kind;
use crate::decode::losses::{LOSSES, LossPlan};
use crate::decode::schema::{Columns, SampleSchema};
use crate::decode::{SETTING, is_sample};
use crate::model::{EXECUTION_SAMPLE, WALL_CLOCK_SAMPLE};

/// The event at the end of each segment of a stream.
pub(super) const SEGMENT: &str = "flightline.Segment";
/// The event that states the span of samples.
pub(super) const CONTEXT: &str = "flightline.SampleContext";
const WATERMARK: &str = "flightline.Watermark";
const ANCHOR: &str = "flightline.ClockAnchor";

#[derive(Debug, Default)]
pub(super) enum Plan {
    #[default]
    Ignored,
    Setting,
    /// Both clocks: `startTime`, `monotonic`.
    Anchor(Binding),
    /// `startTime`, `sequence`, `offset`, `size`, `crc32`, `events`.
    Segment(Binding),
    Sample(Box<SamplePlan>),
    /// `startTime`, `eventThread`, `context`.
    Context(Binding),
    Watermark,
    Loss(LossPlan),
    /// Names of the contextual fields.
    Other(Arc<[Arc<str>]>),
}

/// Selects the events that become items.
#[derive(Clone, Debug, Default)]
pub(super) struct ItemFilter {
    /// Types of samples; all if empty.
    pub(super) samples: Vec<String>,
    /// Include samples of sleeping threads, which async-profiler before version 4 writes as
    /// [`EXECUTION_SAMPLE`].
    pub(super) asleep: bool,
    /// Include the wall clock's samples of this type, even if the type itself is not selected.
    pub(super) old_wall: bool,
    /// Exclude events that are neither samples nor losses.
    pub(super) no_others: bool,
    /// Include all duration events.
    pub(super) lasting: bool,
}

impl ItemFilter {
    /// Selects samples of these types, by name, alias or synonym; of all types if `samples` is empty.
    pub(super) fn from_names(samples: &[String]) -> Self {
        Self {
            samples: crate::fold::event_names(samples),
            asleep: samples.is_empty() || !samples.iter().all(|name| crate::fold::is_awake_only(name)),
            old_wall: crate::fold::loaded_names(samples).iter().any(|name| name == EXECUTION_SAMPLE),
            ..Self::default()
        }
    }

    fn includes(&self, class: &Class) -> bool {
        self.samples.is_empty() || self.samples.iter().any(|of| **of == *class.name)
    }

    fn only_as_wall(&self, class: &Class) -> bool {
        self.old_wall && &*class.name == EXECUTION_SAMPLE && !self.includes(class)
    }
}

/// Returns true if the wall clock's samples in a chunk are of the type [`EXECUTION_SAMPLE`]. Async-profiler before version 4 declares its own
/// types but not [`WALL_CLOCK_SAMPLE`]; the JDK declares none of them.
fn has_old_wall(chunk: &Chunk) -> bool {
    let classes = chunk.types.classes();
    let declares = |prefix: &str| classes.iter().any(|class| class.name.starts_with(prefix));
    declares("profiler.") && !declares(WALL_CLOCK_SAMPLE)
}

#[derive(Debug)]
pub(super) struct SamplePlan {
    pub(super) event: Arc<str>,
    pub(super) kind: Kind,
    pub(super) schema: SampleSchema,
    /// The event has fields that the schema does not decode.
    pub(super) others: bool,
    /// Samples in the state [`SLEEPING`](crate::model::SLEEPING) are not selected.
    pub(super) awake_only: bool,
    /// Samples in the state `STATE_DEFAULT` are not selected. The wall clock does not write this state.
    pub(super) wall_only: bool,
    /// Selected only because it is a duration event.
    pub(super) only_lasts: bool,
    pub(super) contextual: Arc<[Arc<str>]>,
}

/// Returns true for the types of duration events, and for types of samples that may have a duration.
pub(crate) fn may_last(class: &Class) -> bool {
    is_lasting(&class.name) || class.fields.iter().any(is_contextual)
}

impl Plan {
    pub(super) fn new(chunk: &Chunk, class: &Class, wanted: &ItemFilter) -> Self {
        let name = &*class.name;
        match name {
            SETTING if wanted.no_others => return Self::Setting,
            ANCHOR => return Self::Anchor(Binding::new(chunk, class, &["startTime", "monotonic"])),
            CONTEXT => {
                return Self::Context(Binding::new(chunk, class, &["startTime", "eventThread", "context"]));
            }
            WATERMARK => return Self::Watermark,
            SEGMENT => {
                let names = ["startTime", "sequence", "offset", "size", "crc32", "events"];
                return Self::Segment(Binding::new(chunk, class, &names));
            }
            _ => {}
        }
        if let Some(loss) = LOSSES.iter().find(|loss| *loss.name == *name) {
            return Self::Loss(*loss);
        }
        let lasting = || wanted.lasting && may_last(class);
        if is_sample(class) {
            let wall_only = wanted.only_as_wall(class);
            let named = wanted.includes(class) || wall_only && has_old_wall(chunk);
            let awake_only = name == EXECUTION_SAMPLE && !wanted.asleep;
            return match named || lasting() {
                true => Self::Sample(Box::new(SamplePlan {
                    only_lasts: !named,
                    awake_only,
                    wall_only,
                    ..SamplePlan::new(chunk, class)
                })),
                false => Self::Ignored,
            };
        }
        if wanted.no_others && !lasting() { Self::Ignored } else { Self::Other(contextual(class)) }
    }
}

impl Plan {
    /// Returns true if events of a type are ignored, as far as this can be decided without the chunk.
    pub(super) fn is_none(class: &Class, wanted: &ItemFilter) -> bool {
        let name = &*class.name;
        let told = [SETTING, CONTEXT, SEGMENT].contains(&name) || LOSSES.iter().any(|loss| loss.name == name);
        let named = || wanted.includes(class) || wanted.only_as_wall(class);
        !(told || is_sample(class) && named())
    }
}

impl SamplePlan {
    fn new(chunk: &Chunk, class: &Class) -> Self {
        let schema = SampleSchema::new(chunk, class, Columns::All);
        Self {
            event: class.name.clone(),
            kind: Kind::from_event(&class.name),
            others: schema.has_undecoded_fields(class),
            schema,
            awake_only: false,
            wall_only: false,
            only_lasts: false,
            contextual: contextual(class),
        }
    }
}

/// Pauses of the garbage collector; some have no thread.
pub(crate) const COLLECTOR: [&str; 2] = ["jdk.GCPhasePause", "jdk.GarbageCollection"];

/// Returns true if the name identifies a type of duration events. Types with contextual fields are
/// duration events too.
fn is_lasting(event: &str) -> bool {
    matches!(Kind::from_event(event), Kind::Lock | Kind::Io)
        || COLLECTOR.contains(&event)
        || matches!(
            event,
            "flightline.Span" | "flightline.OpenSpan" | "flightline.SpanScope" | "profiler.Span"
        )
}

fn is_contextual(field: &Field) -> bool {
    field.annotation("jdk.jfr.Contextual").is_some()
}

/// Returns the fields that provide context for other events of the thread.
fn contextual(class: &Class) -> Arc<[Arc<str>]> {
    let fields = class.fields.iter().filter(|field| is_contextual(field));
    fields.map(|field| field.name.clone()).collect()
}

/// The plans of a chunk by type id.
#[derive(Debug, Default)]
pub(super) struct Plans(HashMap<u64, Plan, KeyHash>);

impl Plans {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the plan for `type_id`. Events of undeclared types are ignored; the decoder warns about
    /// them.
    pub(super) fn get(&mut self, chunk: &Chunk, type_id: u64, wanted: &ItemFilter) -> &Plan {
        // Does not cache undeclared types, because damage can produce any number of them.
        let Some(class) = chunk.types.by_id(type_id) else { return &Plan::Ignored };
        self.0.entry(type_id).or_insert_with(|| Plan::new(chunk, class, wanted))
    }
}
