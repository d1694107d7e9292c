//! Prunes folders by the parts of a condition that refer only to day and service. Excluded folders are not
//! read at all; a store of several years has a million files.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use anyhow::Result;
use datafusion::arrow::array::{RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, visit_expressions};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::layout::{PARTITIONED_BY, Partition};

/// Returns the `folders` that may have rows where `condition` holds; all if it does not restrict folders.
///
/// # Errors
/// Returns an error if the engine fails.
pub async fn matching(condition: &str, folders: BTreeSet<Partition>) -> Result<BTreeSet<Partition>> {
    let asked = folder_conditions(condition);
    if asked.is_empty() || folders.is_empty() {
        return Ok(folders);
    }
    let values: Vec<[String; 2]> = folders.iter().map(Partition::values).collect();
    let column = |at: usize| Arc::new(StringArray::from_iter_values(values.iter().map(|values| &values[at])));
    let fields: Vec<Field> =
        PARTITIONED_BY.iter().map(|name| Field::new(*name, DataType::Utf8, false)).collect();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), vec![column(0), column(1)])?;
    let context = SessionContext::new();
    context.register_batch("folders", batch)?;
    let [day, service] = PARTITIONED_BY;
    let sql = format!("SELECT {day}, {service} FROM folders WHERE {}", asked.join(" AND "));
    // Errors in the condition are reported by the query of the samples.
    let Ok(answer) = context.sql(&sql).await else { return Ok(folders) };
    let Ok(rows) = answer.collect().await else { return Ok(folders) };
    let mut left = BTreeSet::new();
    for batch in rows {
        let texts = |at: usize| batch.column(at).as_any().downcast_ref::<StringArray>();
        let (Some(days), Some(services)) = (texts(0), texts(1)) else { return Ok(folders) };
        left.extend(
            days.iter()
                .zip(services)
                .filter_map(|(day, service)| Some([day?.to_owned(), service?.to_owned()])),
        );
    }
    Ok(folders.into_iter().filter(|folder| left.contains(&folder.values())).collect())
}

/// Returns the conjuncts of a condition that refer only to day and service.
fn folder_conditions(condition: &str) -> Vec<String> {
    let parsed = Parser::new(&GenericDialect {}).try_with_sql(condition).and_then(|mut it| it.parse_expr());
    let mut parts = Vec::new();
    let mut left: Vec<Expr> = parsed.into_iter().collect();
    while let Some(part) = left.pop() {
        match part {
            Expr::BinaryOp { left: one, op: BinaryOperator::And, right: other } => {
                left.extend([*one, *other])
            }
            Expr::Nested(inner) => left.push(*inner),
            part if is_folder_condition(&part) => parts.push(format!("({part})")),
            _ => {}
        }
    }
    parts
}

/// Returns true if day and service alone determine its value.
fn is_folder_condition(part: &Expr) -> bool {
    let mut named = false;
    let only = visit_expressions(part, |expression| {
        match expression {
            Expr::Identifier(name) if PARTITIONED_BY.contains(&name.value.as_str()) => named = true,
            Expr::BinaryOp { .. }
            | Expr::UnaryOp { .. }
            | Expr::Nested(_)
            | Expr::InList { .. }
            | Expr::Between { .. }
            | Expr::Like { .. }
            | Expr::Value(_) => {}
            // Other expressions may depend on a row or be random.
            _ => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    });
    named && only.is_continue()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Day;

    #[tokio::test]
    async fn partitions_are_pruned_by_day_and_service_only() {
        let all: BTreeSet<Partition> = ["2026-01-01", "2026-01-02", "2026-02-01"]
            .iter()
            .flat_map(|day| {
                ["api", "db", "o'hara"]
                    .map(|service| Partition { day: Day::parse(day).unwrap(), service: service.to_owned() })
            })
            .collect();
        for (condition, left) in [
            ("", 9),
            ("service = 'api'", 3),
            ("service = 'o''hara' AND day LIKE '2026-01-%'", 2),
            ("(service = 'api' AND label_host = 'h1') AND (day >= '2026-01-02')", 2),
            ("service IN ('api', 'db') AND NOT (day BETWEEN '2026-01-01' AND '2026-01-31')", 2),
            ("day = '2026-02-01' OR service = 'db'", 5),
            // These do not restrict folders.
            ("day = '2026-02-01' OR label_host = 'h1'", 9),
            ("ts > TIMESTAMP '2026-01-02T00:00:00Z'", 9),
            ("random() < 0.5", 9),
            ("service = 'api' OR random() < 0.5", 9),
            ("service IN (SELECT service FROM mine)", 9),
            ("service = thread", 9),
            ("1 = 1", 9),
            ("service = 'none'", 0),
            ("service = ", 9),
        ] {
            assert_eq!(matching(condition, all.clone()).await.unwrap().len(), left, "{condition}");
        }
    }
}
