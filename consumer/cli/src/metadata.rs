//! `flightline metadata`

use std::path::Path;

use anyhow::{Context, Result};
use flightline_consumer::metadata::Declarations;
use flightline_consumer::print::Patterns;
use flightline_consumer::warnings::Warnings;
use jfr_format::read::Item;

use crate::args::MetadataArgs;
use crate::talk::{self, shown};
use crate::{Outcome, input, output};

/// Lists the types a recording declares.
pub fn run(args: MetadataArgs) -> Result<Outcome> {
    let mut input = input::recording(&args.input)?;
    let mut declarations = Declarations::default();
    let mut warnings = Warnings::default();
    while let Some(item) = input.next().with_context(|| shown(&args.input))? {
        match item {
            Item::ChunkEnd(end) => declarations.add(end.chunk),
            Item::Warning(warning) => warnings.push(warning),
            _ => {}
        }
    }
    let which = Patterns::new(args.events.clone());
    output::text(Path::new("-"), |out| {
        if args.json { declarations.write_json(&which, out) } else { declarations.write_text(&which, out) }
    })?;
    Ok(talk::warnings(&args.input, &warnings))
}
