//! Finds the fields of a sample event type by their meaning, and decodes its events.

use std::num::NonZero;

use jfr_format::error::Error;
use jfr_format::read::{Binding, Chunk, Class, Field, Frame, Kind};

use crate::model::Unit;

/// Converts a stored value to nanoseconds or bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Times(u64),
    Ticks,
}

impl Scale {
    /// Returns the value in its unit.
    #[inline]
    fn apply(self, chunk: &Chunk, value: i64) -> u64 {
        match self {
            Self::Ticks => u64::try_from(chunk.span_nanos(value)).unwrap_or(0),
            Self::Times(factor) => u64::try_from(value).unwrap_or(0).saturating_mul(factor),
        }
    }
}

/// Names of the fields with the thread, weight and detail of a sample; empty if the type has no such
/// field.
struct FieldNames {
    thread: &'static str,
    /// Number of samples that an event represents.
    count: &'static str,
    /// The count is a floating-point factor of the value.
    is_factor: bool,
    value: &'static str,
    unit: Unit,
    scale: Scale,
    /// The variant of an event, the called method, or the class of an object.
    detail: &'static str,
}

impl FieldNames {
    fn new(chunk: &Chunk, class: &Class) -> Self {
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
                encoding(chunk, &class.fields[index]) == Some(Kind::Float) && !class.fields[index].pooled
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

/// The type with an exact duration in a field of its own; its `duration` is rounded to the recording's ticks.
const EXACT: (&str, &str) = ("flightline.OffCpu", "nanos");

/// Producers whose fields have the meaning of their name, annotated or not.
const KNOWN: &[&str] = &["jdk.", "profiler.", "flightline."];

/// Fields that a consumer does not always need. The thread, the stack and the weight are always decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Columns {
    /// No others.
    Sums,
    /// The start time and the exact duration too.
    Times,
    /// All.
    All,
}

/// The keys and numbers of a sample. Keys are 0, and numbers 0, where the type has no such field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawSample {
    /// In ticks of the chunk.
    pub(crate) start: i64,
    pub(crate) thread: u64,
    pub(crate) stack: u64,
    pub(crate) state: u64,
    /// The variant of an event, the called method, or the class of an object; see [`Detail`].
    pub(crate) detail: u64,
    /// Number of samples that the event represents.
    pub(crate) samples: u64,
    /// In the unit of the type.
    pub(crate) value: u64,
    pub(crate) span: u64,
    /// In ns.
    pub(crate) duration: Option<u64>,
}

/// The meaning of [`RawSample::detail`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    None,
    Variant,
    CalledMethod,
    Class,
}

/// A sample event type of a chunk.
#[derive(Debug)]
pub(crate) struct SampleSchema {
    binding: Binding,
    /// Names of the slots; empty if the type has no such field.
    names: Box<[&'static str]>,
    /// The unit of the values of events that have one.
    pub(crate) unit: Unit,
    scale: Scale,
    pub(crate) detail: Detail,
    /// The count is a floating-point factor of the value.
    pub(crate) is_factor: bool,
    has_count: bool,
    duration: Duration,
    /// All fields except the start are thread, stack and state, so that events can be compared without
    /// decoding.
    is_plain: bool,
}

/// The field with the duration of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Duration {
    None,
    /// The one with its value.
    Value,
    /// A field of its own, in ticks or in ns.
    Ticks,
    Nanos,
}

/// Slots of [`SampleSchema::binding`].
const START: usize = 0;
const THREAD: usize = 1;
const STACK: usize = 2;
const STATE: usize = 3;
const COUNT: usize = 4;
const VALUE: usize = 5;
const DETAIL: usize = 6;
const SPAN: usize = 7;
const DURATION: usize = 8;
const SLOTS: usize = 9;

impl SampleSchema {
    pub(crate) fn new(chunk: &Chunk, class: &Class, columns: Columns) -> Self {
        let FieldNames { thread, count, is_factor, value, unit, scale, detail } =
            FieldNames::new(chunk, class);
        let is_used = |used: bool, name: &'static str| if used { name } else { "" };
        let names = [
            is_used(columns != Columns::Sums, "startTime"),
            thread,
            "stackTrace",
            "state",
            count,
            value,
            detail,
            is_used(columns == Columns::All, "spanId"),
            match columns {
                Columns::Times if &*class.name == EXACT.0 => EXACT.1,
                Columns::Times | Columns::All if value != "duration" => "duration",
                _ => "",
            },
        ];
        // A slot without a matching field remains unbound.
        let binding = Binding::new(chunk, class, &names);
        let keys = [THREAD, STACK, STATE].into_iter().filter(|&slot| binding.is_bound(slot)).count();
        let starts_with_time = class.fields.first().is_some_and(|field| {
            &*field.name == "startTime" && encoding(chunk, field) == Some(Kind::Long) && !field.pooled
        });
        Self {
            names: names
                .iter()
                .enumerate()
                .map(|(slot, name)| is_used(binding.is_bound(slot), name))
                .collect(),
            unit,
            scale,
            detail: match detail {
                _ if !binding.is_bound(DETAIL) => Detail::None,
                super::VARIANT => Detail::Variant,
                super::CALLED => Detail::CalledMethod,
                _ => Detail::Class,
            },
            is_factor,
            has_count: binding.is_bound(COUNT) && !is_factor,
            duration: match (names[DURATION], value) {
                (name, _) if binding.is_bound(DURATION) => match name == EXACT.1 {
                    true => Duration::Nanos,
                    false => Duration::Ticks,
                },
                (_, "duration") => Duration::Value,
                _ => Duration::None,
            },
            is_plain: columns == Columns::Sums && class.fields.len() == keys + 1 && starts_with_time,
            binding,
        }
    }

    /// Decodes an event.
    ///
    /// # Errors
    /// The event is malformed.
    #[inline(always)]
    pub(crate) fn decode(&self, chunk: &Chunk, frame: &Frame<'_>) -> Result<RawSample, Error> {
        let fields: [u64; SLOTS] = values(chunk, frame, &self.binding)?;
        let value = self.scale.apply(chunk, fields[VALUE] as i64);
        Ok(RawSample {
            start: fields[START] as i64,
            thread: fields[THREAD],
            stack: fields[STACK],
            state: fields[STATE],
            detail: fields[DETAIL],
            samples: if self.has_count { fields[COUNT] } else { 1 },
            value: if self.is_factor { scaled(value, fields[COUNT]) } else { value },
            span: fields[SPAN],
            duration: match self.duration {
                Duration::None => None,
                Duration::Value => Some(value),
                Duration::Ticks => Some(Scale::Ticks.apply(chunk, fields[DURATION] as i64)),
                Duration::Nanos => u64::try_from(fields[DURATION] as i64).ok(),
            },
        })
    }

    /// Returns the bytes that equal samples share, if samples can be compared without decoding.
    #[inline(always)]
    pub(crate) fn likeness(&self, frame: &Frame<'_>) -> Option<NonZero<u64>> {
        if self.is_plain { frame.short_bytes_behind_start() } else { None }
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.is_plain
    }

    pub(crate) fn has_start(&self) -> bool {
        self.binding.is_bound(START)
    }

    pub(crate) fn has_thread(&self) -> bool {
        self.binding.is_bound(THREAD)
    }

    pub(crate) fn has_stack(&self) -> bool {
        self.binding.is_bound(STACK)
    }

    pub(crate) fn has_state(&self) -> bool {
        self.binding.is_bound(STATE)
    }

    pub(crate) fn has_value(&self) -> bool {
        self.binding.is_bound(VALUE)
    }

    pub(crate) fn has_duration(&self) -> bool {
        self.duration != Duration::None
    }

    /// Returns true if this field is not represented in [`RawSample`]. A called method and a class remain
    /// fields of the sample.
    pub(crate) fn is_other_field(&self, name: &str) -> bool {
        name == super::CALLED || super::CLASS_FIELDS.contains(&name) || !self.names.contains(&name)
    }

    /// Returns true if events of the type have fields that are not decoded.
    pub(crate) fn has_undecoded_fields(&self, class: &Class) -> bool {
        class.fields.iter().any(|field| self.is_other_field(&field.name))
    }
}

/// Reads the bound fields of an event.
///
/// # Errors
/// The event is malformed.
#[inline(always)]
pub(crate) fn values<const N: usize>(
    chunk: &Chunk,
    frame: &Frame<'_>,
    binding: &Binding,
) -> Result<[u64; N], Error> {
    binding.values_in(chunk, frame).map_err(|fault| {
        let name = chunk.types.by_id(frame.type_id).map_or("", |class| &*class.name);
        Error::from_fault(fault, frame.offset, chunk.index, format!("an event {name}"))
    })
}

/// Returns `value` times a floating-point number, which is given as its bits.
fn scaled(value: u64, factor: u64) -> u64 {
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
    let whole = matches!(encoding(chunk, field), Some(Kind::Int | Kind::Long)) && !field.pooled;
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
fn encoding(chunk: &Chunk, field: &Field) -> Option<Kind> {
    let class = field.class.filter(|_| !field.array).and_then(|index| chunk.types.class(index));
    class.map(|class| class.kind)
}
