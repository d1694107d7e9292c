//! Formats targets and runs as tables.

use std::fmt::Write;

use flightline_service::wire::{Run, State, Status, Target, Targets};

use crate::diagnostics::{bytes, plain};

pub fn targets(of: &Targets) -> String {
    let mut text = String::new();
    if !of.profiling {
        text.push_str("Profiling on demand is off; start the service with `flightline serve --profiling`.\n");
    }
    if of.targets.is_empty() {
        text.push_str("No targets. Add one with `flightline agent --join URL -p PID`.\n");
        return text;
    }
    let rows = of.targets.iter().map(|target| {
        let cannot = target.modes.iter().filter(|mode| mode.available).map(|mode| mode.mode.name());
        [
            target.id.clone(),
            target.name.clone(),
            target.host.clone(),
            target.pid.to_string(),
            state(target),
            cannot.collect::<Vec<_>>().join(","),
            target.labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" "),
        ]
    });
    text + &table(["TARGET", "NAME", "HOST", "PID", "STATE", "MODES", "LABELS"], rows.collect())
}

fn state(target: &Target) -> String {
    match (target.state, &target.run) {
        (State::Live, None) => "live".into(),
        (State::Live, Some(_)) => "being profiled".into(),
        (State::Gone, _) => format!("gone: {}", target.gone),
    }
}

pub fn runs(of: &[Run]) -> String {
    if of.is_empty() {
        return "No runs.\n".into();
    }
    let rows = of.iter().map(|run| {
        let status = match run.status {
            Status::Running => format!("running {}/{} s", run.elapsed / 1000, run.duration),
            Status::Finished => "finished".into(),
            Status::Cancelled => "cancelled".into(),
            Status::Failed => "failed".into(),
        };
        let size = if run.bytes == 0 { "-".into() } else { bytes(run.bytes) };
        [run.id.clone(), run.target_name.clone(), run.mode.name().into(), status, size, run.message.clone()]
    });
    table(["RUN", "TARGET", "MODE", "STATUS", "SIZE", "MESSAGE"], rows.collect())
}

/// Formats a table; sanitizes cells, which contain other programs' names.
fn table<const N: usize>(heads: [&str; N], rows: Vec<[String; N]>) -> String {
    let rows: Vec<[String; N]> = rows.into_iter().map(|row| row.map(|cell| plain(&cell))).collect();
    let mut widths = heads.map(|head| head.chars().count());
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count()).min(60);
        }
    }
    let mut text = String::new();
    for row in std::iter::once(heads.map(str::to_owned)).chain(rows) {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(&row) {
            let _ = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
