//! `flightline dump`: saves the last part of a recording while it continues.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueHint};
use flightline_consumer::cut::part;
use flightline_recorder::control::{Condition, Finder, TargetProcess, ask_within};
use flightline_recorder::dump::{Chunks, Dumped, files};
use flightline_recorder::repository::Owner;
use flightline_recorder::settings::units::duration;
use flightline_recorder::settings::units::format_bytes;
use flightline_recorder::{path_for_process, session};
use jfr_format::edit::{self, Part, Source};
use serde_json::{Value, json};

use crate::Outcome;
use crate::diagnostics::{self, count};
use crate::discovery::{processes, targets};
use crate::edit::cut;
use crate::input::unfinished;
use crate::output::{is_stdout, refuse_existing, refuse_input, whole};
use crate::usage_error::bail_usage;

pub const EXAMPLES: &str = "\
Examples:
  flightline dump -p 4711 -o out.jfr               everything stored for this process and its children
  flightline dump -p nginx --last 30s -o out.jfr   exactly the last 30 seconds
  flightline dump /var/lib/fl --last 1m -o out.jfr the last minute of all processes of a repository
  flightline dump -p $RECORDER -o 'out-%p.jfr'     one file per process that this flightline process records
  flightline dump /var/lib/fl/2026_11_21_15_07_41_4711 -o out.jfr    one process of a repository, even if it has ended

The recording continues. The output is a standard recording with one or more chunks, of one or more \
processes. PID is a recorded program or the flightline process that records it. Recordings of killed \
recorders are completed first.

Exit status: 0 for success; 1 for an error, or if some data could not be copied.";

/// Time for the recorder to write its data.
const PATIENCE: Duration = Duration::from_secs(10);

/// Arguments of `dump`.
#[derive(Debug, Args)]
pub struct DumpArgs {
    /// The program, by PID or name, or the flightline process that records it
    #[arg(short, long, value_name = "PID|NAME", required_unless_present = "path", conflicts_with = "path")]
    pub pid: Option<String>,
    /// With -p: omit the children of the process
    #[arg(long, requires = "pid")]
    pub no_follow: bool,
    /// A repository, the folder of one process in it, or a recording
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub path: Option<PathBuf>,
    /// Copy this span before now: 90s, 10m, 2h
    #[arg(long, value_name = "SPAN", value_parser = duration)]
    pub last: Option<Duration>,
    /// With --last: copy whole chunks, which is faster and includes earlier events of the first chunk.
    /// Standard output always gets whole chunks
    #[arg(long, requires = "last")]
    pub whole_chunks: bool,
    /// The default; accepted for scripts.
    #[arg(long, requires = "last", conflicts_with = "whole_chunks", hide = true)]
    pub exact: bool,
    /// Output file; `-` is standard output; `%p` in the name represents the PID
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
    /// Overwrite the output if it exists
    #[arg(long)]
    pub force: bool,
    /// Print a report as JSON on standard output (on standard error if the recording goes there)
    #[arg(long)]
    pub json: bool,
}

/// A recording to copy.
struct Recorded {
    pid: u32,
    path: PathBuf,
}

/// Copies recordings.
pub fn run(args: &DumpArgs) -> Result<Outcome> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    let since = args.last.map(|last| i64::try_from(now.saturating_sub(last.as_nanos())).unwrap_or(0));
    let found = match (&args.pid, &args.path) {
        (Some(wanted), _) => find_recordings(wanted, !args.no_follow)?,
        (None, Some(path)) => vec![recorded_at(path)?],
        (None, None) => bail_usage!("give a process with -p, or a path"),
    };
    // One file per process, or one for all.
    let named = args.output.to_str().is_some_and(|name| name.contains("%p"));
    let groups: Vec<&[Recorded]> = if named { found.chunks(1).collect() } else { vec![&found] };
    // Open all files before copying, since old ones may be removed in the meantime.
    let mut copies = Vec::new();
    for group in groups {
        copies.push((group, Copies::open(group, since)?));
    }
    let mut done = Vec::new();
    let mut outcome = Outcome::Whole;
    for (group, copies) in &copies {
        let pid = group.first().map_or(0, |recorded| recorded.pid);
        let output = path_for_process(&args.output, pid);
        let exact = since.filter(|_| !args.whole_chunks && (args.exact || !is_stdout(&output)));
        let dumped = write(args, copies, &output, exact)?;
        for problem in &copies.all.problems {
            diagnostics::warning(problem);
            outcome = Outcome::Partial;
        }
        if dumped.clock_set_ns > 0 {
            let (shown, seconds) = (diagnostics::shown_output(&output), dumped.clock_set_ns as f64 / 1e9);
            let why = match is_stdout(&output) && copies.recordings.len() > 1 {
                true => "clocks of the recordings differ by",
                false => "during the recording, the system clock was changed by",
            };
            diagnostics::warning(format_args!(
                "{shown}: {why} {seconds:.1} s; JDK 25 applies the first chunk's clock to all"
            ));
        }
        done.push(json!({
            "pid": pid,
            "processes": group.len(),
            "from": group.first().map(|recorded| &recorded.path),
            "output": output,
            "chunks": dumped.chunks,
            "bytes": dumped.bytes,
            "startNanos": dumped.times.0,
            "endNanos": dumped.times.1,
            "problems": copies.all.problems,
        }));
        if !args.json {
            report(&output, dumped);
        }
    }
    if args.json {
        crate::edit::report(Some(&args.output), &json!({"dumps": done}))?;
    }
    Ok(outcome)
}

fn report(output: &Path, dumped: Dumped) {
    let seconds = dumped.times.1.saturating_sub(dumped.times.0) as f64 / 1e9;
    diagnostics::note(format_args!(
        "wrote {}: {seconds:.1} s in {}, {}",
        diagnostics::shown_output(output),
        count(dumped.chunks, "chunk"),
        format_bytes(dumped.bytes)
    ));
}

/// The recordings that are written to one file.
struct Copies {
    /// All files.
    paths: Vec<PathBuf>,
    /// Their chunks, in order of time.
    all: Chunks,
    /// The chunks of each recording.
    recordings: Vec<Chunks>,
}

impl Copies {
    fn open(group: &[Recorded], since: Option<i64>) -> Result<Copies> {
        let (mut paths, mut recordings) = (Vec::new(), Vec::new());
        for recorded in group {
            let files = files(&recorded.path)?;
            // A repository has a folder per process.
            let is_folder = recorded.path.is_dir();
            let same = |a: &PathBuf, b: &PathBuf| is_folder && a.parent() == b.parent();
            // Some recordings have no data for that time; unreadable files are reported by `all`.
            recordings.extend(files.chunk_by(same).filter_map(|files| Chunks::open(files, since).ok()));
            paths.extend(files);
        }
        let all = Chunks::open(&paths, since)?;
        Ok(Copies { paths, all, recordings })
    }

    /// Writes them to a file. Several recordings are converted to one clock and unique constant keys, because
    /// the JDK's readers apply the first chunk's clock to all.
    fn write_to(&self, output: &Path) -> Result<Dumped> {
        if self.recordings.len() < 2 {
            return Ok(self.all.write_to(output)?);
        }
        let mut dumped = Dumped { times: (i64::MAX, i64::MIN), ..Dumped::default() };
        let (mut parts, mut unjoined) = (Vec::new(), Vec::new());
        for (index, chunks) in self.recordings.iter().enumerate() {
            let file = Uncut::next_to(output, &format!("part{index}"));
            let one = chunks.write_to(&file.0)?;
            let source =
                Source::open(&file.0).with_context(|| format!("cannot read {}", file.0.display()))?;
            parts.push((one.times.0, Part { name: diagnostics::shown_output(output), source }));
            unjoined.push(file);
            dumped.chunks += one.chunks;
            dumped.times = (dumped.times.0.min(one.times.0), dumped.times.1.max(one.times.1));
            dumped.clock_set_ns = dumped.clock_set_ns.max(one.clock_set_ns);
        }
        parts.sort_by_key(|(start, _)| *start);
        let parts: Vec<Part> = parts.into_iter().map(|(_, part)| part).collect();
        whole(output, |out| edit::assemble(&parts, true, out).context("cannot join the recordings"))?;
        dumped.bytes = fs::metadata(output)?.len();
        Ok(dumped)
    }
}

fn write(args: &DumpArgs, copies: &Copies, output: &Path, exact: Option<i64>) -> Result<Dumped> {
    if is_stdout(output) {
        if exact.is_some() {
            bail_usage!("--exact needs a file: give one with -o");
        }
        if std::io::IsTerminal::is_terminal(&std::io::stdout()) {
            bail_usage!("not writing a recording to a terminal; give a file with -o, or redirect the output");
        }
        let out = std::io::stdout().as_fd().try_clone_to_owned().context("cannot use standard output")?;
        return copies.all.write(&File::from(out)).context("cannot write to standard output");
    }
    refuse_input(output, copies.paths.iter().map(PathBuf::as_path))?;
    if !args.force {
        refuse_existing(output)?;
    }
    let Some(since) = exact else { return copies.write_to(output) };
    let uncut = Uncut::next_to(output, "whole");
    let dumped = copies.write_to(&uncut.0)?;
    let source = Source::open(&uncut.0).with_context(|| format!("cannot read {}", uncut.0.display()))?;
    let cut = whole(output, |out| {
        let report = part(&source, since, i64::MAX, false, out).context(cut::CANNOT)?;
        if report.written == 0 {
            bail!("no data was recorded in that time");
        }
        Ok(report)
    })?;
    let times = (dumped.times.0.max(since), dumped.times.1);
    Ok(Dumped { chunks: cut.written, bytes: cut.output, times, ..dumped })
}

/// A temporary file that is removed when dropped.
struct Uncut(PathBuf);

impl Uncut {
    fn next_to(output: &Path, what: &str) -> Uncut {
        let mut name = output.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.{what}", std::process::id()));
        Uncut(output.with_file_name(name))
    }
}

impl Drop for Uncut {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Finds the recordings of the processes that a process id or a name selects and, with `follow`, of their
/// descendants.
fn find_recordings(wanted: &str, follow: bool) -> Result<Vec<Recorded>> {
    let finder = Finder::default();
    let mut sessions: Vec<(PathBuf, Vec<TargetProcess>)> = Vec::new();
    let (mut recorded, mut failed) = (Vec::new(), None);
    for pid in targets::pids(&[wanted.to_owned()]).unwrap_or_default() {
        let problem = match finder.find(pid) {
            Ok(found) => match found.condition.clone() {
                Condition::Recorded(session) => {
                    match sessions.iter_mut().find(|(known, _)| *known == session) {
                        Some((_, processes)) => processes.push(found),
                        None => sessions.push((session, vec![found])),
                    }
                    continue;
                }
                _ => format!(
                    "{} ({pid}) is not being recorded; `flightline repositories` lists recordings in progress",
                    found.name
                ),
            },
            // The process has ended, and possibly its recorder.
            Err(error) => error.to_string(),
        };
        match left_by_killed(pid)? {
            Some(left) => recorded.extend(left),
            // Only some of the processes with that name are recorded.
            None => failed = failed.or(Some(problem)),
        }
    }
    for (session, processes) in &sessions {
        recorded.extend(save(session, processes, follow)?);
    }
    if recorded.is_empty() {
        bail!(failed.unwrap_or_else(|| format!(
            "process {wanted:?} not found; `flightline repositories` lists recordings in progress"
        )));
    }
    Ok(recorded)
}

/// Requests a flush and returns the recordings of these processes; all if one of them is the recorder.
fn save(session: &Path, processes: &[TargetProcess], follow: bool) -> Result<Vec<Recorded>> {
    let answer = ask_within(session, "save", PATIENCE)?;
    let all = answer["recordings"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of = |value: &Value| -> Option<Recorded> {
        let path = PathBuf::from(value["path"].as_str()?);
        let pid = u32::try_from(value["pid"].as_u64()?).ok()?;
        (value["copied"] == true).then_some(Recorded { pid, path })
    };
    let mut recorded: Vec<Recorded> = all.iter().filter_map(of).collect();
    let first = &processes[0];
    if recorded.is_empty() && !all.is_empty() {
        bail!("{} ({}) is recorded to a pipe; data sent to a pipe cannot be copied", first.name, first.pid);
    }
    let pids: Vec<u32> = processes.iter().map(|process| process.pid).collect();
    if recorded.iter().any(|r| pids.contains(&r.pid)) {
        let own = HashSet::from([std::process::id()]);
        let tree = processes::descendants(&processes::processes(), &pids, &own);
        let is_child = |of: u32| follow && tree.iter().any(|(child, _)| *child == of);
        recorded.retain(|r| pids.contains(&r.pid) || is_child(r.pid));
        // List the processes before their children, since the file name may contain the first PID.
        recorded.sort_by_key(|r| !pids.contains(&r.pid));
    }
    if recorded.is_empty() {
        bail!("no data of {} ({}) has been recorded yet", first.name, first.pid);
    }
    // A file of several processes is named after the given PID.
    recorded.iter_mut().filter(|r| r.pid == 0).for_each(|r| r.pid = first.pid);
    Ok(recorded)
}

/// Recovers and returns the recordings of a process whose recorder was killed.
fn left_by_killed(pid: u32) -> Result<Option<Vec<Recorded>>> {
    for session in session::abandoned() {
        let outputs = session::outputs(&session);
        let folder = |output: &PathBuf| {
            let folder = output.parent()?;
            (Owner::read(folder)?.pid == pid).then(|| folder.to_owned())
        };
        let own = outputs.iter().find_map(folder);
        let only =
            || outputs.first().filter(|_| outputs.len() == 1 && session::recorded(&session, pid)).cloned();
        if let Some(path) = own.or_else(only) {
            unfinished::before_reading(&path);
            return Ok(Some(vec![Recorded { pid, path }]));
        }
    }
    Ok(None)
}

/// Returns a repository, folder or file, after a running recorder has flushed its data.
fn recorded_at(path: &Path) -> Result<Recorded> {
    if !path.exists() {
        bail!("{} does not exist", path.display());
    }
    unfinished::before_reading(path);
    let mut recorded = Recorded { pid: 0, path: path.to_owned() };
    let files = files(path)?;
    let mut asked = HashSet::new();
    for folder in files.iter().filter_map(|file| file.parent()) {
        let Some(owner) = Owner::read(folder) else { continue };
        recorded.pid = owner.pid;
        if owner.session.is_dir() && asked.insert(owner.session.clone()) {
            // The recorder may have just ended, in which case everything has been written.
            let _ = ask_within(&owner.session, "save", PATIENCE);
        }
    }
    Ok(recorded)
}
