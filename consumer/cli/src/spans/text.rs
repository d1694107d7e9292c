//! Tables and traces for people.

use std::io::{self, Write};

use flightline_consumer::amount::duration;
use flightline_consumer::spans::profile::Spent;
use flightline_consumer::spans::report::{self, Extremes, GroupBy, InferredRow, Table};
use flightline_consumer::spans::trace::{Line, bar};
use flightline_consumer::spans::{Profile, SpanKey, SpanReport, TraceId};

use crate::talk;

type Written = io::Result<()>;

/// Width of a bar in columns.
const BAR: usize = 40;
/// Maximum width of a name in columns.
const NAME: usize = 48;

fn bytes(bytes: u64) -> String {
    if bytes == 0 { "-".into() } else { talk::bytes(bytes) }
}

fn time(nanos: u64) -> String {
    match nanos {
        0 => "-".into(),
        nanos => duration(i64::try_from(nanos).unwrap_or(i64::MAX)),
    }
}

fn cut(name: &str, columns: usize) -> String {
    match name.chars().count() > columns {
        true => name.chars().take(columns - 1).chain(['…']).collect(),
        false => name.to_owned(),
    }
}

/// Writes rows of cells: the first column aligned left, the others right, the last as it is.
fn write_columns(out: &mut dyn Write, head: &[&str], lines: &[Vec<String>]) -> Written {
    let widths: Vec<usize> = (0..head.len())
        .map(|at| {
            let cells = lines.iter().map(|line| line[at].chars().count());
            cells.max().unwrap_or(0).max(head[at].chars().count())
        })
        .collect();
    let mut write = |cells: &mut dyn Iterator<Item = &str>| -> Written {
        let mut line = String::new();
        for (at, cell) in cells.enumerate() {
            let fill = " ".repeat(widths[at].saturating_sub(cell.chars().count()));
            match at {
                0 => line += &format!("{cell}{fill}"),
                _ if at + 1 == head.len() => line += &format!("  {cell}"),
                _ => line += &format!("  {fill}{cell}"),
            }
        }
        writeln!(out, "{}", line.trim_end())
    };
    write(&mut head.iter().copied())?;
    lines.iter().try_for_each(|line| write(&mut line.iter().map(String::as_str)))
}

/// A column of amounts: heading, value and format.
type Column = (&'static str, fn(&Spent) -> u64, fn(u64) -> String);

const COLUMNS: [Column; 6] = [
    ("CPU", |spent| spent.cpu, time),
    ("WALL", |spent| spent.wall, time),
    ("OFF-CPU", |spent| spent.off_cpu, time),
    ("ALLOC", |spent| spent.allocated, bytes),
    ("LOCK", |spent| spent.lock, time),
    ("I/O", |spent| spent.io, time),
];

/// Returns the columns that are not empty.
fn columns(all: &Spent) -> Vec<&'static Column> {
    COLUMNS.iter().filter(|(_, of, _)| of(all) > 0).collect()
}

pub(super) fn table(
    found: &SpanReport,
    table: &Table,
    by: &GroupBy,
    limit: usize,
    out: &mut dyn Write,
) -> Written {
    let key = match by {
        GroupBy::Name => "SPAN",
        GroupBy::Endpoint => "ENDPOINT",
        GroupBy::Trace => "TRACE",
        GroupBy::Label(key) => key,
    };
    let columns = columns(&table.all);
    // Shares are of CPU time, wall-clock time or samples, whichever is available first.
    let (share, of): (_, fn(&Spent) -> u64) = match &table.all {
        all if all.cpu > 0 => ("CPU %", |spent| spent.cpu),
        all if all.wall > 0 => ("WALL %", |spent| spent.wall),
        _ => ("SAMPLES %", |spent| spent.samples),
    };
    let open = table.rows.iter().any(|row| row.open > 0);
    let mut head = vec![key, "COUNT"];
    head.extend(open.then_some("OPEN"));
    head.extend(["TOTAL", "P50", "P99"]);
    head.extend(columns.iter().map(|(head, ..)| *head));
    head.extend(["SAMPLES", share, "TOP FUNCTION"]);
    let whole = of(&table.all).max(1) as f64;
    let spent = |spent: &Spent| -> Vec<String> {
        let mut cells: Vec<String> = columns.iter().map(|(_, of, shown)| shown(of(spent))).collect();
        cells.push(spent.samples.to_string());
        cells.push(format!("{:.1}", of(spent) as f64 * 100.0 / whole));
        cells
    };
    let mut lines = Vec::new();
    for row in table.rows.iter().take(limit) {
        let mut cells = vec![cut(&row.name, NAME), row.count.to_string()];
        cells.extend(open.then(|| row.open.to_string()));
        let known = |nanos: Option<i64>| nanos.map_or("-".into(), duration);
        cells.push(if row.timed > 0 {
            duration(i64::try_from(row.total).unwrap_or(i64::MAX))
        } else {
            "-".into()
        });
        cells.extend([known(row.p50), known(row.p99)]);
        cells.extend(spent(&row.spent));
        cells.push(
            row.top
                .as_ref()
                .map_or("-".into(), |(name, share)| format!("{} ({:.0} %)", cut(name, NAME), share * 100.0)),
        );
        lines.push(cells);
    }
    if table.outside.samples > 0 {
        let mut cells = vec![report::NO_SPAN.to_owned()];
        cells.resize(5 + usize::from(open), "-".into());
        cells.extend(spent(&table.outside));
        cells.push("-".into());
        lines.push(cells);
    }
    write_columns(out, &head, &lines)?;
    let more = table.rows.len().saturating_sub(limit);
    if more > 0 {
        writeln!(out, "… and {more} more (see --limit)")?;
    }
    let divided = found.counts.divided;
    if divided > 0 {
        writeln!(out, "{divided} waits spanned a change of spans and were divided by time.")?;
    }
    Ok(())
}

pub(super) fn inferred(rows: &[InferredRow], limit: usize, out: &mut dyn Write) -> Written {
    writeln!(out)?;
    if rows.is_empty() {
        return writeln!(
            out,
            "No span could be inferred: a function must be in two consecutive samples within a span (see \
             --min-duration and --exclude)."
        );
    }
    let line = |row: &InferredRow| {
        let total = i64::try_from(row.total).unwrap_or(i64::MAX);
        let mut cells = vec![cut(&row.name, NAME), row.count.to_string()];
        cells.extend([total, row.p50, row.p99].map(duration));
        cells.push(cut(&row.within, NAME));
        cells
    };
    let lines: Vec<Vec<String>> = rows.iter().take(limit).map(line).collect();
    write_columns(out, &["INFERRED SPAN", "COUNT", "TOTAL", "P50", "P99", "WITHIN"], &lines)?;
    let more = rows.len().saturating_sub(limit);
    if more > 0 {
        writeln!(out, "… and {more} more (see --limit)")?;
    }
    Ok(())
}

pub(super) fn trace(trace: TraceId, lines: &[Line], left_out: u64, out: &mut dyn Write) -> Written {
    let from = lines.iter().map(|line| line.time.0).min().unwrap_or(0);
    let to = lines.iter().map(|line| line.time.1).max().unwrap_or(0);
    let spans = lines.iter().filter(|line| line.key.is_some()).count();
    let whole = duration(to.saturating_sub(from));
    writeln!(out, "trace {trace}: {spans} spans and {} inferred ones in {whole}\n", lines.len() - spans)?;
    let mut all = Spent::default();
    lines.iter().for_each(|line| all.add(&line.spent));
    let columns = columns(&all);
    let mut head = vec!["SPAN", "AFTER", "DURATION"];
    head.extend(columns.iter().map(|(head, ..)| *head));
    head.extend(["SAMPLES", "THREAD", "TIME"]);
    let line = |line: &Line| {
        let mut name = format!("{}{}", "  ".repeat(line.depth.min(30)), cut(&line.name, NAME));
        if line.key.is_none() {
            name.push_str(" ~");
        }
        let lasted = duration(line.time.1.saturating_sub(line.time.0));
        let mut cells = vec![name, duration(line.time.0.saturating_sub(from))];
        cells.push(if line.timed { lasted } else { format!("≥ {lasted}") });
        cells.extend(columns.iter().map(|(_, of, shown)| shown(of(&line.spent))));
        cells.push(line.spent.samples.to_string());
        cells.push(line.thread.as_deref().map_or("-".into(), |name| cut(name, 16)));
        cells.push(bar(line.time, from, to, BAR, line.key.is_none()));
        cells
    };
    let cells: Vec<Vec<String>> = lines.iter().map(line).collect();
    write_columns(out, &head, &cells)?;
    if spans < lines.len() {
        writeln!(out, "\n~ inferred from samples")?;
    }
    if left_out > 0 {
        writeln!(out, "… and {left_out} more")?;
    }
    Ok(())
}

pub(super) fn extremes(profile: &Profile, extremes: &Extremes, out: &mut dyn Write) -> Written {
    let Extremes { name, slowest, median } = extremes;
    writeln!(
        out,
        "{name}: the {} slowest spans against {} median ones, each on average\n",
        slowest.len(),
        median.len()
    )?;
    let of = |keys: &[SpanKey]| super::json::average(profile, keys);
    let (slow, middle) = (of(slowest), of(median));
    let mut all = slow.1;
    all.add(&middle.1);
    let columns = columns(&all);
    let mut head = vec!["", "DURATION"];
    head.extend(columns.iter().map(|(head, ..)| *head));
    head.push("SAMPLES");
    let line = |name: &str, (lasts, spent): &(u64, Spent)| {
        let mut cells = vec![name.to_owned(), time(*lasts)];
        cells.extend(columns.iter().map(|(_, of, shown)| shown(of(spent))));
        cells.push(spent.samples.to_string());
        cells
    };
    write_columns(out, &head, &[line("slowest", &slow), line("median", &middle)])?;
    writeln!(out, "\nThe slowest:")?;
    let lines: Vec<Vec<String>> = slowest
        .iter()
        .take(10)
        .filter_map(|&key| profile.entry(key))
        .map(|entry| {
            let trace = if entry.trace.is_some() { entry.trace.to_string() } else { "-".into() };
            vec![entry.key.to_string(), entry.duration().map_or("-".into(), duration), trace]
        })
        .collect();
    write_columns(out, &["SPAN", "DURATION", "TRACE"], &lines)
}
