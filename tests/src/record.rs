//! Runs `flightline record` as a user would.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::recording::Recording;
use crate::run::{Finished, run};
use crate::stolen::Stolen;
use crate::truth::Truth;
use crate::victim::flightline;

/// Options of one recording. `Record::new()` records at 1 kHz to `run.jfr` in a fresh folder.
pub struct Record {
    folder: TempDir,
    options: Vec<OsString>,
    output: Option<OsString>,
    limit: Duration,
    one_processor: bool,
}

/// A finished recording.
pub struct Recorded {
    /// Status and outputs of `flightline record`.
    pub finished: Finished,
    /// The output file.
    pub path: PathBuf,
    /// Time that was stolen from the machine's processors during the run, in ns.
    pub stolen_ns: u64,
    folder: TempDir,
}

impl Default for Record {
    fn default() -> Record {
        Record::new()
    }
}

impl Record {
    /// A recording at 1 kHz with a time-out of two minutes.
    pub fn new() -> Record {
        let folder = TempDir::with_prefix("flightline-test-").unwrap();
        let limit = Duration::from_secs(120);
        Record { folder, options: Vec::new(), output: None, limit, one_processor: false }.rate(1000)
    }

    /// Samples per second of CPU time.
    pub fn rate(self, hz: u32) -> Record {
        self.option("--rate").option(hz.to_string())
    }

    /// `perf`, `perf-user`, `timer`, `itimer` or `auto`.
    pub fn engine(self, name: &str) -> Record {
        self.option("--engine").option(name)
    }

    /// Adds any other option or value.
    pub fn option(mut self, option: impl Into<OsString>) -> Record {
        self.options.push(option.into());
        self
    }

    /// Another output than `run.jfr` in the folder.
    pub fn output(mut self, path: impl Into<OsString>) -> Record {
        self.output = Some(path.into());
        self
    }

    /// The time-out.
    pub fn limit(mut self, limit: Duration) -> Record {
        self.limit = limit;
        self
    }

    /// Runs all threads of the program on one processor, the first permitted one.
    pub fn one_processor(mut self) -> Record {
        self.one_processor = true;
        self
    }

    /// The folder of this recording; removed when the value is dropped.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The path of the recording.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("run.jfr")
    }

    /// The file to which the program writes its ground truth.
    pub fn truth_path(&self) -> PathBuf {
        self.folder.path().join("truth.tsv")
    }

    /// The command, not yet started. The program runs in the folder, and its ground truth is written there.
    pub fn command(&self, program: impl AsRef<Path>, args: &[&str]) -> Command {
        let mut command = Command::new(flightline());
        let output = self.output.clone().unwrap_or_else(|| self.path().into_os_string());
        command.arg("record").args(later_wins(&self.options)).arg("-o").arg(output);
        command.arg("--");
        if self.one_processor {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let allowed = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
            let first = allowed.split(['-', ',']).next().unwrap();
            command.args(["taskset", "-c", first]);
        }
        command.arg(program.as_ref()).args(args);
        command.current_dir(self.folder.path()).env("TRUTH_FILE", self.truth_path()).stdin(Stdio::null());
        command
    }

    /// Runs it to the end.
    #[track_caller]
    pub fn run(self, program: impl AsRef<Path>, args: &[&str]) -> Recorded {
        let stolen = Stolen::from_now();
        let finished = run(&mut self.command(program, args), self.limit);
        let path = self.path();
        Recorded { finished, path, stolen_ns: stolen.ns(), folder: self.folder }
    }
}

/// `--rate 1000 --rate 99` → `--rate 99`: a later option replaces the same earlier one.
fn later_wins(options: &[OsString]) -> Vec<OsString> {
    let mut out: Vec<OsString> = Vec::new();
    let mut rest = options.iter();
    while let Some(option) = rest.next() {
        if option == "--rate" || option == "--engine" {
            if let Some(at) = out.iter().position(|o| o == option) {
                out.drain(at..at + 2);
            }
            out.push(option.clone());
            out.extend(rest.next().cloned());
        } else {
            out.push(option.clone());
        }
    }
    out
}

impl Recorded {
    /// Reads the program's ground truth.
    #[track_caller]
    pub fn truth(&self) -> Truth {
        Truth::read(&self.folder.path().join("truth.tsv"))
    }

    /// The recording by our reader.
    #[track_caller]
    pub fn read(&self) -> Recording {
        let recording =
            Recording::read(&self.path).unwrap_or_else(|e| panic!("{e}\n{}", self.finished.stderr));
        assert!(recording.warnings.is_empty(), "our reader warns of our recording: {:?}", recording.warnings);
        recording
    }

    /// Panics unless the program's status is `code`.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Recorded {
        assert_eq!(self.finished.code(), code, "{}", self.finished.stderr);
        self
    }
}
