//! Events as JSON, in the shape of the JDK's `jfr print --json`.

use std::io::Write;

use jfr_format::event::{ArrayRef, EventRef, StructRef, Value};
use jfr_format::read::{Batch, Chunk, Field};

use super::quantity::{self, Quantity};
use super::{Budget, PrintOptions, clock};
use crate::error::Error;
use crate::warnings::Warnings;

/// Prints `{"recording": {"events": [ … ]}}`.
#[derive(Debug)]
pub struct JsonPrinter {
    options: PrintOptions,
    budget: Budget,
    out: Vec<u8>,
    any: bool,
}

impl JsonPrinter {
    /// A printer that has not printed anything.
    pub fn new(options: PrintOptions) -> Self {
        Self { options, budget: Budget::default(), out: Vec::new(), any: false }
    }

    /// Opens the document.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn begin(&mut self, out: &mut dyn Write) -> Result<(), Error> {
        out.write_all(b"{\"recording\": {\"events\": [").map_err(Error::Write)
    }

    /// Closes the document.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn end(&mut self, out: &mut dyn Write) -> Result<(), Error> {
        out.write_all(b"\n]}}\n").map_err(Error::Write)
    }

    /// Prints the chosen events of a batch; what cannot be decoded is added to `warnings`.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn batch(
        &mut self,
        batch: &Batch<'_>,
        warnings: &mut Warnings,
        out: &mut dyn Write,
    ) -> Result<(), Error> {
        for event in batch.events() {
            if !self.options.events.choose(&event.class().name) {
                continue;
            }
            self.out.clear();
            self.out.extend_from_slice(if self.any { b",\n" } else { b"\n" });
            self.any = true;
            self.budget.start();
            if let Err(warning) = self.event(&event) {
                warnings.push(warning);
            }
            out.write_all(&self.out).map_err(Error::Write)?;
        }
        Ok(())
    }

    fn event(&mut self, event: &EventRef<'_>) -> Result<(), jfr_format::error::Error> {
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
        let limit = if &*field.name == "frames" { self.options.stack_depth } else { usize::MAX };
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
