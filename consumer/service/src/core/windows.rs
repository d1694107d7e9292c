//! What is recorded all the time: of each target that sends it, the last while.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::StatusCode;
use bytes::Bytes;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat, renameat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use serde::Serialize;

use super::targets::{no_target, short};
use super::{Core, Joined, check_labels};
use crate::fault::Fault;
use crate::forward::{Content, Item};
use crate::id;
use crate::ingest::App;
use crate::pictures::{NotWhole, Source, check};
use crate::window::{Bounds, Chunk, Error, Limits, Part, Timeline, Window};
use crate::wire::{self, Capability, State as TargetState, Target};

/// Whose a window is, beside its chunks.
const TARGET: &str = "target.json";
/// Steps of what is told of how busy a target is, and their length, ms: ten minutes.
pub(super) const LOAD_STEPS: i64 = 60;
pub(super) const LOAD_STEP: i64 = 10_000;

/// Larger than any description of a target.
const LONGEST_DESCRIPTION: u64 = 1 << 20;

/// The windows of all targets, each in a directory of its own.
#[derive(Debug)]
pub(super) struct Windows {
    dir: OwnedFd,
    limits: Limits,
    open: Mutex<BTreeMap<String, Arc<Held>>>,
}

/// A window, and what is told of it without waiting for who writes to it.
#[derive(Debug)]
struct Held {
    window: Mutex<Window>,
    bounds: Mutex<Option<Bounds>>,
    /// The last [`LOAD_STEPS`] of it.
    recent: Mutex<Option<Timeline>>,
}

impl Held {
    fn new(window: Window) -> Arc<Self> {
        let (bounds, recent) = (Mutex::new(window.bounds()), Mutex::new(recent(&window)));
        Arc::new(Self { window: Mutex::new(window), bounds, recent })
    }

    /// Does something with the window, which may wait for the disk.
    fn with<T>(&self, work: impl FnOnce(&mut Window) -> T) -> T {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let before = window.changes();
        let done = work(&mut window);
        if window.changes() != before {
            *self.bounds.lock().unwrap_or_else(PoisonError::into_inner) = window.bounds();
            *self.recent.lock().unwrap_or_else(PoisonError::into_inner) = recent(&window);
        }
        done
    }
}

/// Samples a second up to the end of what there is, in steps that begin at multiples of their length.
fn recent(window: &Window) -> Option<Timeline> {
    let end = (window.bounds()?.to.div_euclid(LOAD_STEP) + 1).saturating_mul(LOAD_STEP);
    let from = end.saturating_sub(LOAD_STEPS * LOAD_STEP);
    Some(window.timeline(from, end, usize::try_from(LOAD_STEPS).unwrap_or(1)))
}

/// What there is of a target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Kept {
    /// From when to when, and how much.
    #[serde(flatten)]
    pub bounds: Bounds,
    /// Its parts.
    pub chunks: Vec<Part>,
    /// Samples a second.
    pub timeline: Timeline,
}

impl Windows {
    /// Opens the directory, which is made if it is not there; gives also whose windows are in it.
    pub(super) fn open(path: &Path, limits: Limits, now: i64) -> io::Result<(Self, Vec<Target>)> {
        std::fs::create_dir_all(path)?;
        let dir = open(path, directory(), Mode::empty())?;
        let windows = Self { dir, limits, open: Mutex::default() };
        let mut targets = Vec::new();
        let mut listing = Dir::from_fd(windows.dir.try_clone()?)?;
        for entry in listing.iter() {
            let entry = entry?;
            let Some(id) = entry.file_name().to_str().ok().filter(|name| is_name(name)) else { continue };
            // What has no description of ours is not ours.
            let Ok(dir) = openat(&windows.dir, id, directory(), Mode::empty()) else { continue };
            let Ok(target) = described(&dir) else { continue };
            if target.id == id {
                let window = Window::open(dir, limits, now).map_err(io::Error::other)?;
                windows.all().insert(id.to_owned(), Held::new(window));
                targets.push(target);
            }
        }
        Ok((windows, targets))
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Held>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, target: &str) -> Option<Arc<Held>> {
        self.all().get(target).cloned()
    }

    /// The window of a target, made if there is none.
    fn made(&self, target: &Target, now: i64) -> io::Result<Arc<Held>> {
        let mut all = self.all();
        if let Some(window) = all.get(&target.id) {
            return Ok(Arc::clone(window));
        }
        let id = target.id.as_str();
        match mkdirat(&self.dir, id, Mode::S_IRWXU) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let dir = openat(&self.dir, id, directory(), Mode::empty())?;
        let temporary = "target.json.tmp";
        let flags = OFlag::O_CREAT | OFlag::O_TRUNC | OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut file = File::from(openat(&dir, temporary, flags, Mode::S_IRUSR | Mode::S_IWUSR)?);
        file.write_all(&serde_json::to_vec(target)?)?;
        renameat(&dir, temporary, &dir, TARGET)?;
        let window = Window::open(dir, self.limits, now).map_err(io::Error::other)?;
        let window = Held::new(window);
        all.insert(id.to_owned(), Arc::clone(&window));
        Ok(window)
    }

    /// What is kept of a target.
    pub(super) fn bounds(&self, target: &str) -> Option<Bounds> {
        let held = self.of(target)?;
        *held.bounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether something of an interval is kept of a target.
    pub(super) fn overlaps(&self, target: &str, from: i64, to: i64) -> bool {
        self.of(target).is_some_and(|window| window.with(|window| window.overlaps(from, to)))
    }

    /// Samples a second of a target in the last [`LOAD_STEPS`] of what there is.
    pub(super) fn recent(&self, target: &str) -> Option<Timeline> {
        let held = self.of(target)?;
        held.recent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Removes all that is kept of a target.
    pub(super) fn forget(&self, target: &str) -> Result<(), Error> {
        let Some(window) = self.all().remove(target) else { return Ok(()) };
        window.with(Window::clear)?;
        let dir = openat(&self.dir, target, directory(), Mode::empty())?;
        let _ = unlinkat(&dir, TARGET, UnlinkatFlags::NoRemoveDir);
        // What somebody else put there stays.
        let _ = unlinkat(&self.dir, target, UnlinkatFlags::RemoveDir);
        Ok(())
    }

    /// Removes what is too old; counts a chunk of each window that was there before a restart.
    pub(super) fn look(&self, now: i64) {
        let windows: Vec<Arc<Held>> = self.all().values().cloned().collect();
        for window in windows {
            // A disk that refuses now is asked again the next time.
            let next = window.with(|window| {
                let _ = window.expire(now);
                window.uncounted()
            });
            if let Ok(Some((number, source))) = next {
                let found = check(&source);
                let _ = window.with(|window| window.counted(number, found));
            }
        }
    }
}

impl Core {
    /// Takes chunks of what an agent records all the time.
    ///
    /// # Errors
    /// The agent is none of ours, they are not whole, or there is no room.
    pub fn put(&self, target: &str, secret: &str, chunks: Bytes) -> Result<(), Fault> {
        self.heard(target, secret)?;
        let of = self.target(target)?;
        self.has_room_for(target)?;
        let mut chunk = Chunk::of_bytes(chunks.clone()).map_err(flawed)?;
        let now = self.now().utc;
        let window =
            self.windows.made(&of, now).map_err(|error| Fault::internal("keep the chunks", error))?;
        self.keep(&window, &mut chunk, now)?;
        if !self.forward.is_empty() {
            let (from, until) = (chunk.checked().first_ms, chunk.checked().last_ms);
            let (bytes, labels) = (chunk.checked().bytes, wire::Labels::new());
            self.forward.offer(Item { content: Content::Bytes(chunks), bytes, of, labels, from, until });
        }
        Ok(())
    }

    /// A full disk has no room for another window.
    fn has_room_for(&self, target: &str) -> Result<(), Fault> {
        if self.windows.of(target).is_some() { Ok(()) } else { self.has_room() }
    }

    /// Keeps a chunk. Where the disk has no room any more, a window does not grow: its oldest goes for what comes.
    fn keep(&self, window: &Held, chunk: &mut Chunk, now: i64) -> Result<(), Fault> {
        let room = self.has_room();
        window.with(|window| {
            if let Err(fault) = room
                && !window.give_way(chunk.checked().bytes).map_err(refused)?
            {
                return Err(fault);
            }
            window.put(chunk, now).map_err(refused)
        })
    }

    /// Takes a recording that a profiler of its own pushes; its target is known by name and labels.
    ///
    /// # Errors
    /// It is not whole, or there is no room.
    pub fn pushed(&self, app: &App, recording: Bytes) -> Result<(), Fault> {
        check_labels(&app.labels)?;
        let id = id::of_target(&app.name, 0, &format!("pushed/{}", app.text()));
        self.has_room_for(&id)?;
        let mut chunk = Chunk::of_bytes(recording).map_err(flawed)?;
        let now = self.now();
        let reason = "it is recorded by a profiler of its own, which pushes what it has".to_owned();
        let can = |mode| Capability { mode, available: false, reason: reason.clone() };
        let target = {
            self.make_room_for(&id)?;
            let mut state = self.state();
            let joined = state.targets.entry(id.clone()).or_insert_with(|| {
                let target = Target {
                    id,
                    name: short(&app.name),
                    host: String::new(),
                    pid: 0,
                    start_time: now.utc,
                    joined_time: now.utc,
                    last_seen: now.utc,
                    state: TargetState::Live,
                    gone: String::new(),
                    labels: app.labels.clone(),
                    modes: wire::Mode::ALL.map(can).to_vec(),
                    run: None,
                    continuous: None,
                    load: None,
                };
                Joined { target, agent: None, pushed: None }
            });
            joined.pushed = Some(now.running);
            joined.target.last_seen = now.utc;
            joined.target.state = TargetState::Live;
            joined.target.gone.clear();
            joined.target.clone()
        };
        let window = self
            .windows
            .made(&target, now.utc)
            .map_err(|error| Fault::internal("keep the recording", error))?;
        self.keep(&window, &mut chunk, now.utc)
    }

    /// What is kept of a target, as `steps` steps of a time line.
    ///
    /// # Errors
    /// There is no such target, or nothing.
    pub fn window(&self, target: &str, steps: usize) -> Result<Kept, Fault> {
        let window = self.windows.of(target).ok_or_else(|| self.nothing_kept(target))?;
        let kept = window.with(|window| {
            let bounds = window.bounds()?;
            let end = bounds.to.saturating_add(1);
            let (chunks, timeline) =
                (window.chunks(bounds.from, end), window.timeline(bounds.from, end, steps));
            Some(Kept { bounds, chunks, timeline })
        });
        kept.ok_or_else(|| self.nothing_kept(target))
    }

    /// The files with what was recorded in an interval, UTC ms.
    ///
    /// # Errors
    /// There is nothing, or too much.
    pub fn interval(&self, target: &str, from: i64, to: i64) -> Result<(Vec<Source>, Target), Fault> {
        let of = self.target(target)?;
        if from >= to {
            return Err(Fault::bad("Say `from` and `to` in UTC ms, the one before the other."));
        }
        let window = self.windows.of(target).ok_or_else(|| self.nothing_kept(target))?;
        let sources = window.with(|window| window.select(from, to)).map_err(refused)?;
        if sources.is_empty() {
            return Err(Fault::missing(
                "Nothing is kept of that time; GET the window says from when to when there is.",
            ));
        }
        Ok((sources, of))
    }

    fn nothing_kept(&self, target: &str) -> Fault {
        match self.target(target) {
            Ok(_) => Fault::missing(
                "Nothing is recorded of it all the time; `flightline agent --continuous` does.",
            ),
            Err(_) => no_target(),
        }
    }

    /// Targets whose windows were there before a restart.
    pub(super) fn adopt_windows(&self, targets: Vec<Target>) {
        let mut state = self.state();
        for target in targets {
            let gone = "not heard of since the service was started".to_owned();
            let id = target.id.clone();
            let target = Target { state: TargetState::Gone, gone, run: None, ..target };
            state.remember(&id);
            state.targets.entry(id).or_insert(Joined { target, agent: None, pushed: None });
        }
    }
}

fn flawed(flaw: NotWhole) -> Fault {
    Fault::new(StatusCode::UNPROCESSABLE_ENTITY, format!("These are no whole chunks: {flaw}."))
}

fn refused(error: Error) -> Fault {
    let status = match error {
        Error::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Fault::new(status, error.to_string())
}

fn directory() -> OFlag {
    OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC
}

/// As ids of targets are made.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 80
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

fn described(dir: &OwnedFd) -> io::Result<Target> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let mut text = String::new();
    File::from(openat(dir, TARGET, flags, Mode::empty())?)
        .take(LONGEST_DESCRIPTION)
        .read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}
