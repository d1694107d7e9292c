//! `flightline store info`

use std::path::Path;

use anyhow::Result;
use datafusion::catalog::TableProvider;
use flightline_consumer::format::bytes;

use crate::args::InfoArgs;
use crate::{answer, output};

/// Prints the contents of a store.
pub async fn run(args: &InfoArgs) -> Result<()> {
    let session = answer::open(&args.store).await?;
    output::text(Path::new("-"), |out| {
        for (name, table) in session.tables().all() {
            let (files, rows, size) = table.size();
            writeln!(out, "{name}: {rows} rows in {files} files, {}", bytes(size))?;
            for field in table.schema().fields() {
                writeln!(out, "  {} {}", output::plain(field.name()), field.data_type())?;
            }
        }
        Ok(())
    })
}
