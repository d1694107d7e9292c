//! Compaction: merges many files of a folder into one.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Result;
use datafusion::arrow::datatypes::Schema;

use super::fold::{columns, file, quoted, register, session};
use super::sums::label_columns;
use super::{Done, Folder, Maintainer};
use crate::footer::{Provenance, merged_name};
use crate::layout::{Partition, Table};
use crate::query::files::Read;
use crate::query::table::DataFile;
use crate::schema;
use crate::storage::Listed;

/// Maximum size of a merged file; files of this size are not merged.
const LARGEST: u64 = 256 << 20;

impl Maintainer {
    /// Merges files, table by table. Also removes files that have been replaced but were left behind by an
    /// interrupted run.
    pub(super) async fn compact(
        &self,
        partition: &Partition,
        folder: &Folder,
        done: &mut Done,
    ) -> Result<()> {
        for (&table, files) in folder {
            self.compact_table(partition, table, files, done).await?;
        }
        Ok(())
    }

    async fn compact_table(
        &self,
        partition: &Partition,
        of: Table,
        files: &[Listed],
        done: &mut Done,
    ) -> Result<()> {
        let whole = self.read(of, files.to_vec()).await?;
        if !self.options.dry_run {
            for file in &whole.replaced {
                self.place.remove(&file.meta.location).await?;
            }
        }
        for group in self.groups(of, &whole).await? {
            done.compacted += group.len() as u64;
            done.into += 1;
            if !self.options.dry_run {
                self.merge(partition, of, &whole, &group).await?;
            }
        }
        Ok(())
    }

    /// Groups files to merge, by index, within the limits on size and label columns.
    async fn groups(&self, of: Table, whole: &Read) -> Result<Vec<Vec<usize>>> {
        #[derive(Default)]
        struct Group {
            files: Vec<usize>,
            bytes: u64,
            labels: BTreeSet<String>,
        }
        let young = i64::try_from(self.options.younger.as_millis()).unwrap_or(i64::MAX);
        let mut groups: Vec<Group> = Vec::new();
        for (number, file) in whole.files.iter().enumerate() {
            let size = file.meta.size;
            if size >= LARGEST / 2 || !self.is_older(&file.meta, young) {
                continue;
            }
            let own = match of {
                Table::Samples => label_columns(self.place.footer(&file.meta).await?.0.schema()),
                _ => BTreeSet::new(),
            };
            let fits = |group: &Group| {
                group.bytes + size <= LARGEST && group.labels.union(&own).count() <= schema::MOST_LABELS
            };
            let at = groups.iter().position(fits).unwrap_or_else(|| {
                groups.push(Group::default());
                groups.len() - 1
            });
            groups[at].files.push(number);
            groups[at].bytes += size;
            groups[at].labels.extend(own);
        }
        let enough = |group: &Group| group.files.len() >= self.options.files.max(2);
        Ok(groups.into_iter().filter(enough).map(|group| group.files).collect())
    }

    /// Merges some files into one.
    async fn merge(&self, partition: &Partition, of: Table, whole: &Read, group: &[usize]) -> Result<()> {
        let mut told = Provenance::default();
        let mut files = Vec::with_capacity(group.len());
        for &number in group {
            told.merge(whole.told[number].clone());
            told.replaces.push(whole.files[number].name().to_owned());
            files.push(whole.files[number].clone());
        }
        told.replaces.sort_unstable();
        let inputs: Vec<_> = files.iter().map(|file| file.meta.location.clone()).collect();
        let name = merged_name(&told.replaces);
        let read = self.narrowed(of, whole, files).await?;
        let sql = rows(of, &columns(&read.schema));
        let context = session(&self.place)?;
        register(&context, &self.place, of, read)?;
        let (bytes, _) = file(&context, of, &sql, Some(told.text()?)).await?;
        self.put(&self.place.path(of, partition, &name), bytes).await?;
        for input in &inputs {
            self.place.remove(input).await?;
        }
        Ok(())
    }

    /// Restricts to some of the files and their columns.
    async fn narrowed(&self, of: Table, whole: &Read, files: Vec<DataFile>) -> Result<Read> {
        let mut there: BTreeSet<String> =
            schema::columns(of).iter().map(|field| field.name().clone()).collect();
        for file in &files {
            let (footer, _) = self.place.footer(&file.meta).await?;
            there.extend(footer.schema().fields().iter().map(|field| field.name().clone()));
        }
        let fields = whole.schema.fields().iter().filter(|field| there.contains(field.name()));
        let schema = Arc::new(Schema::new(fields.cloned().collect::<Vec<_>>()));
        Ok(Read { schema, files, told: Vec::new(), replaced: Vec::new() })
    }
}

/// Returns SQL for the rows of a table in file order. Equal keys of aggregated tables are summed.
fn rows(of: Table, columns: &[String]) -> String {
    let all: Vec<String> = columns.iter().map(|name| quoted(name)).collect();
    let name = of.name();
    let ordered = match of {
        Table::Samples | Table::Losses => schema::TIME.to_owned(),
        Table::Nodes => "depth, node_id".to_owned(),
        Table::Stacks | Table::Frames => of.id().unwrap_or_default().to_owned(),
        Table::Minutes | Table::Hours | Table::Days => {
            let sum = |name: &String| match name.as_str() {
                "\"samples\"" | "\"value\"" => format!("CAST(sum({name}) AS BIGINT) AS {name}"),
                _ => name.clone(),
            };
            let keys = all.iter().filter(|name| !["\"samples\"", "\"value\""].contains(&name.as_str()));
            let (sums, keys): (Vec<String>, Vec<&str>) =
                (all.iter().map(sum).collect(), keys.map(String::as_str).collect());
            return format!(
                "SELECT {} FROM {name} GROUP BY {} ORDER BY ts, stack_id",
                sums.join(", "),
                keys.join(", ")
            );
        }
    };
    format!("SELECT {} FROM {name} ORDER BY {ordered}", all.join(", "))
}
