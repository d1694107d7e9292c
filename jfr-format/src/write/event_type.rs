//! Event types of the caller's own: declared and checked once, then written with typed values.

use super::WriteError;
use super::field_value::{FieldValue, StackTraceKey, ThreadKey, sealed::Encode};
use crate::ids::{Ticks, TypeId};
use crate::metadata::Declared;
use crate::schema::{self, Field, IDS, Kind, OwnType, Shape, Type, Unit, field};
use crate::varint;
use bytes::BytesMut;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// Maximum number of event types of the caller's own in a file.
const MAX_TYPES: usize = 1024;
/// Maximum number of fields of an event, including the start time. JDKs pass fields as arguments of a method,
/// which has at most 255 slots, two per `long`.
const MAX_FIELDS: usize = 100;
/// Maximum size of all names, labels and descriptions. Readers limit the size of the metadata; ours to 16 MB.
const MAX_TEXT: usize = 4 << 20;

const START_TIME: &str = "startTime";
const DURATION: &str = "duration";
const EVENT_THREAD: &str = "eventThread";
const STACK_TRACE: &str = "stackTrace";

/// An event type of the caller's own, implemented for a struct whose values are the events.
///
/// [`fields`](Self::fields) is called once to declare the type, and for each event to write it. The values of a
/// field always have its declared type, because both come from the same line.
///
/// ```
/// use jfr_format::ids::Ticks;
/// use jfr_format::schema::Unit;
/// use jfr_format::write::{Event, Fields, ThreadKey};
///
/// struct Request<'a> {
///     took: Ticks,
///     thread: ThreadKey,
///     path: &'a str,
///     status: u16,
///     size: u64,
/// }
///
/// impl Event for Request<'_> {
///     const NAME: &'static str = "com.example.Request";
///     const LABEL: &'static str = "HTTP Request";
///     const CATEGORY: &'static [&'static str] = &["Example", "HTTP"];
///
///     fn fields(fields: &mut Fields<'_, Self>) {
///         fields.duration(|request| request.took);
///         fields.event_thread(|request| request.thread);
///         fields.field("path", |request| request.path).label("Path");
///         fields.field("status", |request| request.status).label("Status");
///         fields.field("size", |request| request.size).label("Response Size").unit(Unit::Bytes);
///     }
/// }
/// ```
/// A value of another type does not compile:
/// ```compile_fail,E0308
/// # use jfr_format::write::{Event, Fields};
/// struct Request {
///     status: u16,
/// }
///
/// impl Event for Request {
///     const NAME: &'static str = "com.example.Request";
///
///     fn fields(fields: &mut Fields<'_, Self>) {
///         fields.field("status", |request| request.status);
///     }
/// }
///
/// let request = Request { status: "200" };
/// ```
/// Neither does a field of a type that recordings do not have, or a thread's key as a stack trace:
/// ```compile_fail,E0277
/// # use jfr_format::write::{Event, Fields};
/// struct Request {
///     tags: Vec<String>,
/// }
///
/// impl Event for Request {
///     const NAME: &'static str = "com.example.Request";
///
///     fn fields(fields: &mut Fields<'_, Self>) {
///         fields.field("tags", |request| request.tags.clone());
///     }
/// }
/// ```
/// ```compile_fail,E0277
/// # use jfr_format::write::{Event, Fields, ThreadKey};
/// struct Request {
///     thread: ThreadKey,
/// }
///
/// impl Event for Request {
///     const NAME: &'static str = "com.example.Request";
///
///     fn fields(fields: &mut Fields<'_, Self>) {
///         fields.stack_trace(|request| request.thread);
///     }
/// }
/// ```
pub trait Event: Sized {
    /// Full name, such as `com.example.Request`: Java identifiers, separated by dots.
    const NAME: &'static str;
    /// Name for display; empty = none.
    const LABEL: &'static str = "";
    /// A sentence for display; empty = none.
    const DESCRIPTION: &'static str = "";
    /// Path in the tree of event types.
    const CATEGORY: &'static [&'static str] = &[];

    /// Lists the fields in the order in which readers show them. The start time precedes them and is not
    /// listed.
    ///
    /// The same fields must be listed in each call: do not make a field conditional, use `Option` instead.
    fn fields(fields: &mut Fields<'_, Self>);
}

/// The fields of an [`Event`], which are declared, or whose values are written.
#[derive(Debug)]
pub struct Fields<'a, T> {
    mode: Mode<'a, T>,
}

#[derive(Debug)]
enum Mode<'a, T> {
    Declare(&'a mut Declaration),
    Write {
        event: &'a T,
        out: &'a mut BytesMut,
        /// The declared fields still to come.
        rest: &'a [Field],
        /// Name of the first field that differs from its declaration.
        error: Option<&'static str>,
    },
}

#[derive(Debug, Default)]
struct Declaration {
    fields: Vec<Field>,
    /// The unit of each field's Rust type, before [`FieldOptions::unit`].
    units: Vec<Unit>,
    error: Option<(&'static str, DeclareErrorKind)>,
}

impl<'a, T> Fields<'a, T> {
    /// Adds a field. `get` returns its value from an event, and thereby determines its type.
    #[inline]
    pub fn field<V: FieldValue>(
        &mut self,
        name: &'static str,
        get: impl FnOnce(&'a T) -> V,
    ) -> FieldOptions<'_> {
        if let Mode::Declare(declaration) = &mut self.mode {
            declaration.check_name(name);
        }
        self.add(name, get)
    }

    /// Adds the duration of the event, in ticks of the recording's clock. It must be the first field.
    #[inline]
    pub fn duration(&mut self, get: impl FnOnce(&'a T) -> Ticks) {
        if let Mode::Declare(declaration) = &mut self.mode
            && declaration.fields.len() > 1
        {
            declaration.fail(DURATION, DeclareErrorKind::DurationNotFirst);
        }
        self.add(DURATION, get).label("Duration").unit(Unit::Span);
    }

    /// Adds the thread in which the event happened: a [`ThreadKey`] or an `Option<ThreadKey>`.
    #[inline]
    pub fn event_thread<V: FieldValue + Into<Option<ThreadKey>>>(&mut self, get: impl FnOnce(&'a T) -> V) {
        self.add(EVENT_THREAD, get).label("Event Thread");
    }

    /// Adds the stack trace of the event: a [`StackTraceKey`] or an `Option<StackTraceKey>`.
    #[inline]
    pub fn stack_trace<V: FieldValue + Into<Option<StackTraceKey>>>(&mut self, get: impl FnOnce(&'a T) -> V) {
        self.add(STACK_TRACE, get).label("Stack Trace");
    }

    #[inline]
    fn add<V: Encode>(&mut self, name: &'static str, get: impl FnOnce(&'a T) -> V) -> FieldOptions<'_> {
        match &mut self.mode {
            Mode::Declare(declaration) => declaration.add(Field { name, ..V::FIELD }),
            Mode::Write { event, out, rest, error } => {
                match rest.split_first() {
                    Some((declared, others)) if is_same(declared, &V::FIELD) && error.is_none() => {
                        get(event).encode(out);
                        *rest = others;
                    }
                    _ => _ = error.get_or_insert(name),
                }
                FieldOptions(None)
            }
        }
    }
}

/// Returns true if values of both fields have the same encoding.
#[inline]
fn is_same(declared: &Field, value: &Field) -> bool {
    declared.shape == value.shape && declared.ty == value.ty
}

/// Options of a field, for display only.
#[derive(Debug)]
pub struct FieldOptions<'a>(Option<&'a mut Field>);

impl FieldOptions<'_> {
    /// Sets the name for display.
    #[inline]
    pub fn label(mut self, label: &'static str) -> Self {
        if let Some(field) = &mut self.0 {
            field.label = label;
        }
        self
    }

    /// Sets the meaning of a number: bytes, a share, an address. The declaration fails if it does not fit the
    /// type of the field. Times have a unit by their type: [`Duration`](std::time::Duration),
    /// [`SystemTime`](std::time::SystemTime), [`Ticks`].
    #[inline]
    pub fn unit(mut self, unit: Unit) -> Self {
        if let Some(field) = &mut self.0 {
            field.unit = match (field.unit, unit) {
                (Unit::Unsigned, Unit::Bytes) => Unit::UnsignedBytes,
                _ => unit,
            };
        }
        self
    }

    /// Marks the field as context of the thread's other events (`jdk.jfr.Contextual`), which newer tools show
    /// with them.
    #[inline]
    pub fn contextual(mut self) -> Self {
        if let Some(field) = &mut self.0 {
            field.contextual = true;
        }
        self
    }
}

impl Declaration {
    fn fail(&mut self, field: &'static str, kind: DeclareErrorKind) {
        self.error.get_or_insert((field, kind));
    }

    fn check_name(&mut self, name: &'static str) {
        if [START_TIME, DURATION, EVENT_THREAD, STACK_TRACE].contains(&name) {
            self.fail(name, DeclareErrorKind::ReservedName);
        } else if !schema::is_java_identifier(name) {
            self.fail(name, DeclareErrorKind::InvalidName);
        }
    }

    fn add(&mut self, field: Field) -> FieldOptions<'_> {
        if self.fields.iter().any(|other| other.name == field.name) {
            self.fail(field.name, DeclareErrorKind::DuplicateName);
        }
        self.units.push(field.unit);
        self.fields.push(field);
        FieldOptions(self.fields.last_mut())
    }

    /// Returns the size of the texts, or the first error.
    fn check(&mut self) -> Result<usize, (&'static str, DeclareErrorKind)> {
        for (field, &unit) in self.fields.iter().zip(&self.units) {
            if !accepts(field.shape, unit, field.unit) {
                self.error.get_or_insert((field.name, DeclareErrorKind::Unit));
            }
        }
        if self.fields.len() > MAX_FIELDS {
            self.error.get_or_insert(("", DeclareErrorKind::TooManyFields));
        }
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.fields.iter().map(|field| field.name.len() + field.label.len()).sum()),
        }
    }
}

/// Returns true if a field of this shape, whose Rust type has the unit `own`, can have the unit `unit`.
fn accepts(shape: Shape, own: Unit, unit: Unit) -> bool {
    if own == unit {
        return true;
    }
    let integer = matches!(shape, Shape::Byte | Shape::Short | Shape::Int | Shape::Long);
    let number = integer || matches!(shape, Shape::Float | Shape::Double);
    match (own, unit) {
        (Unit::Timestamp, Unit::Span) => true,
        (Unit::Unsigned, Unit::UnsignedBytes | Unit::Address) => true,
        (Unit::None, Unit::Bytes | Unit::BitRate | Unit::Frequency | Unit::Percentage) => number,
        (Unit::None, Unit::Nanos | Unit::Micros | Unit::Millis) => integer,
        (Unit::None, Unit::Unsigned | Unit::UnsignedBytes | Unit::Address) => integer,
        (Unit::None, Unit::EpochMillis) => shape == Shape::Long,
        _ => false,
    }
}

/// The event types of the caller's own in a file. All chunks of the file use the same value.
///
/// ```
/// # use jfr_format::write::{Event, Fields};
/// # struct Beat { count: i32 }
/// # impl Event for Beat {
/// #     const NAME: &'static str = "com.example.Beat";
/// #     fn fields(fields: &mut Fields<'_, Self>) { fields.field("count", |beat| beat.count); }
/// # }
/// use jfr_format::ids::{FileOffset, Ticks};
/// use jfr_format::write::{ChunkWriter, ClockLine, EventTypes, Geometry};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut types = EventTypes::new();
/// let beats = types.declare::<Beat>()?;
/// let declared = types.declared([]);
/// let clock = ClockLine::nanoseconds_since(std::time::SystemTime::now());
///
/// let mut bytes = Vec::new();
/// let mut chunk = ChunkWriter::declaring(&declared, Geometry::Patched, &clock, FileOffset(0), Ticks(0))?;
/// chunk.write(&beats, Ticks(1000), &Beat { count: 1 })?;
/// chunk.finish(Ticks(2000), true, &mut bytes)?;
/// # Ok(()) }
/// ```
#[derive(Debug, Default)]
pub struct EventTypes {
    types: Vec<Arc<OwnType>>,
    /// Size of all names, labels and descriptions.
    text: usize,
}

impl EventTypes {
    /// Returns an empty set of types.
    pub fn new() -> EventTypes {
        EventTypes::default()
    }

    /// Declares an event type.
    ///
    /// # Errors
    /// If a name is invalid, reserved or not unique, if a unit does not fit its field, or if there are too many
    /// types or fields.
    pub fn declare<T: Event>(&mut self) -> Result<EventType<T>, DeclareError> {
        let fail = |field, kind| Err(DeclareError { event: T::NAME, field, kind });
        if !schema::is_java_type_name(T::NAME) {
            return fail("", DeclareErrorKind::InvalidName);
        }
        let names = schema::types().map(|ty| ty.name).chain(self.types.iter().map(|own| own.ty.name));
        if names.into_iter().any(|name| name == T::NAME) {
            return fail("", DeclareErrorKind::DuplicateName);
        }
        if self.types.len() == MAX_TYPES {
            return fail("", DeclareErrorKind::TooManyTypes);
        }
        let start = field(START_TIME, schema::LONG, "Start Time").unit(Unit::Timestamp);
        let mut declaration =
            Declaration { units: vec![start.unit], fields: vec![start], ..Declaration::default() };
        T::fields(&mut Fields { mode: Mode::Declare(&mut declaration) });
        let own = T::CATEGORY.iter().map(|part| part.len()).sum::<usize>();
        let text = match declaration.check() {
            Ok(text) => text + T::NAME.len() + T::LABEL.len() + T::DESCRIPTION.len() + own,
            Err((field, kind)) => return fail(field, kind),
        };
        if self.text.saturating_add(text) > MAX_TEXT {
            return fail("", DeclareErrorKind::TextTooLong);
        }
        self.text += text;
        let own = Arc::new(OwnType {
            ty: Type {
                id: TypeId((IDS + self.types.len()) as u32),
                name: T::NAME,
                kind: Kind::Event,
                label: T::LABEL,
                description: T::DESCRIPTION,
                category: T::CATEGORY,
                fields: &[],
            },
            fields: declaration.fields,
        });
        self.types.push(Arc::clone(&own));
        Ok(EventType { own, marker: PhantomData })
    }

    /// Returns the declaration for the chunks of the file: all types declared so far, and these event types of
    /// the [schema].
    pub fn declared(&self, events: impl IntoIterator<Item = TypeId>) -> Declared {
        Declared::with_own(&self.types, events)
    }
}

/// A declared event type, to write events with [`ChunkWriter::write`](super::ChunkWriter::write).
pub struct EventType<T> {
    pub(super) own: Arc<OwnType>,
    /// Covariant: an event with borrowed values needs not live as long as its type.
    marker: PhantomData<fn() -> T>,
}

impl<T: Event> EventType<T> {
    /// Returns the id of the type in every chunk of the file.
    pub fn id(&self) -> TypeId {
        self.own.ty.id
    }

    /// Appends the fields of an event, of which the start time is the first.
    #[inline]
    pub(super) fn encode(&self, start: Ticks, event: &T, out: &mut BytesMut) -> Result<(), WriteError> {
        varint::put(out, start.0 as u64);
        let rest = self.own.fields.get(1..).unwrap_or_default();
        let mut fields = Fields { mode: Mode::Write { event, out, rest, error: None } };
        T::fields(&mut fields);
        match fields.mode {
            Mode::Write { error: Some(field), .. } => Err(WriteError::Fields { of: T::NAME, field }),
            Mode::Write { rest: [missing, ..], .. } => {
                Err(WriteError::Fields { of: T::NAME, field: missing.name })
            }
            _ => Ok(()),
        }
    }
}

impl<T> fmt::Debug for EventType<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EventType").field(&self.own.ty.name).finish()
    }
}

impl<T> Clone for EventType<T> {
    fn clone(&self) -> EventType<T> {
        EventType { own: Arc::clone(&self.own), marker: PhantomData }
    }
}

/// An event type that cannot be declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeclareError {
    /// Name of the event type.
    pub event: &'static str,
    /// Name of the field; empty if the error is about the type.
    pub field: &'static str,
    /// The kind of error.
    pub kind: DeclareErrorKind,
}

/// The kinds of [`DeclareError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeclareErrorKind {
    /// The name is not a Java identifier of ASCII characters or, for types, several of them with dots between.
    InvalidName,
    /// Another field of the event has the name, or another type of the file or of the [schema].
    DuplicateName,
    /// The name belongs to a field with a method of its own: [`Fields::duration`], [`Fields::event_thread`],
    /// [`Fields::stack_trace`], or to the start time.
    ReservedName,
    /// The duration is not the first field.
    DurationNotFirst,
    /// The unit does not fit the type of the field.
    Unit,
    /// More fields than readers accept.
    TooManyFields,
    /// More types than a file can declare.
    TooManyTypes,
    /// Names, labels and descriptions of all types take too much space.
    TextTooLong,
}

impl fmt::Display for DeclareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event type {:?}", self.event)?;
        if !self.field.is_empty() {
            write!(f, ", field {:?}", self.field)?;
        }
        match self.kind {
            DeclareErrorKind::InvalidName => write!(f, ": the name is not a valid Java name"),
            DeclareErrorKind::DuplicateName => write!(f, ": the name is already in use"),
            DeclareErrorKind::ReservedName => write!(f, ": the name is reserved"),
            DeclareErrorKind::DurationNotFirst => write!(f, ": the duration must be the first field"),
            DeclareErrorKind::Unit => write!(f, ": the unit does not fit the type of the field"),
            DeclareErrorKind::TooManyFields => write!(f, ": more than {MAX_FIELDS} fields"),
            DeclareErrorKind::TooManyTypes => write!(f, ": more than {MAX_TYPES} types"),
            DeclareErrorKind::TextTooLong => {
                write!(f, ": names, labels and descriptions take more than {MAX_TEXT} bytes")
            }
        }
    }
}

impl std::error::Error for DeclareError {}
