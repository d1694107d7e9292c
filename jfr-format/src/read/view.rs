//! Reads events as structs that the program declares, with the fields looked up once per chunk.
//!
//! ```
//! use jfr_format::event::Reference;
//! use jfr_format::ids::Ticks;
//! use jfr_format::jfr_view;
//! use jfr_format::read::{Input, Item, Views};
//! # use jfr_format::ids::FileOffset;
//! # use jfr_format::schema;
//! # use jfr_format::write::{ChunkWriter, ClockLine, Geometry, StreamOutput};
//!
//! jfr_view! {
//!     /// Fields of a notice, in any order.
//!     struct Notice<'a>: "flightline.Notice" {
//!         message: String = "message",
//!         start: Ticks = "startTime",
//!         /// Not in every version of the type.
//!         thread: Option<Reference<'a>> = "eventThread",
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let line = ClockLine { start_ticks: Ticks(0), start_epoch_ns: 0, ticks_per_second: 1_000_000 };
//! # let mut pipe = StreamOutput::new(Vec::new());
//! # let mut chunk = ChunkWriter::begin(Geometry::Fixed { size: 32 << 10 }, &line, FileOffset(0), Ticks(0))?;
//! # chunk.event(schema::NOTICE, |e| { e.ticks(Ticks(25)).string("hello"); })?;
//! # chunk.finish(Ticks(30), true, &mut pipe)?;
//! # let recording = pipe.into_inner();
//! let mut views = Views::default();
//! let mut seen = Vec::new();
//! let mut input = Input::bytes(recording.into());
//! while let Some(item) = input.next()? {
//!     let Item::Events(batch) = item else { continue };
//!     for event in batch.events() {
//!         // `None`: an event of another type.
//!         if let Some(notice) = views.read::<Notice>(&event)? {
//!             seen.push((notice.start, notice.message, notice.thread.is_some()));
//!         }
//!     }
//! }
//! assert_eq!(seen, [(Ticks(25), "hello".to_owned(), false)]);
//! # Ok(()) }
//! ```
//! A field that the recording does not have, or has as something else, is an error that names the type and the field:
//! ```
//! # use jfr_format::ids::{FileOffset, Ticks};
//! # use jfr_format::schema;
//! # use jfr_format::write::{ChunkWriter, ClockLine, Geometry, StreamOutput};
//! # use jfr_format::jfr_view;
//! # use jfr_format::read::{Input, Item, Views};
//! jfr_view! {
//!     struct Wrong: "flightline.Notice" { message: i64 = "message" }
//! }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let line = ClockLine { start_ticks: Ticks(0), start_epoch_ns: 0, ticks_per_second: 1_000_000 };
//! # let mut pipe = StreamOutput::new(Vec::new());
//! # let mut chunk = ChunkWriter::begin(Geometry::Fixed { size: 32 << 10 }, &line, FileOffset(0), Ticks(0))?;
//! # chunk.event(schema::NOTICE, |e| { e.ticks(Ticks(25)).string("hello"); })?;
//! # chunk.finish(Ticks(30), true, &mut pipe)?;
//! # let mut input = Input::bytes(pipe.into_inner().into());
//! # let mut notices = 0;
//! # while let Some(item) = input.next()? {
//! #     let Item::Events(batch) = item else { continue };
//! #     for event in batch.events() {
//! #         if &*event.class().name != "flightline.Notice" { continue }
//! let error = Views::default().read::<Wrong>(&event).err().expect("a string is no integer");
//! assert!(error.to_string().starts_with("field message of flightline.Notice is java.lang.String, not an integer"));
//! #         notices += 1;
//! #     }
//! # }
//! # assert_eq!(notices, 1);
//! # Ok(()) }
//! ```

use std::borrow::Cow;

use crate::chunk::Chunk;
use crate::cursor::Cursor;
use crate::error::{Error, ErrorKind, shortened};
use crate::event::{ArrayRef, EventRef, Reference, StructRef, Value};
use crate::ids::Ticks;
use crate::types::layout::{self, Step};
use crate::types::{Class, Field, Kind};

/// A type that a field can be read as.
pub trait FromField<'a>: Sized {
    /// Description of the required kind of field.
    const EXPECTED: &'static str;
    /// True if a type may lack the field; its value is [`Value::Null`] then.
    const OPTIONAL: bool = false;

    /// Returns true if all values of the field can be read as this type.
    fn accepts(chunk: &Chunk, field: &Field) -> bool;

    /// Converts a value. Returns `None` if it is not accepted.
    ///
    /// # Errors
    /// A constant that has to be looked up is malformed.
    fn from_value(value: Value<'a>) -> Result<Option<Self>, Error>;
}

fn kind(chunk: &Chunk, field: &Field) -> Option<Kind> {
    chunk.types.class(field.class?).map(|class| class.kind)
}

fn plain(chunk: &Chunk, field: &Field, kinds: &[Kind]) -> bool {
    !field.array && !field.pooled && kind(chunk, field).is_some_and(|kind| kinds.contains(&kind))
}

macro_rules! integer {
    ($($type:ty: $($kind:ident)|+;)+) => {$(
        impl<'a> FromField<'a> for $type {
            const EXPECTED: &'static str = concat!("an integer that fits ", stringify!($type));

            fn accepts(chunk: &Chunk, field: &Field) -> bool {
                plain(chunk, field, &[$(Kind::$kind),+])
            }

            fn from_value(value: Value<'a>) -> Result<Option<Self>, Error> {
                Ok(value.as_i64().map(|value| value as Self))
            }
        }
    )+};
}

integer! {
    i8: Byte;
    i16: Byte | Short;
    u16: Char;
    i32: Byte | Short | Char | Int;
    i64: Byte | Short | Char | Int | Long;
    u64: Long;
}

macro_rules! plain {
    ($($type:ty, $expected:literal, [$($kind:ident),+], $($pattern:pat => $value:expr),+;)+) => {$(
        impl<'a> FromField<'a> for $type {
            const EXPECTED: &'static str = $expected;

            fn accepts(chunk: &Chunk, field: &Field) -> bool {
                plain(chunk, field, &[$(Kind::$kind),+])
            }

            fn from_value(value: Value<'a>) -> Result<Option<Self>, Error> {
                Ok(match value {
                    $($pattern => Some($value),)+
                    _ => None,
                })
            }
        }
    )+};
}

plain! {
    bool, "a boolean", [Boolean], Value::Boolean(v) => v;
    f32, "a float", [Float], Value::Float(v) => v;
    f64, "a float or double", [Float, Double], Value::Double(v) => v, Value::Float(v) => f64::from(v);
    Ticks, "a long", [Long], Value::Long(v) => Ticks(v);
    StructRef<'a>, "an inline struct", [Struct], Value::Struct(v) => v;
}

/// Text: a string, or a reference to a string or to a struct with a single string.
impl<'a> FromField<'a> for Cow<'a, str> {
    const EXPECTED: &'static str = "text";

    fn accepts(chunk: &Chunk, field: &Field) -> bool {
        let mut class = field.class.and_then(|index| chunk.types.class(index));
        for _ in 0..layout::MAX_DEPTH {
            match class {
                Some(of) if of.kind == Kind::Text => return !field.array,
                Some(Class { fields, .. }) if fields.len() == 1 => {
                    class = fields.first().and_then(|f| chunk.types.class(f.class?));
                }
                _ => return false,
            }
        }
        false
    }

    fn from_value(value: Value<'a>) -> Result<Option<Self>, Error> {
        value.text()
    }
}

/// Text like [`Cow`], owned; a null string becomes an empty one.
impl<'a> FromField<'a> for String {
    const EXPECTED: &'static str = "text";

    fn accepts(chunk: &Chunk, field: &Field) -> bool {
        <Cow<'a, str> as FromField<'a>>::accepts(chunk, field)
    }

    fn from_value(value: Value<'a>) -> Result<Option<Self>, Error> {
        Ok(Some(value.text()?.map_or_else(Self::new, Cow::into_owned)))
    }
}

impl<'a> FromField<'a> for Reference<'a> {
    const EXPECTED: &'static str = "a reference";

    fn accepts(_: &Chunk, field: &Field) -> bool {
        field.pooled && !field.array
    }

    fn from_value(value: Value<'a>) -> Result<Option<Self>, Error> {
        Ok(if let Value::Reference(reference) = value { Some(reference) } else { None })
    }
}

impl<'a> FromField<'a> for ArrayRef<'a> {
    const EXPECTED: &'static str = "a list";

    fn accepts(_: &Chunk, field: &Field) -> bool {
        field.array
    }

    fn from_value(value: Value<'a>) -> Result<Option<Self>, Error> {
        Ok(if let Value::Array(list) = value { Some(list) } else { None })
    }
}

/// Any value.
impl<'a> FromField<'a> for Value<'a> {
    const EXPECTED: &'static str = "a field";

    fn accepts(_: &Chunk, _: &Field) -> bool {
        true
    }

    fn from_value(value: Value<'a>) -> Result<Option<Self>, Error> {
        Ok(Some(value))
    }
}

/// An optional field, and values that may be null.
impl<'a, T: FromField<'a>> FromField<'a> for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;
    const OPTIONAL: bool = true;

    fn accepts(chunk: &Chunk, field: &Field) -> bool {
        T::accepts(chunk, field)
    }

    fn from_value(value: Value<'a>) -> Result<Option<Self>, Error> {
        match value {
            Value::Null => Ok(Some(None)),
            value => Ok(Some(T::from_value(value)?)),
        }
    }
}

/// One field of a view, as [`jfr_view!`](crate::jfr_view) declares it.
#[derive(Clone, Copy, Debug)]
pub struct ViewField {
    /// Name in the recording.
    pub name: &'static str,
    /// [`FromField::EXPECTED`]
    pub expected: &'static str,
    /// [`FromField::OPTIONAL`]
    pub optional: bool,
    /// [`FromField::accepts`]
    pub accepts: fn(&Chunk, &Field) -> bool,
}

/// A struct that events of one type can be read as; [`jfr_view!`](crate::jfr_view) implements it.
pub trait View<'a>: Sized {
    /// Full name of the event type.
    const TYPE: &'static str;
    /// Its fields.
    const FIELDS: &'static [ViewField];

    /// Creates the struct from the values of its fields in order. Returns `None` if one cannot be read as its
    /// type, such as null as an integer.
    ///
    /// # Errors
    /// A constant that has to be looked up is malformed.
    fn from_values(values: &mut std::vec::Drain<'_, Value<'a>>) -> Result<Option<Self>, Error>;
}

/// Reads events as structs of one type, and caches the lookups for the current chunk.
#[derive(Debug, Default)]
pub struct Views {
    /// Offset of the chunk, name of the event type.
    of: Option<(u64, &'static str)>,
    /// Id of the type in that chunk and the plan to read it; `None` if the chunk does not declare the type.
    plan: Option<(u64, Vec<Pick>)>,
}

#[derive(Debug)]
struct Pick {
    before: Vec<Step>,
    field: usize,
    slot: usize,
}

impl Views {
    /// Reads the event as `V`. Returns `None` if it has another type.
    ///
    /// # Errors
    /// The chunk declares the type without a field that is not optional, or with a field of another type; or the event
    /// is malformed.
    pub fn read<'a, V: View<'a>>(&mut self, event: &EventRef<'a>) -> Result<Option<V>, Error> {
        let chunk = event.chunk();
        let of = (chunk.offset.0, V::TYPE);
        if self.of != Some(of) {
            self.of = None;
            self.plan = match chunk.types.by_name(V::TYPE) {
                Some((_, class)) => Some((class.id, plan(chunk, class, V::FIELDS)?)),
                None => None,
            };
            self.of = Some(of);
        }
        let Some((_, picks)) = self.plan.as_ref().filter(|(id, _)| *id == event.class().id) else {
            return Ok(None);
        };
        let fields = event.fields();
        let mut values = vec![Value::Null; V::FIELDS.len()];
        let mut cursor = Cursor::new(event.payload());
        for pick in picks {
            let Some(field) = event.class().fields.get(pick.field) else { continue };
            layout::skip(chunk.types.classes(), &pick.before, &mut cursor, 0)
                .map_err(|fault| fields.fault(fault, &cursor, field))?;
            if let Some(slot) = values.get_mut(pick.slot) {
                *slot = fields.value(field, &mut cursor)?;
            }
        }
        match V::from_values(&mut values.drain(..))? {
            Some(view) => Ok(Some(view)),
            None => {
                let text = format!("a value of {} cannot be read as declared", V::TYPE);
                Err(Error::new(ErrorKind::View(text), event.offset(), Some(chunk.index), V::TYPE))
            }
        }
    }
}

fn plan(chunk: &Chunk, class: &Class, wanted: &[ViewField]) -> Result<Vec<Pick>, Error> {
    let wrong = |text| {
        Err(Error::new(ErrorKind::View(shortened(text)), chunk.offset.0, Some(chunk.index), &*class.name))
    };
    let mut picks = Vec::new();
    for (slot, want) in wanted.iter().enumerate() {
        match class.field_index(want.name).and_then(|at| Some((at, class.fields.get(at)?))) {
            Some((at, field)) if (want.accepts)(chunk, field) => {
                picks.push(Pick { before: Vec::new(), field: at, slot });
            }
            Some((_, field)) => {
                let of = field.class.and_then(|index| chunk.types.class(index));
                let is = of.map_or("of an undeclared type", |class| &class.name);
                let is = format!("{is}{}", if field.array { "[]" } else { "" });
                return wrong(format!(
                    "field {} of {} is {is}, not {}",
                    want.name, class.name, want.expected
                ));
            }
            None if want.optional => {}
            None => return wrong(format!("{} has no field {}", class.name, want.name)),
        }
    }
    picks.sort_by_key(|pick| pick.field);
    // Only the first of two bindings of a field would be decoded.
    let twice = picks.windows(2).find(|pair| pair[0].field == pair[1].field).map(|pair| pair[0].field);
    if let Some(field) = twice.and_then(|at| class.fields.get(at)) {
        return wrong(format!("field {} of {} is bound twice", field.name, class.name));
    }
    let mut from = 0;
    for pick in &mut picks {
        pick.before = layout::layout_steps(chunk.types.classes(), &class.fields[from..pick.field]);
        from = pick.field + 1;
    }
    Ok(picks)
}

/// Declares a struct for the fields of an event: see [`Views`].
///
/// `name: Type = "nameInTheRecording"`, where the type is an integer, `bool`, `f32`, `f64`, [`Ticks`],
/// `String`, `Cow<str>`, [`Reference`], [`StructRef`],
/// [`ArrayRef`], [`Value`], an `Option` of one of these, or implements
/// [`FromField`].
#[macro_export]
macro_rules! jfr_view {
    ($(#[$meta:meta])* $vis:vis struct $name:ident<$life:lifetime>: $type:literal {
        $($(#[$of:meta])* $fvis:vis $field:ident: $of_type:ty = $in_file:literal),+ $(,)?
    }) => {
        $(#[$meta])* $vis struct $name<$life> { $($(#[$of])* $fvis $field: $of_type),+ }
        $crate::jfr_view!(@impl [$life] [$name<$life>] $type $($field: $of_type = $in_file),+);
    };
    ($(#[$meta:meta])* $vis:vis struct $name:ident: $type:literal {
        $($(#[$of:meta])* $fvis:vis $field:ident: $of_type:ty = $in_file:literal),+ $(,)?
    }) => {
        $(#[$meta])* $vis struct $name { $($(#[$of])* $fvis $field: $of_type),+ }
        $crate::jfr_view!(@impl ['v] [$name] $type $($field: $of_type = $in_file),+);
    };
    (@impl [$life:lifetime] [$name:ty] $type:literal $($field:ident: $of_type:ty = $in_file:literal),+) => {
        impl<$life> $crate::read::view::View<$life> for $name {
            const TYPE: &'static str = $type;
            const FIELDS: &'static [$crate::read::view::ViewField] = &[$($crate::read::view::ViewField {
                name: $in_file,
                expected: <$of_type as $crate::read::view::FromField<$life>>::EXPECTED,
                optional: <$of_type as $crate::read::view::FromField<$life>>::OPTIONAL,
                accepts: <$of_type as $crate::read::view::FromField<$life>>::accepts,
            }),+];

            fn from_values(
                values: &mut ::std::vec::Drain<'_, $crate::event::Value<$life>>,
            ) -> ::std::result::Result<::std::option::Option<Self>, $crate::error::Error> {
                $(
                    let value = values.next().unwrap_or($crate::event::Value::Null);
                    let ::std::option::Option::Some($field) =
                        <$of_type as $crate::read::view::FromField<$life>>::from_value(value)?
                    else {
                        return ::std::result::Result::Ok(::std::option::Option::None);
                    };
                )+
                ::std::result::Result::Ok(::std::option::Option::Some(Self { $($field),+ }))
            }
        }
    };
}
