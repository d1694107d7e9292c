//! Finds the fields of a sample event type by their meaning.

use std::num::NonZero;

use jfr_format::error::Error;
use jfr_format::read::{Batch, Binding, Chunk, Class, Field, Frame, Kind};

use super::LoadOptions;
use super::sums::{RawKey, Repeats};
use crate::model::{EventKind, Id, Interner, Model, Unit, Weight};

/// A sample event type of the current chunk.
#[derive(Debug)]
pub(super) struct Bound {
    kind: Id<EventKind>,
    binding: Binding,
    scale: Scale,
    has_state: bool,
    has_detail: bool,
    has_count: bool,
    is_factor: bool,
    /// The start time is needed and the type has one.
    timed: bool,
    /// All fields except the start are thread, stack and state.
    pub(super) plain: bool,
    /// Samples that are equal except for their start, if `plain`.
    pub(super) repeats: Repeats,
}

/// Converts a stored value to nanoseconds or bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    Times(u64),
    Ticks,
}

impl Scale {
    /// Returns the value in its unit.
    #[inline]
    pub(crate) fn of(self, chunk: &Chunk, value: i64) -> u64 {
        match self {
            Self::Ticks => u64::try_from(chunk.span_nanos(value)).unwrap_or(0),
            Self::Times(factor) => u64::try_from(value).unwrap_or(0).saturating_mul(factor),
        }
    }
}

/// Names of the fields with the thread, weight and detail of a sample; empty if the type has no such
/// field.
pub(crate) struct Names {
    pub(crate) thread: &'static str,
    /// Number of samples that an event represents.
    pub(crate) count: &'static str,
    /// The count is a floating-point factor of the value.
    pub(crate) is_factor: bool,
    pub(crate) value: &'static str,
    pub(crate) unit: Unit,
    pub(crate) scale: Scale,
    /// The variant of an event, the called method, or the class of an object.
    pub(crate) detail: &'static str,
}

impl Names {
    pub(crate) fn of(chunk: &Chunk, class: &Class) -> Self {
        let known = KNOWN.iter().any(|prefix| class.name.starts_with(prefix));
        let thread = ["sampledThread", "eventThread"].into_iter().find(|n| class.field_index(n).is_some());
        let is_ours = || chunk.types.classes().iter().any(|class| class.name.starts_with("flightline."));
        let value = VALUES.iter().find_map(|&(name, unit)| {
            // In recordings of async-profiler this is the time between the first and the last sample. Each sample represents one interval.
            if name == "timeSpan" && !is_ours() {
                return None;
            }
            let field = &class.fields[class.field_index(name)?];
            Some((name, unit, scale(chunk, field, unit, known)?))
        });
        let (value, unit, scale) = value.unwrap_or(("", Unit::Samples, Scale::Times(1)));
        // An allocation sample of Datadog represents `weight` objects of `size` bytes.
        let is_factor = matches!(&*class.name, "datadog.ObjectSample" | "datadog.HeapLiveObject")
            && class.field_index("weight").is_some_and(|index| {
                kind_of(chunk, &class.fields[index]) == Some(Kind::Float) && !class.fields[index].pooled
            });
        Self {
            thread: thread.unwrap_or(""),
            is_factor,
            count: match &*class.name {
                "datadog.ExecutionSample" | "datadog.MethodSample" => "weight",
                _ if is_factor => "weight",
                _ if known => "samples",
                _ => "",
            },
            value,
            unit,
            scale,
            detail: match &*class.name {
                super::VARIED => super::VARIANT,
                super::CALL => super::CALLED,
                _ => class_field(chunk, class),
            },
        }
    }
}

/// Fields with the weight of an event; the first one of a type is used. An allocation in a new TLAB
/// represents the whole TLAB, because later allocations in it are not recorded.
const VALUES: &[(&str, Unit)] = &[
    ("timeSpan", Unit::Nanoseconds),
    ("samplingPeriod", Unit::Nanoseconds),
    ("weight", Unit::Bytes),
    ("tlabSize", Unit::Bytes),
    ("allocationSize", Unit::Bytes),
    ("objectSize", Unit::Bytes),
    ("size", Unit::Bytes),
    ("duration", Unit::Nanoseconds),
    ("bytes", Unit::Bytes),
    ("count", Unit::Events),
];

/// Producers whose fields have the meaning of their name, annotated or not.
const KNOWN: &[&str] = &["jdk.", "profiler.", "flightline."];

/// Slots of [`Bound::binding`].
const START: usize = 0;
const THREAD: usize = 1;
const STACK: usize = 2;
const STATE: usize = 3;
const COUNT: usize = 4;
const VALUE: usize = 5;
const DETAIL: usize = 6;

impl Bound {
    pub(super) fn new(chunk: &Chunk, class: &Class, timed: bool, kinds: &mut Interner<EventKind>) -> Self {
        let Names { thread, count, is_factor, value, unit, scale, detail } = Names::of(chunk, class);
        // A slot without a matching field remains unbound.
        let start = if timed { "startTime" } else { "" };
        let names = [start, thread, "stackTrace", "state", count, value, detail];
        let kind = EventKind { name: class.name.clone(), variant: None, unit, period_nanos: None };
        let kind = kinds.intern(kind);
        let binding = Binding::new(chunk, class, &names);
        let fields = [THREAD, STACK, STATE].into_iter().filter(|&slot| binding.is_bound(slot)).count();
        let starts_with_time = class.fields.first().is_some_and(|field| {
            &*field.name == "startTime" && kind_of(chunk, field) == Some(Kind::Long) && !field.pooled
        });
        Self {
            kind,
            scale,
            has_state: binding.is_bound(STATE),
            has_detail: binding.is_bound(DETAIL),
            has_count: binding.is_bound(COUNT) && !is_factor,
            is_factor,
            timed: binding.is_bound(START),
            plain: !timed && class.fields.len() == fields + 1 && starts_with_time,
            repeats: Repeats::default(),
            binding,
        }
    }

    /// Returns the bytes that equal samples share, if samples can be compared without decoding.
    #[inline(always)]
    pub(super) fn likeness(&self, frame: &Frame<'_>) -> Option<NonZero<u64>> {
        if self.plain { frame.short_bytes_behind_start() } else { None }
    }

    /// Returns the sample in `frame`; `None` if it is outside the requested time.
    #[inline(always)]
    pub(super) fn read(
        &self,
        options: &LoadOptions,
        model: &Model,
        batch: &Batch<'_>,
        frame: &Frame<'_>,
    ) -> Result<Option<(RawKey, Weight)>, Error> {
        let chunk = batch.chunk();
        let fields = match self.binding.values_in::<7>(chunk, frame) {
            Ok(fields) => fields,
            Err(fault) => {
                let class = batch.event(frame).map(|event| event.class());
                let what = format!("an event {}", class.map_or("", |class| &class.name));
                return Err(Error::from_fault(fault, frame.offset, chunk.index, what));
            }
        };
        if self.timed && !options.wants(model, chunk, fields[START] as i64) {
            return Ok(None);
        }
        let mut value = self.scale.of(chunk, fields[VALUE] as i64);
        if self.is_factor {
            value = scaled(value, fields[COUNT]);
        }
        let key = RawKey {
            kind: self.kind,
            thread: fields[THREAD],
            stack: fields[STACK],
            state: if self.has_state { fields[STATE] } else { u64::MAX },
            detail: if self.has_detail { fields[DETAIL] } else { u64::MAX },
        };
        let count = if self.has_count { fields[COUNT] } else { 1 };
        Ok(Some((key, Weight { count, value })))
    }
}

/// Returns `value` times a floating-point number, which is given as its bits.
pub(crate) fn scaled(value: u64, factor: u64) -> u64 {
    let factor = f32::from_bits(u32::try_from(factor).unwrap_or(0));
    // The conversion saturates, and turns NaN into 0.
    (value as f64 * f64::from(factor)).round() as u64
}

/// Returns the field with the class of an object, or an empty name. Other producers may use these names
/// for fields of other types.
fn class_field(chunk: &Chunk, class: &Class) -> &'static str {
    let is_class = |name: &&&str| {
        let field = class.field_index(name).map(|index| &class.fields[index]);
        let of =
            field.and_then(|field| chunk.types.class(field.class.filter(|_| field.pooled && !field.array)?));
        of.is_some_and(|of| &*of.name == "java.lang.Class")
    };
    super::CLASS_FIELDS.iter().find(is_class).copied().unwrap_or("")
}

/// Returns the scale with which a field measures `unit`; `None` if it measures something else.
fn scale(chunk: &Chunk, field: &Field, unit: Unit, known: bool) -> Option<Scale> {
    let whole = matches!(kind_of(chunk, field), Some(Kind::Int | Kind::Long)) && !field.pooled;
    if !whole {
        return None;
    }
    if unit == Unit::Bytes {
        let bytes = field.annotation("jdk.jfr.DataAmount").map(|amount| amount.value() != Some("BITS"));
        return bytes.unwrap_or(known).then_some(Scale::Times(1));
    }
    if unit == Unit::Events {
        return known.then_some(Scale::Times(1));
    }
    let span = field.annotation("jdk.jfr.Timespan");
    match span.map(|span| span.value().unwrap_or("TICKS")) {
        Some("TICKS") => Some(Scale::Ticks),
        Some("NANOSECONDS") => Some(Scale::Times(1)),
        Some("MICROSECONDS") => Some(Scale::Times(1_000)),
        Some("MILLISECONDS") => Some(Scale::Times(1_000_000)),
        Some("SECONDS") => Some(Scale::Times(1_000_000_000)),
        Some(_) => None,
        // `duration` is defined by the format, not by the event type.
        None => (known || &*field.name == "duration").then_some(Scale::Ticks),
    }
}

/// Returns the encoding of a field's values; `None` for a list.
fn kind_of(chunk: &Chunk, field: &Field) -> Option<Kind> {
    let class = field.class.filter(|_| !field.array).and_then(|index| chunk.types.class(index));
    class.map(|class| class.kind)
}
