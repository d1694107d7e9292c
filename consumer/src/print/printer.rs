//! Prints the selected events of an input in the requested order.

use std::io::Write;

use jfr_format::event::EventRef;
use jfr_format::read::{Chunk, Decoder, Filter, Item};

use super::order::HeldEvents;
use super::selection::Range;
use super::{Format, Order, PrintOptions, threads};
use crate::error::Error;
use crate::warnings::Warnings;

/// An output format. A writer prints all events of a recording, or a part of them if several threads
/// print.
pub trait EventWriter: Send {
    /// The text before the first event.
    fn begin(&self) -> &'static [u8] {
        b""
    }

    /// Appends the text before the first event that depends on the types of the first chunk.
    fn head(&mut self, _: &Chunk, _: &mut Vec<u8>) {}

    /// The text between two events.
    fn between(&self) -> &'static [u8] {
        b""
    }

    /// The text after the last event.
    fn end(&self) -> &'static [u8] {
        b""
    }

    /// Returns another writer for events of the same chunk on another thread; `None` if the output
    /// depends on earlier output.
    fn another(&self) -> Option<Box<dyn EventWriter>>;

    /// Starts a chunk, or reports that more of the current one is known. Cached constants become invalid.
    fn chunk(&mut self, chunk: &Chunk);

    /// Appends one event to `out`.
    ///
    /// # Errors
    /// A field is malformed; the appended text is still well-formed.
    fn event(&mut self, event: &EventRef<'_>, out: &mut Vec<u8>) -> Result<(), jfr_format::error::Error>;
}

/// Prints the events of one recording.
pub struct Printer {
    options: PrintOptions,
    writers: Vec<Box<dyn EventWriter>>,
    held: HeldEvents,
    range: Option<Range>,
    out: Vec<u8>,
    headed: bool,
    any: bool,
}

impl std::fmt::Debug for Printer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Printer").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Bytes that are collected per write.
pub(super) const BLOCK: usize = 256 * 1024;

impl Printer {
    /// Creates a printer.
    pub fn new(format: Format, options: PrintOptions) -> Self {
        let writers = vec![super::writer(format, &options)];
        let held = HeldEvents::new(options.order);
        Self { options, writers, held, range: None, out: Vec::new(), headed: false, any: false }
    }

    /// Configures the decoder to skip events that are not selected.
    pub fn select(&self, decoder: &mut Decoder) {
        let selection = self.options.selection.clone();
        decoder.set_filter(
            move |class| {
                if selection.chooses(class) { Filter::Constants } else { Filter::Skip }
            },
        );
    }

    /// Writes the text before the first event.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn begin(&mut self, out: &mut dyn Write) -> Result<(), Error> {
        out.write_all(self.writers[0].begin()).map_err(Error::Write)
    }

    /// Writes the text after the last event.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn end(&mut self, out: &mut dyn Write) -> Result<(), Error> {
        out.write_all(self.writers[0].end()).map_err(Error::Write)
    }

    /// Processes the next item of the input and prints the events that are due. Decoding errors are added
    /// to `warnings`.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn item(
        &mut self,
        item: Item<'_>,
        warnings: &mut Warnings,
        out: &mut dyn Write,
    ) -> Result<(), Error> {
        match item {
            Item::ChunkStart(chunk) => {
                let start = chunk.header.start_nanos;
                let range = self.range.get_or_insert_with(|| self.options.selection.range(start));
                self.held.start(*range);
            }
            Item::Events(batch) => {
                self.held.add(&batch, &self.options.selection);
                if self.options.order == Order::AsFound {
                    self.print(batch.chunk(), warnings, out)?;
                }
            }
            Item::ChunkEnd(end) => self.print(end.chunk, warnings, out)?,
            Item::Warning(warning) => warnings.push(warning),
        }
        Ok(())
    }

    /// Prints the held events.
    fn print(&mut self, chunk: &Chunk, warnings: &mut Warnings, out: &mut dyn Write) -> Result<(), Error> {
        if !self.headed && !chunk.types.classes().is_empty() {
            self.headed = true;
            self.writers[0].head(chunk, &mut self.out);
        }
        self.held.sort();
        while let Some(window) = self.held.next(chunk) {
            let jobs = if threads::worth_it(window.places().len()) { self.options.jobs } else { 1 };
            while self.writers.len() < jobs
                && let Some(another) = self.writers[0].another()
            {
                self.writers.push(another);
            }
            if jobs > 1 && self.writers.len() > 1 {
                out.write_all(&self.out).map_err(Error::Write)?;
                self.out.clear();
                threads::print(&mut self.writers, chunk, window, self.any, warnings, out)?;
                self.any = true;
                continue;
            }
            let writer = &mut self.writers[0];
            writer.chunk(chunk);
            for event in window.places().iter().filter_map(|place| window.event(chunk, place)) {
                if self.any {
                    self.out.extend_from_slice(writer.between());
                }
                self.any = true;
                if let Err(warning) = writer.event(&event, &mut self.out) {
                    warnings.push(warning);
                }
                if self.out.len() >= BLOCK {
                    out.write_all(&self.out).map_err(Error::Write)?;
                    self.out.clear();
                }
            }
        }
        self.held.clear();
        out.write_all(&self.out).map_err(Error::Write)?;
        self.out.clear();
        Ok(())
    }
}
