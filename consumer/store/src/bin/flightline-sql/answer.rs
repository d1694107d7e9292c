//! `flightline sql`

use std::io::{self, IsTerminal, Read};
use std::path::Path;

use anyhow::{Context, Result};
use datafusion::arrow::csv;
use datafusion::arrow::json::LineDelimitedWriter;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::execution::SendableRecordBatchStream;
use flightline_store::query::{OpenOptions, Session};
use flightline_store::storage::{is_gone, while_files_change};
use futures::TryStreamExt;

use crate::args::{RowFormat, SqlArgs, StoreArgs};
use crate::output::{self, Output};

/// Maximum length of a query.
const LONGEST: u64 = 1 << 20;

/// Opens a store with the user's additional tables.
pub async fn open(args: &StoreArgs) -> Result<Session> {
    open_only(args, String::new()).await
}

/// Opens a store for queries of `table` where `condition` holds. Days and services that it excludes are not
/// read. `columns` are the columns that the query also uses.
pub async fn open_for(args: &StoreArgs, table: &str, condition: &str, columns: &str) -> Result<Session> {
    if condition.is_empty() {
        return open(args).await;
    }
    let session = open_only(args, condition.to_owned()).await?;
    let asked = format!("SELECT {columns} FROM {table} WHERE {condition}");
    // The condition may name labels that exist only in other folders. Then no sample matches, which is not an
    // error.
    if session.plan(&asked).await.is_err() { open(args).await } else { Ok(session) }
}

async fn open_only(args: &StoreArgs, only: String) -> Result<Session> {
    let options = OpenOptions { threads: args.threads, only, ..OpenOptions::default() };
    let session = Session::open(&args.store, &options).await?;
    for (name, file) in &args.tables {
        session.add_table(name, file).await?;
    }
    Ok(session)
}

/// Answers a query.
pub async fn run(args: &SqlArgs) -> Result<()> {
    let mut sql = args.sql.clone();
    if sql == "-" {
        sql.clear();
        io::stdin().take(LONGEST).read_to_string(&mut sql).context("cannot read the question")?;
    }
    while_files_change(|| ask(args, &sql)).await
}

async fn ask(args: &SqlArgs, sql: &str) -> Result<()> {
    let session = open(&args.store).await?;
    let mut rows = session.stream(sql).await?;
    if args.format == RowFormat::Table {
        return table(rows, &args.output).await;
    }
    let schema = rows.schema();
    // The query can be retried until output has been written.
    let mut next = rows.try_next().await?;
    let mut out = Output::begin(&args.output)?;
    let mut first = true;
    while let Some(batch) = next {
        write(&batch, args.format, first, &mut out)?;
        first = false;
        let changed = || anyhow::anyhow!("files of the store became others meanwhile: ask again");
        next = rows.try_next().await.map_err(|error| {
            let error = error.into();
            if is_gone(&error) { changed() } else { error }
        })?;
    }
    if first {
        write(&RecordBatch::new_empty(schema), args.format, true, &mut out)?;
    }
    out.finish()
}

fn write(batch: &RecordBatch, format: RowFormat, first: bool, out: &mut Output) -> Result<()> {
    if format == RowFormat::Ndjson {
        let mut writer = LineDelimitedWriter::new(out);
        writer.write(batch)?;
        return Ok(writer.finish()?);
    }
    Ok(csv::WriterBuilder::new().with_header(first).build(out).write(batch)?)
}

async fn table(rows: SendableRecordBatchStream, to: &Path) -> Result<()> {
    let schema = rows.schema();
    let mut batches: Vec<RecordBatch> = rows.try_collect().await?;
    if batches.is_empty() {
        batches.push(RecordBatch::new_empty(schema));
    }
    let text = pretty_format_batches(&batches)?.to_string();
    let tame = to.as_os_str() == "-" && io::stdout().is_terminal();
    output::text(to, |out| {
        for line in text.lines() {
            match tame {
                true => writeln!(out, "{}", output::plain(line))?,
                false => writeln!(out, "{line}")?,
            }
        }
        Ok(())
    })
}
