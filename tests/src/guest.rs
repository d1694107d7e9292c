//! Guest tests: a program must print the same and end the same with a recorder, whatever it records.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use crate::record::Record;
use crate::run::run;
use crate::victim::flightline;

/// The time-out of one run.
pub const LIMIT: Duration = Duration::from_secs(120);

/// The cases of `guest_signals.c`.
pub const SIGNALS: &[&[&str]] = &[
    &["handler-prof"],
    &["handler-trap"],
    &["itimer"],
    &["default-prof"],
    &["default-trap"],
    &["masks"],
    &["pending-prof"],
    &["pending-trap"],
    &["pending-prof-late"],
    &["pending-trap-late"],
    &["wait-prof"],
    &["wait-trap"],
    &["signal-thread"],
    &["suspend-prof"],
    &["suspend-trap"],
    &["signalfd-prof"],
    &["signalfd-trap"],
    &["longjmp"],
    &["flags-prof"],
    &["flags-trap"],
    &["stack-own"],
    &["stack-alternate"],
    &["stack-tiny"],
    &["int3"],
    &["int3-handled"],
    &["int3-ignored"],
    &["int3-blocked"],
    &["inherit"],
    &["interrupt"],
    &["interrupt-prof"],
    &["interrupt-trap"],
    &["unused-handlers"],
];

/// The cases of `guest_threads.c`; two of them open and close the modules.
pub fn threads<'a>(first: &'a str, second: &'a str) -> Vec<Vec<&'a str>> {
    let alone = [
        "many",
        "crowd",
        "ends",
        "main-leaves",
        "errno",
        "interrupted",
        "coroutines",
        "deep",
        "floats",
        "red-zone",
        "attribute-masks",
    ];
    let with_modules = ["modules", "dl-threads"].map(|case| vec![case, first, second]);
    alone.map(|case| vec![case]).into_iter().chain(with_modules).collect()
}

/// A way to record: a name for messages, and options of `flightline record`.
#[derive(Clone, Debug)]
pub struct Mode {
    /// The name in messages.
    pub name: &'static str,
    options: Vec<String>,
}

impl Mode {
    fn new(name: &'static str, options: &[&str]) -> Mode {
        Mode { name, options: options.iter().map(|o| (*o).to_owned()).collect() }
    }

    /// A recording in this mode.
    pub fn record(&self) -> Record {
        self.options.iter().fold(Record::new().limit(LIMIT), |record, option| record.option(option))
    }
}

/// CPU time alone at 10 kHz, with each of its engines.
pub fn cpu_modes() -> Vec<Mode> {
    ["perf", "perf-user", "timer", "itimer"]
        .map(|engine| Mode::new(engine, &["--rate", "10000", "--engine", engine]))
        .to_vec()
}

/// With the default options.
pub fn default_mode() -> Mode {
    Mode::new("default", &[])
}

/// Preloaded and ready, but not recorded.
pub fn dormant_mode() -> Mode {
    Mode::new("dormant", &["--dormant"])
}

/// With a hook for every signal that ends a process.
pub fn fatal_modes() -> Vec<Mode> {
    ["auto", "timer"]
        .map(|engine| Mode::new("fatal signals", &["--engine", engine, "--fatal-signals", "on"]))
        .to_vec()
}

/// Every engine that this machine supports at once, at high rates.
pub fn everything() -> Vec<Mode> {
    static EVENTS: OnceLock<Vec<&str>> = OnceLock::new();
    let events = EVENTS.get_or_init(|| {
        let all = [
            "cpu@100us",
            "wall@1ms",
            "alloc@1k",
            "live",
            "lock@1us",
            "io@1us",
            "throw",
            "metrics",
            "page-faults@1",
            "context-switches@1",
        ];
        let works = |event: &str| {
            let mut command = Command::new(flightline());
            command.args(["record", "-q", "-o", "/dev/null", "-e", event, "--", "/bin/true"]);
            let finished = run(command.stdin(Stdio::null()), LIMIT);
            if !finished.status.success() {
                eprintln!("*** {event} is not recorded here: {}", finished.stderr.trim_end());
            }
            finished.status.success()
        };
        all.into_iter().filter(|event| works(event)).collect()
    });
    assert!(events.len() >= 4, "hardly an engine works here: {events:?}");
    let list = events.join(",");
    vec![
        Mode::new("everything with perf", &["--engine", "auto", "-e", &list]),
        Mode::new("everything with timers", &["--engine", "timer", "-e", &list]),
    ]
}

/// The environment variable that runs every case in every mode. `.ci/long guests` sets it.
const EVERY_MODE: &str = "FLIGHTLINE_EVERY_MODE";

/// Runs `program args` alone and in other modes, which alternate from case to case; panics with all
/// differences.
#[track_caller]
pub fn same(program: &Path, cases: &[&[&str]], modes: &[Mode]) {
    let all = modes.len() == 1 || std::env::var_os(EVERY_MODE).is_some();
    let mut wrong = Vec::new();
    for (number, args) in cases.iter().enumerate() {
        let alone = run(Command::new(program).args(*args).stdin(Stdio::null()), LIMIT);
        assert_ne!(alone.code(), 64, "{args:?} is no case of the program");
        let turns = (0..modes.len()).filter(|turn| all || (turn + number).is_multiple_of(2));
        for mode in turns.filter_map(|turn| modes.get(turn)) {
            let recorded = mode.record().run(program, args);
            let finished = &recorded.finished;
            if finished.code() != alone.code() || finished.stdout != alone.stdout {
                wrong.push(format!(
                    "{args:?} under {}: status {} instead of {}\n{}{}",
                    mode.name,
                    finished.code(),
                    alone.code(),
                    differences(&alone.stdout_text(), &finished.stdout_text()),
                    finished.stderr
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong.join("\n"));
}

/// The first lines that differ.
fn differences(alone: &str, recorded: &str) -> String {
    let mut lines = String::new();
    let (mut a, mut b) = (alone.lines(), recorded.lines());
    for _ in 0..12 {
        let Some((left, right)) = std::iter::from_fn(|| match (a.next(), b.next()) {
            (None, None) => None,
            pair => Some(pair),
        })
        .find(|(left, right)| left != right) else {
            break;
        };
        lines += &format!("alone: {}\nrecorded: {}\n", left.unwrap_or("(end)"), right.unwrap_or("(end)"));
    }
    lines
}
