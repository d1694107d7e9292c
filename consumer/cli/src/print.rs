//! `flightline print`

use std::path::Path;

use anyhow::{Context, Result};
use flightline_consumer::print::{Format, Patterns, PrintOptions, Printer, Selection};
use flightline_consumer::warnings::Warnings;

use crate::args::PrintArgs;
use crate::talk::{self, shown};
use crate::{Outcome, input, output};

/// Prints events.
pub fn run(args: PrintArgs) -> Result<Outcome> {
    let mut input = input::recording(&args.input)?;
    let selection = Selection { events: Patterns::new(args.events.clone()), ..Selection::default() };
    let options = PrintOptions { selection, stack_depth: args.stack_depth, ..PrintOptions::default() };
    let mut printer = Printer::new(if args.json { Format::Json } else { Format::Text }, options);
    printer.select(input.decoder());
    let mut warnings = Warnings::default();
    output::text(Path::new("-"), |out| -> Result<()> {
        printer.begin(out)?;
        while let Some(item) = input.next().with_context(|| shown(&args.input))? {
            printer.item(item, &mut warnings, out)?;
        }
        printer.end(out)?;
        Ok(())
    })?;
    Ok(talk::warnings(&args.input, &warnings))
}
