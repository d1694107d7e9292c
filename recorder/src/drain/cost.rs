//! Measures the cost of the drain and of recording once a second, writes it every ten seconds, and holds it
//! below the budget.

use std::time::Duration;

use flightline_in_signal::layout::engines;
use serde_json::{Value, json};

use super::{Drain, pacing::PAUSE};
use crate::{
    control::status::seconds,
    cost::{Budget, Delivery, STEPS, Sum},
    os::clock::thread_cpu_ns,
    process::Process,
    recording::RecordingId,
    settings::Settings,
};

/// Time between two cost events of a recording, ns.
const COST_EVENT_NS: u64 = 10_000_000_000;
/// By thrift level: factor for the longest pause between two rounds. Limited by the capacity of rings.
const PAUSES: [u32; STEPS] = [1, 2, 4];
/// By thrift level: factor for the interval of process and machine metrics.
const METRICS_EVERY: [u32; STEPS] = [1, 10, 60];

/// The measured costs.
pub(super) struct Costs {
    pub(super) delivery: Delivery,
    pub(super) budget: Option<Budget>,
    /// Total since the start.
    pub(super) total: Sum,
    /// The highest fill level of a ring when it was read, in 1/256.
    pub(super) ring_peak: u32,
    /// Processes that ended since the last measurement, by recording.
    ended: Vec<(RecordingId, Sum)>,
    /// CPU time of the writing thread and of the symbol thread at the last measurement, ns.
    own_ns: [u64; 2],
    /// CPU time that the writing thread spent on unwind tables and symbols read by the symbol thread, ns.
    pub(super) loading_ns: u64,
    start_ns: u64,
    at_ns: u64,
    /// The share in the last second.
    last_share: f64,
}

impl Costs {
    pub(super) fn new(settings: &Settings, now_ns: u64) -> Costs {
        Costs {
            delivery: Delivery::measure(),
            budget: settings.cost.budget.map(Budget::new),
            total: Sum::default(),
            ring_peak: 0,
            ended: Vec::new(),
            own_ns: [0; 2],
            loading_ns: 0,
            start_ns: now_ns,
            at_ns: now_ns,
            last_share: 0.0,
        }
    }

    /// Adds the last costs of a process.
    pub(super) fn end(&mut self, process: &mut Process) {
        let sum = process.take_cost(&self.delivery);
        self.ended.push((process.state.recording, sum));
    }
}

impl Drain {
    /// Returns the settings that programs apply: those selected, or with longer intervals if the budget
    /// requires it.
    pub(super) fn in_force(&self) -> Settings {
        let stretch = self.costs.budget.as_ref().map_or(1.0, Budget::stretch);
        if stretch <= 1.0 { self.settings.clone() } else { self.settings.stretched(stretch) }
    }

    /// Adds up the costs since the last call, and assigns each recording its part.
    pub(super) fn measure(&mut self, now: u64) -> Sum {
        let mut news = std::mem::take(&mut self.costs.ended);
        for process in self.processes.iter_mut() {
            news.push((process.state.recording, process.take_cost(&self.costs.delivery)));
        }
        let loading_ns = self.costs.loading_ns;
        let now_ns = [
            thread_cpu_ns().saturating_sub(loading_ns),
            self.symbols.images.reader_cpu_ns().saturating_add(loading_ns),
        ];
        let before = std::mem::replace(&mut self.costs.own_ns, now_ns);
        let own = [0, 1].map(|i| now_ns[i].saturating_sub(before[i]));
        // The fixed cost is divided equally; the cost of symbols is divided by the records read.
        news.extend(self.outputs.recordings.iter().map(|(id, ..)| (id, Sum::default())));
        let parts: u64 = news.iter().map(|(_, sum)| sum.records + 1).sum();
        let reading: u64 = news.iter().map(|(_, sum)| sum.reading_ns).sum();
        let fixed = own[0].saturating_sub(reading) / news.len().max(1) as u64;
        let mut all = Sum::default();
        for (id, mut sum) in news {
            let part = |ns: u64| (u128::from(ns) * u128::from(sum.records + 1) / u128::from(parts)) as u64;
            (sum.writer_ns, sum.symbols_ns) = (sum.reading_ns + fixed, part(own[1]));
            all.add(&sum);
            if let Some(recording) = self.outputs.recordings.get_mut(id) {
                recording.cost.add(&sum);
            }
        }
        self.costs.total.add(&all);
        self.costs.at_ns = now;
        all
    }

    /// Adjusts the rates to the budget once a second.
    pub(super) fn keep_budget(&mut self, now: u64) {
        let interval_ns = now.saturating_sub(self.costs.at_ns);
        // The cost of the start is not repeated, so it does not count.
        let first = self.costs.total == Sum::default();
        let sum = self.measure(now);
        self.costs.last_share = sum.share(interval_ns);
        let idle = self.paused() || self.steering.stopped || first;
        let Some(budget) = self.costs.budget.as_mut().filter(|_| !idle) else { return };
        let base_ns = sum.cpu_ns.max(interval_ns);
        let verdict = budget.second(sum.steady_ns().saturating_sub(sum.fixed_ns()), sum.fixed_ns(), base_ns);
        let thrift = budget.thrift();
        self.metrics.every(METRICS_EVERY[thrift]);
        if let Some(beyond) = verdict.beyond {
            let selected_share = budget.share;
            let message = format!(
                "recording costs {:.3} % of CPU time, of which {:.3} % does not depend on the rate; --budget {:.3}% cannot be met",
                100.0 * beyond.cost,
                100.0 * beyond.fixed,
                100.0 * selected_share
            );
            self.outputs.notice(&message, now);
            self.notices.push(message);
        }
        if verdict.other_rates {
            let settings = self.in_force();
            let sampling_ns = settings.period_ns();
            for process in self.processes.iter_mut() {
                process.state.threads.sampled_every(sampling_ns);
            }
            // The recording declares the new interval from here on.
            for id in self.outputs.recordings.ids() {
                self.write_cost(id, now, true);
            }
            self.steering.change(&self.session, &settings, self.period_ns);
        }
    }

    /// Returns the longest pause between two rounds.
    pub(super) fn longest_pause(&self) -> Duration {
        let thrift = self.costs.budget.as_ref().map_or(0, Budget::thrift);
        // Rings hold half a second of samples, but events of interposers come in bursts.
        let samples_only = self.settings.engine_bits() == engines::CPU;
        let longest = PAUSE[1] * if samples_only { PAUSES[thrift] } else { 1 };
        let longest = self.off_cpu_pause().map_or(longest, |pause| longest.min(pause));
        // A stream's reader waits for its flushes; a file has no such reader.
        match self.outputs.any_followed() {
            true => longest.min((self.settings.output.flush / 2).max(PAUSE[0])),
            false => longest,
        }
    }

    /// Returns the costs since the start, in seconds.
    pub(super) fn cost_so_far(&self) -> Value {
        let sum = &self.costs.total;
        json!({
            "handlers": seconds(sum.handlers_ns),
            "delivery": seconds(sum.delivery_ns),
            "calls": seconds(sum.calls_ns),
            "writer": seconds(sum.writer_ns),
            "fixed": seconds(sum.fixed_ns()),
            "symbols": seconds(sum.symbols_ns),
            "programs": seconds(sum.cpu_ns),
            "signals": sum.signals,
            "share": sum.share(self.costs.at_ns.saturating_sub(self.costs.start_ns)),
            "shareLastSecond": self.costs.last_share,
        })
    }

    /// Writes a recording's costs if it is time or `must` is set.
    pub(super) fn write_cost(&mut self, id: RecordingId, now: u64, must: bool) {
        let Some(recording) = self.outputs.recordings.get_mut(id) else { return };
        if recording.full() || !must && recording.cost_age(now) < COST_EVENT_NS {
            return;
        }
        let stretch = self.costs.budget.as_ref().map_or(1.0, Budget::stretch);
        let sampling_ns = (self.period_ns as f64 * stretch) as u64;
        recording.write_cost(sampling_ns, now);
    }
}
