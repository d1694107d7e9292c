//! The question of a flame graph as one SQL that gives the same rows in every engine. Only the word that takes lists apart differs.

use anyhow::Result;

use super::session::condition;
use super::weights::Measure;

/// Who is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// What `flightline sql` is.
    #[default]
    DataFusion,
    /// DuckDB.
    DuckDb,
    /// Apache Spark.
    Spark,
    /// Trino.
    Trino,
    /// Apache Hive.
    Hive,
    /// ClickHouse.
    ClickHouse,
}

impl Engine {
    /// Stacks taken apart: their id and each node on the way to their end.
    fn apart(self) -> &'static str {
        match self {
            Self::DataFusion | Self::DuckDb => "SELECT stack_id, unnest(prefix_ids) AS node_id FROM stacks",
            Self::Spark => "SELECT stack_id, explode(prefix_ids) AS node_id FROM stacks",
            Self::Trino => {
                "SELECT stack_id, node_id FROM stacks CROSS JOIN UNNEST(prefix_ids) AS prefix (node_id)"
            }
            Self::Hive => {
                "SELECT stack_id, node_id FROM stacks LATERAL VIEW explode(prefix_ids) prefix AS node_id"
            }
            Self::ClickHouse => "SELECT stack_id, arrayJoin(prefix_ids) AS node_id FROM stacks",
        }
    }
}

/// The boxes of a flame graph with at least `percent` of the samples for which `filter` holds: `parent_id`, `node_id`, `depth`, the frame, `num`.
/// The same stack may be in several files: DISTINCT counts it once.
///
/// # Errors
/// The condition is none.
pub fn flame(engine: Engine, filter: &str, measure: Measure, percent: f64) -> Result<String> {
    let (filter, sum, apart) = (condition(filter)?, measure.sql(), engine.apart());
    Ok(format!(
        "WITH s AS (SELECT stack_id, {sum} AS n FROM samples WHERE {filter} GROUP BY stack_id),
 total AS (SELECT sum(n) AS n FROM s),
 prefixes AS (SELECT DISTINCT stack_id, node_id FROM ({apart}) taken_apart),
 boxes AS (SELECT prefixes.node_id, sum(s.n) AS num FROM s JOIN prefixes ON s.stack_id = prefixes.stack_id
  GROUP BY prefixes.node_id),
 named AS (SELECT DISTINCT nodes.node_id, nodes.parent_id, nodes.depth, frames.class_name, frames.method_name, frames.line, frames.type
  FROM nodes JOIN frames ON nodes.frame_hash = frames.frame_hash)
SELECT named.parent_id, boxes.node_id, named.depth, named.class_name, named.method_name, named.line, named.type, boxes.num
FROM boxes CROSS JOIN total JOIN named ON boxes.node_id = named.node_id
WHERE boxes.num * 100.0 / total.n >= {percent:?}
ORDER BY named.depth, boxes.num DESC, boxes.node_id"
    ))
}
