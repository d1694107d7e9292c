//! Many files of a folder → one.

use anyhow::Result;
use twox_hash::XxHash3_64;

use super::fold::{columns, file, quoted, register, session};
use super::{Done, Folder, Maintainer};
use crate::footer::{Id, Told};
use crate::layout::{Partition, Table};
use crate::place::Listed;
use crate::schema;

/// Bytes of files that become one, and of a file that stays as it is.
const LARGEST: u64 = 256 << 20;

impl Maintainer {
    /// Makes one file of many, table by table; and removes files that others replace, should someone have been interrupted.
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
        let mut whole = self.read(of, files.to_vec()).await?;
        if !self.options.dry_run {
            for file in &whole.replaced {
                self.place.remove(&file.meta.location).await?;
            }
        }
        let young = i64::try_from(self.options.younger.as_millis()).unwrap_or(i64::MAX);
        let is_old = |at: i64| self.now.saturating_sub(at) >= young;
        let mut bytes = 0;
        let taken: Vec<bool> = whole
            .files
            .iter()
            .map(|file| {
                let small = file.meta.size < LARGEST / 2 && bytes + file.meta.size <= LARGEST;
                let taken = small && is_old(file.meta.last_modified.timestamp_millis());
                bytes += if taken { file.meta.size } else { 0 };
                taken
            })
            .collect();
        let count = taken.iter().filter(|taken| **taken).count();
        if count < self.options.files.max(2) {
            return Ok(());
        }
        done.compacted += count as u64;
        done.into += 1;
        if self.options.dry_run {
            return Ok(());
        }
        let mut told = Told::default();
        let mut taken = taken.into_iter();
        let mut kept = whole.told.into_iter();
        whole.files.retain(|file| {
            let (taken, of_file) = (taken.next().unwrap_or(false), kept.next().unwrap_or_default());
            if taken {
                told.merge(of_file);
                told.replaces.push(file.name().to_owned());
            }
            taken
        });
        whole.told = Vec::new();
        told.replaces.sort_unstable();
        let inputs: Vec<_> = whole.files.iter().map(|file| file.meta.location.clone()).collect();
        let name = format!("c{}.parquet", Id(XxHash3_64::oneshot(told.replaces.join("/").as_bytes())));
        let sql = rows(of, &columns(&whole.schema));
        let context = session(&self.place)?;
        register(&context, &self.place, of, whole)?;
        let (bytes, _) = file(&context, of, &sql, Some(told.text()?)).await?;
        self.place.put(&self.place.path(of, partition, &name), bytes).await?;
        for input in &inputs {
            self.place.remove(input).await?;
        }
        Ok(())
    }
}

/// The rows of a table in the order of its files. Sums of the same are added up.
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
