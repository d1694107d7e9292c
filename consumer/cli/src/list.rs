//! `flightline list`: which engines work here.

use std::path::Path;

use anyhow::Result;
use flightline_recorder::engines;

use crate::{Outcome, output};

/// Prints one line per engine.
pub fn run() -> Result<Outcome> {
    let mut out = String::new();
    let mut best = None;
    for engine in engines::list() {
        let state = match &engine.refused {
            None => {
                best.get_or_insert(engine.name);
                "works".to_owned()
            }
            Some(why) => format!("refused: {why}"),
        };
        out += &format!("{:10} {state}\n{:10} {}\n", engine.name, "", engine.about);
    }
    out += &match best {
        Some(name) => {
            format!("\nauto takes the first that works: {name} (timer where it keeps up with the rate)\n")
        }
        None => "\nnothing can sample here\n".to_owned(),
    };
    output::text(Path::new("-"), |to| to.write_all(out.as_bytes()))?;
    Ok(if best.is_some() { Outcome::Whole } else { Outcome::Partial })
}
