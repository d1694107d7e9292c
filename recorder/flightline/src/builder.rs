//! The settings of a recording.
//!
//! [`Builder`] makes the recorder's `Settings`. If the recorder runs in a process of its own,
//! `recorder/src/run/drain_options.rs` passes them to it as options; a test in `consumer/cli/src/record/drain.rs`
//! checks that both ways give the same settings.

use std::{net::SocketAddr, ops::RangeInclusive, path::PathBuf, time::Duration};

use flightline_recorder::{
    Engine, Recorder, Settings, settings::Spans, settings::ThreadSelection, settings::schedule::Trigger,
};

use crate::{Dumps, Error, Event, Output, Recording, Repository, output::absolute};

/// How CPU time is sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CpuEngine {
    /// The best one that the kernel permits.
    #[default]
    Auto,
    /// `perf_event_open`, including time in the kernel.
    Perf,
    /// `perf_event_open` without time in the kernel, which a timer samples.
    PerfUser,
    /// A CPU-time timer for each thread.
    Timer,
    /// One CPU-time timer for the process. It cannot be combined with [`Event::Wall`].
    ProcessTimer,
}

/// The spans and scopes of the program to record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpanRecording {
    /// None, and samples have no span.
    Off,
    /// Spans with at least one sample, and all scopes.
    #[default]
    Sampled,
    /// All spans and scopes.
    All,
}

/// Selects threads by name or id.
///
/// ```
/// use flightline::Threads;
/// let threads = Threads::new().named("^worker-[0-9]+$").ids(17..=20);
/// # let _ = flightline::Builder::new().threads(threads);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Threads {
    patterns: Vec<String>,
    ids: Vec<RangeInclusive<u32>>,
}

impl Threads {
    /// Selects no threads.
    pub fn new() -> Threads {
        Threads::default()
    }

    /// Adds the threads with a part of their name that matches a regular expression, in the syntax of the crate `regex`. Names are read once a
    /// second.
    pub fn named(mut self, pattern: impl Into<String>) -> Threads {
        self.patterns.push(pattern.into());
        self
    }

    /// Adds the threads with a thread id (`gettid`) in this range.
    pub fn ids(mut self, ids: RangeInclusive<u32>) -> Threads {
        self.ids.push(ids);
        self
    }
}

/// A recording of this process that has not started. By default, CPU time is recorded with 99 samples per second into
/// `flightline.jfr`. Values are checked by [`Builder::start`].
#[derive(Clone, Debug)]
#[must_use = "a recording begins with `start`"]
pub struct Builder {
    settings: Settings,
    events: Option<Vec<Event>>,
    rate: Option<f64>,
    flush: Option<Duration>,
    threads: Option<Threads>,
    dumps: Option<Dumps>,
    output: Output,
    helper: Option<PathBuf>,
    in_process: bool,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder::new()
    }
}

impl Builder {
    /// Returns a recording with default settings.
    pub fn new() -> Builder {
        Builder {
            settings: Settings::default(),
            events: None,
            rate: None,
            flush: None,
            threads: None,
            dumps: None,
            output: Output::File("flightline.jfr".into()),
            helper: None,
            in_process: false,
        }
    }

    /// Sets the destination of the recording: a path or an [`Output`]. Default: the file `flightline.jfr`.
    pub fn output(mut self, output: impl Into<Output>) -> Builder {
        self.output = output.into();
        self
    }

    /// Records into a rolling repository: [`Output::Repository`].
    pub fn repository(self, repository: Repository) -> Builder {
        self.output(repository)
    }

    /// Overwrites an output file that exists. Otherwise it is renamed to `NAME.old`.
    pub fn overwrite(mut self) -> Builder {
        self.settings.output.overwrite = true;
        self
    }

    /// Selects the events to record, instead of CPU time alone. The last call counts.
    pub fn events(mut self, events: impl IntoIterator<Item = Event>) -> Builder {
        self.events = Some(events.into_iter().collect());
        self
    }

    /// Sets the samples per second of CPU time, 1 to 10,000; default 99. Replaces the interval of
    /// [`Event::Cpu`].
    pub fn rate(mut self, rate: f64) -> Builder {
        self.rate = Some(rate);
        self
    }

    /// Sets how CPU time is sampled; default [`CpuEngine::Auto`].
    pub fn engine(mut self, engine: CpuEngine) -> Builder {
        self.settings.cpu.engine = match engine {
            CpuEngine::Auto => Engine::Auto,
            CpuEngine::Perf => Engine::Perf,
            CpuEngine::PerfUser => Engine::PerfUser,
            CpuEngine::Timer => Engine::Timer,
            CpuEngine::ProcessTimer => Engine::ProcessTimer,
        };
        self
    }

    /// Limits the cost of recording to a share of the program's CPU time, or of one processor if the program
    /// uses less: 0.0001 to 0.5, so that 0.005 is half a percent. While the cost is higher, the intervals get
    /// longer.
    pub fn budget(mut self, share: f64) -> Builder {
        self.settings.cost.budget = Some(share);
        self
    }

    /// Limits the frames of a stack, 1 to 2,048; default 1,024.
    pub fn depth(mut self, frames: u32) -> Builder {
        self.settings.stacks.depth = frames;
        self
    }

    /// Records only these threads. Default: all, including those that start later, within about 10 ms of
    /// their start.
    pub fn threads(mut self, threads: Threads) -> Builder {
        self.threads = Some(threads);
        self
    }

    /// Does not record processes that this one starts.
    pub fn without_children(mut self) -> Builder {
        self.settings.processes.follow = false;
        self
    }

    /// Sets which spans and scopes are recorded; default [`SpanRecording::Sampled`].
    pub fn spans(mut self, spans: SpanRecording) -> Builder {
        self.settings.spans = match spans {
            SpanRecording::Off => Spans::Off,
            SpanRecording::Sampled => Spans::Sampled,
            SpanRecording::All => Spans::All,
        };
        self
    }

    /// Adds a label of the recording to those that the recorder detects: host, service, version and
    /// container. A name has 1 to 63 letters, digits or `._-/`; a value at most 1,024 bytes without commas
    /// and control characters. At most 32 labels are recorded.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Builder {
        self.settings.processes.labels.push((name.into(), value.into()));
        self
    }

    /// Does not record the arguments of the program.
    pub fn redact_arguments(mut self) -> Builder {
        self.settings.processes.redact_args = true;
        self
    }

    /// Records a last sample of every thread when a signal such as SIGSEGV ends the program. Default: only in a repository.
    pub fn fatal_signals(mut self, on: bool) -> Builder {
        self.settings.processes.fatal_signals = Some(on);
        self
    }

    /// Records the addresses of frames instead of source lines and inlined functions, for `flightline annotate --asm`.
    pub fn addresses(mut self) -> Builder {
        self.settings.stacks.addresses = true;
        self
    }

    /// Merges CPU time samples with equal stacks over this time, 1 s to 1 h, and writes them as one event.
    /// Files become about ten times smaller; source lines and inlined functions are not recorded. It cannot
    /// be combined with [`Event::Wall`].
    pub fn aggregate(mut self, time: Duration) -> Builder {
        self.settings.cpu.aggregate = Some(time);
        self
    }

    /// With [`Builder::aggregate`]: records source lines and inlined functions, so that stacks that differ in
    /// them are not merged.
    pub fn aggregate_lines(mut self) -> Builder {
        self.settings.cpu.aggregate_lines = true;
        self
    }

    /// Sets the time between two flushes, 10 ms to 10 min, after which a reader sees a sample at the latest.
    /// Default 1 s, or the time of [`Builder::aggregate`].
    pub fn flush_interval(mut self, time: Duration) -> Builder {
        self.flush = Some(time);
        self
    }

    /// Synchronizes each flush with the disk (`fdatasync`), so that a power failure loses at most the data
    /// since the last flush.
    pub fn sync(mut self) -> Builder {
        self.settings.output.sync = true;
        self
    }

    /// Sets the memory of each process for samples that the recorder has not read yet, in bytes: a power of
    /// two, 64 KiB to 256 MiB. Default: 128 KiB to 16 MiB, by rate and number of processors.
    pub fn ring_size(mut self, bytes: u64) -> Builder {
        self.settings.cost.ring_bytes = Some(bytes);
        self
    }

    /// For streams: limits the bytes that can wait for a reader, 256 KiB to 1 GiB; default 8 MiB. All readers
    /// together have four times that.
    pub fn queue_size(mut self, bytes: usize) -> Builder {
        self.settings.output.stream.queue_bytes = bytes;
        self
    }

    /// For streams: sets the size of the pipe or of a socket's send buffer in bytes, 4 KiB to 1 GiB; default:
    /// the kernel's.
    pub fn pipe_size(mut self, bytes: usize) -> Builder {
        self.settings.output.stream.pipe_bytes = Some(bytes);
        self
    }

    /// Starts to record this long after [`Builder::start`].
    pub fn delay(mut self, time: Duration) -> Builder {
        self.settings.schedule.delay = Some(time);
        self
    }

    /// Ends the recording this long after it started. The program continues.
    pub fn duration(mut self, time: Duration) -> Builder {
        self.settings.schedule.duration = Some(time);
        self
    }

    /// Starts to record when this file appears.
    pub fn start_on_file(mut self, path: impl Into<PathBuf>) -> Builder {
        self.settings.schedule.start_on = Some(Trigger::File(path.into()));
        self
    }

    /// Ends the recording when this file appears.
    pub fn stop_on_file(mut self, path: impl Into<PathBuf>) -> Builder {
        self.settings.schedule.stop_on = Some(Trigger::File(path.into()));
        self
    }

    /// Copies the last minutes of the recording under certain conditions.
    pub fn dumps(mut self, dumps: Dumps) -> Builder {
        self.dumps = Some(dumps);
        self
    }

    /// Writes metrics of the recorder to this file every ten seconds, for the text file collector of Prometheus.
    pub fn metrics_file(mut self, path: impl Into<PathBuf>) -> Builder {
        self.settings.metrics.exposition.file = Some(path.into());
        self
    }

    /// Serves metrics of the recorder at `http://ADDRESS/metrics`.
    pub fn metrics_listen(mut self, address: SocketAddr) -> Builder {
        self.settings.metrics.exposition.listen = Some(address);
        self
    }

    /// Sets the `flightline` program that writes the recording. Default: `FLIGHTLINE_BIN`, then in the folder
    /// of this program, then on `PATH`. If there is none, a thread of this process writes the recording.
    pub fn helper(mut self, program: impl Into<PathBuf>) -> Builder {
        self.helper = Some(program.into());
        self
    }

    /// Writes the recording in a thread of this process, which blocks all signals.
    pub fn in_process(mut self) -> Builder {
        self.in_process = true;
        self
    }

    /// Starts to record all existing threads and those that start later. Returns a guard.
    ///
    /// # Errors
    /// [`Error::Setting`]: a setting is out of range. [`Error::Io`]: the output cannot be written, the
    /// recorder does not start, or this process is already being recorded.
    pub fn start(self) -> Result<Recording, Error> {
        let settings = self.to_settings()?;
        let mut builder = Recorder::builder().settings(settings);
        builder = match &self.output {
            Output::Repository(repository) => builder.repository(repository.to_recorder()),
            output => builder.output(output.to_address()?.0),
        };
        if let Some(program) = self.helper {
            builder = builder.helper(program);
        }
        // The recorder's process does not inherit descriptors.
        if self.in_process || matches!(self.output, Output::Descriptor(_)) {
            builder = builder.in_process();
        }
        builder.start().map(Recording).map_err(Error::from_recorder)
    }

    /// Returns the settings of the recorder.
    fn to_settings(&self) -> Result<Settings, Error> {
        let mut settings = self.settings.clone();
        if let Some(aggregate) = settings.cpu.aggregate {
            settings.output.flush = aggregate;
            // Metrics every second would take more bytes than the samples.
            settings.metrics.interval = Some(aggregate);
        }
        if let Some(events) = &self.events {
            settings = settings.without_engines();
            events.iter().cloned().try_for_each(|event| event.select(&mut settings))?;
        }
        if let Some(rate) = self.rate {
            settings.cpu.period = Settings::period_for_rate(rate).map_err(Error::from_recorder)?;
        }
        if let Some(flush) = self.flush {
            settings.output.flush = flush;
        }
        if let Some(threads) = &self.threads {
            let mut selection = ThreadSelection::default();
            threads.ids.iter().cloned().for_each(|ids| selection.add_ids(ids));
            let mut added = threads.patterns.iter().map(|pattern| selection.add_pattern(pattern));
            added.try_for_each(|result| result.map_err(Error::from_recorder))?;
            settings.processes.threads = Some(selection);
        }
        settings.output.dumps = self.dumps.as_ref().map(Dumps::to_policy).transpose()?;
        settings.output.stream.token = self.output.to_address()?.1;
        settings.output.stream.anywhere = matches!(self.output, Output::Tcp { allow_remote: true, .. });
        // The recorder's process can have another working directory.
        if let Some(path) = &mut settings.metrics.exposition.file {
            *path = absolute(path)?;
        }
        let schedule = &mut settings.schedule;
        for trigger in [&mut schedule.start_on, &mut schedule.stop_on].into_iter().flatten() {
            if let Trigger::File(path) = trigger {
                *path = absolute(path)?;
            }
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_replace_cpu_time() {
        let settings = Builder::new().to_settings().unwrap();
        assert!(settings.cpu.enabled && settings.wall.is_none());
        assert_eq!(Event::CPU, Event::Cpu(settings.cpu.period));
        let events = [
            Event::WALL,
            Event::METRICS,
            Event::perf("page-faults").with_period(7),
            Event::library_function("libc.so.6", "malloc", Duration::from_millis(1)),
        ];
        let settings = Builder::new().events(events).to_settings().unwrap();
        assert!(!settings.cpu.enabled);
        assert_eq!(settings.spec(), "wall@50ms,metrics@1s,page-faults@7");
        assert_eq!(settings.calls.trace[0].function, "libc.so.6:malloc");
    }

    #[test]
    fn aggregated_samples_are_flushed_when_they_are_written() {
        let minute = Duration::from_secs(60);
        let aggregated = Builder::new().aggregate(minute);
        let settings = aggregated.clone().to_settings().unwrap();
        assert_eq!((settings.output.flush, settings.metrics.interval), (minute, Some(minute)));
        let settings = aggregated.events([Event::CPU, Event::METRICS]).flush_interval(minute / 2);
        let settings = settings.to_settings().unwrap();
        assert_eq!((settings.output.flush, settings.metrics.interval), (minute / 2, Some(minute / 60)));
    }

    #[test]
    fn errors_name_the_invalid_setting() {
        let address = "127.0.0.1:0".parse().unwrap();
        let name = |builder: Builder| match builder.in_process().start().map(drop) {
            Err(Error::Setting { name, .. }) => name,
            other => panic!("{other:?}"),
        };
        assert_eq!(name(Builder::new().rate(0.1)), "rate");
        assert_eq!(name(Builder::new().depth(0)), "depth");
        assert_eq!(name(Builder::new().threads(Threads::new().named("("))), "threads");
        assert_eq!(name(Builder::new().label("a b", "")), "label");
        assert_eq!(name(Builder::new().output(Output::tcp(address, ""))), "token");
        assert_eq!(name(Builder::new().queue_size(1)), "queue-size");
        assert_eq!(name(Builder::new().events([Event::Cpu(Duration::ZERO)])), "interval");
        assert_eq!(name(Builder::new().repository(Repository::new("/x").max_size(1))), "max-size");
        let dumps = Dumps::new("/x").on(crate::DumpCondition::Cpu(f64::NAN, Duration::from_secs(1)));
        assert_eq!(name(Builder::new().dumps(dumps)), "dump-on");
    }

    #[test]
    fn file_output_is_never_parsed_as_address() {
        let (path, token) = Output::from("unix:x").to_address().unwrap();
        assert!(path.is_absolute() && token.is_none());
        let (path, token) = Output::tcp("127.0.0.1:4711".parse().unwrap(), "t").to_address().unwrap();
        assert_eq!((path.to_str(), token.is_some()), (Some("tcp:127.0.0.1:4711"), true));
    }
}
