//! What the wall clock saw of a thread.

use flightline_in_signal::layout::event_kind;
use flightline_in_signal::payload::waited;
use jfr_format::schema::thread_state;

use super::book::{Book, Pending, What};
use super::{parse::Sample, wall_sampler};
use crate::{
    names::images::Images,
    names::intern::TraceIndex,
    os::clock::not_in_future,
    process::threads::ThreadIndex,
    recording::{Recording, events},
    shared_memory::proc_file::ProcFile,
};

impl Book {
    /// A sample of CPU time as the wall clock sees it: the thread runs; and before, it may have waited for a processor.
    #[allow(clippy::too_many_arguments)] // of one sample
    pub(super) fn running(
        &mut self,
        file: &ProcFile,
        index: ThreadIndex,
        stack: u32,
        trace: Option<TraceIndex>,
        time_ns: u64,
        events: u32,
        recording: &mut Recording,
    ) {
        let (Some(wall_ns), Some(thread)) = (self.wall_ns, self.threads.list.get_mut(index)) else { return };
        let cpu_ns = u64::from(events).saturating_mul(self.period_ns);
        let seed = thread.seed();
        let (ran, queued) = thread.wall.running(seed, cpu_ns, wall_ns);
        for (state, samples) in [(thread_state::RUNNABLE, ran), (thread_state::WAITING_FOR_CPU, queued)]
            .into_iter()
            .filter(|s| s.1 > 0)
        {
            let head =
                events::Head { kind: event_kind::WALL, index: state as u16, value: u64::from(samples) };
            let extra = [u64::from(samples).saturating_mul(wall_ns)];
            let event = events::Event { head, extra: &extra };
            match trace {
                Some(trace) => {
                    let worked = self.worked.clone();
                    self.write_event(file, index, Some(trace), time_ns, &event, worked.as_ref(), recording);
                }
                None => {
                    let what = What::Event(Box::new(event.owned()));
                    let (map, entry) = (self.map_now(), self.entry.take());
                    let (stack, worked) = (Some(stack), self.worked.clone());
                    self.put_aside(Pending { map, thread: index, stack, time_ns, what, worked, entry });
                }
            }
        }
    }

    /// What the wall clock sees is recorded from now on: after a pause, or another interval.
    pub fn begin_wall(&mut self, now_ns: u64) {
        self.wall_since_ns = now_ns;
        let pieces = self.threads.list.iter_mut().filter_map(|thread| thread.wall.pieces.as_mut());
        pieces.for_each(|pieces| pieces.restart());
    }

    /// A thread told for how long it was without a processor before what it works for changed; its stack and what it worked for were read
    /// last. What looks have told of it is not told again.
    pub(super) fn waited(
        &mut self,
        file: &ProcFile,
        sample: &Sample,
        recording: &mut Recording,
        images: &mut Images,
        now_ns: u64,
    ) {
        let index =
            self.threads.index_for_sample(file, sample.slot, sample.tid, sample.time_ns, self.period_ns);
        let (Some(wall_ns), Some(thread)) = (self.wall_ns, self.threads.list.get_mut(index)) else { return };
        let Some(&extra) = self.extra.first_chunk::<{ waited::WORDS }>() else { return };
        let (off_ns, waited_ns) = (extra[waited::OFF], extra[waited::WAITED]);
        let seed = thread.seed();
        let pieces = thread.wall.pieces.get_or_insert_default();
        let from_ns = off_ns.saturating_sub(waited_ns);
        let recorded_ns = not_in_future(sample.time_ns, now_ns).saturating_sub(self.wall_since_ns);
        let (ns, place) = pieces.ended(from_ns, waited_ns, sample.weight_ns, recorded_ns);
        // No thread waited for longer than it lived: damaged times must not flood the output.
        let life = now_ns.saturating_sub(file.start_mono_ns).saturating_add(1_000_000_000);
        let ns = ns.min(life.saturating_sub(pieces.noticed_ns));
        pieces.noticed_ns += ns;
        let queued = pieces.queued_part(ns);
        let sleeping = place.as_ref().map_or(thread_state::SLEEPING, |place| place.state);
        for (state, ns) in [(sleeping, ns - queued), (thread_state::WAITING_FOR_CPU, queued)] {
            let Some(thread) = self.threads.list.get_mut(index) else { return };
            let samples = thread.wall.without(state, seed, ns, wall_ns);
            if samples == 0 {
                continue;
            }
            // One for many short times began no earlier than its own.
            let time_ns = not_in_future(sample.time_ns, now_ns).saturating_sub(ns.min(waited_ns));
            let head =
                events::Head { kind: event_kind::WALL, index: state as u16, value: u64::from(samples) };
            if recording.full() {
                self.engines.lose(head.kind, head.value);
                continue;
            }
            let mut reason = sample.reason;
            if let Some(place) = &place {
                self.words.clone_from(&place.stack);
                self.worked = self.contexts.of(file, &place.context);
                reason = cut(&place.stack);
            }
            let extra = [u64::from(samples).saturating_mul(wall_ns)];
            let event = events::Event { head, extra: &extra };
            self.pass_on(file, index, time_ns, reason, &event, recording, images);
        }
    }

    /// Writes what the wall clock saw of a thread; `stack` as in `self.words`, with 1 + the reason in front if it is cut.
    #[allow(clippy::too_many_arguments)] // of one sample
    pub fn wall_sample(
        &mut self,
        file: &ProcFile,
        index: ThreadIndex,
        sample: &wall_sampler::Sample,
        stack: &[u64],
        recording: &mut Recording,
        images: &mut Images,
        now_ns: u64,
    ) {
        let kind = event_kind::WALL;
        let head = events::Head { kind, index: sample.state as u16, value: u64::from(sample.samples) };
        if recording.full() {
            self.engines.lose(head.kind, head.value);
            return;
        }
        self.words.clear();
        self.words.extend_from_slice(stack);
        self.worked = self.contexts.of(file, &sample.context);
        self.note_open(index, not_in_future(sample.time_ns, now_ns));
        let reason = cut(stack);
        let extra = [sample.span_ns];
        let event = events::Event { head, extra: &extra };
        self.pass_on(file, index, not_in_future(sample.time_ns, now_ns), reason, &event, recording, images);
    }
}

/// Why a stack that the wall clock took is cut, if it is.
fn cut(stack: &[u64]) -> Option<u16> {
    stack.first().and_then(|cut| cut.checked_sub(1)).map(|reason| reason as u16)
}
