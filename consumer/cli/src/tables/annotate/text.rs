//! The report for a terminal.

use std::collections::BTreeSet;
use std::io::{self, Write};

use flightline_consumer::format::{amount, percent};

use super::machine::Machine;
use super::{Report, View};
use crate::diagnostics::plain;

/// Lines and instructions that are shown around one with samples.
const AROUND: usize = 3;

/// A row of a table; without weights nothing was sampled there.
struct Row {
    total: u64,
    own: u64,
    number: String,
    text: String,
}

pub(super) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    for (at, view) in report.views.iter().enumerate() {
        if at > 0 {
            writeln!(out)?;
        }
        head(report, view, out)?;
        lines(report, view, out)?;
        if let Some(machine) = &view.machine {
            writeln!(out)?;
            instructions(report, view, machine, out)?;
        }
    }
    Ok(())
}

fn head(report: &Report, view: &View, out: &mut dyn Write) -> io::Result<()> {
    let function = &view.function;
    let library = match function.is_java || function.class.is_empty() {
        true => String::new(),
        false => format!(" in {}", function.class),
    };
    writeln!(out, "{}", plain(&format!("{}{library}", function.name)))?;
    let [total, own] = [function.all.total, function.all.own].map(|value| amount(value, report.unit));
    let share = percent(function.all.total, report.total);
    writeln!(out, "{}: {total} total, {share} of all; {own} self", plain(&report.events.join(", ")))
}

/// Writes the table of source lines, or of the known lines if the source is missing.
fn lines(report: &Report, view: &View, out: &mut dyn Write) -> io::Result<()> {
    let function = &view.function;
    match (&view.source, &view.declarations[..]) {
        (Some(source), _) => writeln!(out, "{}", plain(&source.path.display().to_string()))?,
        (None, [one]) => {
            writeln!(
                out,
                "{}: not found; give its directory with --source-path",
                plain(&one.file.display().to_string())
            )?;
        }
        (None, [_, _, ..]) => {
            let places: Vec<String> =
                view.declarations.iter().map(|one| format!("{}:{}", one.file.display(), one.line)).collect();
            writeln!(out, "lines from several functions with this name: {}", plain(&places.join(", ")))?;
        }
        (None, []) if function.is_java => {
            writeln!(
                out,
                "source of {}: not found; give its directory with --source-path",
                plain(&function.class)
            )?;
        }
        (None, []) => writeln!(out, "source file: not recorded, and debug information not found")?,
    }
    let mut shown: BTreeSet<u32> = function.lines.keys().copied().collect();
    if let Some(source) = &view.source {
        let around = AROUND as u32;
        let window = |&line: &u32| {
            line.saturating_sub(around).max(1)..=line.saturating_add(around).min(source.lines())
        };
        let context: Vec<u32> = function.lines.keys().flat_map(window).collect();
        shown.extend(context);
    }
    let mut rows = Vec::new();
    let mut last = None;
    for line in shown {
        if last.is_some_and(|last: u32| line - last > 1) {
            rows.push(None);
        }
        last = Some(line);
        let weights = function.lines.get(&line).copied().unwrap_or_default();
        let text = view.source.as_ref().and_then(|source| source.line(line)).unwrap_or_default();
        rows.push(Some(Row { total: weights.total, own: weights.own, number: line.to_string(), text }));
    }
    // Without the source, gaps say nothing.
    if view.source.is_none() {
        rows.retain(Option::is_some);
    }
    let unknown = function.no_line;
    if unknown.total > 0 {
        let text = "(unknown line)".into();
        rows.push(Some(Row { total: unknown.total, own: unknown.own, number: "-".into(), text }));
    }
    table(report, function.all.total, ["LINE", "SOURCE"], &rows, out)
}

fn instructions(report: &Report, view: &View, machine: &Machine, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", plain(&machine.file.display().to_string()))?;
    let sampled: BTreeSet<usize> =
        machine.instructions.iter().enumerate().filter(|(_, one)| one.total > 0).map(|(at, _)| at).collect();
    let is_near = |at: usize| sampled.range(at.saturating_sub(AROUND)..=at + AROUND).next().is_some();
    let mut rows = Vec::new();
    let mut last = None;
    for (at, one) in machine.instructions.iter().enumerate().filter(|(at, _)| is_near(*at)) {
        if last.is_some_and(|last: usize| at - last > 1) {
            rows.push(None);
        }
        last = Some(at);
        let line = if one.line > 0 { format!("  # line {}", one.line) } else { String::new() };
        let text = format!("{}{line}", one.text);
        rows.push(Some(Row { total: one.total, own: one.own, number: format!("{:x}", one.address), text }));
    }
    if machine.elsewhere > 0 {
        let text = "(addresses outside of the symbol)".into();
        rows.push(Some(Row { total: machine.elsewhere, own: 0, number: "-".into(), text }));
    }
    table(report, view.function.all.total, ["ADDRESS", "INSTRUCTION"], &rows, out)
}

/// Writes rows under headings; `None` is a gap.
fn table(
    report: &Report,
    all: u64,
    names: [&str; 2],
    rows: &[Option<Row>],
    out: &mut dyn Write,
) -> io::Result<()> {
    let cell = |value: u64| match (value, report.unit) {
        (0, _) => String::new(),
        (_, "ns" | "bytes") => amount(value, report.unit),
        _ => value.to_string(),
    };
    let share = |value: u64| if value == 0 { String::new() } else { percent(value, all) };
    let width = |of: &dyn Fn(&Row) -> usize, least: usize| {
        rows.iter().flatten().map(of).max().unwrap_or(0).max(least)
    };
    let total = width(&|row| cell(row.total).chars().count(), 5);
    let own = width(&|row| cell(row.own).chars().count(), 4);
    let number = width(&|row| row.number.chars().count(), names[0].len());
    writeln!(
        out,
        "{:>total$} {:>7} {:>own$} {:>7} {:>number$}  {}",
        "TOTAL", "", "SELF", "", names[0], names[1]
    )?;
    for row in rows {
        let Some(Row { total: t, own: o, number: n, text }) = row else {
            writeln!(out, "{:>1$}", "…", total + own + number + 18)?;
            continue;
        };
        let line = format!(
            "{:>total$} {:>7} {:>own$} {:>7} {n:>number$}  {text}",
            cell(*t),
            share(*t),
            cell(*o),
            share(*o)
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
