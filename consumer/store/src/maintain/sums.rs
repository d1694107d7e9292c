//! Aggregates samples by minute, hour and day, each chunk once.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{Int64Type, Schema};
use datafusion::prelude::SessionContext;
use twox_hash::XxHash3_64;

use super::fold::{file, quoted, register, session};
use super::{Done, Folder, Maintainer};
use crate::footer::{Id, Provenance};
use crate::layout::{Partition, Table};
use crate::query::files::Read;
use crate::schema::{self, LABEL};
use crate::storage::Storage;

/// Maximum number of values of a label to keep it in aggregated rows.
const FEW: i64 = 32;
/// Time after which an incomplete delivery is considered abandoned, ms.
pub(super) const SETTLED: i64 = 24 * 3_600_000;

/// Returns the complete deliveries. Unreadable folders are reported later, when they are processed.
pub(super) async fn complete(place: &Storage, folders: &BTreeMap<Partition, Folder>) -> BTreeSet<Id> {
    let mut complete = BTreeSet::new();
    for folder in folders.values() {
        for file in folder.get(&Table::Samples).into_iter().flatten() {
            if let Ok((_, told)) = place.footer(&file.meta).await {
                complete.extend(told.complete);
            }
        }
    }
    complete
}

impl Maintainer {
    /// Aggregates the chunks that are not yet included.
    pub(super) async fn sum(
        &self,
        partition: &Partition,
        folder: &mut Folder,
        done: &mut Done,
    ) -> Result<()> {
        let Some(raw) = folder.get(&Table::Samples).filter(|_| !self.options.sums.is_empty()) else {
            return Ok(());
        };
        for level in self.options.sums.iter().filter(|&&level| self.is_too_old(level, partition)) {
            let name = level.name();
            done.note(format!("{name} is not made of days for which it would be too old at once"));
        }
        let raw = self.read(Table::Samples, raw.clone()).await?;
        let ready = self.ready(&raw);
        let chunks: BTreeSet<Id> =
            raw.told.iter().flat_map(|told| told.chunks.values()).flatten().copied().collect();
        let of_all = chunks.len();
        let schema = raw.schema.clone();
        let mut raw = Some(raw);
        let mut context = None;
        for level in self.levels(partition) {
            let there = folder.get(&level).cloned().unwrap_or_default();
            let there = self.read(level, there).await?;
            let summed: BTreeSet<Id> =
                there.told.iter().flat_map(|told| told.chunks.values()).flatten().copied().collect();
            let fresh: Vec<Id> = ready.difference(&summed).copied().collect();
            if fresh.is_empty() {
                continue;
            }
            if let Some(raw) = raw.take() {
                let session = session(&self.place)?;
                register(&session, &self.place, Table::Samples, raw)?;
                context = Some(session);
            }
            let Some(context) = &context else { continue };
            let labels: Vec<String> = if there.files.is_empty() || self.options.labels.is_some() {
                self.labels(context, &schema, partition, done).await?
            } else {
                // Labels are chosen once per folder, so that a key has one row, whenever its samples arrive.
                let chosen = label_columns(&there.schema);
                let late: Vec<String> = label_columns(&schema).difference(&chosen).cloned().collect();
                if !late.is_empty() {
                    let late = late.join(", ");
                    done.note(format!(
                        "{}: sums are without {late}, as those before are",
                        partition.folder()
                    ));
                }
                chosen.into_iter().filter(|name| schema.field_with_name(name).is_ok()).collect()
            };
            let sql = question(level, &labels, &fresh, fresh.len() == of_all);
            if self.options.dry_run {
                let count = context.sql(&format!("SELECT * FROM ({sql})")).await?.count().await?;
                done.summed += count as u64;
                continue;
            }
            let id = Id(XxHash3_64::oneshot(format!("{labels:?} {fresh:?}").as_bytes()));
            let told =
                Provenance { chunks: [(id, fresh)].into(), complete: vec![id], ..Provenance::default() };
            let (bytes, rows) = file(context, level, &sql, Some(told.text()?)).await?;
            let path = self.place.path(level, partition, &format!("{id}.parquet"));
            self.put(&path, bytes).await?;
            done.summed += rows;
            folder.insert(level, self.place.list(level, Some(partition)).await?);
        }
        Ok(())
    }

    /// Returns the chunks that will not get more rows.
    fn ready(&self, raw: &Read) -> BTreeSet<Id> {
        let mut ready = BTreeSet::new();
        for (file, told) in raw.files.iter().zip(&raw.told) {
            let settled = self.is_older(&file.meta, SETTLED);
            let of_file =
                told.chunks.iter().filter(|(delivery, _)| settled || self.complete.contains(delivery));
            ready.extend(of_file.flat_map(|(_, chunks)| chunks));
        }
        ready
    }

    /// Returns the label columns for aggregated rows.
    async fn labels(
        &self,
        context: &SessionContext,
        schema: &Schema,
        partition: &Partition,
        done: &mut Done,
    ) -> Result<Vec<String>> {
        let all =
            schema.fields().iter().map(|field| field.name().clone()).filter(|name| name.starts_with(LABEL));
        let all: Vec<String> = all.collect();
        if let Some(asked) = &self.options.labels {
            let asked: Vec<String> = asked.iter().map(|key| schema::label_column(key)).collect();
            return Ok(all.into_iter().filter(|name| asked.contains(name)).collect());
        }
        if all.is_empty() {
            return Ok(all);
        }
        let counts: Vec<String> =
            all.iter().map(|name| format!("count(DISTINCT {})", quoted(name))).collect();
        let rows =
            context.sql(&format!("SELECT {} FROM samples", counts.join(", "))).await?.collect().await?;
        let few = |at: usize| {
            rows.first().is_some_and(|row| {
                row.column(at).as_primitive::<Int64Type>().values().first().is_some_and(|&n| n <= FEW)
            })
        };
        let (kept, left): (Vec<_>, Vec<_>) = all.into_iter().enumerate().partition(|&(at, _)| few(at));
        if !left.is_empty() {
            let left: Vec<String> = left.into_iter().map(|(_, name)| name).collect();
            let left = left.join(", ");
            done.note(format!(
                "{}: sums are without {left}, which have more than {FEW} values",
                partition.folder()
            ));
        }
        Ok(kept.into_iter().map(|(_, name)| name).collect())
    }
}

/// Returns the label columns of a schema.
pub(super) fn label_columns(schema: &Schema) -> BTreeSet<String> {
    let names = schema.fields().iter().map(|field| field.name());
    names.filter(|name| name.starts_with(LABEL)).cloned().collect()
}

/// Returns the SQL that aggregates chunks.
fn question(level: Table, labels: &[String], chunks: &[Id], all: bool) -> String {
    let seconds = match level {
        Table::Minutes => 60,
        Table::Hours => 3600,
        _ => 86_400,
    };
    let labels: String = labels.iter().map(|name| format!(", {}", quoted(name))).collect();
    let ids: Vec<String> = chunks.iter().map(|id| id.0.cast_signed().to_string()).collect();
    let which = if all { String::new() } else { format!("WHERE chunk IN ({})", ids.join(", ")) };
    // Round down to whole intervals since 1970, also for earlier times.
    let micros = "arrow_cast(ts, 'Int64')";
    let bucket = format!("{micros} - ({micros} % {seconds}000000 + {seconds}000000) % {seconds}000000");
    format!(
        "SELECT arrow_cast({bucket}, 'Timestamp(Microsecond, Some(\"UTC\"))') AS ts, stack_id, event_type, variant, state, \
         CAST(sum(samples) AS BIGINT) AS samples, CAST(sum(value) AS BIGINT) AS value, unit{labels} \
         FROM samples {which} GROUP BY 1, stack_id, event_type, variant, state, unit{labels} ORDER BY 1, stack_id"
    )
}
