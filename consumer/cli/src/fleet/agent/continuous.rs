//! `--continuous`: records a process permanently and sends finished chunks to the service.
//!
//! A program in standby is recorded from within, by one recorder at a time. While a run needs that slot, the
//! continuous recording continues from outside the process if permitted; otherwise the window has a gap.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use jfr_format::header::{self, ChunkHeader};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::process::{Process, outside};
use super::run_executor::{last_words, own};
use super::service_link::ServiceLink;
use crate::diagnostics::note;

/// Poll interval for finished chunks.
const LOOK: Duration = Duration::from_millis(250);
/// Chunks are closed at this age, which limits the delay at the service.
const CHUNK_AGE: &str = "10s";
/// Disk space for the recorder; limits what is retained while the service is unreachable.
const MOST: &str = "64m";
/// How long a program may take to join its recorder.
const JOINED: Duration = Duration::from_secs(6);
/// Delay before a recorder that failed is restarted.
const PAUSE: Duration = Duration::from_secs(30);

/// Records until the process or the link ends.
pub fn record(process: &Process, rate: f64, link: &ServiceLink) {
    always(process, rate, link);
    link.record_always(false);
}

fn always(process: &Process, rate: f64, link: &ServiceLink) {
    let folder = match super::temp_dir::folder() {
        Ok(folder) => folder,
        Err(error) => {
            return note(format!("cannot create a directory for the continuous recording: {error}"));
        }
    };
    let mut sent = HashSet::new();
    let mut told = false;
    // False once the program accepts no commands, for example while all its threads sleep.
    let mut from_within = true;
    let over = || link.is_over() || !process.is_there();
    while !over() {
        let place = RecordingMode::choose(process, link, from_within);
        if place == RecordingMode::None {
            sleep(LOOK);
            continue;
        }
        let (began, mut joined) = (Instant::now(), false);
        let mut recorder = match start(process, rate, folder.path(), place) {
            Ok(recorder) => recorder,
            Err(error) => return note(error),
        };
        let ended = loop {
            send(folder.path(), link, &mut sent);
            // The process called exec and its new program has not joined this recorder. A recorder outside is
            // not affected.
            let was = std::mem::replace(&mut joined, process.is_recorded());
            let left = place == RecordingMode::Best
                && !joined
                && (was || began.elapsed() > JOINED && process.waits());
            match recorder.try_wait() {
                Ok(None) if over() || left || RecordingMode::choose(process, link, from_within) != place => {
                    stop(&mut recorder);
                    break false;
                }
                Ok(None) => sleep(LOOK),
                Ok(Some(_)) | Err(_) => break true,
            }
        };
        send(folder.path(), link, &mut sent);
        // A run that took the slot at the same moment is not a failure.
        if !ended || over() || RecordingMode::choose(process, link, from_within) != place {
            continue;
        }
        if place == RecordingMode::Best && process.waits() && outside().is_ok() {
            from_within = false;
            continue;
        }
        if !std::mem::replace(&mut told, true) {
            let why = last_words(&fs::read(folder.path().join(WORDS)).unwrap_or_default());
            note(format!("{} ({}): continuous recording failed: {why}", process.name, process.pid));
        }
        let until = Instant::now() + PAUSE;
        while !over() && Instant::now() < until {
            sleep(LOOK);
        }
    }
}

/// How the process is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordingMode {
    /// From within, or from outside if it is not in standby.
    Best,
    /// From outside: the slot within is taken or unavailable.
    Outside,
    /// Not at all: the slot is taken and recording from outside is not permitted.
    None,
}

impl RecordingMode {
    fn choose(process: &Process, link: &ServiceLink, from_within: bool) -> RecordingMode {
        match link.is_busy() && process.waits() {
            false if from_within => RecordingMode::Best,
            false => RecordingMode::Outside,
            true if outside().is_ok() => RecordingMode::Outside,
            true => RecordingMode::None,
        }
    }
}

/// Stops the recorder, which completes its chunk.
fn stop(recorder: &mut Child) {
    let _ = kill(Pid::from_raw(i32::try_from(recorder.id()).unwrap_or(0)), Signal::SIGTERM);
    let _ = recorder.wait();
}

const WORDS: &str = "words";

fn start(process: &Process, rate: f64, folder: &Path, place: RecordingMode) -> Result<Child, String> {
    let said = File::create(folder.join(WORDS));
    let said = said.map_err(|error| format!("cannot store the recorder's messages: {error}"))?;
    let mut command = own()?;
    command.args(["record", "-p", &process.pid.to_string(), "--rate", &rate.to_string()]);
    command.args(["--agent", &std::process::id().to_string()]);
    if process.alone {
        command.arg("--no-follow");
    }
    if place == RecordingMode::Outside {
        command.arg("--outside");
    }
    command.arg("--repository").arg(folder.join("chunks")).args([
        "--chunk-age",
        CHUNK_AGE,
        "--max-size",
        MOST,
    ]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
    command.spawn().map_err(|error| format!("cannot start flightline: {error}"))
}

/// Sends finished chunks that the service does not have, oldest first.
fn send(folder: &Path, link: &ServiceLink, sent: &mut HashSet<PathBuf>) {
    let listed = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    let processes = listed(&folder.join("chunks"));
    let mut chunks: Vec<PathBuf> = processes.iter().flat_map(|process| listed(process)).collect();
    chunks.retain(|path| path.extension().is_some_and(|ending| ending == "jfr"));
    // Forget chunks that were rolled away.
    sent.retain(|path| chunks.contains(path));
    chunks.retain(|path| !sent.contains(path) && is_finished(path));
    // Names are timestamps.
    chunks.sort();
    for path in chunks {
        // A chunk that was rejected is not sent again; after other failures it is retried.
        if link.give_chunks(&path) {
            sent.insert(path);
        }
    }
}

/// Returns true if the chunk is complete.
fn is_finished(path: &Path) -> bool {
    let mut head = [0; header::LEN];
    let Ok(mut file) = File::open(path) else { return false };
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    file.read_exact(&mut head).is_ok()
        && ChunkHeader::decode(&head).is_ok_and(|header| header.state == 0 && header.size == length)
}
