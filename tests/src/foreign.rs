//! The foreign JFR readers of `tests/readers`: built once, then run on recordings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use crate::canonical::time_of;
use crate::run::{Finished, run, spawn};
use crate::{skip, victim};

/// Readers that print canonical lines with OS thread ids.
pub const EXACT: [&str; 4] = ["jdk17", "jdk25", "go", "jfrs"];

/// All readers that print canonical lines.
pub const ALL: [&str; 6] = ["jdk17", "jdk25", "jmc", "converter", "go", "jfrs"];

fn script(name: &str) -> Command {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("readers").join(name));
    command.env("CARGO_TARGET_DIR", victim::target_dir()).stdin(Stdio::null());
    command
}

/// Builds the readers. Returns false if they are not available here; prints SKIPPED, and fails in CI.
#[track_caller]
pub fn ready() -> bool {
    static BUILT: OnceLock<Result<(), String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let build = run(&mut script("build.sh"), Duration::from_secs(900));
        if build.status.success() { Ok(()) } else { Err(build.stderr) }
    });
    if let Err(why) = built {
        let ci = std::env::var_os("CI").is_some();
        assert!(!ci, "the foreign readers cannot be built, which CI must:\n{why}");
        skip::skip(&format!("no foreign readers here:\n{why}"));
    }
    built.is_ok()
}

/// Returns the home of a JDK of that feature release; prints SKIPPED and returns `None` if there is none.
#[track_caller]
pub fn jdk(release: u32) -> Option<PathBuf> {
    let find = format!(". readers/env.sh && find_jdk {release}");
    let mut bash = Command::new("bash");
    bash.args(["-c", &find]).current_dir(env!("CARGO_MANIFEST_DIR"));
    let found = run(&mut bash, Duration::from_secs(30));
    if !found.status.success() {
        skip::skip(&format!("no JDK {release}: {}", found.stderr));
        return None;
    }
    Some(PathBuf::from(found.stdout_text().trim()))
}

/// Returns a command for `tool`, a JDK's `jfr`. For short runs at the same time as other work, the serial
/// collector and the C1 compiler are the cheapest.
pub fn jfr(tool: &Path) -> Command {
    let mut command = Command::new(tool);
    command.args(["-J-XX:+UseSerialGC", "-J-XX:TieredStopAtLevel=1"]);
    command
}

/// Panics unless all readers see the same samples in each file; returns the printed tables.
#[track_caller]
pub fn agree(files: &[&Path]) -> String {
    let mut command = script("run.sh");
    command.arg("--compare").args(files);
    let done = run(&mut command, Duration::from_secs(600));
    assert!(done.status.success(), "{}{}", done.stdout_text(), done.stderr);
    done.stdout_text()
}

/// Returns the canonical lines of one reader, sorted by bytes. `Err` contains the reader's error message.
pub fn lines(reader: &str, file: &Path) -> Result<Vec<String>, String> {
    let done = output(&["--lines", reader], file);
    if !done.status.success() {
        return Err(done.stderr);
    }
    let mut lines: Vec<String> = done.stdout_text().lines().map(str::to_owned).collect();
    lines.sort_unstable();
    Ok(lines)
}

/// Runs a reader on each file and returns its lines, sorted by bytes, with the weights of the samples.
/// Readers that are slow to start get all files in one process. `Err` contains the reader's error for that
/// file.
#[track_caller]
pub fn each(reader: &str, files: &[&Path]) -> Vec<Result<Vec<String>, String>> {
    let out = tempfile::tempdir().unwrap();
    let mut command = script("run.sh");
    command.args(["--each", reader]).arg(out.path()).args(files);
    run(&mut command, Duration::from_secs(300)).expect_success("run.sh --each");
    let of = |number: usize| {
        let error = std::fs::read_to_string(out.path().join(format!("{number}.error")));
        if let Ok(error) = error {
            return Err(error);
        }
        let text = std::fs::read_to_string(out.path().join(number.to_string())).map_err(|e| e.to_string())?;
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        Ok(lines)
    };
    (0..files.len()).map(of).collect()
}

/// Returns the values of the events of one type by field, as JDK Mission Control reads them.
#[track_caller]
pub fn fields(ty: &str, file: &Path) -> Vec<BTreeMap<String, String>> {
    let done = output(&["--fields", ty], file).expect_success("run.sh --fields");
    let mut events: Vec<BTreeMap<String, String>> = Vec::new();
    for line in done.stdout_text().lines() {
        let mut cells = line.splitn(3, '\t').map(str::to_owned);
        let mut cell = || cells.next().expect("three cells");
        let number: usize = cell().parse().expect("the number of the event");
        events.resize_with(events.len().max(number + 1), BTreeMap::new);
        events[number].insert(cell(), cell());
    }
    events
}

/// Events per type name, as JDK 25 counts them.
#[track_caller]
pub fn types(file: &Path) -> BTreeMap<String, u64> {
    let done = output(&["--types"], file).expect_success("run.sh --types");
    done.stdout_text()
        .lines()
        .map(|line| {
            let (name, count) = line.split_once('\t').expect("name and count");
            (name.to_owned(), count.parse().expect("a count"))
        })
        .collect()
}

fn output(options: &[&str], file: &Path) -> Finished {
    run(script("run.sh").args(options).arg(file), Duration::from_secs(300))
}

/// Runs a live `EventStream` of that JDK on a growing file or a repository folder. It ends by itself or after
/// `limit`.
#[track_caller]
pub fn follow(jdk: &str, what: Followed<'_>, limit: Duration) -> Child {
    let (kind, path) = match what {
        Followed::File(path) => ("file", path),
        Followed::Repository(path) => ("repository", path),
    };
    let mut command = script("run.sh");
    command.args(["--follow", jdk, kind]).arg(path).arg(limit.as_secs().to_string());
    spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
}

/// The input of a live stream.
#[derive(Clone, Copy, Debug)]
pub enum Followed<'a> {
    /// One growing recording: `EventStream.openFile`.
    File(&'a Path),
    /// A folder of recordings: `EventStream.openRepository`.
    Repository(&'a Path),
}

/// The demonstration of the writer: the same events as a patched file and as the bytes of a pipe.
#[track_caller]
pub fn write_demo() -> Command {
    static EXAMPLE: OnceLock<PathBuf> = OnceLock::new();
    Command::new(EXAMPLE.get_or_init(|| victim::example("write_demo")))
}

/// A line of [`follow`]'s output: when the event was delivered (ns since 1970), and its canonical line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Nanoseconds since 1970.
    pub at_ns: i64,
    /// The canonical line.
    pub line: String,
}

/// The results of [`follow`].
#[derive(Clone, Debug, Default)]
pub struct Stream {
    /// Events in the order of delivery.
    pub events: Vec<Delivered>,
    /// The stream ended by itself.
    pub closed: bool,
}

impl Stream {
    /// Parses the output of a finished [`follow`].
    pub fn parse(text: &str) -> Stream {
        let mut stream = Stream::default();
        for line in text.lines() {
            if let Some(end) = line.strip_prefix("# ") {
                stream.closed = end.starts_with("closed");
                continue;
            }
            let (at, line) = line.split_once('\t').expect("time and line");
            stream.events.push(Delivered { at_ns: at.parse().expect("a time"), line: line.to_owned() });
        }
        stream
    }

    /// The delays from sampling to delivery, in ns, ascending.
    pub fn delays(&self) -> Vec<i64> {
        let mut delays: Vec<i64> = self.events.iter().map(|e| e.at_ns - time_of(&e.line)).collect();
        delays.sort_unstable();
        delays
    }

    /// Canonical lines, sorted by bytes.
    pub fn sorted(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.events.iter().map(|e| e.line.clone()).collect();
        lines.sort_unstable();
        lines
    }
}
