//! `flightline latency`

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Result, bail};
use clap::Args;
use flightline_consumer::latency::{Bucket, EVENTS, Group, Latencies};
use flightline_consumer::live::{self, Choice, Feed, Item};
use serde_json::{Value, json};

use crate::diagnostics::{self, all_shown, amount};
use crate::input::event_reader::Taker;
use crate::off_cpu::options::EventInputs;
use crate::{Outcome, output};

pub const EXAMPLES: &str = "\
Examples:
  flightline latency run.jfr                          a histogram per kind of event
  flightline latency run.jfr -e io                    reads, writes and syncs only
  flightline latency run.jfr -e trace                 a histogram per traced function, like funclatency
  flightline latency run.jfr -e block                 requests to disks, as bcc's biolatency
  flightline latency run.jfr -e OffCpu -I do_command  time off CPU within do_command, by thread state
  flightline latency run.jfr --json | jq '.histograms[] | {name, p99Nanos}'

Recordings with a threshold (record -e io@5ms; 10 or 20 ms in JDK recordings) do not contain shorter \
calls. Percentiles refer to recorded calls.";

/// Length of the longest bar, in characters.
const BAR: u64 = 40;

/// Arguments of `latency`.
#[derive(Debug, Args)]
pub struct LatencyArgs {
    #[command(flatten)]
    inputs: EventInputs,
    /// Event type: io, block, lock, trace, OffCpu, or the name of any type with a stack and a duration;
    /// repeatable [default: all of these]
    #[arg(short, long = "event", alias = "events", value_name = "NAME", value_delimiter = ',')]
    events: Vec<String>,
    /// Print JSON, with exact nanoseconds
    #[arg(long)]
    json: bool,
}

/// Prints histograms of durations.
pub fn run(args: &LatencyArgs) -> Result<Outcome> {
    let files = args.inputs.files()?;
    let mut reading = Reading { choice: args.inputs.choice(&files)?, latencies: Latencies::default() };
    let samples = match args.events.is_empty() {
        true => EVENTS.map(str::to_owned).to_vec(),
        false => args.events.clone(),
    };
    let wanted = live::Options { samples, ..live::Options::default() };
    let outcome = args.inputs.read(&files, &wanted, &mut reading)?;
    let latencies = reading.latencies;
    let below: Vec<_> = latencies.below_threshold().map(|(name, below)| (name.to_owned(), below)).collect();
    let lost = latencies.lost();
    let groups = latencies.into_groups();
    if groups.is_empty() {
        bail!("{}", empty_message(args));
    }
    output::text(Path::new("-"), |out| -> io::Result<()> {
        if args.json {
            let below = below.iter().map(
                |(name, below)| json!({ "event": name, "count": below.count, "totalNanos": below.nanos }),
            );
            let below: Vec<Value> = below.collect();
            let histograms: Vec<Value> = groups.iter().map(to_json).collect();
            let all = json!({ "histograms": histograms, "belowThreshold": below, "lost": lost });
            return writeln!(out, "{all}");
        }
        for (at, group) in groups.iter().enumerate() {
            if at > 0 {
                writeln!(out)?;
            }
            write_text(group, out)?;
        }
        Ok(())
    })?;
    if !args.json {
        for (name, below) in &below {
            diagnostics::note(format_args!(
                "{} {} calls shorter than the recording's threshold are not included: {} in total",
                below.count,
                diagnostics::plain(name),
                amount(below.nanos, "ns")
            ));
        }
        if lost > 0 {
            diagnostics::note(format_args!(
                "{lost} events were lost and are not included; `flightline summary` has the causes"
            ));
        }
    }
    Ok(outcome)
}

struct Reading {
    choice: Choice,
    latencies: Latencies,
}

impl Taker for Reading {
    fn take(&mut self, item: &Item, _feed: &Feed) {
        match item {
            Item::Sample(sample) if self.choice.wants(item) => self.latencies.add(sample),
            Item::Sample(_) => {}
            other => self.latencies.note(other),
        }
    }
}

fn empty_message(args: &LatencyArgs) -> String {
    let inputs = all_shown(&args.inputs.inputs);
    let samples = &args.inputs.samples;
    let names =
        samples.only_thread.is_some() || samples.only_process.is_some() || samples.only_state.is_some();
    let filtered = names || !samples.include.is_empty() || !samples.exclude.is_empty();
    if filtered || !samples.range.is_everything() {
        return format!("no selected event in {inputs} has a duration");
    }
    match args.events.is_empty() {
        true => format!(
            "{inputs} has no I/O, lock waits, traced calls or off-CPU time; record with -e io, -e lock, \
             --trace FUNCTION, --syscall-io, --block-io or --off-cpu"
        ),
        false => format!(
            "no {} event in {inputs} has a stack and a duration; `flightline summary` lists the events",
            args.events.join(", ")
        ),
    }
}

fn to_json(group: &Group) -> Value {
    let mut figures = group.latency.to_json();
    figures["name"] = group.name.clone().into();
    figures["event"] = group.event.to_string().into();
    figures
}

fn write_text(group: &Group, out: &mut dyn Write) -> io::Result<()> {
    let of = &group.latency;
    let [min, p50, p90, p99, max] = [of.shortest, of.p50, of.p90, of.p99, of.longest].map(time);
    let about = if of.is_exact { "" } else { " (percentiles up to 0.8 % too small)" };
    writeln!(out, "{}: {} events, {} in total", diagnostics::plain(&group.name), of.count, time(of.total))?;
    writeln!(out, "min {min}, p50 {p50}, p90 {p90}, p99 {p99}, max {max}{about}")?;
    let most = of.buckets.iter().map(|bucket| bucket.count).max().unwrap_or(1);
    writeln!(out, "{:>9} {:>12}  {:>10}  distribution", "from", "to less than", "count")?;
    for &Bucket { from, to, count } in &of.buckets {
        // A bucket with events has at least one character.
        let length = (u128::from(count) * u128::from(BAR)).div_ceil(u128::from(most)) as usize;
        let (bar, width) = ("*".repeat(length), BAR as usize);
        writeln!(out, "{:>9} {:>12}  {count:>10}  |{bar:<width$}|", time(from), time(to))?;
    }
    Ok(())
}

fn time(nanos: u64) -> String {
    amount(nanos, "ns")
}
