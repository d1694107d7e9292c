//! Binds paths to the fields of an event type in a chunk.

use std::collections::HashMap;
use std::sync::Arc;

use jfr_format::error::Error;
use jfr_format::event::{EventRef, Value};
use jfr_format::read::{Binding, Chunk, Class, Field, Kind};

use super::datum::{Datum, Measure, bits_value};
use super::names::{Names, Part};
use super::plan;
use crate::decode::settings::Settings;

/// Used instead of a field: the time that the event's samples represent.
const SPAN: &str = "@span";
/// Used after a field with the id of an event type: the type's label.
const EVENT_TYPE: &str = "@event";

/// Maximum number of fields that a binding decodes at once; `startTime` is the first.
const SLOTS: usize = 16;

/// The target of a path.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// The event type has no such field.
    Missing,
    /// A constant for all events of the type.
    Fixed(Datum),
    /// The time that the event's samples represent: their number in the slot (1 without a slot) times the
    /// interval in the settings.
    Samples { slot: Option<usize> },
    /// A field, or a part of it.
    Field { slot: usize, rest: Vec<Arc<str>>, measure: Measure, id: usize },
}

/// The fields of an event type that are needed.
#[derive(Debug)]
pub(super) struct Fields {
    /// For each slot, the position in the class.
    wanted: Vec<usize>,
    /// Set if all fields are numbers or keys.
    binding: Option<Binding>,
}

/// A field of the current event.
#[derive(Clone, Debug)]
pub(super) enum Raw<'a> {
    /// Missing.
    None,
    /// A number, or the key of a constant.
    Bits(u64),
    /// Any other value.
    Value(Value<'a>),
}

impl Raw<'_> {
    /// Returns bits that identify the value within the chunk.
    pub(super) fn bits(&self) -> Option<u64> {
        match self {
            Self::Bits(bits) => Some(*bits),
            Self::None | Self::Value(_) => None,
        }
    }
}

/// Collects the fields that are needed of an event type.
#[derive(Debug)]
pub(super) struct Binder<'a> {
    chunk: &'a Chunk,
    class: &'a Class,
    wanted: Vec<usize>,
    paths: HashMap<String, usize>,
}

impl<'a> Binder<'a> {
    pub(super) fn new(chunk: &'a Chunk, class: &'a Class) -> Self {
        Self { chunk, class, wanted: Vec::new(), paths: HashMap::new() }
    }

    /// Returns the slot of `startTime`.
    pub(super) fn start(&mut self) -> Option<usize> {
        match self.source("startTime") {
            Source::Field { slot, .. } => Some(slot),
            _ => None,
        }
    }

    pub(super) fn source(&mut self, path: &str) -> Source {
        path.split('|').find_map(|one| self.alternative(one)).unwrap_or(Source::Missing)
    }

    fn alternative(&mut self, path: &str) -> Option<Source> {
        if let Some(number) = path.strip_prefix('#') {
            let number = number.parse().unwrap_or(0);
            return Some(Source::Fixed(Datum::Int(number, super::Unit::One)));
        }
        match path {
            "@type" => return Some(Source::Fixed(Datum::Text(Arc::from(&*self.class.name)))),
            "@label" => {
                let label = plan::label(&self.class.annotations).unwrap_or(&self.class.name);
                return Some(Source::Fixed(Datum::Text(Arc::from(label))));
            }
            SPAN => return self.span(),
            _ => {}
        }
        let mut parts = path.split('.');
        let at = self.class.field_index(parts.next()?)?;
        let rest: Vec<Arc<str>> = parts.map(Arc::from).collect();
        let field = self.class.fields.get(at)?;
        let measure = Measure::from_field(self.last_field(field, &rest)?);
        let slot = self.wanted.iter().position(|&known| known == at).unwrap_or_else(|| {
            self.wanted.push(at);
            self.wanted.len() - 1
        });
        let next = self.paths.len();
        let id = *self.paths.entry(path.to_owned()).or_insert(next);
        Some(Source::Field { slot, rest, measure, id })
    }

    /// Returns the time that an event represents. In recordings of async-profiler, `timeSpan` is the time
    /// between the first and the last sample.
    fn span(&mut self) -> Option<Source> {
        if self.chunk.types.classes().iter().any(|class| class.name.starts_with("flightline.")) {
            return self.alternative("timeSpan");
        }
        let slot = match self.alternative("samples") {
            Some(Source::Field { slot, .. }) => Some(slot),
            _ => None,
        };
        Some(Source::Samples { slot })
    }

    /// Returns the field at the end of the path, whose annotations state the unit; `None` if the path
    /// does not exist.
    fn last_field(&self, first: &'a Field, rest: &[Arc<str>]) -> Option<&'a Field> {
        let mut field = first;
        for name in rest {
            let class = self.chunk.types.class(field.class?)?;
            match class.fields.iter().find(|f| *f.name == **name) {
                Some(next) => field = next,
                None if &**name == EVENT_TYPE => return Some(field),
                None => return (&*class.name == "jdk.types.StackTrace").then_some(field),
            }
        }
        Some(field)
    }

    pub(super) fn finish(self) -> Fields {
        let names: Vec<&str> =
            self.wanted.iter().filter_map(|&at| self.class.fields.get(at)).map(|f| &*f.name).collect();
        let simple = |at: &usize| {
            let Some(field) = self.class.fields.get(*at) else { return false };
            let kind = field.class.and_then(|c| self.chunk.types.class(c)).map(|c| c.kind);
            !field.array && (field.pooled || !matches!(kind, None | Some(Kind::Text | Kind::Struct)))
        };
        let fits = names.len() <= SLOTS && self.wanted.iter().all(simple);
        let binding = fits.then(|| {
            // Fills unused slots with an empty name, which matches no field.
            let mut padded = names.clone();
            padded.resize(SLOTS, "");
            Binding::new(self.chunk, self.class, &padded)
        });
        Fields { wanted: self.wanted, binding }
    }
}

impl Fields {
    /// Decodes the needed fields of `event` into `out`, by slot.
    pub(super) fn read<'a>(&self, event: &EventRef<'a>, out: &mut Vec<Raw<'a>>) -> Result<(), Error> {
        out.clear();
        if let Some(binding) = &self.binding {
            let slots = binding.read::<SLOTS>(event.chunk(), event.payload()).map_err(|fault| {
                let what = format!("an event {}", event.class().name);
                Error::from_fault(fault, event.offset(), event.chunk().index, what)
            })?;
            let known = slots.into_iter().take(self.wanted.len());
            out.extend(known.map(|slot| slot.map_or(Raw::None, Raw::Bits)));
            return Ok(());
        }
        out.resize(self.wanted.len(), Raw::None);
        let last = self.wanted.iter().max().map_or(0, |at| at + 1);
        for (at, value) in event.fields().iter().take(last).enumerate() {
            let (_, value) = value?;
            if let Some(slot) = self.wanted.iter().position(|&wanted| wanted == at) {
                out[slot] = match value {
                    Value::Reference(reference) => Raw::Bits(reference.key()),
                    other => Raw::Value(other),
                };
            }
        }
        Ok(())
    }

    /// Returns the field of a slot.
    fn field<'c>(&self, class: &'c Class, slot: usize) -> Option<&'c Field> {
        class.fields.get(*self.wanted.get(slot)?)
    }
}

fn is_loader(class: &Class) -> bool {
    matches!(&*class.name, "java.lang.ClassLoader" | "jdk.types.ClassLoader")
}

/// Returns the label of the event type with this id, or else the id.
fn event_type(chunk: &Chunk, id: i64) -> Datum {
    match chunk.types.by_id(id as u64) {
        Some(class) => Datum::Text(Arc::from(plan::label(&class.annotations).unwrap_or(&class.name))),
        None => Datum::Int(id, super::Unit::One),
    }
}

/// Maximum number of cached values; a damaged event can have any key.
const MAX_KNOWN: usize = 1 << 18;

/// Resolved constants, cached per chunk.
#[derive(Debug, Default)]
pub(super) struct Lookup {
    names: Names,
    known: HashMap<(u32, u32, u64), Datum>,
    /// Settings of the current chunk.
    settings: Settings,
}

impl Lookup {
    /// Starts a chunk, whose keys have new meanings.
    pub(super) fn next_chunk(&mut self) {
        self.names.next_chunk();
        self.known.clear();
        self.settings = Settings::default();
    }

    /// Stores a `jdk.ActiveSetting` event. Intervals are known from then on.
    pub(super) fn setting(&mut self, event: &EventRef<'_>) {
        self.settings.take(event, event.class().id);
    }

    /// Returns the value of a source in the event with the fields `raw`.
    pub(super) fn datum(
        &mut self,
        event: &EventRef<'_>,
        fields: &Fields,
        raw: &[Raw<'_>],
        source: &Source,
    ) -> Result<Datum, Error> {
        let (slot, rest, measure, id) = match source {
            Source::Missing => return Ok(Datum::Null),
            Source::Fixed(datum) => return Ok(datum.clone()),
            Source::Samples { slot } => {
                let samples = match slot.and_then(|slot| raw.get(slot)) {
                    Some(Raw::Bits(bits)) => *bits,
                    Some(Raw::Value(value)) => value.as_i64().map_or(1, i64::cast_unsigned),
                    Some(Raw::None) | None => 1,
                };
                let period = self.settings.period(&event.class().name);
                let nanos = period.and_then(|period| i64::try_from(samples.saturating_mul(period)).ok());
                return Ok(nanos.map_or(Datum::Null, |nanos| Datum::Int(nanos, super::Unit::Span)));
            }
            Source::Field { slot, rest, measure, id } => (*slot, rest, *measure, *id),
        };
        let Some(field) = fields.field(event.class(), slot) else { return Ok(Datum::Null) };
        let chunk = event.chunk();
        let raw = raw.get(slot);
        if rest.first().is_some_and(|name| &**name == EVENT_TYPE) {
            let id = match raw {
                Some(Raw::Bits(bits)) => Some(*bits as i64),
                Some(Raw::Value(value)) => value.as_i64(),
                None | Some(Raw::None) => None,
            };
            return Ok(id.map_or(Datum::Null, |id| event_type(chunk, id)));
        }
        match raw {
            None | Some(Raw::None) => Ok(Datum::Null),
            Some(Raw::Value(value)) => self.follow(chunk, *value, rest, measure),
            Some(&Raw::Bits(bits)) if field.pooled => {
                let place = (event.class_index().index() as u32, id as u32, bits);
                if let Some(known) = self.known.get(&place) {
                    return Ok(known.clone());
                }
                let value = match field.class {
                    Some(class) => jfr_format::event::constant(chunk, class, bits, 1)?,
                    None => None,
                };
                let loader =
                    rest.is_empty() && field.class.and_then(|c| chunk.types.class(c)).is_some_and(is_loader);
                let datum = match value {
                    Some(value) => self.follow(chunk, value, rest, measure)?,
                    None if loader => Datum::Text(Arc::from("bootstrap")),
                    None => Datum::Null,
                };
                // One class can have many loaders; the JVM uses the same keys for them in all chunks.
                let datum = match datum {
                    Datum::Text(name) if loader => Datum::Named(name, bits),
                    datum => datum,
                };
                if self.known.len() >= MAX_KNOWN {
                    self.known.clear();
                }
                self.known.insert(place, datum.clone());
                Ok(datum)
            }
            Some(&Raw::Bits(bits)) => {
                let kind = field.class.and_then(|c| chunk.types.class(c)).map(|c| c.kind);
                Ok(kind.map_or(Datum::Null, |kind| measure.datum(chunk, bits_value(kind, bits))))
            }
        }
    }

    fn follow(
        &mut self,
        chunk: &Chunk,
        value: Value<'_>,
        rest: &[Arc<str>],
        measure: Measure,
    ) -> Result<Datum, Error> {
        let mut value = value;
        for name in rest {
            let Some(record) = value.record()? else { return Ok(Datum::Null) };
            value = match record.field(name)? {
                Some(next) => next,
                None => {
                    return match Part::named(name) {
                        Some(part) => self.names.part(&record, part),
                        None => Ok(Datum::Null),
                    };
                }
            };
        }
        self.names.datum(chunk, value, measure)
    }
}
