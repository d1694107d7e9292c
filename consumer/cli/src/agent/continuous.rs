//! `--continuous`: a process is recorded all the time, and finished chunks go to the service.
//!
//! A program that waits to be recorded is recorded by itself, and by one recorder at a time. While a run needs that place, this recording goes on from
//! outside, where that is permitted; where it is not, the window has a gap.

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

use super::link::Link;
use super::perform::{last_words, own};
use super::process::{Process, outside};
use crate::record::say;

/// How often finished chunks are looked for.
const LOOK: Duration = Duration::from_millis(250);
/// A chunk is closed at this age, so the service is at most so much behind.
const CHUNK_AGE: &str = "10s";
/// What the recorder may leave on this disk: what a service that is away misses is bounded.
const MOST: &str = "64m";
/// How long a program has to join its recorder.
const JOINED: Duration = Duration::from_secs(6);
/// How long a recorder that cannot go on is left alone.
const PAUSE: Duration = Duration::from_secs(30);

/// Records until it is over.
pub fn record(process: &Process, rate: f64, link: &Link) {
    always(process, rate, link);
    link.record_always(false);
}

fn always(process: &Process, rate: f64, link: &Link) {
    let folder = match super::scratch::folder() {
        Ok(folder) => folder,
        Err(error) => {
            return say(&format!("cannot make a directory for what is recorded all the time: {error}"));
        }
    };
    let mut sent = HashSet::new();
    let mut told = false;
    // Not any more if it takes no commands, as while all its threads sleep.
    let mut from_within = true;
    let over = || link.is_over() || !process.is_there();
    while !over() {
        let place = Place::of(process, link, from_within);
        if place == Place::None {
            sleep(LOOK);
            continue;
        }
        let (began, mut joined) = (Instant::now(), false);
        let mut recorder = match start(process, rate, folder.path(), place) {
            Ok(recorder) => recorder,
            Err(error) => return say(&error),
        };
        let ended = loop {
            send(folder.path(), link, &mut sent);
            // What it executes has not joined this recorder. From outside it is seen all the same.
            let was = std::mem::replace(&mut joined, process.is_recorded());
            let left =
                place == Place::Best && !joined && (was || began.elapsed() > JOINED && process.waits());
            match recorder.try_wait() {
                Ok(None) if over() || left || Place::of(process, link, from_within) != place => {
                    stop(&mut recorder);
                    break false;
                }
                Ok(None) => sleep(LOOK),
                Ok(Some(_)) | Err(_) => break true,
            }
        };
        send(folder.path(), link, &mut sent);
        // A run that took the place at the same moment is no failure.
        if !ended || over() || Place::of(process, link, from_within) != place {
            continue;
        }
        if place == Place::Best && process.waits() && outside().is_ok() {
            from_within = false;
            continue;
        }
        if !std::mem::replace(&mut told, true) {
            let why = last_words(&fs::read(folder.path().join(WORDS)).unwrap_or_default());
            say(&format!("{} ({}) is not recorded all the time: {why}", process.name, process.pid));
        }
        let until = Instant::now() + PAUSE;
        while !over() && Instant::now() < until {
            sleep(LOOK);
        }
    }
}

/// From where the process is recorded all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// By itself, or from outside if it does not wait for it.
    Best,
    /// From outside: the other place is taken, or cannot be had.
    Outside,
    /// From nowhere: it is taken, and outside is not permitted.
    None,
}

impl Place {
    fn of(process: &Process, link: &Link, from_within: bool) -> Place {
        match link.is_busy() && process.waits() {
            false if from_within => Place::Best,
            false => Place::Outside,
            true if outside().is_ok() => Place::Outside,
            true => Place::None,
        }
    }
}

/// The recorder completes its chunk.
fn stop(recorder: &mut Child) {
    let _ = kill(Pid::from_raw(i32::try_from(recorder.id()).unwrap_or(0)), Signal::SIGTERM);
    let _ = recorder.wait();
}

const WORDS: &str = "words";

fn start(process: &Process, rate: f64, folder: &Path, place: Place) -> Result<Child, String> {
    let said = File::create(folder.join(WORDS));
    let said = said.map_err(|error| format!("cannot keep what the recorder says: {error}"))?;
    let mut command = own()?;
    command.args(["record", "-p", &process.pid.to_string(), "--rate", &rate.to_string()]);
    command.args(["--agent", &std::process::id().to_string()]);
    if process.alone {
        command.arg("--no-follow");
    }
    if place == Place::Outside {
        command.arg("--outside");
    }
    command.arg("--repository").arg(folder.join("chunks")).args([
        "--chunk-age",
        CHUNK_AGE,
        "--max-size",
        MOST,
    ]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
    command.spawn().map_err(|error| format!("cannot run our own command: {error}"))
}

/// Gives the service the chunks that are finished and that it has not got, the oldest first.
fn send(folder: &Path, link: &Link, sent: &mut HashSet<PathBuf>) {
    let listed = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    let processes = listed(&folder.join("chunks"));
    let mut chunks: Vec<PathBuf> = processes.iter().flat_map(|process| listed(process)).collect();
    chunks.retain(|path| path.extension().is_some_and(|ending| ending == "jfr"));
    // What has rolled away will not come again.
    sent.retain(|path| chunks.contains(path));
    chunks.retain(|path| !sent.contains(path) && is_finished(path));
    // Names are times.
    chunks.sort();
    for path in chunks {
        // One that is refused would be refused again; what nobody takes now is offered the next time.
        if link.give_chunks(&path) {
            sent.insert(path);
        }
    }
}

/// Whether nobody writes to a chunk any more.
fn is_finished(path: &Path) -> bool {
    let mut head = [0; header::LEN];
    let Ok(mut file) = File::open(path) else { return false };
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    file.read_exact(&mut head).is_ok()
        && ChunkHeader::decode(&head).is_ok_and(|header| header.state == 0 && header.size == length)
}
