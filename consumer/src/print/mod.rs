//! Prints events as text, JSON, JSON lines, CSV, or JSON lines with references to constants.
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

/// Maximum nesting of constants. A JDK writes chains of 200 objects that refer to each other
/// (`jdk.OldObjectSample`), which are 400 constants.
const MAX_DEPTH: usize = 480;
/// Stack size in bytes of a thread that prints such nested values.
const STACK: usize = 16 << 20;

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people, like the JDK's `jfr print`.
    Text,
    /// One document, like the JDK's `jfr print --json`.
    Json,
    /// One JSON object per line.
    Ndjson,
    /// A table.
    Csv,
    /// One JSON object per line, with each stack, method, class and thread only once.
    Compact,
}

/// The order of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// By end time within a chunk, like the JDK's tool. Events are printed at the end of the chunk.
    #[default]
    EndTime,
    /// In input order, as soon as they are decoded.
    AsFound,
}

/// Selection and format of the output.
#[derive(Clone, Debug)]
pub struct PrintOptions {
    /// Events to print.
    pub selection: Selection,
    /// Maximum number of frames per stack.
    pub stack_depth: usize,
    /// Print numbers with all digits in text output.
    pub exact: bool,
    /// Order of events.
    pub order: Order,
    /// Number of threads. It does not affect the output.
    pub jobs: usize,
}

impl Default for PrintOptions {
    /// All events with five frames per stack, like the JDK; one thread.
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
