//! Weights of the samples of each stack.

use std::collections::HashMap;

use anyhow::{Result, bail};
use datafusion::arrow::array::{Array, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::record_batch::RecordBatch;
use futures::TryStreamExt;
use jfr_format::pool::KeyHash;

use super::session::{Session, condition};

/// How samples are weighed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measure {
    /// Each counts as one.
    #[default]
    Samples,
    /// By value: ns or bytes.
    Value,
}

impl Measure {
    /// The sum in SQL.
    pub fn sql(self) -> &'static str {
        match self {
            Self::Samples => "sum(samples)",
            Self::Value => "sum(value)",
        }
    }

    /// Unit for people.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Samples => "samples",
            Self::Value => "value",
        }
    }
}

/// Selected samples and their weight.
#[derive(Clone, Copy, Debug)]
pub struct Choice<'q> {
    /// `samples`, or an aggregated table.
    pub table: &'q str,
    /// Condition on rows; empty selects all.
    pub filter: &'q str,
    /// How they are weighed.
    pub measure: Measure,
}

/// Weights by stack.
#[derive(Clone, Debug, Default)]
pub struct Weights {
    /// By stack id.
    pub by_stack: HashMap<i64, u64, KeyHash>,
    /// Weight of samples without a stack.
    pub without: u64,
    /// Total weight.
    pub total: u64,
}

impl Weights {
    /// Adds weight to a stack.
    pub fn add(&mut self, stack: Option<i64>, weight: u64) {
        self.total = self.total.saturating_add(weight);
        let sum = match stack {
            Some(stack) => self.by_stack.entry(stack).or_default(),
            None => &mut self.without,
        };
        *sum = sum.saturating_add(weight);
    }
}

/// Returns the weights of the selected samples.
///
/// # Errors
/// Returns an error if the condition is invalid or the store cannot be read.
pub async fn weights(session: &Session, choice: Choice<'_>) -> Result<Weights> {
    let (table, filter, sum) = (choice.table, condition(choice.filter)?, choice.measure.sql());
    let sql = format!("SELECT stack_id, {sum} AS weight FROM {table} WHERE {filter} GROUP BY stack_id");
    let mut rows = session.stream(&sql).await?;
    let mut weights = Weights::default();
    while let Some(batch) = rows.try_next().await? {
        let (stacks, sums) = (ids(&batch, 0)?, ids(&batch, 1)?);
        for row in 0..batch.num_rows() {
            let stack = stacks.is_valid(row).then(|| stacks.value(row));
            // Ignore negative values, which Flightline never writes.
            let sum = if sums.is_valid(row) { sums.value(row) } else { 0 };
            weights.add(stack, u64::try_from(sum).unwrap_or(0));
        }
    }
    Ok(weights)
}

/// Returns a column of 64-bit integers.
pub(super) fn ids(batch: &RecordBatch, column: usize) -> Result<Int64Array> {
    let Some(values) = batch.columns().get(column) else { bail!("the answer has no column {column}") };
    let values = cast(values, &DataType::Int64)?;
    match values.as_any().downcast_ref::<Int64Array>() {
        Some(values) => Ok(values.clone()),
        None => bail!("column {column} of the answer is not of numbers"),
    }
}
