//! Folded stacks of a recording, by our own command.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::run::run;
use crate::victim::flightline;

/// A stack, root first, and its count or total.
pub type Line = (Vec<String>, u64);

/// `flightline fold FILE -e EVENT [--total]`; no lines if the recording has no such event.
#[track_caller]
pub fn fold(recording: &Path, event: &str, total: bool) -> Vec<Line> {
    let mut command = Command::new(flightline());
    command.arg("fold").arg(recording).args(["-e", event]);
    if total {
        command.arg("--total");
    }
    let finished = run(&mut command, Duration::from_secs(60));
    if !finished.status.success() && finished.stderr.contains("has no event") {
        return Vec::new();
    }
    parse(&finished.expect_success("fold").stdout_text())
}

/// Folded text as our command reads and writes it.
#[track_caller]
pub fn read(path: &Path) -> Vec<Line> {
    let finished = run(Command::new(flightline()).arg("fold").arg(path), Duration::from_secs(60));
    parse(&finished.expect_success("fold").stdout_text())
}

/// Parses folded text.
///
/// # Panics
///
/// If a line is not folded text.
#[track_caller]
pub fn parse(text: &str) -> Vec<Line> {
    let line = |line: &str| {
        let (stack, count) = line.rsplit_once(' ')?;
        Some((stack.split(';').map(str::to_owned).collect(), count.parse().ok()?))
    };
    text.lines().map(|l| line(l).unwrap_or_else(|| panic!("{l:?} is no folded stack"))).collect()
}

/// The sum of the lines with `function` anywhere.
pub fn sum_with(lines: &[Line], function: &str) -> u64 {
    lines.iter().filter(|(stack, _)| stack.iter().any(|f| f == function)).map(|(_, n)| n).sum()
}
