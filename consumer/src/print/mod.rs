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

mod budget;
pub mod clock;
mod csv;
mod java;
mod json;
mod moment;
mod number;
mod order;
mod pattern;
mod printer;
mod selection;
mod text;
mod things;
mod threads;
mod units;
mod window;

pub(crate) use java::class_name;
pub use pattern::{Patterns, glob};
pub use printer::{EventWriter, Printer};
pub use selection::{Categories, Selection};

/// Constants within each other before the rest is cut. A JDK writes chains of 200 objects that hold each other
/// (`jdk.OldObjectSample`), which are 400 constants.
const MAX_DEPTH: usize = 480;
/// Stack of a thread that prints so deep, in bytes.
const STACK: usize = 16 << 20;

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
    /// Numbers with all their digits, in text.
    pub exact: bool,
    /// In which order.
    pub order: Order,
    /// Threads that print; what they print does not depend on their number.
    pub jobs: usize,
}

impl Default for PrintOptions {
    /// All events, five frames of each stack, as the JDK does; one thread.
    fn default() -> Self {
        Self { selection: Selection::default(), stack_depth: 5, exact: false, order: Order::EndTime, jobs: 1 }
    }
}

fn writer(format: Format, options: &PrintOptions) -> Box<dyn EventWriter> {
    match format {
        Format::Text => Box::new(text::TextPrinter::new(options)),
        Format::Ndjson => Box::new(json::LinePrinter::new(options.stack_depth)),
        Format::Compact => Box::new(json::CompactPrinter::new(options.stack_depth)),
        Format::Json => Box::new(json::JsonPrinter::new(options.stack_depth)),
        Format::Csv => Box::new(csv::CsvPrinter::new(options.selection.clone(), options.stack_depth)),
    }
}
