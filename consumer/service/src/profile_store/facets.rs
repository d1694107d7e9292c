//! Facets: the values that filters can select, determined by SQL.

use serde::{Deserialize, Serialize};

use super::filter::{Engine, Filter};
use super::query::Query;
use super::{Answer, ProfileStore};
use crate::api_error::ApiError;

/// Maximum number of listed services, days and types.
const MOST: usize = 500;
/// Maximum number of listed values per label; those with the most samples come first.
const MOST_VALUES: usize = 50;
/// Maximum number of labels with their own column, as in the store.
const MOST_LABELS: usize = 64;

/// A value that can be selected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Offer {
    /// `None` represents samples without a value.
    value: Option<String>,
    /// Number of samples with this value.
    samples: u64,
}

/// Facets of the whole store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Whole {
    services: Vec<Offer>,
    /// Latest first.
    days: Vec<Offer>,
    /// Label keys.
    labels: Vec<String>,
}

/// Facets within a filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Part {
    /// Number of selected samples.
    samples: u64,
    days: Vec<Offer>,
    events: Vec<Offer>,
    labels: Vec<Label>,
}

/// A label and its values, most samples first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Label {
    key: String,
    values: Vec<Offer>,
    /// True if there are more values.
    more: bool,
}

#[derive(Debug, Deserialize)]
struct Row {
    kind: String,
    value: Option<String>,
    n: Option<u64>,
}

const COLUMNS: &str = "SELECT 'label' AS kind, column_name AS value, 0 AS n FROM information_schema.columns \
                       WHERE table_name = 'samples' AND starts_with(column_name, 'label_')";

/// Returns SQL that lists a column's values with their sample counts.
fn values(kind: &str, column: &str, filter: &Filter, order: &str, most: usize) -> String {
    let condition = filter.condition(Engine::default());
    let filter = if condition.is_empty() { String::new() } else { format!("WHERE {condition}") };
    format!(
        "SELECT '{kind}' AS kind, CAST(v AS VARCHAR) AS value, n FROM (SELECT {column} AS v, sum(samples) AS n FROM samples {filter} \
         GROUP BY {column} ORDER BY {order} LIMIT {most})"
    )
}

impl ProfileStore {
    /// Lists the facets of the whole store.
    ///
    /// # Errors
    /// See [`ProfileStore::ask`].
    pub(crate) async fn whole(&self) -> Result<Whole, ApiError> {
        let all = Filter::default();
        let sql = [
            values("service", "service", &all, "n DESC, v", MOST),
            values("day", "day", &all, "v DESC", MOST),
            COLUMNS.to_owned(),
        ];
        let mut whole = Whole { services: Vec::new(), days: Vec::new(), labels: Vec::new() };
        for row in self.rows(sql.join(" UNION ALL ")).await? {
            match row.kind.as_str() {
                "service" => whole.services.push(row.offer()),
                "day" => whole.days.push(row.offer()),
                _ => whole.labels.extend(row.label()),
            }
        }
        whole.services.sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| a.value.cmp(&b.value)));
        whole.days.sort_by(|a, b| b.value.cmp(&a.value));
        whole.labels.sort();
        whole.labels.truncate(MOST_LABELS);
        Ok(whole)
    }

    /// Lists the facets within a filter; the values of each label ignore the filter on that label.
    ///
    /// # Errors
    /// See [`ProfileStore::ask`].
    pub(crate) async fn part(&self, filter: &Filter) -> Result<Part, ApiError> {
        let mut keys: Vec<String> =
            self.rows(COLUMNS.to_owned()).await?.iter().filter_map(Row::label).collect();
        keys.sort();
        keys.truncate(MOST_LABELS);
        let of_day = filter.timeless();
        let mut sql = vec![
            values("samples", "'all'", filter, "n", 1),
            values("day", "day", &of_day, "v DESC", MOST),
            values("event", "event_type", &filter.without("event_type"), "n DESC, v", MOST),
        ];
        for (at, key) in keys.iter().enumerate() {
            let column = format!("label_{key}");
            sql.push(values(
                &format!("{at}"),
                &column,
                &filter.without(&column),
                "n DESC, v",
                MOST_VALUES + 1,
            ));
        }
        let labels = keys.into_iter().map(|key| Label { key, values: Vec::new(), more: false }).collect();
        let mut part = Part { samples: 0, days: Vec::new(), events: Vec::new(), labels };
        for row in self.rows(sql.join(" UNION ALL ")).await? {
            match row.kind.as_str() {
                "samples" => part.samples = row.n.unwrap_or(0),
                "day" => part.days.push(row.offer()),
                "event" => part.events.push(row.offer()),
                at => {
                    if let Some(label) = at.parse::<usize>().ok().and_then(|at| part.labels.get_mut(at)) {
                        label.values.push(row.offer());
                    }
                }
            }
        }
        let most_first = |offers: &mut Vec<Offer>| {
            offers.sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| a.value.cmp(&b.value)));
        };
        part.days.sort_by(|a, b| b.value.cmp(&a.value));
        most_first(&mut part.events);
        for label in &mut part.labels {
            most_first(&mut label.values);
            label.more = label.values.len() > MOST_VALUES;
            label.values.truncate(MOST_VALUES);
        }
        Ok(part)
    }

    async fn rows(&self, sql: String) -> Result<Vec<Row>, ApiError> {
        let Answer { body, .. } = self.ask(&Query::Rows(sql)).await?;
        let lines = body.split(|&c| c == b'\n').filter(|line| !line.is_empty());
        let rows: Result<Vec<Row>, _> = lines.map(serde_json::from_slice).collect();
        rows.map_err(|error| ApiError::internal("parse the query result", error))
    }
}

impl Row {
    fn offer(self) -> Offer {
        Offer { value: self.value, samples: self.n.unwrap_or(0) }
    }

    /// Returns the label key of a column; columns that a condition cannot name are omitted.
    fn label(&self) -> Option<String> {
        let key = self.value.as_deref()?.strip_prefix("label_")?;
        Filter::default().take("unset", key).is_ok().then(|| key.to_owned())
    }
}
