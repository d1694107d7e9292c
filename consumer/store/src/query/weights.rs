//! How much the samples of each stack weigh.

use std::collections::HashMap;

use anyhow::{Result, bail};
use datafusion::arrow::array::{Array, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::record_batch::RecordBatch;
use futures::TryStreamExt;
use jfr_format::pool::KeyHash;

use super::session::{Session, condition};

/// What samples weigh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measure {
    /// One each.
    #[default]
    Samples,
    /// What they stand for: ns or bytes.
    Value,
}

impl Measure {
    /// The sum, as SQL says it.
    pub fn sql(self) -> &'static str {
        match self {
            Self::Samples => "sum(samples)",
            Self::Value => "sum(value)",
        }
    }

    /// What is counted, for people.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Samples => "samples",
            Self::Value => "value",
        }
    }
}

/// Which samples, and what they weigh.
#[derive(Clone, Copy, Debug)]
pub struct Choice<'q> {
    /// `samples`, or one of its sums by time.
    pub table: &'q str,
    /// A condition on its rows; empty: all.
    pub filter: &'q str,
    /// What they weigh.
    pub measure: Measure,
}

/// Weights by stack.
#[derive(Clone, Debug, Default)]
pub struct Weights {
    /// By id of the stack.
    pub by_stack: HashMap<i64, u64, KeyHash>,
    /// Of samples without one.
    pub without: u64,
    /// Of all.
    pub total: u64,
}

impl Weights {
    /// Adds the weight of some samples of one stack.
    pub fn add(&mut self, stack: Option<i64>, weight: u64) {
        self.total = self.total.saturating_add(weight);
        let sum = match stack {
            Some(stack) => self.by_stack.entry(stack).or_default(),
            None => &mut self.without,
        };
        *sum = sum.saturating_add(weight);
    }
}

/// The weights of the samples chosen.
///
/// # Errors
/// The condition is none, or the store cannot be read.
pub async fn weights(session: &Session, choice: Choice<'_>) -> Result<Weights> {
    let (table, filter, sum) = (choice.table, condition(choice.filter)?, choice.measure.sql());
    let sql = format!("SELECT stack_id, {sum} AS weight FROM {table} WHERE {filter} GROUP BY stack_id");
    let mut rows = session.stream(&sql).await?;
    let mut weights = Weights::default();
    while let Some(batch) = rows.try_next().await? {
        let (stacks, sums) = (ids(&batch, 0)?, ids(&batch, 1)?);
        for row in 0..batch.num_rows() {
            let stack = stacks.is_valid(row).then(|| stacks.value(row));
            // Values below zero weigh nothing: none of ours is.
            let sum = if sums.is_valid(row) { sums.value(row) } else { 0 };
            weights.add(stack, u64::try_from(sum).unwrap_or(0));
        }
    }
    Ok(weights)
}

/// A column of 64-bit numbers.
pub(super) fn ids(batch: &RecordBatch, column: usize) -> Result<Int64Array> {
    let Some(values) = batch.columns().get(column) else { bail!("the answer has no column {column}") };
    let values = cast(values, &DataType::Int64)?;
    match values.as_any().downcast_ref::<Int64Array>() {
        Some(values) => Ok(values.clone()),
        None => bail!("column {column} of the answer is not of numbers"),
    }
}
