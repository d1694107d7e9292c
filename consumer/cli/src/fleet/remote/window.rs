//! `flightline remote window`: continuous profiles of one target, or of all with a label.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, ValueHint};
use flightline_service::wire::{Bounds, Target, Targets};
use serde::Serialize;

use super::client::Client;
use super::{Format, RemoteArgs, by_name, meant, save, word};
use crate::Outcome;
use crate::args::time_range::RangeArgs;
use crate::diagnostics::{bytes, plain};
use crate::usage_error::bail_usage;

#[derive(Debug, Args)]
pub struct WindowArgs {
    /// Target, or KEY=VALUE for all targets with this label, merged
    of: String,
    #[command(flatten)]
    range: RangeArgs,
    /// Format [default: by the output's extension]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Event type
    #[arg(short, long, value_name = "EVENT")]
    event: Option<String>,
    /// Output file; `-` is standard output. Without it and --format, list what is available
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Overwrite the output even if it is a recording
    #[arg(long)]
    force: bool,
}

/// Owner of a window.
enum WindowOwner {
    One(Box<Target>),
    /// All targets with this label: the label and their number.
    Labelled(String, usize),
}

#[derive(Serialize)]
struct WindowSummary<'a> {
    of: &'a str,
    targets: usize,
    #[serde(flatten)]
    bounds: Bounds,
}

pub fn run(args: &RemoteArgs, client: &Client, asked: &WindowArgs) -> Result<Outcome> {
    let (owner, bounds) = find(client, &asked.of)?;
    let format = asked.format.or_else(|| asked.output.as_ref().and_then(|path| by_name(path)));
    let Some(format) = format else {
        if asked.output.is_some() {
            bail_usage!("give --format: html, jfr, folded, pprof or otlp");
        }
        let targets = if let WindowOwner::Labelled(_, count) = owner { count } else { 1 };
        let summary = WindowSummary { of: &asked.of, targets, bounds };
        return args.print(&summary, || describe(&summary));
    };
    let (from, to) = interval(bounds, &asked.range)?;
    let event = asked.event.as_deref().map(word).transpose()?;
    let event = event.map_or(String::new(), |event| format!("&event={event}"));
    let path = match &owner {
        WindowOwner::One(target) => {
            format!("/targets/{}/window/files/{}?from={from}&to={to}{event}", target.id, format.name())
        }
        WindowOwner::Labelled(label, _) => {
            let label = escaped(label);
            format!("/window/files/{}?label={label}&from={from}&to={to}{event}", format.name())
        }
    };
    save(client, &path, &asked.output.clone().unwrap_or_else(|| PathBuf::from("-")), asked.force)
}

/// Converts a side of a comparison to the service's format: a run, or `TARGET@FROM..TO`.
pub fn side(client: &Client, text: &str) -> Result<String> {
    let Some((of, times)) = text.rsplit_once('@') else { return Ok(format!("run:{}", word(text)?)) };
    let Some((from, to)) = times.split_once("..") else {
        bail_usage!(
            "{} has no interval; give TARGET@FROM..TO, such as cart@-5m.. or version=1.2@..",
            plain(text)
        );
    };
    let bound = |text: &str| if text.is_empty() { Ok(None) } else { text.parse().map(Some) };
    let (owner, bounds) = find(client, of)?;
    let range = RangeArgs { from: bound(from)?, to: bound(to)?, last: None };
    let (from, to) = interval(bounds, &range)?;
    Ok(match owner {
        WindowOwner::One(target) => format!("window:{}:{from}:{to}", target.id),
        WindowOwner::Labelled(label, _) => format!("windows:{}:{from}:{to}", escaped(&label)),
    })
}

fn find(client: &Client, of: &str) -> Result<(WindowOwner, Bounds)> {
    let Some((key, value)) = of.split_once('=').filter(|(key, _)| !key.is_empty()) else {
        let target = meant(client, of)?;
        let Some(bounds) = target.continuous else {
            bail!(
                "{} has no continuous profile; start its agent with `flightline agent --continuous`",
                plain(of)
            );
        };
        return Ok((WindowOwner::One(Box::new(target)), bounds));
    };
    let Targets { targets, .. } = client.get("/targets")?;
    let with = |target: &&Target| target.labels.get(key).is_some_and(|has| has == value);
    let kept: Vec<Bounds> = targets.iter().filter(with).filter_map(|target| target.continuous).collect();
    let together = kept.iter().copied().reduce(|a, b| Bounds {
        from: a.from.min(b.from),
        to: a.to.max(b.to),
        bytes: a.bytes.saturating_add(b.bytes),
    });
    let Some(bounds) = together else {
        bail!("no target with the label {} has a continuous profile", plain(of));
    };
    Ok((WindowOwner::Labelled(of.to_owned(), kept.len()), bounds))
}

/// Returns the interval in UTC ms, end exclusive.
fn interval(bounds: Bounds, range: &RangeArgs) -> Result<(i64, i64)> {
    let nanos = |ms: i64| ms.saturating_mul(1_000_000);
    let (start, end) = (nanos(bounds.from), nanos(bounds.to.saturating_add(1)));
    let (from, to) = range.moments(start, end);
    let [from, to] = [from.unwrap_or(start), to.unwrap_or(end)].map(|nanos| nanos.div_euclid(1_000_000));
    if from >= to {
        bail!("no data in this interval; the profile covers {} to {} UTC ms", bounds.from, bounds.to);
    }
    Ok((from, to))
}

fn describe(summary: &WindowSummary<'_>) -> String {
    let mut text = String::new();
    let seconds = (summary.bounds.to - summary.bounds.from) / 1000;
    let _ = writeln!(
        text,
        "{}: {} {}, {} to {} UTC ms ({seconds} s), {}",
        plain(summary.of),
        summary.targets,
        if summary.targets == 1 { "target" } else { "targets" },
        summary.bounds.from,
        summary.bounds.to,
        bytes(summary.bounds.bytes)
    );
    text
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_range_is_relative_to_window_bounds() {
        let bounds = Bounds { from: 1_000_000, to: 1_059_999, bytes: 1 };
        let of = |from: &str, to: &str| {
            let bound = |text: &str| (!text.is_empty()).then(|| text.parse().unwrap());
            interval(bounds, &RangeArgs { from: bound(from), to: bound(to), last: None }).ok()
        };
        assert_eq!(of("", ""), Some((1_000_000, 1_060_000)));
        assert_eq!(of("-10s", ""), Some((1_050_000, 1_060_000)));
        assert_eq!(of("10s", "-10s"), Some((1_010_000, 1_050_000)));
        assert_eq!(of("1970-01-01T00:16:50Z", ""), Some((1_010_000, 1_060_000)));
        assert_eq!(of("-10s", "10s"), None);
    }

    #[test]
    fn label_is_percent_encoded_in_url() {
        assert_eq!(escaped("a=b:c&d é"), "a%3Db%3Ac%26d%20%C3%A9");
    }
}
