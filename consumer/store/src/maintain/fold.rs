//! Writes the rows of an SQL query as one file of a folder.

use std::sync::Arc;

use anyhow::{Context, Result};
use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::arrow::arrow_writer::ArrowWriterOptions;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::TryStreamExt;

use crate::layout::{PARTITIONED_BY, Table};
use crate::query::files::Read;
use crate::schema;
use crate::storage::Storage;

/// Memory of a sort or aggregation; beyond it, the engine spills to disk.
const MEMORY: usize = 512 << 20;

/// Creates a session for querying the tables of one folder.
pub(super) fn session(place: &Storage) -> Result<SessionContext> {
    let runtime =
        RuntimeEnvBuilder::new().with_memory_pool(Arc::new(FairSpillPool::new(MEMORY))).build_arc()?;
    let mut config = SessionConfig::new();
    // Keep strings in the type in which they were written.
    config.options_mut().execution.parquet.schema_force_view_types = false;
    let context = SessionContext::new_with_config_rt(config, runtime);
    context.register_object_store(place.url().as_ref(), place.object_store().clone());
    Ok(context)
}

/// Registers the files of a table in `context`.
pub(super) fn register(context: &SessionContext, place: &Storage, of: Table, read: Read) -> Result<()> {
    context.register_table(of.name(), Arc::new(read.table(place, of)))?;
    Ok(())
}

/// Returns the columns of a table's files, without the partition columns.
pub(super) fn columns(schema: &Schema) -> Vec<String> {
    let own = schema.fields().iter().map(|field| field.name().clone());
    own.filter(|name| !PARTITIONED_BY.contains(&name.as_str())).collect()
}

/// Quotes a column name for SQL.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Writes the result of a query as a file of table `of`; returns the bytes and the number of rows.
pub(super) async fn file(
    context: &SessionContext,
    of: Table,
    sql: &str,
    told: Option<String>,
) -> Result<(Vec<u8>, u64)> {
    let mut rows = context.sql(sql).await?.execute_stream().await?;
    let options = ArrowWriterOptions::new()
        .with_properties(schema::properties(of, told))
        .with_skip_arrow_metadata(true);
    // Columns that every file has are non-nullable, as in the input files.
    let never: Vec<String> = schema::columns(of)
        .iter()
        .filter(|field| !field.is_nullable())
        .map(|field| field.name().clone())
        .collect();
    let of_rows = rows.schema();
    let fields = of_rows.fields().iter().map(|field| {
        let nullable = !never.contains(field.name());
        Arc::new(field.as_ref().clone().with_nullable(nullable))
    });
    let of_file = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let mut writer = ArrowWriter::try_new_with_options(Vec::new(), of_file.clone(), options)?;
    let mut count = 0;
    while let Some(batch) = rows.try_next().await? {
        count += batch.num_rows() as u64;
        let batch = RecordBatch::try_new(of_file.clone(), batch.columns().to_vec());
        let batch = batch.context("a row lacks what every row has")?;
        writer.write(&batch)?;
    }
    Ok((writer.into_inner()?, count))
}
