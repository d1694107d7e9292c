//! Which files the tables of a store are.

use std::collections::BTreeMap;
use std::path::Path as FilePath;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::datasource::physical_plan::parquet::metadata::DFParquetMetadata;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::object_store::local::LocalFileSystem;
use datafusion::object_store::path::Path;
use datafusion::object_store::{ObjectMeta, ObjectStore, parse_url_opts};
use datafusion::parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use datafusion::parquet::file::statistics::Statistics;
use datafusion::prelude::SessionContext;
use futures::{StreamExt, TryStreamExt};

use super::table::{DataFile, StoreTable};

/// Footers read at the same time.
const AT_ONCE: usize = 32;

/// Folders of tables, what they are partitioned by, and the ids that several files may have.
const LAYOUT: &[(&str, &[&str], Option<&str>)] = &[
    ("samples", &["day", "service"], None),
    ("stacks", &[], Some("stack_id")),
    ("nodes", &[], Some("node_id")),
    ("frames", &[], Some("frame_hash")),
];

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

/// Where a store is.
struct Place {
    url: ObjectStoreUrl,
    store: Arc<dyn ObjectStore>,
    root: Path,
}

/// Finds the files of the store `at`, and lets `context` read them.
pub async fn open(at: &str, context: &SessionContext) -> Result<Tables> {
    let place = place(at, context)?;
    let mut tables = BTreeMap::new();
    for &(name, partitioned_by, id) in LAYOUT {
        let files = list(&place, name, partitioned_by).await.with_context(|| format!("cannot read {at}"))?;
        let (schema, files) = footers(&place, files).await?;
        if name == "samples" && files.is_empty() {
            bail!("{at} is no store: it has no Parquet file in {name}/");
        }
        let table = StoreTable::new(place.url.clone(), schema, partitioned_by, files);
        tables.insert(name, id.map_or(table.clone(), |id| table.once_per(id)));
    }
    Ok(Tables(tables))
}

fn place(at: &str, context: &SessionContext) -> Result<Place> {
    if !at.contains("://") {
        let root = FilePath::new(at).canonicalize().with_context(|| format!("there is no store {at}"))?;
        return Ok(Place {
            url: ObjectStoreUrl::local_filesystem(),
            store: Arc::new(LocalFileSystem::new()),
            root: Path::from_absolute_path(&root).with_context(|| format!("cannot name {at}"))?,
        });
    }
    let url = url::Url::parse(at).with_context(|| format!("{at} is no URL"))?;
    let (store, root) = parse_url_opts(&url, std::env::vars()).with_context(|| {
        format!("cannot reach {at}; keys come from the environment, as AWS_ACCESS_KEY_ID")
    })?;
    let store: Arc<dyn ObjectStore> = Arc::from(store);
    let server = ObjectStoreUrl::parse(&url[..url::Position::BeforePath])?;
    context.register_object_store(server.as_ref(), store.clone());
    Ok(Place { url: server, store, root })
}

/// The Parquet files of a table, with the values of what it is partitioned by.
async fn list(place: &Place, table: &str, partitioned_by: &[&str]) -> Result<Vec<(ObjectMeta, Vec<String>)>> {
    let folder = place.root.clone().join(table);
    let mut listed = place.store.list(Some(&folder));
    let mut files = Vec::new();
    while let Some(meta) = listed.try_next().await? {
        let Some(below) = meta.location.prefix_match(&folder) else { continue };
        let parts: Vec<String> = below.map(|part| part.as_ref().to_owned()).collect();
        let Some((file, folders)) = parts.split_last() else { continue };
        // As every engine does: manifests and what is being written.
        if parts.iter().any(|part| part.starts_with(['_', '.'])) || !file.ends_with(".parquet") {
            continue;
        }
        let value = |name: &&str| {
            let of = |part: &String| part.strip_prefix(*name)?.strip_prefix('=').map(decoded);
            folders.iter().find_map(of)
        };
        let Some(values) = partitioned_by.iter().map(value).collect::<Option<Vec<String>>>() else {
            bail!("{} is in no folder of a {}", meta.location, partitioned_by.join(" and "));
        };
        files.push((meta, values));
    }
    files.sort_by(|a, b| a.0.location.cmp(&b.0.location));
    Ok(files)
}

/// The value in the name of a folder: characters that a path cannot have are written as %XX.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.filter(|_| byte == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(decoded) => {
                plain.push(decoded);
                at += 3;
            }
            None => {
                plain.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// What the files say of themselves: all columns that any of them has, how many rows, from when to when.
async fn footers(place: &Place, files: Vec<(ObjectMeta, Vec<String>)>) -> Result<(SchemaRef, Vec<DataFile>)> {
    let read = |(meta, partition): (ObjectMeta, Vec<String>)| async move {
        let torn = || format!("{} is no whole Parquet file; move it away to read the others", meta.location);
        let footer = DFParquetMetadata::new(place.store.as_ref(), &meta).fetch_metadata().await;
        let footer = ArrowReaderMetadata::try_new(footer.with_context(torn)?, ArrowReaderOptions::new());
        let footer = footer.with_context(torn)?;
        let rows = u64::try_from(footer.metadata().file_metadata().num_rows()).unwrap_or(0);
        let times = times(&footer);
        anyhow::Ok((footer.schema().clone(), DataFile { meta, partition, rows, times }))
    };
    let mut read = futures::stream::iter(files).map(read).buffered(AT_ONCE);
    let mut columns: Vec<Arc<Field>> = Vec::new();
    let mut files = Vec::new();
    while let Some((schema, file)) = read.try_next().await? {
        for field in schema.fields() {
            match columns.iter().find(|known| known.name() == field.name()) {
                None => columns.push(Arc::new(field.as_ref().clone().with_nullable(true))),
                Some(known) if known.data_type() == field.data_type() => {}
                Some(known) => bail!(
                    "{}: column {} is {}, in other files {}",
                    file.meta.location,
                    field.name(),
                    field.data_type(),
                    known.data_type()
                ),
            }
        }
        files.push(file);
    }
    Ok((Arc::new(Schema::new(columns)), files))
}

/// First and last time of a file, by the statistics of its row groups.
fn times(footer: &ArrowReaderMetadata) -> Option<(i64, i64)> {
    let (_, field) = footer.schema().fields().find("ts")?;
    if !matches!(field.data_type(), DataType::Timestamp(TimeUnit::Microsecond, _)) {
        return None;
    }
    let groups = footer.metadata().row_groups();
    let leaf = footer.parquet_schema().columns().iter().position(|column| column.name() == "ts")?;
    let of_group = |statistics: &Statistics| match statistics {
        Statistics::Int64(times) => Some((*times.min_opt()?, *times.max_opt()?)),
        _ => None,
    };
    let bounds = groups.iter().map(|group| group.column(leaf).statistics().and_then(of_group));
    bounds.collect::<Option<Vec<_>>>()?.into_iter().reduce(|(a, b), (c, d)| (a.min(c), b.max(d)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_folders_are_what_was_written() {
        for (folder, value) in
            [("a%2Fb", "a/b"), ("100%", "100%"), ("%zz", "%zz"), ("%C3%A9é", "éé"), ("", "")]
        {
            assert_eq!(decoded(folder), value);
        }
    }
}
