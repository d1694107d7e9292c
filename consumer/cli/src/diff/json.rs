//! The difference as JSON, with the verdict.

use std::io::{self, Write};

use flightline_consumer::difference::{Change, CompareBy, Difference, Row, Scale};
use serde_json::{Value, json};

use super::{DiffArgs, Verdict};
use crate::talk::shown;

/// Writes one document.
pub fn write(
    args: &DiffArgs,
    difference: &Difference,
    verdict: Option<&Verdict>,
    by: CompareBy,
    out: &mut dyn Write,
) -> io::Result<()> {
    let share = |weight: f64| weight / difference.whole() * 100.0;
    let function = |row: &Row| function(row, difference);
    let rows = difference.functions(by);
    let verdict = verdict.map(|verdict| {
        json!({
            "failed": verdict.failed(),
            "limitPoints": verdict.limits.points,
            "limitRelativePercent": verdict.limits.relative,
            "limitTotalPercent": verdict.total_limit,
            "totalGrewByPercent": verdict.total,
            "functions": verdict.grown.iter().map(|row| json!(&*row.label.text)).collect::<Vec<_>>(),
        })
    });
    let document = json!({
        "before": { "input": shown(&args.before), "total": difference.before.total },
        "after": { "input": shown(args.after()), "total": difference.after.total },
        "unit": difference.after.unit,
        "normalized": difference.compared == Scale::Normalized,
        "totalChangePercent": difference.total().relative(),
        "scale": difference.scale,
        "sigmas": difference.sigmas,
        "onlyBeforePercent": share(difference.vanished()),
        "onlyAfterPercent": share(difference.appeared()),
        "verdict": verdict,
        "functions": rows.iter().take(args.limit).map(function).collect::<Vec<_>>(),
        "functionsLeftOut": rows.len().saturating_sub(args.limit),
    });
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

fn function(row: &Row, difference: &Difference) -> Value {
    let part = |change: Change| {
        json!({
            "before": change.before,
            "after": change.after,
            "change": change.delta(),
            "changePercent": change.delta() / difference.whole() * 100.0,
            "relativePercent": change.relative(),
            "noise": change.noise,
        })
    };
    json!({
        "function": &*row.label.text,
        "module": row.label.module.as_deref(),
        "self": part(row.own),
        "inclusive": part(row.total),
    })
}
