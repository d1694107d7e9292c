//! The table of `--by span`.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use flightline_consumer::top::spans::{self, Row, Spans};
use serde_json::json;

use crate::Outcome;
use crate::diagnostics::{self, shown};

/// Names for samples outside spans and in spans that have not ended.
const OUTSIDE: &str = "(outside of spans)";
const OPEN: &str = "(not over)";

#[derive(Debug)]
pub(super) struct Table {
    pub top: Spans,
    pub lines: usize,
    pub json: bool,
    pub window: Duration,
    pub due: Instant,
}

impl Table {
    /// Writes the table if it is due, or at the end.
    pub fn write(
        &mut self,
        ended: bool,
        every: Duration,
        path: &Path,
        out: &mut dyn Write,
    ) -> Result<Outcome> {
        if !ended && Instant::now() < self.due {
            return Ok(Outcome::Whole);
        }
        self.due = Instant::now() + every;
        let (table, warnings) = self.top.turn(ended);
        let outcome = diagnostics::warnings(path, &warnings);
        if self.json {
            let spans: Vec<_> = table.rows.iter().take(self.lines).map(object).collect();
            let window = self.window.as_secs_f64();
            let line = json!({"windowSeconds": window, "total": table.total, "spans": spans});
            writeln!(out, "{line}").context("cannot write")?;
            return Ok(outcome);
        }
        let text = text(&table, self.lines, self.window, &shown(path));
        let clear = if io::stdout().is_terminal() { "\x1b[H\x1b[2J" } else { "" };
        write!(out, "{clear}{text}").context("cannot write")?;
        Ok(outcome)
    }
}

fn mean(row: &Row) -> Option<i64> {
    row.ended.1.checked_div(i64::try_from(row.ended.0).ok()?)
}

/// `span` is null for samples outside spans, and empty for spans that have not ended.
fn object(row: &Row) -> serde_json::Value {
    json!({"span": row.name.as_deref(), "samples": row.samples, "ended": row.ended.0, "meanNanos": mean(row)})
}

fn text(table: &spans::Table, lines: usize, window: Duration, of: &str) -> String {
    let mut text = format!("{} samples in {} s of {of}\n", table.total, window.as_secs_f64());
    text.push_str("   self    ended     mean ms  span\n");
    for row in table.rows.iter().take(lines) {
        let share = 100.0 * row.samples as f64 / table.total.max(1) as f64;
        let mean = mean(row).map_or_else(|| "-".to_owned(), |nanos| format!("{:.3}", nanos as f64 / 1e6));
        let name = match row.name.as_deref() {
            None => OUTSIDE,
            Some("") => OPEN,
            Some(name) => name,
        };
        let name = diagnostics::plain(name);
        let _ = writeln!(text, "{share:6.1}% {:8} {mean:>11}  {name}", row.ended.0);
    }
    text.push('\n');
    text
}
