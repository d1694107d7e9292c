//! `flightline summary`

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use flightline_consumer::summary::{self, Overview, Report};
use flightline_consumer::warnings::Warnings;
use jfr_format::read::Recording;
use serde_json::json;

use crate::args::SummaryArgs;
use crate::repository::{self, Parts};
use crate::talk::{self, Progress, plain, shown};
use crate::{Outcome, input, output};

/// Prints the summary of a recording, or a line for each of several.
pub fn run(args: SummaryArgs) -> Result<Outcome> {
    let recordings = repository::recordings(&args.inputs, args.last)?;
    match &recordings[..] {
        [one] => {
            let (report, warnings) = read(one, &args, args.top)?;
            let outcome = talk::warnings(&one.path, &warnings);
            write(&report, &args)?;
            Ok(outcome)
        }
        several if args.sum => sum(several, &args),
        several => list(several, &args),
    }
}

fn write(report: &Report, args: &SummaryArgs) -> Result<()> {
    let write = |out: &mut dyn std::io::Write| {
        if args.json { report.write_json(out) } else { report.write_text(out) }
    };
    output::text(Path::new("-"), write)
}

/// Reads a recording.
fn read(parts: &Parts, args: &SummaryArgs, top: usize) -> Result<(Report, Warnings)> {
    let mut recordings = Vec::new();
    for file in &parts.files {
        match input::whole(file) {
            Err(_) if repository::rolled_away(file, &args.inputs) => {}
            Ok(None) if parts.files.len() > 1 => bail!(not_a_recording(file)),
            recording => recordings.extend(recording?),
        }
    }
    let result = if recordings.is_empty() {
        let mut input = input::recording(parts.files.first().unwrap_or(&parts.path))?;
        let progress = Progress::new(input.size());
        summary::read_stream(&mut input, top, |at| progress.at(at))
    } else {
        of_files(&recordings, args, top)
    };
    let (report, warnings) = result.with_context(|| shown(&parts.path))?;
    Ok((report.with_arguments(args.arguments), warnings))
}

fn of_files(
    recordings: &[Recording],
    args: &SummaryArgs,
    top: usize,
) -> Result<(Report, Warnings), flightline_consumer::Error> {
    let most = recordings.iter().map(Recording::jobs).max().unwrap_or(1);
    let jobs = args.jobs.map_or(most, NonZeroUsize::get);
    let progress = Progress::new(Some(recordings.iter().map(Recording::size).sum()));
    summary::read_recordings(recordings, top, jobs, |at| progress.at(at))
}

fn not_a_recording(file: &Path) -> String {
    format!("{} is not a JFR recording: it does not start with \"FLR\\0\"", shown(file))
}

/// Prints one summary of all recordings together. Files that cannot be read are reported and left out.
fn sum(several: &[Parts], args: &SummaryArgs) -> Result<Outcome> {
    let mut files: Vec<&PathBuf> = several.iter().flat_map(|parts| &parts.files).collect();
    if files.iter().any(|file| crate::output::is_stdout(file)) {
        bail!("--sum does not accept standard input; give files");
    }
    // A file that is given twice counts once.
    files.sort();
    files.dedup();
    let (mut recordings, mut outcome) = (Vec::new(), Outcome::Whole);
    for file in files {
        match input::whole(file).and_then(|found| found.with_context(|| not_a_recording(file))) {
            Ok(recording) => recordings.push(recording),
            Err(_) if repository::rolled_away(file, &args.inputs) => {}
            Err(error) => {
                talk::warning(format_args!("{error:#}"));
                outcome = Outcome::Partial;
            }
        }
    }
    if recordings.is_empty() {
        bail!("none of the inputs is a JFR recording");
    }
    let (report, warnings) = of_files(&recordings, args, args.top)?;
    let name = PathBuf::from(format!("{} recordings", recordings.len()));
    let damage = talk::warnings(&name, &warnings);
    write(&report.with_arguments(args.arguments), args)?;
    Ok(if damage == Outcome::Whole { outcome } else { damage })
}

/// A row of the list.
struct Row<'a> {
    path: &'a Path,
    overview: Option<Overview>,
    /// Why the recording cannot be read, or not all of it.
    problem: Option<String>,
}

/// Prints a line for each recording; for an unreadable one the reason instead of figures.
fn list(several: &[Parts], args: &SummaryArgs) -> Result<Outcome> {
    let rows: Vec<Row<'_>> = several.iter().map(|parts| row(parts, args)).collect();
    let bad = rows.iter().filter(|row| row.problem.is_some()).count();
    output::text(Path::new("-"), |out| match args.json {
        true => {
            let rows: Vec<_> = rows.iter().map(json).collect();
            serde_json::to_writer_pretty(&mut *out, &json!({ "recordings": rows }))?;
            writeln!(out)
        }
        false => out.write_all(table(&rows).as_bytes()),
    })?;
    if bad == 0 {
        return Ok(Outcome::Whole);
    }
    talk::warning(format_args!("{bad} of {} recordings are damaged or cannot be read", rows.len()));
    Ok(Outcome::Partial)
}

fn row<'a>(parts: &'a Parts, args: &SummaryArgs) -> Row<'a> {
    let (overview, problem) = match read(parts, args, 0) {
        Ok((report, warnings)) => {
            let problem = warnings.damage().then(|| damage(&warnings));
            (Some(report.overview()), problem)
        }
        Err(error) => (None, Some(format!("{error:#}"))),
    };
    Row { path: &parts.path, overview, problem }
}

fn damage(warnings: &Warnings) -> String {
    let first = warnings.stored().first().map(ToString::to_string).unwrap_or_default();
    match warnings.len() {
        0 | 1 => format!("damaged: {first}"),
        n => format!("damaged: {first} (and {} more)", n - 1),
    }
}

fn json(row: &Row<'_>) -> serde_json::Value {
    let mut object = row.overview.as_ref().map_or_else(|| json!({}), Overview::to_json);
    if let Some(object) = object.as_object_mut() {
        object.insert("file".into(), json!(row.path.display().to_string()));
        object.insert("problem".into(), json!(row.problem));
    }
    object
}

fn table(rows: &[Row<'_>]) -> String {
    let titles = ["Recording", "Program", "Start", "Length", "Events", "Samples", "Size", "Lost", "Problem"];
    let mut lines = vec![titles.map(str::to_owned)];
    lines.extend(rows.iter().map(cells));
    let width = |column: usize| lines.iter().map(|cells| cells[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..titles.len()).map(width).collect();
    let mut out = String::new();
    for cells in &lines {
        let mut line = String::new();
        for (i, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            // Figures are aligned to the right.
            match i {
                3 | 4 | 6 => line.push_str(&format!("{cell:>width$}  ")),
                _ => line.push_str(&format!("{cell:<width$}  ")),
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

fn cells(row: &Row<'_>) -> [String; 9] {
    let problem = row.problem.as_deref().map(plain).unwrap_or_default();
    let path = plain(&shown(row.path));
    let Some(of) = &row.overview else {
        let mut cells: [String; 9] = std::array::from_fn(|_| "-".to_owned());
        (cells[0], cells[8]) = (path, problem);
        return cells;
    };
    let program = match (&of.program, &of.jvm) {
        (Some(program), Some(jvm)) => format!("{program} ({})", jvm.rsplit(' ').next().unwrap_or(jvm)),
        (Some(one), None) | (None, Some(one)) => one.clone(),
        (None, None) => "-".into(),
    };
    let samples = of.samples.as_ref().map_or_else(
        || "-".to_owned(),
        |(name, count)| format!("{count} {}", name.rsplit('.').next().unwrap_or(name)),
    );
    let lost = [(of.lost_samples, "samples"), (of.lost_events, "events"), (of.data_losses, "DataLoss")];
    let lost: Vec<String> =
        lost.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    let (start, length) = of.times();
    let start = start.get(..19).map_or_else(|| start.clone(), |seconds| format!("{seconds}Z"));
    [
        path,
        plain(&program),
        start,
        length,
        of.events.to_string(),
        plain(&samples),
        talk::bytes(of.bytes),
        if lost.is_empty() { "-".into() } else { lost.join(", ") },
        problem,
    ]
}
