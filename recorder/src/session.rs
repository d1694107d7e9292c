//! The session directory. Recorded programs read it to learn whether, and with which settings, they are being
//! recorded.

use std::{
    fs,
    fs::File,
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::atomic::Ordering,
    time::Duration,
};

use flightline_in_signal::layout::{
    FixedSettings, Format, LiveSettings, MAGIC, MAX_EVENTS, MAX_TRACES, ROWS_FILE, SESSION_BYTES,
    SESSION_FILE, SIZES, TraceSpec, session_flags,
};
use nix::fcntl::{FallocateFlags, Flock, FlockArg, fallocate};

use crate::{
    error::Error,
    os::clock,
    perf_events, settings,
    settings::PerfEvent,
    shared_memory::rows::{RowsArena, new_file},
};

mod client;
mod discovery;
mod outputs;
mod quota;

use client::MappedPage;
pub use client::SessionClient;
pub(crate) use discovery::is_abandoned;
use discovery::remove_stale;
pub use discovery::{OnMachine, abandoned, on_machine, parents};
pub(crate) use outputs::files;
pub use outputs::{outputs, process_output, recorded};
use quota::most_processes;

const PREFIX: &str = "flightline-";
/// How long the shared memory of a killed drain is retained for a recovery.
const KEPT_FOR: Duration = Duration::from_secs(24 * 3600);
/// Longest wait for a lock that outlives its drain for a moment (a child may still hold it).
const LOCK_WAIT: Duration = Duration::from_millis(300);
/// Only sessions younger than this can have such a lock.
const YOUNG: Duration = Duration::from_secs(10);
/// Names the session's repository, so that recovery finds where to record a process that the drain had not
/// seen.
pub(crate) const ROOT_FILE: &str = "repository";

/// Returns a mask of the lowest `count` bits.
fn lowest_bits(count: usize) -> u32 {
    (1 << count.min(MAX_EVENTS)) - 1
}

fn flags(settings: &settings::Settings) -> u32 {
    let flags = [
        (settings.processes.follow, session_flags::FOLLOW),
        (settings.cost.measure, session_flags::MEASURE),
        (settings.processes.fatal_signals == Some(true), session_flags::FATAL_SIGNALS),
    ];
    flags.iter().filter(|(set, _)| *set).fold(0, |all, (_, flag)| all | flag)
}

fn ns(time: Option<Duration>) -> u64 {
    time.map_or(0, |t| u64::try_from(t.as_nanos()).unwrap_or(u64::MAX))
}

/// Writes the periods and thresholds of `settings`. A CPU time event represents `event_ns`.
fn write_periods(live: &LiveSettings, settings: &settings::Settings, event_ns: u64) {
    let words = [
        (&live.period_ns, settings.period_ns()),
        (&live.event_ns, event_ns),
        (&live.alloc_bytes, settings.alloc.interval_bytes.unwrap_or(0)),
        (&live.lock_ns, ns(settings.calls.lock)),
        (&live.io_ns, ns(settings.calls.io)),
        (&live.wall_ns, ns(settings.wall)),
    ];
    for (word, value) in words {
        word.store(value, Ordering::Relaxed);
    }
}

/// A session directory owned by this drain. Dropping it stops sampling in every program and removes the
/// directory.
pub struct Session {
    dir: PathBuf,
    page: MappedPage,
    /// Held as long as the session lives, so that other processes see that the directory is in use.
    _lock: Flock<File>,
    rows: RowsArena,
    /// Perf events with a slot in the page, in the order of their slots.
    events: Vec<PerfEvent>,
}

impl Session {
    /// Creates the directory in the first location that allows it.
    pub fn create(settings: &settings::Settings) -> Result<Session, Error> {
        let uid = nix::unistd::getuid();
        let mut refused = None;
        for parent in parents() {
            remove_stale(&parent, uid.as_raw());
            for _ in 0..16 {
                let dir = parent.join(format!("{PREFIX}{uid}-{:016x}", random()));
                match fs::DirBuilder::new().mode(0o700).create(&dir) {
                    Ok(()) => match Session::fill(&dir, settings) {
                        Ok(session) => return Ok(session),
                        Err(error) => {
                            let _ = fs::remove_dir_all(&dir);
                            refused = Some(error);
                            break;
                        }
                    },
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    Err(error) => {
                        refused = Some(Error::io("create the session directory", &dir, error));
                        break;
                    }
                }
            }
        }
        Err(refused.unwrap_or_else(|| {
            Error::io("create a session directory in", Path::new("/dev/shm"), io::ErrorKind::NotFound.into())
        }))
    }

    fn fill(dir: &Path, settings: &settings::Settings) -> Result<Session, Error> {
        let path = dir.join(SESSION_FILE);
        let lock = Flock::lock(new_file(&path)?, FlockArg::LockExclusiveNonblock)
            .map_err(|(_, e)| Error::io("lock", &path, e.into()))?;
        let file = &*lock;
        // Allocate real pages now, so that a full tmpfs is an error here and not a SIGBUS later.
        fallocate(file, FallocateFlags::empty(), 0, SESSION_BYTES as i64)
            .map_err(|e| Error::io("allocate", &path, e.into()))?;
        let page = MappedPage::map(file, &path)?;
        let rows = RowsArena::create(&dir.join(ROWS_FILE), settings.rows_size())?;
        quota::check(dir)?;
        let specs = perf_events::specs(&settings.events)?;
        let functions = perf_events::traces(settings)?;
        let mut traces = [TraceSpec::default(); MAX_TRACES];
        for (to, spec) in traces.iter_mut().zip(&functions) {
            *to = *spec;
        }
        page.fixed.store(FixedSettings {
            ring_bytes: settings.ring_size(),
            rows_bytes: settings.rows_size(),
            start_mono_ns: clock::monotonic_ns(),
            seed: random(),
            most_processes: most_processes(dir, settings.ring_size()),
            engine: settings.cpu.engine.code(),
            max_depth: settings.stacks.depth,
            thread_slots: settings::THREAD_SLOTS,
            flags: flags(settings),
            trace_count: functions.len().min(MAX_TRACES) as u32,
            pad: 0,
            traces,
        });
        for (to, spec) in page.events.iter().zip(&specs) {
            to.store(*spec);
        }
        let live = &page.live;
        live.event_count.store(specs.len().min(MAX_EVENTS) as u32, Ordering::Relaxed);
        live.event_mask.store(lowest_bits(specs.len()), Ordering::Relaxed);
        live.aggregate_ns.store(settings.cpu.aggregate_ns().unwrap_or(0), Ordering::Relaxed);
        live.spans.store(settings.spans.code(), Ordering::Relaxed);
        write_periods(live, settings, settings.period_ns());
        let waits = settings.schedule.waits();
        live.paused.store(u32::from(waits), Ordering::Relaxed);
        live.engines.store(if waits { 0 } else { settings.engine_bits() }, Ordering::Relaxed);
        page.drain_pid.store(std::process::id(), Ordering::Relaxed);
        // No other process knows the directory yet.
        page.format.store(Format { magic: MAGIC, sizes: SIZES });
        Ok(Session { dir: dir.to_owned(), page, _lock: lock, rows, events: settings.events.clone() })
    }

    /// Writes which repository the session records to.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn note_root(&self, root: &Path) -> io::Result<()> {
        use std::os::unix::ffi::OsStrExt;
        fs::write(self.dir.join(ROOT_FILE), std::path::absolute(root)?.as_os_str().as_bytes())
    }

    /// Returns the directory, the value of `FLIGHTLINE_SESSION` for programs.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the unwind tables that all programs share.
    pub fn rows(&mut self) -> &mut RowsArena {
        &mut self.rows
    }

    /// Returns when the session began, monotonic ns.
    pub fn begun_ns(&self) -> u64 {
        self.page.fixed.load().start_mono_ns
    }

    /// Makes every program of the session stop sampling.
    pub fn stop(&self) {
        self.page.stop.store(1, Ordering::Release);
    }

    /// Returns true if sampling was stopped, by the drain or by a program (`flightline_stop` of the C API).
    pub fn stopped(&self) -> bool {
        self.page.stop.load(Ordering::Acquire) != 0
    }

    /// Returns the perf events recorded now or before, by the index that programs use.
    pub fn events(&self) -> &[PerfEvent] {
        &self.events
    }

    /// Allocates slots for the perf `events`; [`Session::change`] then selects them for recording. An
    /// event never loses its slot, because samples of it may still be in a ring.
    ///
    /// # Errors
    /// An event cannot be recorded on this machine, or no slot is left.
    pub fn place_events(&mut self, events: &[PerfEvent]) -> Result<(), Error> {
        let new: Vec<PerfEvent> = events.iter().filter(|e| !self.events.contains(e)).cloned().collect();
        let specs = perf_events::specs(&new)?;
        if self.events.len() + new.len() > MAX_EVENTS {
            let problem = format!(
                "a recording can have {MAX_EVENTS} different perf events, and already has {}; stop it and start another one",
                self.events.len()
            );
            return Err(Error::Setting { name: "event", problem });
        }
        for (event, spec) in new.into_iter().zip(specs) {
            // Programs read an entry only after the count includes it.
            if let Some(to) = self.page.events.get(self.events.len()) {
                to.store(spec);
            }
            self.events.push(event);
        }
        let count = &self.page.live.event_count;
        count.store(self.events.len() as u32, Ordering::Release);
        Ok(())
    }

    /// Writes the settings that apply from now on; while `paused`, nothing is recorded. Returns the number of
    /// this change. Programs store it in their headers when they have applied the change.
    ///
    /// A CPU time event represents `event_ns`, whatever the sampling interval is.
    pub fn change(&self, settings: &settings::Settings, event_ns: u64, paused: bool) -> u32 {
        let live = &self.page.live;
        write_periods(live, settings, event_ns);
        live.paused.store(u32::from(paused), Ordering::Release);
        let chosen = self.events.iter().enumerate().filter(|(_, event)| settings.events.contains(event));
        let mask = &live.event_mask;
        mask.store(chosen.fold(0, |mask, (index, _)| mask | 1 << index), Ordering::Relaxed);
        let bits = if paused { 0 } else { settings.engine_bits() };
        live.engines.store(bits, Ordering::SeqCst);
        live.control.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Requests a flush, as a program would, and returns its number.
    pub fn ask_flush(&self) -> u64 {
        self.page.flush.requested.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Returns the number of the newest flush that was requested (`flightline_dump`).
    pub fn flush_requested(&self) -> u64 {
        self.page.flush.requested.load(Ordering::Acquire)
    }

    /// Reports to programs that everything up to `request` has been written.
    pub fn flush_done(&self, request: u64) {
        self.page.flush.done.store(request, Ordering::Release);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stop();
        self.page.drain_pid.store(0, Ordering::Release);
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Returns true if a directory has the name of a session.
pub fn is_named(dir: &Path) -> bool {
    let name = dir.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_prefix(PREFIX));
    name.and_then(|n| n.split_once('-')).is_some_and(|(uid, id)| uid.parse::<u32>().is_ok() && id.len() == 16)
}

/// Returns the repository that a session records to, if any.
pub fn repository_root(session: &Path) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let root = fs::read(session.join(ROOT_FILE)).ok()?;
    Some(PathBuf::from(std::ffi::OsString::from_vec(root))).filter(|root| root.is_absolute())
}

/// Returns the number in the name of a process file. Files are numbered in the order of their creation.
pub fn process_file_number(path: &Path) -> u64 {
    let name = path.file_stem().and_then(|n| n.to_str()).unwrap_or("");
    name.rsplit('-').next().and_then(|n| n.parse().ok()).unwrap_or(u64::MAX)
}

/// Returns the session whose drain is process `pid`.
pub fn find_by_drain(pid: u32) -> Option<PathBuf> {
    let dirs = parents().into_iter().filter_map(|parent| fs::read_dir(parent).ok());
    dirs.flat_map(|entries| entries.flatten())
        .map(|entry| entry.path())
        .filter(|dir| is_named(dir))
        .find(|dir| SessionClient::open(dir).is_ok_and(|seen| seen.drain_pid() == pid))
}

fn random() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: the buffer is 8 bytes long.
    let n = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if n == 8 {
        u64::from_ne_bytes(bytes)
    } else {
        clock::monotonic_ns() ^ u64::from(std::process::id()) << 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn session_directory_is_private_and_removed_on_drop() {
        let mut session = Session::create(&settings::Settings::default()).unwrap();
        let dir = session.dir().to_owned();
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
        let page = fs::read(dir.join(SESSION_FILE)).unwrap();
        let rows = settings::Settings::default().rows_size() as usize;
        assert_eq!(page[..8], MAGIC.to_le_bytes());
        assert_eq!(session.rows().store(&[7; 100], 0x0707_0707), Some(64));
        assert_eq!(session.rows().store(&[8; 10], 1), Some(192));
        assert_eq!(session.rows().store(&vec![0; rows], 1), None);
        assert_eq!(fs::read(dir.join(ROWS_FILE)).unwrap()[64..164], [7; 100]);
        let words = session.rows().words();
        assert_eq!((words.len(), words[8].load(Ordering::Relaxed)), (rows / 8, 0x0707_0707_0707_0707));
        assert!(!session.stopped());
        drop(session);
        assert!(!dir.exists());
    }
}
