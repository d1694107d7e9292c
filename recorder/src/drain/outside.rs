//! Recording from outside in the drain: see [`crate::from_outside::attach`].

use std::os::fd::BorrowedFd;

use super::{Drain, child_attach::ChildAttach, startup::Starting};
use crate::{
    error::Error,
    from_outside::attach::{NamedEvent, Watch},
    from_outside::off_cpu::OffCpu,
    loss,
    os::clock::monotonic_ns,
    perf_events,
    recording::RecordingId,
};

/// The engines that record from outside. An engine is taken out of here while it works, because it writes to
/// the [`Drain`].
#[derive(Default)]
pub(super) struct OutsideEngines {
    /// CPU time, perf events and waits.
    pub(super) watch: Option<Box<Watch>>,
    /// Off-CPU time.
    pub(super) off_cpu: Option<Box<OffCpu>>,
    /// A program that does not sample itself yet.
    pub(super) starting: Option<Starting>,
    /// Programs to record from outside as soon as they appear.
    pub(super) children: ChildAttach,
}

impl OutsideEngines {
    /// Returns true if the CPU time of a process is sampled from outside.
    pub(super) fn samples(&self, pid: u32) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.samples(pid))
    }

    /// Returns true if an engine writes, or will write, into a recording.
    pub(super) fn uses(&mut self, id: RecordingId) -> bool {
        self.off_cpu.as_mut().is_some_and(|off_cpu| off_cpu.uses(id))
            || self.watch.as_ref().is_some_and(|watch| watch.uses(id))
            || self.children.uses(id)
    }

    /// Returns true if samples or intervals wait for symbols.
    pub(super) fn any_waiting(&self) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.waiting() > 0)
            || self.off_cpu.as_ref().is_some_and(|off_cpu| off_cpu.waiting() > 0)
    }
}

impl Drain {
    fn with_watch<R>(&mut self, act: impl FnOnce(&mut Watch, &mut Drain) -> R) -> Option<R> {
        let mut watch = self.outside.watch.take()?;
        let result = act(&mut watch, self);
        self.outside.watch = Some(watch);
        Some(result)
    }

    fn open_watch(&mut self) -> Result<&mut Watch, Error> {
        let watch = match self.outside.watch.take() {
            Some(watch) => watch,
            None => Box::new(Watch::new(&self.settings, self.named_events()?)),
        };
        Ok(self.outside.watch.insert(watch))
    }

    /// Returns the perf events of processes recorded from outside.
    fn named_events(&self) -> Result<Vec<NamedEvent>, Error> {
        let specs = perf_events::specs(&self.settings.events)?;
        let named = self.settings.events.iter().zip(specs).filter_map(|(event, spec)| {
            let index = self.session.events().iter().position(|known| known == event)?;
            Some(NamedEvent::new(index as u16, event.name.clone(), spec))
        });
        named.collect()
    }

    /// Starts to record a running process that was not preloaded.
    pub fn attach(&mut self, pid: u32) -> Result<(), Error> {
        self.open_watch()?;
        let attached = self.with_watch(|watch, drain| watch.attach(drain, pid, false, monotonic_ns()));
        self.note_engine();
        attached.unwrap_or(Ok(()))
    }

    /// Records a process from outside that belongs to the recording from its start: the kernel removed its
    /// events when it changed its user, or the process that started it announced it. Its earlier CPU time is
    /// lost.
    pub fn attach_again(&mut self, pid: u32) -> Result<(), Error> {
        if let Err(error) = self.open_watch() {
            // Programs that record themselves continue, and CPU time needs no permission for uprobes.
            self.notices
                .push(format!("processes recorded from outside are recorded without perf events: {error}"));
            self.outside.watch = Some(Box::new(Watch::new(&self.settings, Vec::new())));
        }
        self.with_watch(|watch, drain| watch.attach(drain, pid, true, monotonic_ns())).unwrap_or(Ok(()))
    }

    /// Records from outside the program that the calling thread starts next, and its descendants.
    pub fn attach_child(&mut self) -> Result<(), Error> {
        let attached = self.open_watch()?.attach_child();
        self.note_engine();
        attached
    }

    fn note_engine(&mut self) {
        if let Some(watch) = &self.outside.watch {
            let code = if watch.sees_kernel() { loss::OUTSIDE } else { loss::OUTSIDE_USER };
            self.report.engine((code, 0));
            self.report.stacks.copied_bytes = watch.stack_bytes();
        }
    }

    /// Returns the descriptors that are readable when an engine has something to read.
    pub(super) fn watch_wakes(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.outside.watch.iter().flat_map(|w| w.wake())
    }

    /// Returns the number of processes recorded from outside that still run.
    pub(super) fn watched(&self) -> usize {
        self.outside.watch.as_ref().map_or(0, |w| w.running())
    }

    /// Returns true if CPU time or off-CPU time of a process is recorded from outside.
    pub fn watches(&self, pid: u32) -> bool {
        self.outside.samples(pid) || self.records_off_cpu(pid)
    }

    pub(super) fn watch_round(&mut self, now: u64) -> u32 {
        let paused = self.paused();
        self.with_watch(|watch, drain| {
            watch.pause(paused);
            watch.round(drain, now)
        })
        .unwrap_or(0)
    }

    /// Samples the wall clock of processes recorded from outside. Returns true if any of them ran.
    pub(super) fn watch_waits(&mut self, now: u64) -> bool {
        let ran = self.with_watch(|watch, drain| watch.look_at_waits(drain, now)).unwrap_or(false);
        if let Some(watch) = &mut self.outside.watch {
            self.notices.extend(watch.notices());
        }
        ran
    }

    pub(super) fn watch_second(&mut self, now: u64) {
        self.with_watch(|watch, _| watch.look(now));
        if let Some(watch) = &mut self.outside.watch {
            self.notices.extend(watch.notices());
        }
    }

    pub(super) fn watch_resolve(&mut self, anyway: bool) {
        self.with_watch(|watch, drain| watch.resolve(drain, anyway));
    }

    pub(super) fn watch_write_totals(&mut self, id: RecordingId, now: u64) {
        let mut report = std::mem::take(&mut self.report);
        self.with_watch(|watch, drain| watch.write_accounts(drain, id, &mut report, now));
        self.report = report;
    }

    pub(super) fn watch_close(&mut self, now: u64) {
        self.with_watch(|watch, drain| watch.close(drain, now));
    }

    pub(super) fn watch_finish(&mut self, now: u64) {
        self.with_watch(|watch, drain| watch.finish(drain, now));
    }

    /// Stops recording a process from outside because it begins to record itself.
    pub(super) fn watch_give_up(&mut self, pid: u32, from_ns: u64) {
        if let Some(watch) = &mut self.outside.watch {
            watch.give_up(pid, from_ns);
        }
    }
}
