//! Selects samples of one event type, since times and bytes cannot be added.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use datafusion::arrow::array::AsArray;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use flightline_consumer::fold::{self, else_loaded};
use flightline_store::query::Session;
use flightline_store::query::session::condition;
use futures::TryStreamExt;

use crate::args::SelectArgs;
use crate::output;

/// Column with the event type.
const TYPE: &str = "event_type";

/// Returns the condition of `select` restricted to one event type: the requested one, the one in the
/// condition, or the best available.
pub async fn selection_condition(session: &Session, select: &SelectArgs) -> Result<String> {
    let asked = condition(&select.condition)?;
    if select.event.is_none() && asked.contains(TYPE) {
        return Ok(asked);
    }
    let there = types(session, select.table(), &asked).await?;
    let names = match &select.event {
        Some(event) => {
            let names = fold::recorded_types(event, &there);
            if names.is_empty() {
                bail!("there are no samples of {event} where {}; there are {}", select.title(), list(&there));
            }
            names
        }
        None => {
            let Some(best) = else_loaded(&there) else { return Ok(asked) };
            if there.len() > 1 {
                output::note(format_args!("{best}, of {} (--event)", list(&there)));
            }
            vec![best.to_owned()]
        }
    };
    Ok(format!("{asked} AND {}", name_list(&names)))
}

/// Returns the condition without a store: it accepts all types that a short name covers.
pub fn condition_alone(select: &SelectArgs) -> Result<String> {
    let asked = condition(&select.condition)?;
    let Some(event) = &select.event else { return Ok(select.condition.clone()) };
    let names = fold::event_names(std::slice::from_ref(event));
    Ok(format!("{asked} AND {}", name_list(&names)))
}

fn name_list(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("'{}'", name.replace('\'', "''"))).collect();
    format!("{TYPE} IN ({})", quoted.join(", "))
}

fn list(types: &BTreeMap<String, u64>) -> String {
    match types.is_empty() {
        true => "none".to_owned(),
        false => types.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
    }
}

/// Returns the event types and their counts.
async fn types(session: &Session, table: &str, filter: &str) -> Result<BTreeMap<String, u64>> {
    let sql = format!("SELECT {TYPE}, count(*) FROM {table} WHERE {filter} GROUP BY {TYPE}");
    let mut rows = session.stream(&sql).await?;
    let mut types = BTreeMap::new();
    while let Some(batch) = rows.try_next().await? {
        let names = cast(batch.column(0), &DataType::Utf8)?;
        let counts = cast(batch.column(1), &DataType::Int64)?;
        for (name, count) in names.as_string::<i32>().iter().zip(counts.as_primitive::<Int64Type>()) {
            let count = u64::try_from(count.unwrap_or(0)).unwrap_or(0);
            types.insert(name.unwrap_or_default().to_owned(), count);
        }
    }
    Ok(types)
}
