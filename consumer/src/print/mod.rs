//! Events as text, JSON, lines of JSON, CSV or lines of JSON with constants by reference.
//!
//! ```text
//! Item ─► Printer: select, order ─► EventWriter: one form ─► blocks of bytes, on several threads, in order
//! ```
//!
//! ```no_run
//! use flightline_consumer::print::{Format, PrintOptions, Printer};
//! use flightline_consumer::warnings::Warnings;
//! use jfr_format::read::Input;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut input = Input::open("run.jfr".as_ref())?;
//! let mut printer = Printer::new(Format::Json, PrintOptions::default());
//! printer.select(input.decoder());
//! let (mut out, mut warnings) = (std::io::stdout().lock(), Warnings::default());
//! printer.begin(&mut out)?;
//! while let Some(item) = input.next()? {
//!     printer.item(item, &mut warnings, &mut out)?;
//! }
//! printer.end(&mut out)?;
//! # Ok(()) }
//! ```

pub mod clock;
mod json;
mod moment;
mod number;
mod order;
mod pattern;
mod printer;
mod quantity;
mod selection;
mod text;

pub use pattern::Patterns;
pub use printer::{EventWriter, Printer};
pub use selection::{Categories, Selection};

use jfr_format::event::{StructRef, Value};
use jfr_format::read::Field;

/// What events look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people, like the JDK's `jfr print`.
    Text,
    /// One document, like the JDK's `jfr print --json`.
    Json,
    /// One JSON object a line.
    Ndjson,
    /// A table.
    Csv,
    /// One JSON object a line, each stack, method, class and thread only once.
    Compact,
}

/// In which order events are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Those of a chunk by when they ended, as the JDK's tool does; printed when the chunk has been read.
    #[default]
    EndTime,
    /// As they lie in the input, printed as soon as they are decoded.
    AsFound,
}

/// What to print, and how.
#[derive(Clone, Debug)]
pub struct PrintOptions {
    /// Which events.
    pub selection: Selection,
    /// Most frames of a stack.
    pub stack_depth: usize,
    /// In which order.
    pub order: Order,
    /// Threads that print; what they print does not depend on their number.
    pub jobs: usize,
}

impl Default for PrintOptions {
    /// All events, five frames of each stack, as the JDK does; one thread.
    fn default() -> Self {
        Self { selection: Selection::default(), stack_depth: 5, order: Order::EndTime, jobs: 1 }
    }
}

fn writer(format: Format, options: &PrintOptions) -> Box<dyn EventWriter> {
    match format {
        Format::Text => Box::new(text::TextPrinter::new(options.stack_depth)),
        Format::Ndjson => Box::new(json::LinePrinter::new(options.stack_depth)),
        Format::Compact => Box::new(json::CompactPrinter::new(options.stack_depth)),
        Format::Json | Format::Csv => Box::new(json::JsonPrinter::new(options.stack_depth)),
    }
}

/// References followed below an event before the rest is cut: real ones need fewer than ten.
const MAX_DEPTH: usize = 24;
/// Values of one event before the rest is cut: references can make a small file describe an endless tree.
const MAX_VALUES: usize = 1 << 16;

/// Bounds the expansion of one event.
#[derive(Debug, Default)]
struct Budget {
    values: usize,
    path: Vec<(u64, u64)>,
}

impl Budget {
    fn start(&mut self) {
        self.values = MAX_VALUES;
        self.path.clear();
    }

    fn spend(&mut self) -> bool {
        self.values = self.values.saturating_sub(1);
        self.values > 0
    }

    /// Follows a reference; `None` where it leads in a circle, too deep, or nowhere.
    fn follow<'a>(&mut self, value: Value<'a>) -> Followed<'a> {
        let mut value = value;
        let mut steps = 0;
        loop {
            match value {
                Value::Reference(reference) => {
                    let Some(class) = reference.class() else { return Followed::null(steps) };
                    let here = (class.id, reference.key());
                    if self.path.len() >= MAX_DEPTH || self.path.contains(&here) {
                        return Followed::null(steps);
                    }
                    match reference.resolve() {
                        Ok(Some(next)) => {
                            self.path.push(here);
                            steps += 1;
                            value = next;
                        }
                        // A damaged constant is as good as none; the decoder has told of the damage.
                        Ok(None) | Err(_) => return Followed::null(steps),
                    }
                }
                Value::Struct(fields) if fields.class().simple && fields.class().fields.len() == 1 => {
                    value = match fields.iter().next() {
                        Some(Ok((_, inner))) => inner,
                        _ => return Followed::null(steps),
                    };
                }
                value => return Followed { value, steps },
            }
        }
    }

    fn back(&mut self, steps: usize) {
        self.path.truncate(self.path.len() - steps);
    }
}

struct Followed<'a> {
    value: Value<'a>,
    steps: usize,
}

impl Followed<'_> {
    fn null(steps: usize) -> Self {
        Self { value: Value::Null, steps }
    }
}

/// Text of a field of a struct, references followed.
fn text_of(of: &StructRef<'_>, field: &str) -> Option<String> {
    of.field(field).ok()??.text().ok()?.map(|text| text.into_owned())
}

fn record_of<'a>(of: &StructRef<'a>, field: &str) -> Option<StructRef<'a>> {
    of.field(field).ok()??.record().ok()?
}

fn number_of(of: &StructRef<'_>, field: &str) -> Option<i64> {
    of.field(field).ok()??.as_i64()
}

fn is_stack(field: &Field) -> bool {
    &*field.name == "stackTrace"
}
