//! `flightline slower`

mod asked;

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueHint};
use flightline_consumer::live::{self, Choice, Feed, Item};
use flightline_consumer::slow::{Call, CallObject, EVENTS, Longest, Sorted};
use serde_json::json;

use crate::items::{self, Taker};
use crate::select::SampleArgs;
use crate::talk::{self, all_shown};
use crate::{Outcome, output, range, repository};

pub const EXAMPLES: &str = "\
Examples:
  flightline slower run.jfr                       reads, writes and similar calls of at least 10 ms
  flightline slower run.jfr --min 1ms --files     like bcc's `fileslower 1`
  flightline slower run.jfr --top 20              the 20 longest calls
  flightline slower run.jfr -I do_command --json  only in requests; one JSON object per line

A recording with a threshold (record -e io@5ms, --syscall-io=5ms) does not contain shorter calls. The \
letters are Read, Write, Sync, Connect, Accept and Discard. PID is the thread's id if the recording does \
not contain the process.";

/// Memory for sorting calls, in bytes.
const ROOM: usize = 64 << 20;

/// Arguments of `slower`.
#[derive(Debug, Args)]
pub struct SlowerArgs {
    /// Recordings or repositories; `-` is standard input
    #[arg(required = true, value_name = "FILE|DIR", value_hint = ValueHint::AnyPath)]
    inputs: Vec<PathBuf>,
    /// Threshold: 500us, 10ms; without a unit ms
    #[arg(short = 'm', long = "min", value_name = "TIME", value_parser = range::millis, default_value = "10ms")]
    least: Duration,
    /// Files, including pipes and terminals; may be combined with --sockets and --disks
    #[arg(long)]
    files: bool,
    /// Sockets
    #[arg(long)]
    sockets: bool,
    /// Requests to block devices
    #[arg(long)]
    disks: bool,
    /// Only the N slowest, slowest first
    #[arg(long, value_name = "N")]
    top: Option<u32>,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
    /// Output file; `-` is standard output
    #[arg(short, long, default_value = "-", value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: PathBuf,
    /// Selection of samples.
    #[command(flatten)]
    samples: SampleArgs,
}

impl SlowerArgs {
    fn wants(&self, what: CallObject) -> bool {
        let all = !(self.files || self.sockets || self.disks);
        all || match what {
            CallObject::File => self.files,
            CallObject::Socket => self.sockets,
            CallObject::Disk => self.disks,
        }
    }
}

/// Lists slow calls.
pub fn run(args: &SlowerArgs) -> Result<Outcome> {
    output::refuse_input(&args.output, args.inputs.iter().map(PathBuf::as_path))?;
    let paths = repository::expand(&args.inputs, args.samples.range.last)?;
    let choice = Choice::new(args.samples.filter(), range::nanos(&paths, &args.samples.range)?);
    let mut outcome = Outcome::Whole;
    output::text(&args.output, |out| -> Result<()> {
        let mut list = List {
            choice,
            args,
            out,
            start: None,
            headed: false,
            seen: 0,
            lost: 0,
            sorted: Sorted::new(ROOM),
            longest: args.top.map(|most| Longest::new(most as usize)),
            failed: None,
        };
        let wanted = live::Options {
            samples: EVENTS.iter().map(|(name, ..)| (*name).to_owned()).collect(),
            others: false,
            ..live::Options::default()
        };
        for path in &paths {
            match items::of_file(path, &wanted, &mut list) {
                Ok(Outcome::Whole) => {}
                Ok(other) => outcome = other,
                Err(_) if repository::rolled_away(path, &args.inputs) => {}
                Err(error) => return Err(error),
            }
            if let Some(error) = list.failed.take() {
                return Err(error.into());
            }
        }
        list.finish(&paths)
    })?;
    Ok(outcome)
}

struct List<'a> {
    choice: Choice,
    args: &'a SlowerArgs,
    out: &'a mut dyn Write,
    /// Start of the first chunk, ns since 1970.
    start: Option<i64>,
    headed: bool,
    /// Number of calls of any duration.
    seen: u64,
    /// Number of lost calls.
    lost: u64,
    sorted: Sorted,
    longest: Option<Longest>,
    failed: Option<io::Error>,
}

impl Taker for List<'_> {
    fn take(&mut self, item: &Item, _feed: &Feed) {
        match item {
            Item::ChunkStart(chunk) => {
                self.start.get_or_insert(chunk.time.epoch_nanos);
            }
            Item::Loss(loss) if asked::is_of_calls(loss) => {
                self.lost = self.lost.saturating_add(loss.events.unwrap_or(0));
            }
            Item::Sample(sample) if self.failed.is_none() => {
                let Some(call) = Call::from_sample(sample) else { return };
                self.seen += 1;
                let slow = u128::from(call.nanos) >= self.args.least.as_nanos();
                if !slow || !self.args.wants(call.what) || !self.choice.wants(item) {
                    return;
                }
                match &mut self.longest {
                    Some(longest) => longest.push(call),
                    None => {
                        if let Some(call) = self.sorted.push(call) {
                            self.failed = self.write(&call).err();
                        }
                    }
                }
            }
            _ => {}
        }
    }
}

impl List<'_> {
    fn finish(mut self, paths: &[PathBuf]) -> Result<()> {
        if self.seen == 0 {
            let inputs = all_shown(&self.args.inputs);
            let Some(why) = asked::why_none(paths, self.lost)? else {
                bail!(
                    "{inputs} has no reads, writes or similar calls (jdk.FileRead, …); record with -e io, --syscall-io or --block-io"
                );
            };
            talk::note(format_args!("{inputs} has no reads, writes or similar calls: {why}"));
            return Ok(());
        }
        if let Some(longest) = self.longest.take() {
            for call in longest.finish() {
                self.write(&call)?;
            }
        }
        while let Some(call) = self.sorted.pop() {
            self.write(&call)?;
        }
        if !self.headed {
            talk::note(format_args!(
                "none of {} calls passes the filters; see --min, --files, --sockets and --disks",
                self.seen
            ));
        }
        let late = self.sorted.late();
        if late > 0 {
            talk::note(format_args!("{late} calls are not in order of time; use --min to list fewer calls"));
        }
        Ok(())
    }

    fn write(&mut self, call: &Call) -> io::Result<()> {
        let since = call.start.saturating_sub(self.start.unwrap_or(call.start));
        let thread = call.thread.as_deref();
        if self.args.json {
            self.headed = true;
            let line = json!({
                "time": since as f64 / 1e9,
                "startEpochNanos": call.start,
                "comm": thread.map(|thread| thread.name()),
                "pid": call.pid(),
                "tid": thread.map(|thread| thread.os_id),
                "what": call.what.name(),
                "operation": call.direction.name(),
                "bytes": call.bytes,
                "nanos": call.nanos,
                "name": &*call.name,
                "event": &*call.event,
            });
            return writeln!(self.out, "{line}");
        }
        if !self.headed {
            self.headed = true;
            writeln!(
                self.out,
                "{:<8} {:<14} {:<6} {:1} {:<7} {:>7} FILENAME",
                "TIME(s)", "COMM", "PID", "D", "BYTES", "LAT(ms)"
            )?;
        }
        let name: String = talk::plain(thread.map_or("?", |thread| thread.name())).chars().take(14).collect();
        // Falls back to the thread id if the process is unknown.
        let who = call.pid().map(i64::from).or(thread.map(|thread| thread.os_id)).unwrap_or(0);
        let bytes = call.bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
        writeln!(
            self.out,
            "{:<8.3} {name:<14} {who:<6} {} {bytes:<7} {:>7.2} {}",
            since as f64 / 1e9,
            call.direction.letter(),
            call.nanos as f64 / 1e6,
            talk::plain(&call.name)
        )
    }
}
