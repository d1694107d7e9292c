//! The recordings of a session. Each opens with its first process and is retired after the last; some may
//! fail.

use std::{collections::HashSet, path::Path, sync::Arc, time::Duration};

use super::{pacing::is_due, user_notices::UserNotices};
use crate::{
    error::Error,
    info_events,
    names::{images::Images, modules::ModuleMap},
    os::clock::{monotonic_ns, realtime_ns},
    output::{
        repository::{Owner, tidy},
        sink::{StreamSink, Syncer, Target, per_process, retain_previous},
    },
    recording::{Recording, RecordingId, RecordingSlots},
    session::Session,
    settings::{Settings, labels},
};

/// The recordings of a session, and where they are written.
pub(super) struct OutputSet {
    pub(super) target: Target,
    pub(super) recordings: RecordingSlots,
    syncer: Option<Arc<Syncer>>,
    /// Number of recordings opened so far. Each has a journal.
    opened: u64,
    /// Recordings whose output fails, as reported to the user.
    failing: HashSet<RecordingId>,
    /// Libraries of processes that record themselves, by recording, address and image.
    written_libraries: HashSet<(RecordingId, u64, u32)>,
    /// Time of the last removal of old chunks.
    tidy_ns: u64,
}

impl OutputSet {
    /// Returns the outputs before the first recording. `sync`: a thread synchronises the files with the disk.
    pub(super) fn new(target: Target, sync: bool) -> Result<OutputSet, Error> {
        let syncer = sync.then(Syncer::start).transpose();
        let syncer = syncer.map_err(|e| Error::io("start", Path::new("a thread"), e))?.map(Arc::new);
        Ok(OutputSet {
            target,
            recordings: RecordingSlots::default(),
            syncer,
            opened: 0,
            failing: HashSet::new(),
            written_libraries: HashSet::new(),
            tidy_ns: 0,
        })
    }

    /// Returns the owner of the recording of a process: the process itself, or 0 if all processes share a recording.
    pub(super) fn owner(&self, pid: u32) -> u32 {
        if per_process(&self.target) { pid } else { 0 }
    }

    /// Returns the recording of an owner. Opens it if it is new.
    pub(super) fn open(
        &mut self,
        owner: u32,
        session: &Session,
        settings: &Settings,
        notices: &mut UserNotices,
    ) -> Result<RecordingId, Error> {
        if let Some(id) = self.recordings.find(owner) {
            return Ok(id);
        }
        let about = Owner {
            pid: owner,
            recorder: std::process::id(),
            session: session.dir().to_owned(),
            start_epoch_ns: realtime_ns(),
            labels: match &self.target {
                Target::Repository(_) => labels::program_labels(owner, &settings.processes.labels),
                _ => Vec::new(),
            },
        };
        if !settings.output.overwrite
            && let Some([path, old]) = retain_previous(&self.target, owner)?
        {
            notices.push(format!("{} existed and was renamed to {}", path.display(), old.display()));
        }
        // The first output is opened with the first process, before it runs, so that a failure is seen early.
        let mut recording = match (&self.target, self.opened) {
            (Target::Repository(repository), 1..) => Recording::later(repository, &about, settings)?,
            _ => Recording::open(&self.target, &about, settings)?,
        };
        recording.name_events(session.events());
        info_events::setting(&mut recording, settings, monotonic_ns());
        recording.begin_info_events(true);
        self.opened += 1;
        recording.set_syncer(self.syncer.as_ref());
        recording.keep_journal(session.dir(), self.opened, owner);
        Ok(self.recordings.insert(owner, recording))
    }

    /// Returns true if a new chunk lacks the information events: in a repository every chunk must be complete
    /// in itself, and readers of a stream connect late. Its libraries are written again then.
    pub(super) fn begins_chunk(&mut self, id: RecordingId) -> bool {
        let Some(recording) = self.recordings.get_mut(id) else { return false };
        let begins = recording.begin_info_events(matches!(self.target, Target::Repository(_)));
        if begins {
            self.written_libraries.retain(|(written, ..)| *written != id);
        }
        begins
    }

    /// Writes the libraries of a process that its recording does not have yet.
    pub(super) fn write_libraries(
        &mut self,
        id: RecordingId,
        modules: &ModuleMap,
        images: &Images,
        now: u64,
    ) {
        if let Some(recording) = self.recordings.get_mut(id) {
            info_events::libraries(modules, id, recording, images, &mut self.written_libraries, now);
        }
    }

    /// If many libraries are remembered, retains only those that are `mapped` now.
    pub(super) fn forget_libraries<'a>(
        &mut self,
        mapped: impl Iterator<Item = (RecordingId, &'a ModuleMap)>,
    ) {
        info_events::forget_libraries(&mut self.written_libraries, mapped);
    }

    /// Returns the number of remembered libraries.
    pub(super) fn library_count(&self) -> usize {
        self.written_libraries.len()
    }

    /// Completes the recording of a process that is over, and returns it with its owner. Its key becomes
    /// invalid.
    pub(super) fn retire(&mut self, id: RecordingId) -> Option<(u32, &mut Recording)> {
        let owner = self.recordings.pid(id)?;
        let recording = self.recordings.retire(id)?;
        self.written_libraries.retain(|(written, ..)| *written != id);
        self.failing.remove(&id);
        Some((owner, recording))
    }

    /// Tries a failed output again when it is due. Returns a message for the user if it works again and was
    /// the last that failed.
    pub(super) fn retry(&mut self, id: RecordingId, now: u64) -> Option<String> {
        let recording = self.recordings.get_mut(id)?;
        let message = recording.retry(now)?;
        recording.notice(&message, now);
        self.failing.remove(&id);
        self.failing.is_empty().then_some(message)
    }

    /// Passes on messages of streams and of failed outputs.
    pub(super) fn note_failures(&mut self, notices: &mut UserNotices) {
        for recording in self.recordings.all_mut() {
            notices.extend(recording.stream_mut().map(StreamSink::take_notices).unwrap_or_default());
        }
        for (id, _, recording) in self.recordings.iter() {
            // A root that refuses does so for all processes; report it once.
            let others = recording.will_retry() && !self.failing.is_empty();
            if let Some(reason) = recording.failure()
                && self.failing.insert(id)
                && !others
            {
                let consequence = match recording.will_retry() {
                    true => "recording pauses until the output can be written again",
                    false => "recording stopped; the program continues",
                };
                notices.push(format!("{reason}; {consequence}"));
            }
        }
    }

    /// Returns true if there are outputs, and all of them have failed permanently.
    pub(super) fn all_failed(&self) -> bool {
        let mut open = self.recordings.open().peekable();
        open.peek().is_some()
            && open.all(|recording| recording.failure().is_some() && !recording.will_retry())
    }

    /// Writes a message into all recordings.
    pub(super) fn notice(&mut self, message: &str, now: u64) {
        for recording in self.recordings.open_mut().filter(|recording| !recording.full()) {
            recording.notice(message, now);
        }
    }

    /// Returns true if a stream has a reader.
    pub(super) fn any_followed(&self) -> bool {
        self.recordings.open().any(is_followed)
    }

    /// Returns the time until readers of a stream get their next flush.
    pub(super) fn next_flush(&self) -> Duration {
        let now = monotonic_ns();
        let written = |r: &Recording| !r.full() && r.failure().is_none();
        let read = self.recordings.open().filter(|r| written(r) && is_followed(r));
        let due = read.map(|recording| Duration::from_nanos(recording.flush_in(now)));
        due.min().unwrap_or(Duration::MAX).max(Duration::from_millis(1))
    }

    /// Writes queued bytes to slow readers.
    pub(super) fn push(&mut self) {
        self.recordings.all_mut().for_each(Recording::push);
    }

    /// Returns true if a reader has not read everything.
    pub(super) fn any_unread(&self) -> bool {
        self.recordings.all().any(|recording| recording.waiting() > 0)
    }

    /// Returns the names of the outputs.
    pub(super) fn names(&self) -> Vec<String> {
        // An output in a repository has no name before its first event.
        self.recordings.all().map(Recording::name).filter(|name| !name.is_empty()).collect()
    }

    /// Returns the bytes of the outputs.
    pub(super) fn bytes(&self) -> u64 {
        self.recordings.all().map(Recording::bytes).sum()
    }

    /// Removes the old chunks of a repository if that is due.
    pub(super) fn tidy(&mut self, now: u64) {
        if let Target::Repository(repository) = &self.target
            && is_due(&mut self.tidy_ns, repository.tidy_ns(), now)
        {
            tidy(repository);
        }
    }
}

fn is_followed(recording: &Recording) -> bool {
    recording.stream().is_some_and(|stream| !stream.has_no_reader())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_outputs(target: Target) -> (OutputSet, Session, Settings) {
        let settings = Settings::default();
        (OutputSet::new(target, false).unwrap(), Session::create(&settings).unwrap(), settings)
    }

    #[test]
    fn pid_in_path_gives_each_process_its_own_recording() {
        let folder = tempfile::tempdir().unwrap();
        let (mut outputs, session, settings) = open_outputs(Target::Path(folder.path().join("%p.jfr")));
        let mut notices = UserNotices::default();
        let mut open = |outputs: &mut OutputSet, pid| {
            let owner = outputs.owner(pid);
            outputs.open(owner, &session, &settings, &mut notices).unwrap()
        };
        let [one, two] = [10, 20].map(|pid| open(&mut outputs, pid));
        assert_eq!(open(&mut outputs, 10), one);
        assert_eq!((outputs.recordings.pid(one), outputs.recordings.pid(two)), (Some(10), Some(20)));
        let (owner, recording) = outputs.retire(one).unwrap();
        recording.retire();
        assert_eq!(owner, 10);
        assert!(outputs.retire(one).is_none());
        assert_eq!(outputs.names().len(), 2, "the file of the ended process remains known");
        let three = open(&mut outputs, 30);
        assert_eq!((three.index(), outputs.recordings.slot_count()), (one.index(), 2));
        assert!(outputs.recordings.get(one).is_none() && !outputs.begins_chunk(one));
        assert_eq!(outputs.retry(one, 0), None);
        assert_eq!(notices.take(), [""; 0]);
    }

    #[test]
    fn path_without_pid_is_shared_by_all_processes() {
        let folder = tempfile::tempdir().unwrap();
        let (mut outputs, session, settings) = open_outputs(Target::Path(folder.path().join("all.jfr")));
        let owners = [10, 20].map(|pid| outputs.owner(pid));
        assert_eq!(owners, [0, 0]);
        let id = outputs.open(0, &session, &settings, &mut UserNotices::default()).unwrap();
        assert_eq!((outputs.recordings.find(0), outputs.any_followed()), (Some(id), false));
        assert!(!outputs.all_failed() && !outputs.any_unread());
    }

    #[test]
    fn failed_output_is_reported_once() {
        let (mut outputs, session, settings) = open_outputs(Target::Path("/dev/full".into()));
        assert!(!outputs.all_failed(), "there is no output yet");
        let mut notices = UserNotices::default();
        let id = outputs.open(0, &session, &settings, &mut notices).unwrap();
        outputs.recordings.get_mut(id).unwrap().finish();
        outputs.note_failures(&mut notices);
        outputs.note_failures(&mut notices);
        let messages = notices.take();
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert!(messages[0].ends_with("recording stopped; the program continues"), "{messages:?}");
        assert!(outputs.all_failed());
    }
}
