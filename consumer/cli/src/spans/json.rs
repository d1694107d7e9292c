//! Spans as JSON. Durations are in ns, times in ns since 1970.

use std::io::{self, Write};

use flightline_consumer::spans::profile::{Entry, Spent};
use flightline_consumer::spans::report::{self, Extremes, Filter, GroupBy, Table, function};
use flightline_consumer::spans::trace::Line;
use flightline_consumer::spans::{Inferred, Parent, Profile, SpanKey, SpanReport, TraceId};
use serde_json::{Value, json};

type Written = io::Result<()>;

fn write(out: &mut dyn Write, value: &Value) -> Written {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}

fn of_spent(spent: &Spent) -> Value {
    let Spent { samples, cpu, wall, off_cpu, allocated, lock, io, .. } = spent;
    json!({
        "samples": samples, "cpuNanos": cpu, "wallNanos": wall, "offCpuNanos": off_cpu, "allocatedBytes": allocated,
        "lockNanos": lock, "ioNanos": io,
    })
}

fn trace_id(id: TraceId) -> Option<String> {
    id.is_some().then(|| id.to_string())
}

fn of_entry(profile: &Profile, entry: &Entry) -> Value {
    json!({
        "span": entry.key.to_string(),
        "name": entry.name.as_deref(),
        "trace": trace_id(entry.trace),
        "parent": entry.parent.map(|key| key.to_string()),
        "localRoot": entry.local_root.to_string(),
        "endpoint": profile.endpoint(entry).as_deref(),
        "start": entry.time.map(|(start, _)| start),
        "durationNanos": entry.duration(),
        "flags": entry.flags,
        "labels": entry.labels.iter().map(|(key, value)| (key.to_string(), json!(**value))).collect::<serde_json::Map<_, _>>(),
        "thread": entry.thread.as_ref().map(|thread| thread.name().to_owned()),
        "spent": of_spent(&entry.spent),
    })
}

fn of_inferred(profile: &Profile, span: &Inferred) -> Value {
    let (parent, is_inferred) = match span.parent {
        Parent::Span(key) => (key.to_string(), false),
        Parent::Inferred(id) => (format!("{id:016x}"), true),
    };
    json!({
        "span": format!("{:016x}", span.id),
        "name": *function(profile, span.frame),
        "trace": trace_id(span.trace),
        "parent": parent,
        "parentIsInferred": is_inferred,
        "within": span.within.to_string(),
        "start": span.start,
        "durationNanos": span.end.saturating_sub(span.start),
        "thread": profile.model.threads.get(span.thread).name(),
        "samples": span.samples,
        "callers": span.callers.iter().map(|&frame| function(profile, frame).to_string()).collect::<Vec<_>>(),
        "links": span.children.iter().map(|key| json!({"span": key.to_string(), "isChild": true})).collect::<Vec<_>>(),
    })
}

fn counts(found: &SpanReport) -> Value {
    let counts = &found.counts;
    let lost: Vec<Value> = found
        .lost
        .iter()
        .map(|((of, cause), (count, cpu))| json!({"of": **of, "cause": **cause, "count": count, "cpuNanos": cpu}))
        .collect();
    json!({
        "lost": lost,
        "inSpans": counts.in_spans, "outside": counts.outside, "late": counts.late, "divided": counts.divided,
        "unwaited": counts.unwaited, "threadsDropped": counts.threads_dropped, "orphans": counts.orphans,
        "nodesDropped": counts.nodes_dropped, "spansLeftOut": found.profile.spans_left_out,
        "stacksLeftOut": found.profile.stacks_left_out, "inferredLeftOut": found.inferred_left_out,
    })
}

pub(super) fn table(
    found: &SpanReport,
    table: &Table,
    by: &GroupBy,
    filter: &Filter,
    out: &mut dyn Write,
) -> Written {
    let profile = &found.profile;
    let rows: Vec<Value> = table
        .rows
        .iter()
        .map(|row| {
            json!({
                "key": *row.name, "count": row.count, "open": row.open, "totalNanos": row.total, "p50Nanos": row.p50, "p99Nanos": row.p99,
                "spent": of_spent(&row.spent),
                "top": row.top.as_ref().map(|(name, share)| json!({"function": **name, "share": share})),
            })
        })
        .collect();
    let by = match by {
        GroupBy::Name => "name".to_owned(),
        GroupBy::Endpoint => "endpoint".into(),
        GroupBy::Trace => "trace".into(),
        GroupBy::Label(key) => format!("label={key}"),
    };
    let passes = |span: &&Inferred| {
        filter.is_all() || profile.entry(span.within).is_some_and(|entry| filter.passes(profile, entry))
    };
    let inferred: Vec<Value> =
        found.inferred.iter().filter(passes).map(|span| of_inferred(profile, span)).collect();
    write(
        out,
        &json!({
            "by": by, "rows": rows, "outside": of_spent(&table.outside), "all": of_spent(&table.all), "inferred": inferred,
            "counts": counts(found),
        }),
    )
}

pub(super) fn trace(found: &SpanReport, trace: TraceId, lines: &[Line], out: &mut dyn Write) -> Written {
    let profile = &found.profile;
    let spans: Vec<Value> =
        lines.iter().filter_map(|line| Some(of_entry(profile, profile.entry(line.key?)?))).collect();
    let inferred: Vec<Value> = found
        .inferred
        .iter()
        .filter(|span| span.trace == trace)
        .map(|span| of_inferred(profile, span))
        .collect();
    write(
        out,
        &json!({"trace": trace.to_string(), "spans": spans, "inferred": inferred, "counts": counts(found)}),
    )
}

/// Returns the average duration of spans, and the average amounts spent in them and their descendants.
pub(super) fn average(profile: &Profile, keys: &[SpanKey]) -> (u64, Spent) {
    let mut spent = Spent::default();
    for key in report::with_descendants(profile, keys) {
        if let Some(entry) = profile.entry(key) {
            spent.add(&entry.spent);
        }
    }
    let durations = keys.iter().filter_map(|&key| profile.entry(key)?.duration());
    let total: u64 = durations.map(|nanos| u64::try_from(nanos).unwrap_or(0)).sum();
    let count = keys.len().max(1) as u64;
    (total / count, spent.divided(count))
}

pub(super) fn extremes(profile: &Profile, extremes: &Extremes, out: &mut dyn Write) -> Written {
    let side = |keys: &[SpanKey]| {
        let (lasts, spent) = average(profile, keys);
        let spans: Vec<Value> =
            keys.iter().filter_map(|&key| profile.entry(key)).map(|entry| of_entry(profile, entry)).collect();
        json!({"durationNanos": lasts, "spent": of_spent(&spent), "spans": spans})
    };
    write(
        out,
        &json!({
            "name": *extremes.name, "slowest": side(&extremes.slowest), "median": side(&extremes.median),
        }),
    )
}
