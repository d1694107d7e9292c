//! A function's share of samples over time, grouped by a column such as version or host.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use datafusion::arrow::array::{Array, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use flightline_consumer::fold::FoldOptions;
use flightline_consumer::tree::Label;
use futures::TryStreamExt;

use super::paths::Paths;
use super::session::{Session, condition};
use super::weights::{Choice, ids, weights};

/// Maximum number of rows.
const MOST: usize = 1_000_000;

/// Parameters of the query.
#[derive(Clone, Debug)]
pub struct Question<'q> {
    /// Selected samples and their weight.
    pub choice: Choice<'q>,
    /// The grouping column or expression.
    pub by: &'q str,
    /// Time step in seconds.
    pub every: u64,
}

/// A function's part of the total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Weight of the stacks that contain the function.
    pub of_function: u64,
    /// Total weight.
    pub total: u64,
}

impl Share {
    /// Returns the percentage.
    pub fn percent(&self) -> f64 {
        if self.total == 0 { 0.0 } else { self.of_function as f64 * 100.0 / self.total as f64 }
    }
}

/// Shares by start time (seconds since 1970) and group.
pub type Shares = BTreeMap<(i64, String), Share>;

/// Returns the share of functions whose label, formatted with `options`, satisfies `wanted`.
///
/// # Errors
/// Returns an error if the query is invalid, the store cannot be read, or there are too many rows.
pub async fn shares(
    session: &Session,
    question: &Question<'_>,
    options: &FoldOptions,
    wanted: impl Fn(&Label) -> bool,
) -> Result<Shares> {
    let Question { every, choice, .. } = *question;
    if every == 0 {
        bail!("a row lasts one second at least");
    }
    let (filter, by, sum) = (condition(choice.filter)?, condition(question.by)?, choice.measure.sql());
    let table = choice.table;
    // Round down to whole steps since 1970: the same in every engine.
    let begin = format!("(CAST(floor(extract(epoch FROM ts) / {every}) AS BIGINT) * {every})");
    let sql = format!(
        "SELECT {begin} AS begin, CAST({by} AS VARCHAR) AS of_what, stack_id, {sum} AS weight \
         FROM {table} WHERE {filter} GROUP BY 1, 2, 3"
    );
    let stacks = weights(session, choice).await?.by_stack.into_keys();
    let paths = Paths::read(session, table, choice.filter, stacks, options).await?;
    let has = paths.stacks_with(wanted);
    let mut shares = Shares::new();
    let mut rows = session.stream(&sql).await?;
    while let Some(batch) = rows.try_next().await? {
        let [begins, stacks, sums] = [ids(&batch, 0)?, ids(&batch, 2)?, ids(&batch, 3)?];
        let of_what = cast(batch.column(1), &DataType::Utf8)?;
        let Some(of_what) = of_what.as_any().downcast_ref::<StringArray>() else { bail!("{by} is no text") };
        for row in 0..batch.num_rows() {
            let name = if of_what.is_valid(row) { of_what.value(row) } else { "" };
            let share = shares.entry((begins.value(row), name.to_owned())).or_default();
            let weight = if sums.is_valid(row) { u64::try_from(sums.value(row)).unwrap_or(0) } else { 0 };
            share.total = share.total.saturating_add(weight);
            if stacks.is_valid(row) && has(stacks.value(row)) {
                share.of_function = share.of_function.saturating_add(weight);
            }
        }
        if shares.len() > MOST {
            bail!("more than {MOST} rows: let a row last longer, or tell fewer things apart");
        }
    }
    Ok(shares)
}
