//! Off-CPU recording in the drain: see [`crate::from_outside::off_cpu`].

use std::os::fd::BorrowedFd;

use super::Drain;
use crate::{
    error::Error, from_outside::off_cpu::OffCpu, from_outside::outputs::Outputs, recording::RecordingId,
};

impl Drain {
    fn with_off_cpu<R>(&mut self, act: impl FnOnce(&mut OffCpu, &mut Drain) -> R) -> Option<R> {
        let mut off_cpu = self.outside.off_cpu.take()?;
        let result = act(&mut off_cpu, self);
        self.outside.off_cpu = Some(off_cpu);
        Some(result)
    }

    fn begin_off_cpu(
        &mut self,
        act: impl FnOnce(&mut OffCpu, &mut Drain) -> Result<(), String>,
    ) -> Result<(), Error> {
        let Some(selected) = &self.settings.off_cpu else { return Ok(()) };
        let name = selected.option();
        let wrong = |problem| Error::Setting { name, problem };
        if self.outside.off_cpu.is_none() {
            let off_cpu = OffCpu::new(selected, &self.settings).map_err(wrong)?;
            self.notices.extend(off_cpu.lacks().map(str::to_owned));
            self.outside.off_cpu = Some(Box::new(off_cpu));
        }
        self.with_off_cpu(act).unwrap_or(Ok(())).map_err(wrong)
    }

    /// Records off-CPU time, if selected, of the program that the calling thread starts next. `joins`: the
    /// program is preloaded.
    pub fn off_cpu_child(&mut self, joins: bool) -> Result<(), Error> {
        self.begin_off_cpu(|off_cpu, _| off_cpu.expect_child(joins))
    }

    /// Notes the PID of the program that was started.
    pub fn off_cpu_started(&mut self, pid: u32) {
        if let Some(off_cpu) = &mut self.outside.off_cpu {
            off_cpu.started(pid);
        }
    }

    /// Records off-CPU time, if selected, of a running process.
    pub fn off_cpu_attach(&mut self, pid: u32) -> Result<(), Error> {
        self.begin_off_cpu(|off_cpu, drain| off_cpu.attach(pid, drain.images()))
    }

    /// Records off-CPU time of all processes.
    pub fn off_cpu_all(&mut self) -> Result<(), Error> {
        self.begin_off_cpu(|off_cpu, _| off_cpu.all())
    }

    pub(super) fn off_cpu_wakes(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.outside.off_cpu.iter().flat_map(|o| o.wake())
    }

    pub(super) fn records_off_cpu(&self, pid: u32) -> bool {
        self.outside.off_cpu.as_ref().is_some_and(|off_cpu| off_cpu.records(pid))
    }

    /// Returns the number of processes of which only off-CPU time is recorded.
    pub(super) fn off_cpu_running(&self) -> usize {
        let alone = !self.settings.samples_cpu_time();
        self.outside.off_cpu.as_ref().filter(|_| alone).map_or(0, |o| o.running())
    }

    pub(super) fn off_cpu_round(&mut self, now: u64) -> u32 {
        self.with_off_cpu(|off_cpu, drain| off_cpu.round(drain, now)).unwrap_or(0)
    }

    pub(super) fn off_cpu_second(&mut self) {
        if let Some(off_cpu) = &mut self.outside.off_cpu {
            off_cpu.look_at_filters();
        }
    }

    pub(super) fn off_cpu_pause(&self) -> Option<std::time::Duration> {
        self.outside.off_cpu.as_ref().and_then(|o| o.longest_pause())
    }

    pub(super) fn off_cpu_resolve(&mut self, anyway: bool) {
        self.with_off_cpu(|off_cpu, drain| off_cpu.resolve(drain, anyway));
    }

    pub(super) fn off_cpu_close(&mut self, now: u64) {
        self.with_off_cpu(|off_cpu, drain| off_cpu.close(drain, now));
    }

    pub(super) fn off_cpu_write_totals(&mut self, id: RecordingId, now: u64) {
        self.with_off_cpu(|off_cpu, drain| {
            if let Some((recording, ..)) = drain.parts(id) {
                off_cpu.write_losses(id, recording, now);
            }
        });
    }

    pub(super) fn off_cpu_forget_output(&mut self, id: RecordingId) {
        if let Some(off_cpu) = &mut self.outside.off_cpu {
            off_cpu.forget_output(id);
        }
    }

    /// Writes the losses of each output and the totals at the end.
    pub(super) fn off_cpu_finish(&mut self, now: u64) {
        self.outputs.recordings.ids().into_iter().for_each(|id| self.off_cpu_write_totals(id, now));
        let total = self.outside.off_cpu.as_ref().map(|o| o.total()).unwrap_or_default();
        (self.report.tracepoints.off_cpu, self.report.tracepoints.kernel_io) = (total.off_cpu, total.io);
        self.report.tracepoints.settings.clone_from(&self.settings.off_cpu);
    }
}
