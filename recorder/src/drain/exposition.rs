//! The metrics for Prometheus: the sums of all recordings of this drain.

use flightline_in_signal::layout::{event_kind, loss};

use super::Drain;
use crate::{control::status::seconds, cost::Budget, os::clock::monotonic_ns, output::exposition::Text};

impl Drain {
    /// Publishes the metrics once a second and at the end, if they were requested.
    pub(super) fn expose(&mut self, last: bool) {
        let now = monotonic_ns();
        if !self.exposition.due(now) && !last {
            return;
        }
        let text = self.metrics_text(!last);
        if let Some(notice) = self.exposition.give(&text, now, last) {
            self.notices.push(notice);
        }
    }

    fn metrics_text(&mut self, up: bool) -> String {
        let mut sum = self.report.clone();
        let (mut processes, mut threads, mut used) = (0u64, 0u64, 0u64);
        for process in self.processes.live_mut() {
            process.state.threads.read_slots(&process.file, self.period_ns);
            sum.add(process);
            processes += 1;
            threads += process.state.threads.list.iter().filter(|t| t.end_ns.is_none()).count() as u64;
            let ring = process.file.ring().map_or(0, |ring| ring.used().saturating_mul(8));
            used = used.max(ring * 256 / process.file.ring_bytes().max(1));
        }
        let count = |of: &dyn Fn(&crate::recording::Recording) -> u64| {
            self.outputs.recordings.open().map(of).sum::<u64>() as f64
        };
        // After the end, the report includes the numbers of the recordings.
        let done = |report_json: u64, of: f64| report_json as f64 + if up { of } else { 0.0 };
        let causes = |value: &dyn Fn(usize) -> f64| {
            loss::NAMES.iter().enumerate().map(|(i, name)| (*name, value(i))).collect::<Vec<_>>()
        };
        let kinds = |value: &dyn Fn(usize) -> f64| {
            let named = event_kind::NAMES.iter().enumerate().filter(|(_, name)| !name.is_empty());
            named.map(|(i, name)| (*name, value(i))).collect::<Vec<_>>()
        };
        let mut text = Text::new(std::process::id());
        text.gauge("up", "1 while recording or paused, 0 after the end.", f64::from(u8::from(up)));
        text.gauge("paused", "1 while recording is paused.", f64::from(u8::from(self.paused())));
        text.gauge("processes", "Processes being recorded.", processes as f64);
        text.gauge("threads", "Threads alive in them.", threads as f64);
        text.counter("samples_total", "Samples of CPU time recorded.", sum.cpu.samples as f64);
        text.counter("cpu_seconds_total", "CPU time of the recorded threads.", seconds(sum.cpu.cpu_ns));
        text.counter(
            "sampled_cpu_seconds_total",
            "CPU time that samples represent.",
            seconds(sum.cpu.sampled_ns),
        );
        let help = "Lost samples of CPU time.";
        text.counters("lost_samples_total", help, "cause", &causes(&|i| sum.cpu.lost[i].0 as f64));
        let help = "CPU time in no sample.";
        text.counters("lost_cpu_seconds_total", help, "cause", &causes(&|i| seconds(sum.cpu.lost[i].1)));
        text.counter(
            "truncated_stacks_total",
            "Samples whose stack does not reach its root.",
            sum.stacks.cut as f64,
        );
        text.counter(
            "threads_without_slot_total",
            "Threads not recorded because the limit was reached.",
            sum.no_slot as f64,
        );
        text.counter(
            "processes_refused_total",
            "Processes not recorded because the limit was reached.",
            self.report.refused as f64,
        );
        let help = "Events of engines other than CPU time recorded.";
        text.counters("events_total", help, "kind", &kinds(&|i| sum.kinds[i].0 as f64));
        let help = "Lost events of engines other than CPU time.";
        text.counters("lost_events_total", help, "kind", &kinds(&|i| sum.kinds[i].1 as f64));
        let bytes = done(sum.output.bytes, count(&|r| r.bytes()));
        text.counter("written_bytes_total", "Bytes of recordings written.", bytes);
        text.counter(
            "chunks_total",
            "Chunks written.",
            done(sum.output.chunks, count(&|r| r.counters().chunks)),
        );
        let unwritten = done(sum.output.unwritten, count(&|r| r.counters().unwritten));
        text.counter("unwritten_events_total", "Events lost because the output failed.", unwritten);
        let failing = count(&|r| u64::from(r.failure().is_some()));
        text.gauge("outputs_failing", "Outputs that cannot be written at present.", failing);
        text.gauge("ring_used_ratio", "Highest fill level of a process's ring, 0 to 1.", used as f64 / 256.0);
        let peak = f64::from(self.costs.ring_peak) / 256.0;
        text.gauge(
            "ring_used_peak_ratio",
            "Highest fill level of a process's ring since the start, 0 to 1.",
            peak,
        );
        let waiting: usize = self.processes.iter().map(|p| p.state.waiting()).sum();
        text.gauge("waiting_for_symbols", "Samples and events that are waiting for symbols.", waiting as f64);
        self.write_cost_text(&mut text);
        text.finish()
    }

    /// Adds what recording costs.
    fn write_cost_text(&self, text: &mut Text) {
        let cost = self.costs.total;
        text.counter("signals_total", "Signals that recording sent to threads.", cost.signals as f64);
        let parts = [
            ("handlers", cost.handlers_ns),
            ("delivery", cost.delivery_ns),
            ("calls", cost.calls_ns),
            ("writer", cost.writer_ns),
            ("symbols", cost.symbols_ns),
        ]
        .map(|(part, ns)| (part, seconds(ns)));
        text.counters("cost_cpu_seconds_total", "CPU time used by recording.", "part", &parts);
        let help = "CPU time of the recorded processes in the period of cost_cpu_seconds_total.";
        text.counter("cost_base_cpu_seconds_total", help, seconds(cost.cpu_ns));
        let help = "CPU time between samples.";
        text.gauge("sampling_period_seconds", help, seconds(self.in_force().period_ns()));
        let budget = self.costs.budget.as_ref().map_or(0.0, |Budget { share, .. }| *share);
        text.gauge("budget_ratio", "Limit of the overhead, 0 to 1; 0 without a limit.", budget);
        let resident = crate::os::system::resident_bytes(std::process::id());
        text.gauge("recorder_resident_bytes", "Memory of the recorder.", resident as f64);
        let remembered = self.remembered().map(|(kind, count)| (kind, count as f64));
        let help = "Entries of the recorder's caches.";
        text.gauges("remembered", help, "kind", &remembered);
    }
}
