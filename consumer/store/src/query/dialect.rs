//! The question of a flame graph as one SQL that gives the same rows in every engine. Only the word that takes lists apart differs.

use anyhow::Result;

use super::session::condition;
use super::weights::Choice;

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
    /// The paths of `found` taken apart: a row for each node on the way to a stack's end.
    fn apart(self) -> &'static str {
        match self {
            Self::DataFusion | Self::DuckDb => "SELECT n, unnest(prefix_ids) AS node_id FROM found",
            Self::Spark => "SELECT n, explode(prefix_ids) AS node_id FROM found",
            Self::Trino => "SELECT n, node_id FROM found CROSS JOIN UNNEST(prefix_ids) AS path (node_id)",
            Self::Hive => "SELECT n, node_id FROM found LATERAL VIEW explode(prefix_ids) path AS node_id",
            Self::ClickHouse => "SELECT n, arrayJoin(prefix_ids) AS node_id FROM found",
        }
    }
}

/// The boxes of a flame graph with at least `percent` of the samples chosen: `parent_id`, `node_id`, `depth`, the frame, `num`.
/// Stacks, nodes and frames may be in several files, as writers do not ask each other: DISTINCT takes each once, of nodes and frames where few are left. The
/// first of these DISTINCTs also keeps engines from joining all nodes with all frames, each as often as it is there, before anything is left out.
///
/// # Errors
/// The condition is none.
pub fn flame(engine: Engine, choice: Choice<'_>, percent: f64) -> Result<String> {
    let (table, filter, sum) = (choice.table, condition(choice.filter)?, choice.measure.sql());
    let apart = engine.apart();
    Ok(format!(
        "WITH s AS (SELECT stack_id, {sum} AS n FROM {table} WHERE {filter} GROUP BY stack_id),
 total AS (SELECT sum(n) AS n FROM s),
 once AS (SELECT DISTINCT stack_id, prefix_ids FROM stacks),
 found AS (SELECT s.n AS n, once.prefix_ids AS prefix_ids FROM s JOIN once ON s.stack_id = once.stack_id),
 steps AS ({apart}),
 boxes AS (SELECT node_id, sum(n) AS num FROM steps GROUP BY node_id),
 drawn AS (SELECT boxes.node_id AS node_id, boxes.num AS num FROM boxes CROSS JOIN total WHERE boxes.num * 100.0 / total.n >= {percent:?}),
 placed AS (SELECT DISTINCT nodes.parent_id AS parent_id, drawn.node_id AS node_id, nodes.depth AS depth, nodes.frame_hash AS frame_hash,
  drawn.num AS num FROM drawn JOIN nodes ON drawn.node_id = nodes.node_id)
SELECT DISTINCT placed.parent_id, placed.node_id, placed.depth, frames.class_name, frames.method_name, frames.line, frames.type, placed.num
FROM placed JOIN frames ON placed.frame_hash = frames.frame_hash
ORDER BY depth, num DESC, node_id"
    ))
}
