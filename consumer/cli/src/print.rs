//! `flightline print`

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use flightline_consumer::print::{JsonPrinter, Patterns, PrintOptions, TextPrinter};
use flightline_consumer::warnings::Warnings;
use jfr_format::read::{Batch, Item};

use crate::args::PrintArgs;
use crate::talk::{self, shown};
use crate::{Outcome, input, output};

enum Printer {
    Text(TextPrinter),
    Json(JsonPrinter),
}

impl Printer {
    fn batch(&mut self, batch: &Batch<'_>, warnings: &mut Warnings, out: &mut dyn Write) -> Result<()> {
        match self {
            Self::Text(printer) => printer.batch(batch, warnings, out)?,
            Self::Json(printer) => printer.batch(batch, warnings, out)?,
        }
        Ok(())
    }
}

/// Prints events.
pub fn run(args: PrintArgs) -> Result<Outcome> {
    let mut input = input::recording(&args.input)?;
    let options = PrintOptions { events: Patterns::new(args.events.clone()), stack_depth: args.stack_depth };
    let mut printer = if args.json {
        Printer::Json(JsonPrinter::new(options))
    } else {
        Printer::Text(TextPrinter::new(options))
    };
    let mut warnings = Warnings::default();
    output::text(Path::new("-"), |out| -> Result<()> {
        if let Printer::Json(json) = &mut printer {
            json.begin(out)?;
        }
        while let Some(item) = input.next().with_context(|| shown(&args.input))? {
            match item {
                Item::Events(batch) => {
                    printer.batch(&batch, &mut warnings, out)?;
                    // Who follows a stream wants to see what there is.
                    out.flush()?;
                }
                Item::Warning(warning) => warnings.push(warning),
                _ => {}
            }
        }
        if let Printer::Json(json) = &mut printer {
            json.end(out)?;
        }
        Ok(())
    })?;
    Ok(talk::warnings(&args.input, &warnings))
}
