//! Which files the tables of a store are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::parquet::arrow::arrow_reader::ArrowReaderMetadata;
use datafusion::parquet::file::statistics::Statistics;
use datafusion::prelude::SessionContext;
use futures::{StreamExt, TryStreamExt};

use super::table::{DataFile, StoreTable};
use crate::footer::{Id, Told};
use crate::layout::{PARTITIONED_BY, Table};
use crate::place::{Listed, Place};
use crate::schema;

/// Footers read at the same time.
const AT_ONCE: usize = 32;

/// The tables of a store by name.
#[derive(Debug)]
pub struct Tables(BTreeMap<&'static str, StoreTable>);

impl Tables {
    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &StoreTable)> {
        self.0.iter().map(|(&name, table)| (name, table))
    }

    /// One of them.
    ///
    /// # Errors
    /// The store has none of that name.
    pub fn get(&self, name: &str) -> Result<&StoreTable> {
        self.0.get(name).with_context(|| format!("the store has no table {name}"))
    }

    /// Files that were read, and that could not have what was asked for, of all tables.
    pub fn files(&self) -> (u64, u64) {
        let all = self.0.values().map(|table| table.tally().files());
        all.fold((0, 0), |(read, over), (more_read, more_over)| (read + more_read, over + more_over))
    }
}

/// Finds the files of the store `at`, and lets `context` read them.
pub async fn open(at: &str, context: &SessionContext) -> Result<Tables> {
    let place = Place::open(at)?;
    context.register_object_store(place.url().as_ref(), place.object_store().clone());
    let mut tables = BTreeMap::new();
    for of in Table::ALL {
        let listed = place.list(of, None).await?;
        if of == Table::Samples && listed.is_empty() {
            bail!("{at} is no store: it has no Parquet file in {}/", of.name());
        }
        let (schema, files) = footers(&place, of, listed).await?;
        // A stack is the same in all folders that have it.
        let partitioned_by: &[&str] = if of.id().is_some() { &[] } else { &PARTITIONED_BY };
        let table = StoreTable::new(place.url().clone(), schema, partitioned_by, files);
        tables.insert(of.name(), of.id().map_or(table.clone(), |id| table.once_per(id)));
    }
    Ok(Tables(tables))
}

/// What the files say of themselves: all columns that any of them has, how many rows, from when to when; without those that are in others.
async fn footers(place: &Place, of: Table, files: Vec<Listed>) -> Result<(SchemaRef, Vec<DataFile>)> {
    let read = |file: Listed| async move {
        let (footer, told) = place.footer(&file.meta).await?;
        anyhow::Ok((file, footer, told))
    };
    let mut read = futures::stream::iter(files).map(read).buffered(AT_ONCE);
    let mut columns: Vec<Arc<Field>> = Vec::new();
    let fixed = schema::columns(of).into_iter().map(|field| Arc::new(field.with_nullable(true)));
    columns.extend(fixed);
    let (mut files, mut told) = (Vec::new(), Vec::new());
    while let Some((file, footer, of_file)) = read.try_next().await? {
        for field in footer.schema().fields() {
            match columns.iter().find(|known| known.name() == field.name()) {
                None => columns.push(Arc::new(field.as_ref().clone().with_nullable(true))),
                Some(known) if alike(known, field) => {}
                Some(known) => bail!(
                    "{}: column {} is {}, elsewhere {}: move the file away to read the others",
                    file.meta.location,
                    field.name(),
                    field.data_type(),
                    known.data_type()
                ),
            }
        }
        let rows = u64::try_from(footer.metadata().file_metadata().num_rows()).unwrap_or(0);
        files.push(DataFile {
            times: times(&footer),
            partition: file.partition.values().to_vec(),
            meta: file.meta,
            rows,
            except: Vec::new(),
        });
        told.push(of_file);
    }
    Ok((Arc::new(Schema::new(columns)), in_force(files, &told)))
}

/// Whether a column of one file can be read as that of another.
fn alike(known: &Field, field: &Field) -> bool {
    known.data_type().equals_datatype(field.data_type())
}

/// The files that count: not those that another one of their folder replaces; and of a chunk that came twice at the same moment only the rows
/// of one delivery.
fn in_force(files: Vec<DataFile>, told: &[Told]) -> Vec<DataFile> {
    let names = files.iter().map(|file| file.meta.location.filename().unwrap_or_default().to_owned());
    let replaced: BTreeSet<(&[String], &str)> = files
        .iter()
        .zip(told)
        .flat_map(|(file, told)| told.replaces.iter().map(|name| (file.partition.as_slice(), name.as_str())))
        .collect();
    let kept: Vec<bool> = files
        .iter()
        .zip(names)
        .map(|(file, name)| !replaced.contains(&(file.partition.as_slice(), name.as_str())))
        .collect();
    let mut of_chunk: BTreeMap<(&[String], Id), Id> = BTreeMap::new();
    let alive = || files.iter().zip(told).zip(&kept).filter(|(_, kept)| **kept).map(|(file, _)| file);
    for (file, told) in alive() {
        for (&delivery, chunks) in &told.chunks {
            for &chunk in chunks {
                let by = of_chunk.entry((file.partition.as_slice(), chunk)).or_insert(delivery);
                *by = delivery.min(*by);
            }
        }
    }
    let excepts: Vec<Vec<i64>> = files
        .iter()
        .zip(told)
        .map(|(file, told)| {
            let others = |delivery: Id, chunk: Id| {
                of_chunk.get(&(file.partition.as_slice(), chunk)).is_some_and(|&by| by != delivery)
            };
            let pairs = told
                .chunks
                .iter()
                .flat_map(|(&delivery, chunks)| chunks.iter().map(move |&chunk| (delivery, chunk)));
            pairs
                .filter(|&(delivery, chunk)| others(delivery, chunk))
                .map(|(_, chunk)| chunk.0.cast_signed())
                .collect()
        })
        .collect();
    let files = files.into_iter().zip(excepts).zip(kept).filter(|(_, kept)| *kept);
    files.map(|((file, except), _)| DataFile { except, ..file }).collect()
}

/// First and last time of a file, by the statistics of its row groups.
fn times(footer: &ArrowReaderMetadata) -> Option<(i64, i64)> {
    let (_, field) = footer.schema().fields().find(schema::TIME)?;
    if *field.data_type() != schema::time() {
        return None;
    }
    let groups = footer.metadata().row_groups();
    let leaf = footer.parquet_schema().columns().iter().position(|column| column.name() == schema::TIME)?;
    let of_group = |statistics: &Statistics| match statistics {
        Statistics::Int64(times) => Some((*times.min_opt()?, *times.max_opt()?)),
        _ => None,
    };
    let bounds = groups.iter().map(|group| group.column(leaf).statistics().and_then(of_group));
    bounds.collect::<Option<Vec<_>>>()?.into_iter().reduce(|(a, b), (c, d)| (a.min(c), b.max(d)))
}
