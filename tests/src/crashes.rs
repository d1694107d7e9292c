//! Recorded programs that are killed, with every allocation known; and the expected contents of the
//! recording.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jfr_format::read::{Input, Item};
use memmap2::MmapRaw;

use crate::allocations::Allocations;
use crate::run::{Finished, run};
use crate::victim;

/// The size of the first thread's allocation before all others; the program's `FIRST_SIZE`.
const FIRST_SIZE: u64 = 65536;
/// The maximum number of the program's threads.
const THREADS: usize = 8;
/// The time-out of a recovery.
const LIMIT: Duration = Duration::from_secs(60);

/// The test program's own counts, in memory that outlives it.
pub struct Told {
    map: MmapRaw,
    path: PathBuf,
    threads: usize,
}

/// The allocations of each thread at some instant: begun and done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instant(pub Vec<(u64, u64)>);

impl Told {
    /// Creates the shared memory for this number of threads in a folder.
    #[track_caller]
    pub fn new(folder: &Path, threads: usize) -> Told {
        assert!((1..=THREADS).contains(&threads));
        let path = folder.join("told");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        file.set_len(4096).unwrap();
        Told { map: MmapRaw::map_raw(&file).unwrap(), path, threads }
    }

    /// The program and its arguments.
    pub fn program(&self, count: u64) -> Vec<String> {
        let program = victim::c("crashes", victim::OPTIMISED);
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        vec![text(&program), text(&self.path), self.threads.to_string(), count.to_string()]
    }

    /// Returns its progress.
    pub fn now(&self) -> Instant {
        let word = |thread: usize, which: usize| {
            // SAFETY: 4096 bytes are mapped, and they contain eight threads of 64 bytes. The program may
            // write these atomics concurrently.
            let word = unsafe { &*self.map.as_ptr().cast::<AtomicU64>().add(thread * 8 + which) };
            word.load(Ordering::Acquire)
        };
        Instant((0..self.threads).map(|t| (word(t, 0), word(t, 1))).collect())
    }
}

impl Instant {
    /// Allocations done.
    pub fn done(&self) -> u64 {
        self.0.iter().map(|(_, done)| done).sum()
    }
}

/// `flightline record` of the program, with every allocation and CPU time, not yet started.
pub fn record(options: &[&str], program: &[String]) -> Command {
    let mut command = Command::new(victim::flightline());
    command.args(["record", "-e", "cpu@500us,alloc@1"]).args(options);
    command.arg("--").args(program).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// Runs `flightline recover` on a recording of `output`.
#[track_caller]
pub fn recover(output: &Path) -> Finished {
    let mut command = Command::new(victim::flightline());
    run(command.arg("recover").arg(output), LIMIT)
}

/// The allocations found in a recording.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Files, or chunks of a repository.
    pub files: Vec<PathBuf>,
    /// Marked allocations of each thread, sorted.
    pub marked: Vec<Vec<u64>>,
    /// The same, by the events with the true size.
    pub exact: usize,
    /// Marked allocations whose stack has no symbols.
    pub nameless: usize,
    /// Samples of CPU time.
    pub samples: u64,
}

/// The files of a recording: itself, or the chunks in the folders of a repository, in order of time.
pub fn files(output: &Path) -> Vec<PathBuf> {
    if output.is_file() {
        return vec![output.to_owned()];
    }
    let mut found = Vec::new();
    let entries = std::fs::read_dir(output).into_iter().flatten().flatten();
    for entry in entries.map(|e| e.path()) {
        if entry.is_dir() {
            found.extend(files(&entry));
        } else if entry.extension().is_some_and(|e| e == "jfr") {
            found.push(entry);
        }
    }
    found.sort();
    found
}

impl Found {
    /// Reads a complete recording; a warning of our reader is a failure.
    #[track_caller]
    pub fn read(output: &Path, threads: usize) -> Found {
        let mut found = Found { files: files(output), marked: vec![Vec::new(); threads], ..Found::default() };
        assert!(!found.files.is_empty(), "{} has no recording", output.display());
        for file in found.files.clone() {
            let all = Allocations::read(&file);
            let place = |size: i64| {
                let place = (size as u64).checked_sub(FIRST_SIZE)?;
                ((place >> 3) > 0 && ((place & 7) as usize) < threads).then_some((place & 7, place >> 3))
            };
            for block in &all.sampled {
                if let Some((thread, number)) = place(block.weight) {
                    found.marked[thread as usize].push(number);
                    found.nameless += usize::from(!block.stack.iter().any(|f| f == "marked"));
                }
            }
            found.exact += all.exact.iter().filter(|e| place(e.2).is_some()).count();
            found.samples += samples(&file);
        }
        found.marked.iter_mut().for_each(|thread| thread.sort_unstable());
        found
    }

    /// Describes a contradiction to the ground truth: the program had completed at least `least` and had
    /// begun at most `most`. No allocation may occur twice or be missing, except the one that each thread was
    /// writing.
    pub fn wrong(&self, least: &Instant, most: &Instant) -> Option<String> {
        for (thread, marked) in self.marked.iter().enumerate() {
            if let Some(pair) = marked.windows(2).find(|pair| pair[0] == pair[1]) {
                return Some(format!("thread {thread}: allocation {} is there twice", pair[0]));
            }
            if let Some((at, found)) = (1..).zip(marked).find(|(at, found)| *at != **found) {
                return Some(format!("thread {thread}: allocation {at} is missing, the next is {found}"));
            }
            let (n, done, begun) = (marked.len() as u64, least.0[thread].1, most.0[thread].0);
            if n < done || n > begun {
                return Some(format!("thread {thread}: {n} found of {done} done and {begun} begun"));
            }
        }
        let n: usize = self.marked.iter().map(Vec::len).sum();
        if self.exact != n {
            return Some(format!("{n} sampled, {} counted exactly", self.exact));
        }
        (self.nameless > 0).then(|| format!("{} of {n} have no names", self.nameless))
    }
}

fn samples(file: &Path) -> u64 {
    let mut input = Input::open(file).unwrap();
    let mut n = 0;
    while let Some(item) = input.next().unwrap() {
        if let Item::Events(batch) = item {
            n += batch.events().filter(|e| &*e.class().name == "jdk.ExecutionSample").count() as u64;
        }
    }
    n
}

/// Returns true if no process holds the lock of the session, that is, the drain has ended.
pub fn lock_is_free(session: &Path) -> bool {
    File::open(session.join("session")).is_ok_and(|page| page.try_lock().is_ok())
}
