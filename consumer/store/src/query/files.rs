//! Finds the files of a store's tables.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::parquet::arrow::arrow_reader::ArrowReaderMetadata;
use datafusion::parquet::file::statistics::Statistics;
use datafusion::prelude::SessionContext;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;

use super::partition_pruning;
use super::table::{DataFile, StoreTable};
use crate::footer::{Id, Provenance, is_merged};
use crate::layout::{PARTITIONED_BY, Partition, Table};
use crate::schema;
use crate::storage::{Listed, Storage};

/// Number of footers read concurrently.
const AT_ONCE: usize = 32;

/// The tables of a store, by name.
#[derive(Debug)]
pub struct Tables {
    tables: BTreeMap<&'static str, StoreTable>,
    /// Number of files by table in excluded folders.
    left_out: BTreeMap<&'static str, u64>,
}

impl Tables {
    /// Returns all tables.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &StoreTable)> {
        self.tables.iter().map(|(&name, table)| (name, table))
    }

    /// Returns a table.
    ///
    /// # Errors
    /// Returns an error if there is no table with that name.
    pub fn get(&self, name: &str) -> Result<&StoreTable> {
        self.tables.get(name).with_context(|| format!("the store has no table {name}"))
    }

    /// Returns the numbers of files that were read and skipped, over all tables.
    pub fn files(&self) -> (u64, u64) {
        let all = self.all().map(|(name, table)| match table.tally().files() {
            (0, 0) => (0, 0),
            (read, over) => (read, over + self.left_out.get(name).copied().unwrap_or(0)),
        });
        all.fold((0, 0), |(read, over), (more_read, more_over)| (read + more_read, over + more_over))
    }
}

/// Finds the files of the store `at` in folders that may have rows where `only` holds, and registers their
/// storage in `context`.
pub async fn open(at: &str, only: &str, context: &SessionContext) -> Result<Tables> {
    let place = Storage::open(at)?;
    context.register_object_store(place.url().as_ref(), place.object_store().clone());
    let mut all = Vec::new();
    for of in Table::ALL {
        all.push((of, place.list(of, None).await?));
    }
    let folders = all.iter().flat_map(|(_, files)| files.iter().map(|file| file.partition.clone()));
    let folders: BTreeSet<Partition> = folders.collect();
    if folders.is_empty() {
        bail!("{at} is no store: there is no Parquet file in {}/ and the like", Table::Samples.name());
    }
    let kept = partition_pruning::matching(only, folders).await?;
    let mut tables = Tables { tables: BTreeMap::new(), left_out: BTreeMap::new() };
    let mut names: BTreeSet<Path> = BTreeSet::new();
    for (of, mut files) in all {
        names.extend(files.iter().map(|file| file.meta.location.clone()));
        let there = files.len();
        files.retain(|file| kept.contains(&file.partition));
        tables.left_out.insert(of.name(), (there - files.len()) as u64);
        let read = read(&place, of, files, &BTreeSet::new()).await?;
        tables.tables.insert(of.name(), read.table(&place, of));
    }
    // Directories are listed in no particular order. A merge during the listing could hide both the old files
    // and the new one.
    if place.directory().is_some() {
        for of in Table::ALL {
            let listed = place.list(of, None).await?;
            let fresh = |file: &&Listed| is_merged(file.name()) && !names.contains(&file.meta.location);
            if let Some(file) = listed.iter().find(fresh) {
                let path = file.meta.location.to_string();
                return Err(object_store::Error::NotFound {
                    path,
                    source: "files became one meanwhile".into(),
                }
                .into());
            }
        }
    }
    Ok(tables)
}

/// Footers of a table's files.
pub(crate) struct Read {
    /// The union of their columns.
    pub(crate) schema: SchemaRef,
    /// Files in use.
    pub(crate) files: Vec<DataFile>,
    /// Provenance of these files, without chunks that another file provides.
    pub(crate) told: Vec<Provenance>,
    /// Files that others replace.
    pub(crate) replaced: Vec<DataFile>,
}

impl Read {
    /// Returns the table of these files.
    pub(crate) fn table(self, place: &Storage, of: Table) -> StoreTable {
        // A stack is the same in all folders.
        let partitioned_by: &[&str] = if of.id().is_some() { &[] } else { &PARTITIONED_BY };
        let table = StoreTable::new(place.url().clone(), self.schema, partitioned_by, self.files);
        of.id().map_or(table.clone(), |id| table.once_per(id))
    }
}

/// Reads the footers of files. `complete` lists complete deliveries in addition to those that the footers
/// name.
///
/// # Errors
/// Returns an error if a file is not complete Parquet, or column types conflict.
pub(crate) async fn read(
    place: &Storage,
    of: Table,
    files: Vec<Listed>,
    complete: &BTreeSet<Id>,
) -> Result<Read> {
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
    Ok(in_force(Arc::new(Schema::new(columns)), files, told, complete))
}

/// Returns true if the two columns have compatible types.
fn alike(known: &Field, field: &Field) -> bool {
    known.data_type().equals_datatype(field.data_type())
}

/// Determines the files in use: those that no other file in their folder replaces. For a chunk that two
/// writers delivered at the same time, selects the rows of one delivery, preferably a complete one.
fn in_force(schema: SchemaRef, files: Vec<DataFile>, told: Vec<Provenance>, complete: &BTreeSet<Id>) -> Read {
    let whole: BTreeSet<Id> = told.iter().flat_map(|told| told.complete.iter().copied()).collect();
    let rank = |delivery: Id| (!whole.contains(&delivery) && !complete.contains(&delivery), delivery);
    let folder = |file: &DataFile| file.partition.clone();
    let replaced: BTreeSet<(Vec<String>, String)> = (files.iter().zip(&told))
        .flat_map(|(file, told)| told.replaces.iter().map(|name| (folder(file), name.clone())))
        .collect();
    // Two maintainers may have run, one of them after a suspension. A file made from a subset of another
    // file's inputs is redundant.
    let inside: BTreeSet<(Vec<String>, String)> = within(&files, &told);
    let is_replaced = |file: &DataFile| {
        let name = (folder(file), file.name().to_owned());
        replaced.contains(&name) || inside.contains(&name)
    };
    let (gone, alive): (Vec<_>, Vec<_>) =
        files.into_iter().zip(told).partition(|(file, _)| is_replaced(file));
    let mut of_chunk: BTreeMap<(Vec<String>, Id), Id> = BTreeMap::new();
    for (file, told) in &alive {
        for (&delivery, chunks) in &told.chunks {
            for &chunk in chunks {
                let by = of_chunk.entry((folder(file), chunk)).or_insert(delivery);
                if rank(delivery) < rank(*by) {
                    *by = delivery;
                }
            }
        }
    }
    let mut read = Read { schema, files: Vec::new(), told: Vec::new(), replaced: Vec::new() };
    read.replaced.extend(gone.into_iter().map(|(file, _)| file));
    for (mut file, mut told) in alive {
        let of_folder = folder(&file);
        for (delivery, chunks) in &mut told.chunks {
            let mut others = Vec::new();
            chunks.retain(|&chunk| {
                let own = of_chunk.get(&(of_folder.clone(), chunk)).is_none_or(|by| by == delivery);
                if !own {
                    others.push(chunk.0.cast_signed());
                }
                own
            });
            file.except.extend(others);
        }
        read.files.push(file);
        read.told.push(told);
    }
    read
}

/// Returns files whose inputs are all inputs of another file in their folder.
fn within(files: &[DataFile], told: &[Provenance]) -> BTreeSet<(Vec<String>, String)> {
    let mut of_part: BTreeMap<(&[String], &str), Vec<usize>> = BTreeMap::new();
    for (number, (file, told)) in files.iter().zip(told).enumerate() {
        for part in &told.replaces {
            of_part.entry((&file.partition, part)).or_default().push(number);
        }
    }
    let both = of_part.values().filter(|numbers| numbers.len() > 1).flatten();
    let candidates: BTreeSet<usize> = both.copied().collect();
    let parts = |number: usize| told[number].replaces.iter().collect::<BTreeSet<_>>();
    let smaller = candidates.iter().filter(|&&one| {
        let own = parts(one);
        candidates.iter().any(|&other| {
            files[one].partition == files[other].partition
                && own.len() < told[other].replaces.len()
                && own.is_subset(&parts(other))
        })
    });
    smaller.map(|&number| (files[number].partition.clone(), files[number].name().to_owned())).collect()
}

/// Returns the first and last timestamp of a file from its row group statistics.
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

#[cfg(test)]
mod tests {
    use object_store::ObjectMeta;

    use super::*;

    fn file(name: &str) -> DataFile {
        let meta = ObjectMeta {
            location: format!("samples/day=2026-01-01/service=a/{name}").into(),
            last_modified: Default::default(),
            size: 1,
            e_tag: None,
            version: None,
        };
        DataFile {
            meta,
            partition: vec!["2026-01-01".into(), "a".into()],
            rows: 1,
            times: None,
            except: Vec::new(),
        }
    }

    #[test]
    fn complete_delivery_wins_for_duplicate_chunks() {
        let told = |delivery: u64, chunks: &[u64], complete: bool| Provenance {
            chunks: [(Id(delivery), chunks.iter().copied().map(Id).collect())].into(),
            complete: if complete { vec![Id(delivery)] } else { Vec::new() },
            ..Provenance::default()
        };
        // 1 is incomplete; 5 and 7 are complete.
        let files = ["1.parquet", "5.parquet", "7.parquet"].map(file).to_vec();
        let all = vec![told(1, &[10, 20], false), told(5, &[10, 20, 30], true), told(7, &[30, 40], true)];
        let read = in_force(Arc::new(Schema::empty()), files.clone(), all.clone(), &BTreeSet::new());
        let except: Vec<&[i64]> = read.files.iter().map(|file| file.except.as_slice()).collect();
        assert_eq!(except, [&[10, 20][..], &[], &[30]]);
        assert_eq!(read.told[2].chunks[&Id(7)], [Id(40)]);
        // Two maintainers merged the same input.
        let made = |names: &[&str]| Provenance {
            chunks: [(Id(1), vec![Id(10)])].into(),
            replaces: names.iter().map(|&name| name.to_owned()).collect(),
            ..Provenance::default()
        };
        let parts = [made(&["a", "b"]), made(&["a", "b", "c"]), made(&["d"])].to_vec();
        let read = in_force(Arc::new(Schema::empty()), files.clone(), parts, &BTreeSet::new());
        let left: Vec<&str> = read.files.iter().map(DataFile::name).collect();
        assert_eq!((left, read.replaced[0].name()), (vec!["5.parquet", "7.parquet"], "1.parquet"));
        // Complete according to another folder.
        let read = in_force(Arc::new(Schema::empty()), files, all, &[Id(1)].into());
        let except: Vec<&[i64]> = read.files.iter().map(|file| file.except.as_slice()).collect();
        assert_eq!(except, [&[][..], &[10, 20], &[30]]);
    }
}
