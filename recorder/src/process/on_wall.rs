//! What the wall clock saw of a thread.

use flightline_in_signal::layout::event_kind;
use jfr_format::schema::thread_state;

use super::book::{Book, Pending, What};
use crate::{
    clock::not_in_future,
    events,
    names::{images::Images, intern::TraceIndex},
    process::{proc_file::ProcFile, threads::ThreadIndex},
    recording::Recording,
    wall,
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

    /// Writes what the wall clock saw of a thread; `stack` as in `self.words`, with 1 + the reason in front if it is cut.
    #[allow(clippy::too_many_arguments)] // of one sample
    pub fn wall_sample(
        &mut self,
        file: &ProcFile,
        index: ThreadIndex,
        sample: &wall::Sample,
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
        let reason = stack.first().and_then(|cut| cut.checked_sub(1)).map(|reason| reason as u16);
        let extra = [sample.span_ns];
        let event = events::Event { head, extra: &extra };
        self.pass_on(file, index, not_in_future(sample.time_ns, now_ns), reason, &event, recording, images);
    }
}
