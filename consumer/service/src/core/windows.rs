//! Windows: the most recent part of each target's continuous profile.

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
use crate::api_error::ApiError;
use crate::forward::{Content, Item};
use crate::id;
use crate::ingest::App;
use crate::render::{NotWhole, Source, check};
use crate::window::{Bounds, Chunk, Error, Limits, Part, Timeline, Window};
use crate::wire::{self, Capability, State as TargetState, Target};

/// File that describes the window's target, next to its chunks.
const TARGET: &str = "target.json";
/// Number and length (ms) of the steps of a target's load: ten minutes in total.
pub(super) const LOAD_STEPS: i64 = 60;
pub(super) const LOAD_STEP: i64 = 10_000;

/// Upper limit for a target's description.
const LONGEST_DESCRIPTION: u64 = 1 << 20;

/// The windows of all targets, each in a directory of its own.
#[derive(Debug)]
pub(super) struct Windows {
    dir: OwnedFd,
    limits: Limits,
    open: Mutex<BTreeMap<String, Arc<OpenWindow>>>,
    /// Serializes creation and removal of windows; readers do not wait for these file operations.
    making: Mutex<()>,
}

/// A window, with cached data that can be read without waiting for a writer.
#[derive(Debug)]
struct OpenWindow {
    window: Mutex<Window>,
    bounds: Mutex<Option<Bounds>>,
    /// The last [`LOAD_STEPS`] steps.
    recent: Mutex<Option<Timeline>>,
}

impl OpenWindow {
    fn new(window: Window) -> Arc<Self> {
        let (bounds, recent) = (Mutex::new(window.bounds()), Mutex::new(recent(&window)));
        Arc::new(Self { window: Mutex::new(window), bounds, recent })
    }

    /// Runs `work` on the window. May block on the disk.
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

/// Returns samples per second up to the end of the data, in steps aligned to their length.
fn recent(window: &Window) -> Option<Timeline> {
    let end = (window.bounds()?.to.div_euclid(LOAD_STEP) + 1).saturating_mul(LOAD_STEP);
    let from = end.saturating_sub(LOAD_STEPS * LOAD_STEP);
    Some(window.timeline(from, end, usize::try_from(LOAD_STEPS).unwrap_or(1)))
}

/// Contents of a target's window.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WindowContents {
    /// Time range and size.
    #[serde(flatten)]
    pub bounds: Bounds,
    /// Its chunks.
    pub chunks: Vec<Part>,
    /// Samples per second.
    pub timeline: Timeline,
}

impl Windows {
    /// Opens the directory, creating it if necessary. Also returns the targets that have windows in it.
    pub(super) fn open(path: &Path, limits: Limits, now: i64) -> io::Result<(Self, Vec<Target>)> {
        std::fs::create_dir_all(path)?;
        let dir = open(path, directory(), Mode::empty())?;
        let windows = Self { dir, limits, open: Mutex::default(), making: Mutex::default() };
        let mut targets = Vec::new();
        let mut listing = Dir::from_fd(windows.dir.try_clone()?)?;
        for entry in listing.iter() {
            let entry = entry?;
            let Some(id) = entry.file_name().to_str().ok().filter(|name| is_name(name)) else { continue };
            // Ignore directories without a valid description.
            let Ok(dir) = openat(&windows.dir, id, directory(), Mode::empty()) else { continue };
            let Ok(target) = described(&dir) else { continue };
            if target.id == id {
                let window = Window::open(dir, limits, now).map_err(io::Error::other)?;
                windows.all().insert(id.to_owned(), OpenWindow::new(window));
                targets.push(target);
            }
        }
        Ok((windows, targets))
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Arc<OpenWindow>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, target: &str) -> Option<Arc<OpenWindow>> {
        self.all().get(target).cloned()
    }

    /// Returns a target's window, creating it if necessary.
    fn made(&self, target: &Target, now: i64) -> io::Result<Arc<OpenWindow>> {
        if let Some(window) = self.get(&target.id) {
            return Ok(window);
        }
        let _turn = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have created it in the meantime.
        if let Some(window) = self.get(&target.id) {
            return Ok(window);
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
        let window = OpenWindow::new(window);
        self.all().insert(id.to_owned(), Arc::clone(&window));
        Ok(window)
    }

    /// Returns the time range and size of a target's window.
    pub(super) fn bounds(&self, target: &str) -> Option<Bounds> {
        let window = self.get(target)?;
        *window.bounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if the target's window has data in an interval.
    pub(super) fn overlaps(&self, target: &str, from: i64, to: i64) -> bool {
        self.get(target).is_some_and(|window| window.with(|window| window.overlaps(from, to)))
    }

    /// Returns a target's samples per second over the last [`LOAD_STEPS`] steps.
    pub(super) fn recent(&self, target: &str) -> Option<Timeline> {
        let window = self.get(target)?;
        window.recent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Deletes a target's window.
    pub(super) fn forget(&self, target: &str) -> Result<(), Error> {
        let _turn = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(window) = self.all().remove(target) else { return Ok(()) };
        window.with(Window::clear)?;
        let dir = openat(&self.dir, target, directory(), Mode::empty())?;
        let _ = unlinkat(&dir, TARGET, UnlinkatFlags::NoRemoveDir);
        // Leave files that the service did not create.
        let _ = unlinkat(&self.dir, target, UnlinkatFlags::RemoveDir);
        Ok(())
    }

    /// Removes expired data, and counts one chunk of each window loaded at startup.
    pub(super) fn look(&self, now: i64) {
        let windows: Vec<Arc<OpenWindow>> = self.all().values().cloned().collect();
        for window in windows {
            // If the disk fails now, the next call retries.
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
    /// Stores chunks of a continuous profile.
    ///
    /// # Errors
    /// Returns an error if the agent is unknown, the chunks are damaged, or there is no room.
    pub fn put(&self, target: &str, secret: &str, chunks: Bytes) -> Result<(), ApiError> {
        self.heard(target, secret)?;
        let of = self.target(target)?;
        self.has_room_for(target)?;
        let mut chunk = Chunk::from_bytes(chunks.clone()).map_err(flawed)?;
        let now = self.now().utc;
        let window =
            self.windows.made(&of, now).map_err(|error| ApiError::internal("store the chunks", error))?;
        self.keep(&window, &mut chunk, now)?;
        if !self.forward.is_empty() {
            let (from, until) = (chunk.checked().first_ms, chunk.checked().last_ms);
            let (bytes, labels) = (chunk.checked().bytes, wire::Labels::new());
            self.forward.offer(Item { content: Content::Bytes(chunks), bytes, of, labels, from, until });
        }
        Ok(())
    }

    /// New windows need room on the disk; existing ones replace their oldest chunks.
    fn has_room_for(&self, target: &str) -> Result<(), ApiError> {
        if self.windows.get(target).is_some() { Ok(()) } else { self.has_room() }
    }

    /// Stores a chunk. On a full disk the window does not grow: its oldest chunks make room.
    fn keep(&self, window: &OpenWindow, chunk: &mut Chunk, now: i64) -> Result<(), ApiError> {
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

    /// Stores a recording that another profiler pushed. Its target is identified by name and labels.
    ///
    /// # Errors
    /// Returns an error if the recording is damaged or there is no room.
    pub fn pushed(&self, app: &App, recording: Bytes) -> Result<(), ApiError> {
        check_labels(&app.labels)?;
        let id = id::target(&app.name, 0, &format!("pushed/{}", app.text()));
        self.has_room_for(&id)?;
        let mut chunk = Chunk::from_bytes(recording).map_err(flawed)?;
        let now = self.now();
        let reason = "another profiler records it and pushes the profiles".to_owned();
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
            .map_err(|error| ApiError::internal("store the recording", error))?;
        self.keep(&window, &mut chunk, now.utc)
    }

    /// Returns the contents of a target's window, with a timeline of `steps` steps.
    ///
    /// # Errors
    /// Returns an error if the target does not exist or has no data.
    pub fn window(&self, target: &str, steps: usize) -> Result<WindowContents, ApiError> {
        let window = self.windows.get(target).ok_or_else(|| self.no_window(target))?;
        let kept = window.with(|window| {
            let bounds = window.bounds()?;
            let end = bounds.to.saturating_add(1);
            let (chunks, timeline) =
                (window.chunks(bounds.from, end), window.timeline(bounds.from, end, steps));
            Some(WindowContents { bounds, chunks, timeline })
        });
        kept.ok_or_else(|| self.no_window(target))
    }

    /// Returns the files that cover an interval (UTC ms).
    ///
    /// # Errors
    /// Returns an error if there is no data or too much.
    pub fn interval(&self, target: &str, from: i64, to: i64) -> Result<(Vec<Source>, Target), ApiError> {
        let of = self.target(target)?;
        if from >= to {
            return Err(ApiError::bad("Give `from` and `to` in UTC ms, with `from` before `to`."));
        }
        let window = self.windows.get(target).ok_or_else(|| self.no_window(target))?;
        let sources = window.with(|window| window.select(from, to)).map_err(refused)?;
        if sources.is_empty() {
            return Err(ApiError::missing(
                "No data in this interval; GET the window for the available interval.",
            ));
        }
        Ok((sources, of))
    }

    fn no_window(&self, target: &str) -> ApiError {
        match self.target(target) {
            Ok(_) => ApiError::missing(
                "The target has no continuous profile; start its agent with `flightline agent --continuous`.",
            ),
            Err(_) => no_target(),
        }
    }

    /// Adds the targets of windows loaded at startup.
    pub(super) fn adopt_windows(&self, targets: Vec<Target>) {
        let mut state = self.state();
        for target in targets {
            let gone = "not seen since the service started".to_owned();
            let id = target.id.clone();
            let target = Target { state: TargetState::Gone, gone, run: None, ..target };
            state.remember(&id);
            state.targets.entry(id).or_insert(Joined { target, agent: None, pushed: None });
        }
    }
}

fn flawed(flaw: NotWhole) -> ApiError {
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, format!("The chunks are not complete: {flaw}."))
}

fn refused(error: Error) -> ApiError {
    let status = match error {
        Error::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    ApiError::new(status, error.to_string())
}

fn directory() -> OFlag {
    OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC
}

/// Returns true if `name` has the form of a target id.
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
