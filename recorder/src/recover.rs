//! Completes recordings whose drain was killed, from the data left in shared memory.
//!
//! All events of a record are in one batch (`Recording::begin_record`), so a record is in the output
//! completely or not at all. If the drain died while it released a record of the ring,
//! `RingHeader::releasing` identifies the record. A session names its repository, so that a process that the
//! drain had not found yet has an output too. The session's files may be damaged: the output is truncated
//! only by a commit with a correct checksum.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::atomic::AtomicU64,
    time::{Duration, Instant},
};

use flightline_in_signal::layout::{PROC_SUFFIX, SESSION_FILE};
use jfr_format::{
    constants::{FLAG_FINAL, STATE_FINISHED},
    header::{self, ChunkHeader},
    ids::Ticks,
    write::ClockLine,
};

use crate::{
    error::Error,
    info_events,
    names::images::Images,
    os::clock::{TICKS_PER_SECOND, TickLine, both_ns, monotonic_ns},
    output::repository::{OWNER_FILE, Owner, Repository},
    output::sink::{Sink, Target},
    process::Process,
    recording::{Recording, RecordingId},
    session::{SessionClient, files, process_file_number, repository_root},
    settings::Settings,
    shared_memory::journal::{self, Commit, Left},
    shared_memory::proc_file::ProcFile,
    shared_memory::rows::RowsArena,
};

/// The shortest interval that the settings allow.
const SHORTEST_PERIOD_NS: u64 = 10_000;
/// Longest time for reading symbols.
const SYMBOLS_WAIT: Duration = Duration::from_secs(20);
/// How long a handler that began before the stop may take.
const HANDLERS_WAIT: Duration = Duration::from_millis(2);
/// How often to try to lock a session that another process is looking at.
const LOOKERS: u32 = 250;

/// The result of a recovery.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// Outputs that were completed.
    pub outputs: Vec<PathBuf>,
    /// Samples and events that only shared memory had.
    pub records: u64,
    /// Records that were half written when their process was killed.
    pub torn: u64,
    /// Samples and events that programs counted as lost after the last flush.
    pub lost: u64,
    /// Failures, with their reasons.
    pub problems: Vec<String>,
}

/// Completes the outputs of a session whose drain is dead, and removes the session.
///
/// A second call does nothing. If a recovery is killed, the next one starts again from the beginning.
///
/// # Errors
/// The session is in use, or the directory is not a session.
pub fn recover(session: &Path) -> Result<Recovered, Error> {
    let page = session.join(SESSION_FILE);
    let lock = File::open(&page).map_err(|e| Error::io("open", &page, e))?;
    if is_held(&lock) {
        let problem = format!("{} is still being recorded; there is nothing to recover", session.display());
        return Err(Error::Unavailable { name: "session", problem });
    }
    let seen = SessionClient::open(session)?;
    let (event_ns, sampling_ns) = seen.periods_ns();
    // A damaged period would turn each sample into a million events.
    if event_ns < SHORTEST_PERIOD_NS {
        return Err(Error::shared(&page, format!("invalid sampling period of {event_ns} ns")));
    }
    let settings = seen.settings();
    seen.ask_stop();
    std::thread::sleep(HANDLERS_WAIT);
    let mut rows = RowsArena::none(session)?;
    let mut recovery = Recovery {
        session,
        settings,
        event_ns,
        sampling_ns,
        begun_ns: seen.begun_ns(),
        now_ns: monotonic_ns(),
        outputs: Vec::new(),
        processes: Vec::new(),
        images: Images::new(),
        result: Recovered::default(),
    };
    recovery.reopen_outputs();
    recovery.replay_processes();
    recovery.name(&mut rows);
    recovery.finish();
    let result = recovery.result;
    // Keep the session if anything could not be written.
    if result.problems.is_empty() {
        fs::remove_dir_all(session).map_err(|e| Error::io("remove", session, e))?;
    }
    Ok(result)
}

/// Returns true if a drain holds the session's lock. Other processes may hold it for a moment to look at the
/// session.
fn is_held(lock: &File) -> bool {
    (0..LOOKERS).all(|attempt| {
        if attempt > 0 {
            std::thread::sleep(HANDLERS_WAIT);
        }
        matches!(lock.try_lock(), Err(TryLockError::WouldBlock))
    })
}

/// The state of one [`recover`].
struct Recovery<'a> {
    session: &'a Path,
    settings: Settings,
    event_ns: u64,
    sampling_ns: u64,
    begun_ns: u64,
    now_ns: u64,
    outputs: Vec<(Left, Recording)>,
    processes: Vec<Process>,
    images: Images,
    result: Recovered,
}

impl Recovery<'_> {
    /// Reopens the outputs that the journals name, at their last commit.
    fn reopen_outputs(&mut self) {
        for path in files(self.session, journal::SUFFIX) {
            let left = match journal::read(&path) {
                Ok(Some(left)) => left,
                Ok(None) => continue,
                // The output of this journal is unknown: leave it alone, and keep the session.
                Err(error) => {
                    self.result.problems.push(format!("{}: {error}", path.display()));
                    continue;
                }
            };
            match reopen(&left, &self.settings) {
                Ok(recording) => {
                    self.result.outputs.push(left.commit.path.clone());
                    self.outputs.push((left, recording));
                }
                Err(error) => {
                    self.result.problems.push(format!("{}: {error}", left.commit.path.display()));
                }
            }
        }
    }

    /// Writes the data that each process left in shared memory.
    fn replay_processes(&mut self) {
        let mut paths = files(self.session, PROC_SUFFIX);
        paths.sort_by_key(|p| process_file_number(p));
        for path in paths {
            if let Err(error) = ProcFile::open(&path).and_then(|file| self.replay_process(file)) {
                self.result.problems.push(error.to_string());
            }
        }
    }

    fn replay_process(&mut self, file: ProcFile) -> Result<(), Error> {
        let pid = file.pid;
        let Some(index) = self.output_for(&file)? else { return Ok(()) };
        let (left, recording) = &mut self.outputs[index];
        // The PID may belong to another process by now.
        file.distrust_pid();
        let name = file.info().called();
        let group = recording.add_group(format!("{name} ({pid})"));
        let mut process = Process::new(file, RecordingId::first(index), group, self.event_ns, self.begun_ns);
        process.state.threads.sampling_ns = self.sampling_ns;
        process.replay(left, recording, &mut self.images, self.now_ns);
        process.close(recording, &mut self.images, self.now_ns, true);
        self.processes.push(process);
        Ok(())
    }

    /// Returns the output of a process, and opens it if necessary; `None` if the process has no output.
    fn output_for(&mut self, file: &ProcFile) -> Result<Option<usize>, Error> {
        let own = |(left, _): &(Left, Recording)| left.pid == 0 || left.pid == file.pid;
        if let Some(known) = self.outputs.iter().rposition(own) {
            return Ok(Some(known));
        }
        let Some(begun) = begin(self.session, file, &self.settings)? else { return Ok(None) };
        self.result.outputs.push(begun.0.commit.path.clone());
        self.outputs.push(begun);
        Ok(Some(self.outputs.len() - 1))
    }

    /// Waits for symbols, and writes the samples that wait for them.
    fn name(&mut self, rows: &mut RowsArena) {
        let deadline = Instant::now() + SYMBOLS_WAIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let waiting = self.processes.iter().any(|p| p.state.waiting() > 0);
            let wait = waiting && self.images.outstanding() > 0 && !left.is_zero();
            if wait {
                self.images.take_loaded(rows, left.min(Duration::from_millis(100)));
            }
            for process in &mut self.processes {
                let (_, recording) = &mut self.outputs[process.state.recording.index()];
                process.resolve_pending(recording, &mut self.images, !wait);
            }
            if !wait {
                return;
            }
        }
    }

    /// Writes the numbers of recovered and lost events to each output, and completes it.
    fn finish(&mut self) {
        let (result, now_ns) = (&mut self.result, self.now_ns);
        result.records = self.processes.iter().map(|process| process.state.ring.records).sum();
        result.torn = self.processes.iter().map(|process| process.state.ring.torn).sum();
        for (index, (left, recording)) in self.outputs.iter_mut().enumerate() {
            let (mut records, mut lost) = (0u64, 0u64);
            for process in self.processes.iter_mut().filter(|p| p.state.recording.index() == index) {
                records += process.state.ring.records;
                lost = lost.saturating_add(process.record_remaining(left.commit.batch, recording, now_ns));
            }
            result.lost = result.lost.saturating_add(lost);
            let message = format!(
                "the recorder was killed; {records} samples and events were recovered from shared \
                 memory, and {lost} were lost. Totals of CPU time end at the last flush"
            );
            recording.notice(&message, now_ns);
            let folder = left.commit.path.parent().filter(|folder| folder.join(OWNER_FILE).exists());
            if let Some(owner) = folder.and_then(Owner::read) {
                info_events::labels(recording, owner.pid, &owner.labels, now_ns);
            }
            recording.finish();
            recording.close_file();
            result.problems.extend(recording.failure().map(str::to_owned));
        }
    }
}

/// Starts the recording of a process that the drain had not seen yet, if the session records to a repository.
fn begin(session: &Path, file: &ProcFile, settings: &Settings) -> Result<Option<(Left, Recording)>, Error> {
    let Some(root) = repository_root(session) else { return Ok(None) };
    let (mono, wall) = both_ns();
    let origin_ns = file.start_mono_ns().min(mono);
    let start_epoch_ns = wall.saturating_sub(mono - origin_ns);
    let owner = Owner { pid: file.pid, session: session.to_owned(), start_epoch_ns, ..Owner::default() };
    let sink = Sink::open(&Target::Repository(Repository::new(&root)), &owner, &Default::default())?;
    let path = sink.name().to_owned();
    let line = ClockLine {
        start_ticks: Ticks(0),
        start_epoch_ns: i64::try_from(start_epoch_ns).unwrap_or(0),
        ticks_per_second: TICKS_PER_SECOND,
    };
    let ticks = TickLine::new(origin_ns);
    let recording = Recording::resume(sink, line, ticks, Ticks(0), settings);
    let mut recording = recording.map_err(|e| Error::io("record to", &path, e))?;
    // The setting that allows arguments to be recorded is not known here, so redact them.
    info_events::process(&mut recording, &file.info(), true, mono);
    let commit = Commit { batch: 0, path, chunk_at: 0, len: 0, header: [0; header::LEN] };
    let left = Left {
        pid: file.pid,
        origin_ns,
        commit,
        records: Vec::new(),
        copied: std::collections::HashMap::new(),
    };
    Ok(Some((left, recording)))
}

/// Truncates an output to its last commit and starts a chunk after it.
fn reopen(left: &Left, settings: &Settings) -> io::Result<Recording> {
    let commit = &left.commit;
    let damaged = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let committed = ChunkHeader::decode(&commit.header).map_err(io::Error::other)?;
    let folder = commit.path.parent().filter(|folder| folder.join(OWNER_FILE).exists());
    // A chunk started after the commit contains only events that are in the journal too.
    if let Some(folder) = folder {
        for later in crate::output::repository::chunks(folder)?
            .into_iter()
            .filter(|p| p.file_stem() > commit.path.file_stem())
        {
            fs::remove_file(later)?;
        }
    }
    let file = OpenOptions::new().read(true).write(true).open(&commit.path)?;
    let _ = file.try_lock();
    let len = file.metadata()?.len();
    let mut bytes = [0; header::LEN];
    file.read_exact_at(&mut bytes, commit.chunk_at)?;
    let found = ChunkHeader::decode(&bytes).map_err(io::Error::other)?;
    if found.start_ticks != committed.start_ticks || found.start_nanos != committed.start_nanos {
        return Err(damaged("is not the recording of this session"));
    }
    if len < commit.len {
        return Err(damaged("is shorter than it was"));
    }
    // The file is truncated below, so a damaged journal must not remove other data.
    if commit.len.checked_sub(commit.chunk_at) != Some(committed.size) {
        return Err(damaged("differs in length from its journal; the file is not changed"));
    }
    let finished = ChunkHeader { state: STATE_FINISHED, flags: committed.flags & !FLAG_FINAL, ..committed };
    file.write_all_at(&finished.encode(), commit.chunk_at)?;
    file.set_len(commit.len)?;
    let line = ClockLine {
        start_ticks: committed.start_ticks,
        start_epoch_ns: committed.start_nanos,
        ticks_per_second: committed.ticks_per_second,
    };
    let per_tick = 1_000_000_000 / committed.frequency().max(1);
    let end = Ticks(committed.start_ticks.0.saturating_add(committed.duration_nanos / per_tick.max(1)));
    let sink = match folder {
        Some(folder) => Sink::again(folder)?,
        None => Sink::append(file, &commit.path)?,
    };
    Recording::resume(sink, line, TickLine::new(left.origin_ns), end, settings)
}

impl Process {
    /// Replays the records that the drain had already copied to the journal; newer records remain in the
    /// ring.
    fn replay(&mut self, left: &Left, recording: &mut Recording, images: &mut Images, now_ns: u64) {
        let key = self.file.key();
        self.state.modules.read_log(&self.file, images);
        self.state.modules.read_saved(&self.file, images);
        for record in left.records.iter().filter(|k| k.process == key) {
            let payload: Vec<AtomicU64> = record.payload.iter().map(|w| AtomicU64::new(*w)).collect();
            self.take_record(record.kind, &payload, recording, images, now_ns);
        }
        if let Some(place) = left.copied.get(&key) {
            self.file.skip_to(*place);
        }
    }
}
