//! The SQL of a flame graph. It returns the same rows in every engine; only the function that unnests lists
//! differs.

use anyhow::Result;

use super::session::condition;
use super::weights::Choice;

/// SQL engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// Apache DataFusion, the engine of `flightline sql`.
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
    /// Unnests the paths of `found`: one row per node from the root to the leaf.
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

/// Returns SQL for the frames of a flame graph with at least `percent` of the selected samples: `parent_id`,
/// `node_id`, `depth`, the frame, `num`.
///
/// Stacks, nodes and frames may be in several files, since writers do not coordinate. DISTINCT removes
/// duplicates; for nodes and frames this happens after most have been filtered. The first DISTINCT of these
/// also prevents engines from joining all nodes with all duplicate frames before the filter.
///
/// # Errors
/// Returns an error if the condition is invalid.
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
