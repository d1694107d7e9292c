//! The settings of a recording as options of `flightline drain`.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
    time::Duration,
};

use crate::{
    output::{dump::Condition, dump::Policy, sink::stream},
    settings::{
        ExpositionSettings, Settings, Spans, schedule::Schedule, schedule::Trigger, units::format_duration,
    },
};

/// Returns the options with which `flightline drain` records with `settings`. Omits settings without an
/// option: the token of a stream, which is passed in the environment, and those for recording from outside.
pub fn drain_options(settings: &Settings) -> Vec<OsString> {
    let mut options = Options::default();
    let events = settings.spec();
    if !events.is_empty() {
        options.value("event", events);
    }
    for trace in &settings.calls.trace {
        options.value("trace", format!("{}:{}", trace.function, format_duration(trace.threshold)));
    }
    options.value("engine", settings.cpu.engine.name());
    options.value("depth", settings.stacks.depth.to_string());
    options.duration("live-interval", Some(settings.alloc.live_interval));
    options.duration("flush", Some(settings.output.flush));
    options.duration("aggregate", settings.cpu.aggregate);
    if let Some(share) = settings.cost.budget {
        options.value("budget", format!("{}%", share * 100.0));
    }
    if let Some(bytes) = settings.cost.ring_bytes {
        options.value("ring-size", bytes.to_string());
    }
    if let Some(fatal_signals) = settings.processes.fatal_signals {
        options.value("fatal-signals", if fatal_signals { "on" } else { "off" });
    }
    options.value(
        "spans",
        match settings.spans {
            Spans::Off => "off",
            Spans::Sampled => "sampled",
            Spans::All => "all",
        },
    );
    for text in settings.processes.threads.iter().flat_map(|threads| threads.texts()) {
        options.value("only-thread", text);
    }
    for (name, value) in &settings.processes.labels {
        options.value("label", format!("{name}={value}"));
    }
    options.flag("aggregate-lines", settings.cpu.aggregate_lines);
    options.flag("addresses", settings.stacks.addresses);
    options.flag("sync", settings.output.sync);
    options.flag("force", settings.output.overwrite);
    options.flag("no-follow", !settings.processes.follow);
    options.flag("redact-args", settings.processes.redact_args);
    options.flag("measure", settings.cost.measure);
    options.exposition(&settings.metrics.exposition);
    options.stream(&settings.output.stream);
    options.schedule(&settings.schedule);
    if let Some(policy) = &settings.output.dumps {
        options.dumps(policy);
    }
    options.0
}

/// Options in the form `--name=value`, because a value may begin with a hyphen.
#[derive(Default)]
struct Options(Vec<OsString>);

impl Options {
    fn value(&mut self, name: &str, value: impl AsRef<OsStr>) {
        let mut option = OsString::from(format!("--{name}="));
        option.push(value);
        self.0.push(option);
    }

    fn duration(&mut self, name: &str, value: Option<Duration>) {
        if let Some(value) = value {
            self.value(name, format_duration(value));
        }
    }

    fn path(&mut self, name: &str, value: Option<&Path>) {
        if let Some(value) = value {
            self.value(name, value);
        }
    }

    fn flag(&mut self, name: &str, on: bool) {
        if on {
            self.0.push(format!("--{name}").into());
        }
    }

    fn exposition(&mut self, places: &ExpositionSettings) {
        self.path("metrics-file", places.file.as_deref());
        if let Some(address) = places.listen {
            self.value("metrics-listen", address.to_string());
        }
    }

    fn stream(&mut self, stream: &stream::Options) {
        self.value("queue-size", stream.queue_bytes.to_string());
        if let Some(bytes) = stream.pipe_bytes {
            self.value("pipe-size", bytes.to_string());
        }
        self.flag("listen-anywhere", stream.anywhere);
    }

    fn schedule(&mut self, schedule: &Schedule) {
        self.duration("delay", schedule.delay);
        self.duration("duration", schedule.duration);
        self.trigger("start-on", schedule.start_on.as_ref());
        self.trigger("stop-on", schedule.stop_on.as_ref());
    }

    fn trigger(&mut self, name: &str, trigger: Option<&Trigger>) {
        match trigger {
            Some(Trigger::Signal(signal)) => self.value(name, signal.as_str()),
            Some(Trigger::File(path)) => self.value(name, path),
            None => {}
        }
    }

    fn dumps(&mut self, policy: &Policy) {
        self.value("dump-dir", &policy.dir);
        for condition in &policy.on {
            self.value("dump-on", condition_text(condition));
        }
        if let Some(signal) = policy.signal {
            self.value("dump-signal", signal.as_str());
        }
        self.duration("dump-last", policy.last);
        self.duration("dump-every", Some(policy.every));
        self.value("dump-keep", policy.keep.to_string());
    }
}

/// Returns the condition in the syntax of its parser. Its `Display` prints times as Rust does, which the
/// parser may not accept.
fn condition_text(condition: &Condition) -> String {
    match condition {
        Condition::Cpu(percent, over) => format!("cpu>{percent}%/{}", format_duration(*over)),
        Condition::Stuck(time) => format!("stuck>{}", format_duration(*time)),
        other => other.to_string(),
    }
}
