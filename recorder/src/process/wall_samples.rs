//! Samples of the wall clock: running threads and waits.

use flightline_in_signal::layout::event_kind;
use flightline_in_signal::payload::waited;
use jfr_format::schema::thread_state;

use super::{
    parse::{Record, Sample},
    process_state::ProcessState,
    sample::{Origin, RawSample, SampleSink},
    stack_resolver::Missing,
    waiting_samples::Payload,
    wall_sampler,
};
use crate::{
    names::intern::TraceIndex, os::clock::not_in_future, process::threads::ThreadIndex, recording::events,
};

impl ProcessState {
    /// Writes the wall-clock samples for a CPU time sample: the thread was running, and may have waited for a
    /// processor before.
    pub(super) fn write_running(
        &mut self,
        raw: &mut RawSample<'_>,
        stack: u32,
        trace: Result<TraceIndex, Missing>,
        events: u32,
        sink: &mut SampleSink<'_>,
    ) {
        let thread = self.threads.list.get_mut(raw.origin.thread);
        let (Some(wall_ns), Some(thread)) = (self.sampling.wall_ns, thread) else { return };
        let cpu_ns = u64::from(events).saturating_mul(self.sampling.period_ns);
        let seed = thread.seed();
        let (ran, queued) = thread.wall.running(seed, cpu_ns, wall_ns);
        for (state, samples) in [(thread_state::RUNNABLE, ran), (thread_state::WAITING_FOR_CPU, queued)]
            .into_iter()
            .filter(|s| s.1 > 0)
        {
            let extra = [u64::from(samples).saturating_mul(wall_ns)];
            let event = events::Event { head: wall_head(state, samples), extra: &extra };
            match trace {
                Ok(trace) => self.write_event(raw.origin, Some(trace), &event, sink),
                Err(missing) => {
                    self.put_aside(raw, Some(stack), Payload::Event(Box::new(event.owned())), missing);
                }
            }
        }
    }

    /// Starts recording wall-clock time: after a pause, or with another interval.
    pub fn begin_wall(&mut self, now_ns: u64) {
        self.sampling.wall_since_ns = now_ns;
        let slices = self.threads.list.iter_mut().filter_map(|thread| thread.wall.slices.as_mut());
        slices.for_each(|slices| slices.restart());
    }

    /// Handles a thread's report of its off-CPU time, sent before its context changed. Time that the sampler
    /// has already recorded is not recorded again.
    pub(super) fn take_off_cpu_time(
        &mut self,
        sample: &Sample,
        record: &mut Record,
        sink: &mut SampleSink<'_>,
        now_ns: u64,
    ) {
        let index = self.sample_thread(sink.file, sample);
        let thread = self.threads.list.get_mut(index);
        let (Some(wall_ns), Some(thread)) = (self.sampling.wall_ns, thread) else { return };
        let Some(&extra) = record.extra.first_chunk::<{ waited::WORDS }>() else { return };
        let (off_ns, waited_ns) = (extra[waited::OFF], extra[waited::WAITED]);
        let seed = thread.seed();
        let slices = thread.wall.slices.get_or_insert_default();
        let from_ns = off_ns.saturating_sub(waited_ns);
        let recorded_ns = not_in_future(sample.time_ns, now_ns).saturating_sub(self.sampling.wall_since_ns);
        let (ns, place) = slices.ended(from_ns, waited_ns, sample.weight_ns, recorded_ns);
        // A thread cannot wait longer than it lived: damaged times must not flood the output.
        let life = now_ns.saturating_sub(sink.file.start_mono_ns()).saturating_add(1_000_000_000);
        let ns = ns.min(life.saturating_sub(slices.noticed_ns));
        slices.noticed_ns += ns;
        let queued = slices.queued_part(ns);
        let sleeping = place.as_ref().map_or(thread_state::SLEEPING, |place| place.state);
        let (stack, truncation) = match &place {
            Some(place) => (&place.stack, truncation(&place.stack)),
            None => (&record.stack, sample.reason),
        };
        for (state, ns) in [(sleeping, ns - queued), (thread_state::WAITING_FOR_CPU, queued)] {
            let Some(thread) = self.threads.list.get_mut(index) else { return };
            let samples = thread.wall.without(state, seed, ns, wall_ns);
            if samples == 0 {
                continue;
            }
            // A sample that represents many short waits starts no earlier than its own wait.
            let time_ns = not_in_future(sample.time_ns, now_ns).saturating_sub(ns.min(waited_ns));
            let head = wall_head(state, samples);
            if sink.recording.full() {
                self.engines.lose(head.kind, head.value);
                continue;
            }
            if let Some(place) = &place {
                record.context = self.contexts.context(sink.file, &place.context);
            }
            let extra = [u64::from(samples).saturating_mul(wall_ns)];
            let origin = Origin { thread: index, time_ns, context: record.context.as_ref() };
            let raw = RawSample { origin, stack, truncation, entry: &mut record.entry };
            self.pass_on(raw, &events::Event { head, extra: &extra }, sink);
        }
    }

    /// Writes a wait found by the sampler. `stack` is a raw stack, preceded by 1 + the reason if it is
    /// truncated.
    pub(super) fn take_wait(
        &mut self,
        thread: ThreadIndex,
        sample: &wall_sampler::Sample,
        stack: &[u64],
        sink: &mut SampleSink<'_>,
        now_ns: u64,
    ) {
        let head = wall_head(sample.state, sample.samples);
        if sink.recording.full() {
            self.engines.lose(head.kind, head.value);
            return;
        }
        let context = self.contexts.context(sink.file, &sample.context);
        let time_ns = not_in_future(sample.time_ns, now_ns);
        let origin = Origin { thread, time_ns, context: context.as_ref() };
        self.note_open(origin);
        let raw = RawSample { origin, stack, truncation: truncation(stack), entry: &mut None };
        self.pass_on(raw, &events::Event { head, extra: &[sample.span_ns] }, sink);
    }
}

fn wall_head(state: u64, samples: u32) -> events::Head {
    events::Head { kind: event_kind::WALL, index: state as u16, value: u64::from(samples) }
}

/// Returns the reason why a stack of the wall clock is truncated, if it is.
fn truncation(stack: &[u64]) -> Option<u16> {
    stack.first().and_then(|reason| reason.checked_sub(1)).map(|reason| reason as u16)
}
