//! Owned values of events.

use std::sync::Arc;

use jfr_format::error::Error;
use jfr_format::event::{StructRef, Value as Read};
use jfr_format::read::Chunk;

use super::cache::Cache;
use super::item::Stack;
use crate::model::Thread;

/// Maximum number of values of one event; a damaged event can expand to any number by repeating
/// references.
const MOST: usize = 4096;
/// Maximum nesting of structs and lists.
const DEEPEST: usize = 8;

/// Fields with names, in order.
pub type Fields = Box<[(Arc<str>, Value)]>;

/// Returns the first field with this name.
pub(crate) fn field<'a>(fields: &'a [(Arc<str>, Value)], name: &str) -> Option<&'a Value> {
    fields.iter().find(|(known, _)| **known == *name).map(|(_, value)| value)
}

/// A value of an event.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Null, or a value that is not in the stream.
    Null,
    /// `boolean`
    Boolean(bool),
    /// Any integer.
    Integer(i64),
    /// Any floating-point number.
    Real(f64),
    /// Text, also the name of a symbol, class or similar. Cut at 4 KiB.
    Text(Arc<str>),
    /// A thread.
    Thread(Arc<Thread>),
    /// A stack.
    Stack(Arc<Stack>),
    /// A list.
    List(Box<[Value]>),
    /// Any other type, with its fields.
    Struct(Fields),
}

impl Value {
    /// Returns the number if it is an integer.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            _ => None,
        }
    }

    /// Counts this value and the values in it.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::List(values) => 1 + values.iter().map(Self::count).sum::<usize>(),
            Self::Struct(fields) => 1 + count(fields),
            _ => 1,
        }
    }

    /// Returns the text if it is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// Counts these values and the values in them.
pub(super) fn count(fields: &[(Arc<str>, Value)]) -> usize {
    fields.iter().map(|(_, value)| value.count()).sum()
}

/// Converts the values of one event to owned values.
pub(super) struct Owner<'a> {
    pub(super) cache: &'a mut Cache,
    pub(super) chunk: &'a Chunk,
    left: usize,
}

impl<'a> Owner<'a> {
    pub(super) fn new(cache: &'a mut Cache, chunk: &'a Chunk) -> Self {
        Self { cache, chunk, left: MOST }
    }

    /// Converts the fields of `record` except those that `skip` selects.
    pub(super) fn fields(
        &mut self,
        record: &StructRef<'_>,
        skip: impl Fn(&str) -> bool,
    ) -> Result<Fields, Error> {
        self.record(record, skip, 0)
    }

    fn record(
        &mut self,
        record: &StructRef<'_>,
        skip: impl Fn(&str) -> bool,
        depth: usize,
    ) -> Result<Fields, Error> {
        let mut fields = Vec::new();
        for field in record.iter() {
            if self.left == 0 {
                break;
            }
            let (field, value) = field?;
            if !skip(&field.name) {
                fields.push((field.name.clone(), self.value(value, depth)?));
            }
        }
        Ok(fields.into())
    }

    fn value(&mut self, value: Read<'_>, depth: usize) -> Result<Value, Error> {
        self.left = self.left.saturating_sub(1);
        if depth > DEEPEST || self.left == 0 {
            return Ok(Value::Null);
        }
        Ok(match value {
            Read::Null => Value::Null,
            Read::Boolean(value) => Value::Boolean(value),
            Read::Float(value) => Value::Real(value.into()),
            Read::Double(value) => Value::Real(value),
            // Not cached: each event may have another text.
            Read::Text(text) => Value::Text(super::cut(&text.to_str())),
            Read::Array(list) => {
                let mut values = Vec::new();
                for value in list.iter() {
                    if self.left == 0 {
                        break;
                    }
                    values.push(self.value(value?, depth + 1)?);
                }
                Value::List(values.into())
            }
            Read::Struct(record) => self.named(&record, depth)?,
            Read::Reference(reference) => match reference.class().map(|class| &*class.name) {
                Some("java.lang.Thread") => {
                    self.cache.thread(self.chunk, reference.key())?.map_or(Value::Null, Value::Thread)
                }
                Some("jdk.types.StackTrace") => {
                    self.cache.stack(self.chunk, reference.key())?.map_or(Value::Null, Value::Stack)
                }
                _ => match self.text(Read::Reference(reference))? {
                    Value::Null => match Read::Reference(reference).record()? {
                        Some(record) => self.named(&record, depth)?,
                        None => Value::Null,
                    },
                    text => text,
                },
            },
            integer => integer.as_i64().map_or(Value::Null, Value::Integer),
        })
    }

    fn text(&mut self, value: Read<'_>) -> Result<Value, Error> {
        Ok(self.cache.constants.names.text(value)?.map_or(Value::Null, Value::Text))
    }

    /// Converts a struct; classes and methods become their name.
    fn named(&mut self, record: &StructRef<'_>, depth: usize) -> Result<Value, Error> {
        if &*record.class().name == "java.lang.Class"
            && let Some(name) = self.cache.constants.names.field_text(record, "name")?
        {
            return Ok(Value::Text(name));
        }
        Ok(Value::Struct(self.record(record, |_| false, depth + 1)?))
    }
}
