//! Retention: removes old data.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use super::fold::{columns, file, quoted, register, session};
use super::sums::SETTLED;
use super::{Done, Folder, Maintainer};
use crate::footer::{Id, Provenance, merged_name};
use crate::layout::{Partition, Table};
use crate::storage::Listed;

impl Maintainer {
    /// Removes expired files of all tables, and stacks with the last rows that refer to them. Returns true if
    /// samples were removed and aggregated rows remain.
    pub(super) async fn retain(
        &self,
        partition: &Partition,
        folder: &mut Folder,
        done: &mut Done,
    ) -> Result<bool> {
        let had = folder.contains_key(&Table::Samples);
        let too_old = |table: Table| self.is_too_old(table, partition);
        let rows = [Table::Samples, Table::Minutes, Table::Hours, Table::Days];
        let rows_before = rows.iter().any(|table| folder.contains_key(table));
        for table in rows.into_iter().filter(|&table| too_old(table)) {
            if table == Table::Samples {
                self.are_summed(partition, folder).await?;
                self.expire(folder.remove(&Table::Losses), done).await?;
            }
            self.expire(folder.remove(&table), done).await?;
        }
        let left = rows.iter().any(|table| folder.contains_key(table));
        // A writer stores stacks before samples, so stacks without samples may belong to a delivery in
        // progress.
        let settled = |files: &Vec<Listed>| files.iter().all(|file| self.is_older(&file.meta, SETTLED));
        let dictionary = Table::DICTIONARY.into_iter().chain([Table::Losses]);
        let forgotten =
            too_old(Table::Samples) && dictionary.clone().filter_map(|table| folder.get(&table)).all(settled);
        if !left && (rows_before || forgotten) {
            for table in dictionary {
                self.expire(folder.remove(&table), done).await?;
            }
        }
        Ok(left && had && !folder.contains_key(&Table::Samples))
    }

    /// Checks that all aggregated tables include the samples before these expire.
    async fn are_summed(&self, partition: &Partition, folder: &Folder) -> Result<()> {
        let Some(raw) = folder.get(&Table::Samples) else { return Ok(()) };
        let chunks = |told: &[Provenance]| -> BTreeSet<Id> {
            told.iter().flat_map(|told| told.chunks.values()).flatten().copied().collect()
        };
        let raw = chunks(&self.read(Table::Samples, raw.clone()).await?.told);
        for level in self.levels(partition) {
            let there = folder.get(&level).cloned().unwrap_or_default();
            let left = raw.difference(&chunks(&self.read(level, there).await?.told)).count();
            if left > 0 && !self.options.dry_run {
                bail!("samples of {left} chunks stay, as {} lacks them", level.name());
            }
        }
        Ok(())
    }

    async fn expire(&self, files: Option<Vec<Listed>>, done: &mut Done) -> Result<()> {
        for file in files.into_iter().flatten() {
            if !self.options.dry_run {
                self.place.remove(&file.meta.location).await?;
            }
            done.expired += 1;
            done.expired_bytes += file.meta.size;
        }
        Ok(())
    }

    /// Keeps only the stacks, nodes and frames to which aggregated rows refer.
    pub(super) async fn forget_stacks(
        &self,
        partition: &Partition,
        folder: &mut Folder,
        done: &mut Done,
    ) -> Result<()> {
        let context = session(&self.place)?;
        let mut wanted = Vec::new();
        for table in Table::SUMS {
            if let Some(files) = folder.get(&table) {
                register(&context, &self.place, table, self.read(table, files.clone()).await?)?;
                wanted.push(format!("SELECT stack_id FROM {}", table.name()));
            }
        }
        let mut all = Vec::new();
        for table in Table::DICTIONARY {
            let files = folder.get(&table).cloned().unwrap_or_default();
            let read = self.read(table, files).await?;
            all.push((table, read.files.clone(), columns(&read.schema)));
            register(&context, &self.place, table, read)?;
        }
        let stacks = format!("SELECT * FROM stacks WHERE stack_id IN ({})", wanted.join(" UNION "));
        let nodes = format!("SELECT unnest(prefix_ids) FROM ({stacks})");
        let nodes = format!("SELECT * FROM nodes WHERE node_id IN ({nodes})");
        let frames = format!("SELECT * FROM frames WHERE frame_hash IN (SELECT frame_hash FROM ({nodes}))");
        let mut old = Vec::new();
        for (table, files, columns) in all {
            let (rows, order) = match table {
                Table::Stacks => (&stacks, "stack_id"),
                Table::Nodes => (&nodes, "depth, node_id"),
                _ => (&frames, "frame_hash"),
            };
            let replaces: Vec<String> = files.iter().map(|file| file.name().to_owned()).collect();
            if replaces.is_empty() {
                continue;
            }
            let columns: Vec<String> = columns.iter().map(|name| quoted(name)).collect();
            let sql = format!("SELECT {} FROM ({rows}) ORDER BY {order}", columns.join(", "));
            let name = merged_name(&replaces);
            let told = Provenance { replaces, ..Provenance::default() };
            let (bytes, _) = file(&context, table, &sql, Some(told.text()?)).await?;
            self.put(&self.place.path(table, partition, &name), bytes).await?;
            old.extend(files);
        }
        // The new files are made from the old ones, so remove these last.
        for file in old {
            done.expired += 1;
            done.expired_bytes += file.meta.size;
            self.place.remove(&file.meta.location).await?;
        }
        for table in Table::DICTIONARY {
            folder.insert(table, self.place.list(table, Some(partition)).await?);
        }
        Ok(())
    }
}
