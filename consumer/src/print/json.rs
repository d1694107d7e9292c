//! Events as JSON, in the shape of the JDK's `jfr print --json`.

use jfr_format::event::{ArrayRef, EventRef, StructRef, Value};
use jfr_format::read::{Chunk, Field};

use super::quantity::{self, Quantity};
use super::{Budget, EventWriter, clock};

/// Prints `{"recording": {"events": [ … ]}}`.
#[derive(Debug)]
pub struct JsonPrinter {
    stack_depth: usize,
    budget: Budget,
    out: Vec<u8>,
}

impl EventWriter for JsonPrinter {
    fn begin(&self) -> &'static [u8] {
        b"{\"recording\": {\"events\": ["
    }

    fn between(&self) -> &'static [u8] {
        b",\n"
    }

    fn end(&self) -> &'static [u8] {
        b"\n]}}\n"
    }

    fn another(&self) -> Option<Box<dyn EventWriter>> {
        Some(Box::new(Self::new(self.stack_depth)))
    }

    fn chunk(&mut self, _: &Chunk) {}

    fn event(&mut self, event: &EventRef<'_>, out: &mut Vec<u8>) -> Result<(), jfr_format::error::Error> {
        self.out.clear();
        self.budget.start();
        let outcome = self.values(event);
        out.extend_from_slice(&self.out);
        outcome
    }
}

impl JsonPrinter {
    /// Prints this many frames of a stack.
    pub fn new(stack_depth: usize) -> Self {
        Self { stack_depth, budget: Budget::default(), out: Vec::new() }
    }

    fn values(&mut self, event: &EventRef<'_>) -> Result<(), jfr_format::error::Error> {
        self.out.extend_from_slice(b"{\"type\": ");
        self.string(&event.class().name);
        self.out.extend_from_slice(b", \"values\": ");
        let outcome = self.record(&event.fields());
        self.out.push(b'}');
        outcome
    }

    fn string(&mut self, text: &str) {
        // Writing to a vector does not fail, and a string has no form JSON lacks.
        let _ = serde_json::to_writer(&mut self.out, text);
    }

    fn text(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    fn record(&mut self, of: &StructRef<'_>) -> Result<(), jfr_format::error::Error> {
        self.out.push(b'{');
        let mut outcome = Ok(());
        let mut separator = "";
        for field in of.iter() {
            match field {
                Ok((field, value)) => {
                    self.text(separator);
                    separator = ", ";
                    self.string(&field.name);
                    self.text(": ");
                    self.value(of.chunk(), field, value);
                }
                Err(error) => outcome = Err(error),
            }
        }
        self.out.push(b'}');
        outcome
    }

    fn value(&mut self, chunk: &Chunk, field: &Field, value: Value<'_>) {
        if !self.budget.spend() {
            self.text("null");
            return;
        }
        let followed = self.budget.follow(value);
        match followed.value {
            Value::Null | Value::Reference(_) => self.text("null"),
            Value::Text(text) => self.string(&text),
            Value::Boolean(v) => self.text(if v { "true" } else { "false" }),
            Value::Char(unit) => self.string(&String::from_utf16_lossy(&[unit])),
            Value::Float(v) => self.float(f64::from(v), &format!("{v:?}")),
            Value::Double(v) => self.float(v, &format!("{v:?}")),
            Value::Struct(fields) => {
                // A damaged constant prints as far as it goes; the decoder has told of the damage.
                let _ = self.record(&fields);
            }
            Value::Array(list) => self.list(chunk, field, &list),
            number => self.number(chunk, field, &number),
        }
        self.budget.back(followed.steps);
    }

    fn float(&mut self, value: f64, text: &str) {
        // JSON has no words for the others.
        self.text(if value.is_finite() { text } else { "null" });
    }

    fn number(&mut self, chunk: &Chunk, field: &Field, value: &Value<'_>) {
        match quantity::time(chunk, field, value) {
            Some(Quantity::Time(nanos)) => self.string(&clock::iso(nanos)),
            Some(Quantity::Span(nanos)) => self.string(&clock::iso_span(nanos)),
            Some(Quantity::Missing | Quantity::Forever) => self.text("null"),
            None => {
                let text = quantity::unsigned(field, value).map(|v| v.to_string());
                let text = text.or_else(|| value.as_i64().map(|v| v.to_string()));
                self.text(text.as_deref().unwrap_or("null"));
            }
        }
    }

    fn list(&mut self, chunk: &Chunk, field: &Field, list: &ArrayRef<'_>) {
        let limit = if &*field.name == "frames" { self.stack_depth } else { usize::MAX };
        self.out.push(b'[');
        for (i, value) in list.iter().take(limit).flatten().enumerate() {
            if i > 0 {
                self.text(", ");
            }
            self.value(chunk, field, value);
            if self.budget.values == 0 {
                break;
            }
        }
        self.out.push(b']');
    }
}
