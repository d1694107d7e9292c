//! `flightline collect`: writes a stream to a file, a repository, or both.

mod file;
mod rolling;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{ArgGroup, Args, ValueHint};
use flightline_recorder::repository::{self, Repository};
use flightline_recorder::settings::units::{bytes, duration};
use flightline_recorder::stream::{Address, Token};
use jfr_format::edit::collect::{ChunkSink, Collected, Collector};
use jfr_format::header::ChunkHeader;
use serde_json::json;

use crate::Outcome;
use crate::diagnostics::{self, Progress, count, shown};
use crate::input::stream::{self, Got, Stream, integrity::IntegrityCheck};
use crate::signals::Signals;
use crate::usage_error::bail_usage;
use file::{Existing, FilePlace, Limits, Rotate};
use rolling::RollingPlace;

pub const EXAMPLES: &str = "\
Examples:
  flightline record -o - -- ./server | flightline collect - -o run.jfr
  flightline collect unix:/run/fl.sock --repository /var/lib/fl --max-age 24h
  mkfifo pipe; flightline collect pipe --repository /var/lib/fl --retry & flightline record -o pipe -- ./server
  flightline collect unix:/run/fl.sock -o run.jfr --repository /var/lib/fl --max-age 24h --max-size 1g
  flightline collect tcp:build7:4711 --token-file ~/.fl-token -o run.jfr --rotate 1h --max-size 10g
  flightline collect - -o run.jfr --json < stream.jfr | jq .losses

The output is a complete recording at all times. EventStream.openRepository, JMC and `flightline tail` \
can follow a repository while it grows. Every segment is checked before it is written. Damaged data is \
reported, and valid data after it is written to a separate chunk. SIGINT and SIGTERM finish the output.

Exit status: 0 if everything was collected; 1 for an error, or if the stream was damaged or cut short; 2 \
for wrong usage.";

/// Read size in bytes.
const READ: usize = 256 << 10;
/// Minimum and maximum delay between attempts to connect.
const TRIES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];
/// Interval between checks for signals while data arrives.
const LOOK: Duration = Duration::from_millis(200);

/// Arguments of `collect`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("where").required(true).multiple(true).args(["output", "repository"]))]
pub struct CollectArgs {
    /// The stream: `-` for standard input, fd:N, a FIFO, unix:PATH, tcp:HOST:PORT
    #[arg(value_name = "INPUT", value_hint = ValueHint::AnyPath)]
    pub input: PathBuf,
    /// Write the stream to this file
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Append to the file
    #[arg(long, requires = "output", conflicts_with = "force")]
    pub append: bool,
    /// Overwrite the file if it exists
    #[arg(long, requires = "output")]
    pub force: bool,
    /// Rotate the file at this size or age, between two chunks: 256m, 1h; the old file gets the time in its
    /// name
    #[arg(long, value_name = "SIZE|TIME", requires = "output")]
    pub rotate: Option<Rotate>,
    /// Write to this folder, one file per chunk, in the layout of the JDK's repositories; `%u` represents the
    /// user's id
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub repository: Option<PathBuf>,
    /// Remove chunks of the repository, and rotated files, that are older than this: 24h, 7d
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub max_age: Option<Duration>,
    /// Remove the oldest of them when they exceed this size: 500m, 1g
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub max_size: Option<u64>,
    /// Wait for the recorder to connect, and to reconnect, until Ctrl-C; with a time, at most that long
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, value_parser = duration)]
    pub retry: Option<Option<Duration>>,
    /// The token for a recorder on TCP is in this file [default: FLIGHTLINE_TOKEN]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub token_file: Option<PathBuf>,
    /// Print a summary as JSON on standard output at the end
    #[arg(long)]
    pub json: bool,
    /// Print only errors and damage
    #[arg(short, long)]
    pub quiet: bool,
}

/// The outputs.
struct Places {
    file: Option<FilePlace>,
    rolling: Option<RollingPlace>,
}

impl Places {
    fn each(&mut self, mut with: impl FnMut(&mut dyn ChunkSink) -> io::Result<()>) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            with(file)?;
        }
        if let Some(rolling) = &mut self.rolling {
            with(rolling)?;
        }
        Ok(())
    }
}

impl ChunkSink for Places {
    fn begin(&mut self, most: u64) -> io::Result<()> {
        self.each(|place| place.begin(most))
    }

    fn grow(&mut self, bytes: &[u8], header: &ChunkHeader) -> io::Result<()> {
        self.each(|place| place.grow(bytes, header))
    }

    fn end(&mut self, header: &ChunkHeader, last: bool) -> io::Result<()> {
        self.each(|place| place.end(header, last))
    }
}

/// How reading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// The writer closed the stream.
    Stream,
    /// A signal requested the end.
    Told,
}

struct Collecting<'a> {
    args: &'a CollectArgs,
    signals: Signals,
    places: Places,
    collector: Collector,
    integrity: IntegrityCheck,
    progress: Progress,
    /// Number of streams that delivered data.
    streams: u64,
}

/// Collects.
pub fn run(args: &CollectArgs) -> Result<Outcome> {
    let signals = Signals::from_user()?;
    let Some(address) = stream::address(&args.input)? else {
        bail_usage!(
            "{} is not a stream: give -, a FIFO, unix:PATH or tcp:HOST:PORT; to join files or folders, use `flightline assemble`",
            shown(&args.input)
        );
    };
    let token = Token::find(args.token_file.as_deref())?;
    let mut collecting = Collecting {
        args,
        signals,
        places: places(args)?,
        collector: Collector::default(),
        integrity: IntegrityCheck::default(),
        progress: Progress::new(None),
        streams: 0,
    };
    let ended = collecting.all(&address, token.as_ref());
    // Complete the output, whatever ended the input.
    let closed = collecting.close();
    let ended = ended?;
    closed.with_context(|| cannot(args))?;
    collecting.report(ended)
}

fn cannot(args: &CollectArgs) -> String {
    let names = [&args.output, &args.repository];
    let names: Vec<String> = names.into_iter().flatten().map(|path| path.display().to_string()).collect();
    format!("cannot write {}", names.join(" or "))
}

fn places(args: &CollectArgs) -> Result<Places> {
    let rolling = match &args.repository {
        Some(root) => {
            let root = std::path::absolute(repository::expand_user(root))?;
            let limits =
                Repository { max_age: args.max_age, max_size: args.max_size, ..Repository::new(root) };
            limits.check()?;
            Some(RollingPlace::open(&limits, &args.input.to_string_lossy())?)
        }
        None => None,
    };
    let existing = match (args.append, args.force) {
        (true, _) => Existing::Append,
        (_, true) => Existing::Overwrite,
        _ => Existing::Refuse,
    };
    let limits = Limits { size: args.max_size, age: args.max_age };
    let file = args.output.as_deref().map(|path| FilePlace::open(path, existing, args.rotate, limits));
    Ok(Places { file: file.transpose()?, rolling })
}

impl Collecting<'_> {
    /// Collects one stream after the other.
    fn all(&mut self, address: &Address, token: Option<&Token>) -> Result<Ended> {
        let mut alone = Instant::now();
        let mut pause = TRIES[0];
        let mut told = false;
        // Keep a FIFO open, so that a returning writer finds a reader.
        let mut open: Option<Stream> = None;
        loop {
            let stream = match open.take() {
                Some(stream) => Ok(stream),
                None => Stream::open(address, token),
            };
            match stream {
                Ok(mut stream) => {
                    let before = self.collector.report().bytes;
                    let ended = self.pump(&mut stream)?;
                    if self.collector.report().bytes > before {
                        self.streams += 1;
                        (alone, pause, told) = (Instant::now(), TRIES[0], false);
                    }
                    if ended == Ended::Told || self.args.retry.is_none() || !stream::comes_back(address) {
                        return Ok(ended);
                    }
                    self.collector.cut(&mut self.places).with_context(|| cannot(self.args))?;
                    self.integrity.cut();
                    if matches!(address, Address::Path(_)) {
                        open = Some(stream);
                    }
                }
                Err(error) if self.args.retry.is_none() || error.kind() == io::ErrorKind::InvalidInput => {
                    return Err(error).with_context(|| format!("cannot open {}", shown(&self.args.input)));
                }
                Err(_) => {}
            }
            if self.args.retry.flatten().is_some_and(|most| alone.elapsed() >= most) {
                return Ok(Ended::Stream);
            }
            if !std::mem::replace(&mut told, true) && !self.args.quiet {
                diagnostics::note(format_args!(
                    "waiting for a recorder at {}; press Ctrl-C to stop",
                    shown(&self.args.input)
                ));
            }
            if self.signals.wait(Some(pause)).is_some() {
                return Ok(Ended::Told);
            }
            pause = (pause * 2).min(TRIES[1]);
        }
    }

    /// Reads a stream to its end.
    fn pump(&mut self, stream: &mut Stream) -> Result<Ended> {
        let mut buffer = vec![0; READ];
        let mut looked = Instant::now();
        loop {
            let got = stream.read(&mut buffer, Some(&self.signals), Duration::from_secs(60));
            match got.with_context(|| format!("cannot read {}", shown(&self.args.input)))? {
                Got::Bytes(bytes) => {
                    let bytes = buffer.get(..bytes).unwrap_or_default();
                    self.integrity.push(bytes);
                    self.collector.push(bytes, &mut self.places).with_context(|| cannot(self.args))?;
                    self.progress.at(self.collector.report().bytes);
                    if looked.elapsed() < LOOK {
                        continue;
                    }
                }
                Got::End => return Ok(Ended::Stream),
                Got::Nothing => {}
            }
            looked = Instant::now();
            if self.signals.wait(Some(Duration::ZERO)).is_some() {
                return Ok(Ended::Told);
            }
        }
    }

    fn close(&mut self) -> io::Result<()> {
        let done = self.collector.end(&mut self.places);
        if let Some(file) = &mut self.places.file {
            file.close()?;
        }
        if let Some(rolling) = &mut self.places.rolling {
            rolling.close();
        }
        done
    }

    /// Prints the summary.
    fn report(mut self, ended: Ended) -> Result<Outcome> {
        self.progress = Progress::none();
        let input = shown(&self.args.input);
        let report = self.collector.report().clone();
        if ended == Ended::Stream {
            self.integrity.cut();
        }
        // A stream that was stopped by the user is not truncated.
        let cut = report.cut - u64::from(ended == Ended::Told && report.cut > 0);
        let refused = self.places.rolling.as_ref().map_or(0, RollingPlace::refused);
        if self.args.json {
            println!("{}", self.json(&report, cut, refused));
        }
        if report.chunks == 0 && ended == Ended::Stream {
            match report.bytes {
                0 => bail!("no data received from {input}"),
                bytes => bail!("{input} is not a JFR stream: no chunk found in {}", count(bytes, "byte")),
            }
        }
        for damage in report.damage.iter().take(10) {
            diagnostics::warning(format_args!("{input}: offset {}: {}", damage.at, damage.what));
        }
        if report.damaged > 10 {
            diagnostics::warning(format_args!(
                "{input}: data is damaged at {} more offsets",
                report.damaged - 10
            ));
        }
        if report.segments_missing > 0 {
            diagnostics::warning(format_args!(
                "{input}: {} were not received",
                count(report.segments_missing, "segment")
            ));
        }
        if report.lost_bytes > 0 {
            diagnostics::warning(format_args!(
                "{input}: {} belong to no complete event; {} of damaged or truncated chunks were written",
                count(report.lost_bytes, "byte"),
                count(report.salvaged, "event")
            ));
        }
        if cut > 0 {
            diagnostics::warning(format_args!(
                "{input} ended in the middle of a chunk: the recorder was killed, or the connection was lost"
            ));
        }
        if refused > 0 {
            diagnostics::warning(format_args!("{} did not fit into the repository", count(refused, "byte")));
        }
        if !self.args.quiet {
            for lost in self.integrity.messages() {
                diagnostics::note(format_args!("lost before it was received: {lost}"));
            }
            diagnostics::note(format_args!(
                "collected {} in {} ({} checked), {} from {input}",
                count(report.events, "event"),
                count(report.chunks, "chunk"),
                count(report.segments, "segment"),
                count(report.bytes, "byte"),
            ));
        }
        let sound = report.damaged == 0 && report.segments_wrong == 0 && report.lost_bytes == 0 && cut == 0;
        Ok(if sound && refused == 0 { Outcome::Whole } else { Outcome::Partial })
    }

    fn json(&self, report: &Collected, cut: u64, refused: u64) -> serde_json::Value {
        let path =
            |path: &Option<PathBuf>| path.as_ref().map(|path: &PathBuf| Path::display(path).to_string());
        json!({
            "input": shown(&self.args.input),
            "output": path(&self.args.output),
            "repository": path(&self.args.repository),
            "streams": self.streams,
            "bytes": report.bytes,
            "bytesWritten": report.written,
            "chunks": report.chunks,
            "events": report.events,
            "segments": {
                "verified": report.segments, "wrong": report.segments_wrong, "missing": report.segments_missing,
            },
            "losses": self.integrity.json(),
            "cut": cut,
            "eventsSalvaged": report.salvaged,
            "bytesLost": report.lost_bytes,
            "damaged": report.damaged,
            "damage": report.damage.iter().map(|d| json!({"offset": d.at, "what": d.what})).collect::<Vec<_>>(),
            "bytesRefusedByRepository": refused,
        })
    }
}
