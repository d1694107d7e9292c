//! Renders graphs of off-CPU time, as `flightline offcpu`, `threadtime`, `wakeup`, `offwake` and `chain` do.

use std::io::Write;

use flightline_consumer::amount::duration;
use flightline_consumer::fold::{self, FoldOptions, Measure};
use flightline_consumer::folded as text;
use flightline_consumer::latency::Summary;
use flightline_consumer::live;
use flightline_consumer::off_cpu::{Drawn, Graph, InputTotals, OffCpu, Options};
use flightline_consumer::render::{PictureOptions, html};
use flightline_consumer::tree::Tree;

use super::input::{Inputs, Range};
use super::{Error, NOTHING, Outcome, Wanted};

/// Names of the graphs in requests.
pub(super) const GRAPHS: [(&str, Graph); 6] = [
    ("offcpu", Graph::OffCpu),
    ("threadtime", Graph::Time),
    ("wakeup", Graph::Wakeup),
    ("offwake", Graph::OffWake),
    ("chain", Graph::Chain),
    ("runqueue", Graph::RunQueue),
];

/// Returns the graph with this name.
pub(super) fn graph(name: &str) -> Option<Graph> {
    GRAPHS.iter().find(|(of, _)| *of == name).map(|&(_, graph)| graph)
}

/// Stacks of a graph and the data they come from.
pub(super) struct Read {
    pub(super) tree: Tree,
    latency: Option<Summary>,
    seen: InputTotals,
    damage: Option<String>,
}

pub(super) fn read(inputs: &Inputs<'_>, graph: Graph, range: Range, wanted: &Wanted) -> Result<Read, Error> {
    let mut options = Options::new(graph);
    [options.from, options.to] = range.both();
    options.names = !wanted.threads;
    let mut off_cpu = OffCpu::new(options);
    let of = live::Options { samples: graph.events(), others: false, ..live::Options::default() };
    let damage = inputs.each(&of, |item| {
        off_cpu.take(item);
        Ok(())
    })?;
    let Drawn { model, seen, latency, .. } = off_cpu.finish();
    if seen.intervals == 0 {
        return Err(Error::Refused(
            "The recording has no off-CPU time; record in mode OFF_CPU, or choose another interval.".into(),
        ));
    }
    if model.samples.is_empty() {
        return Err(Error::Refused(NOTHING.into()));
    }
    let options =
        FoldOptions { measure: Measure::Total, by_thread: wanted.threads, ..FoldOptions::default() };
    let tree = fold::fold(&model, &options)?;
    if tree.total == 0 {
        return Err(Error::Refused(NOTHING.into()));
    }
    Ok(Read { tree, latency, seen, damage })
}

impl Read {
    pub(super) fn outcome(&self, graph: Graph) -> Outcome {
        let InputTotals { open, open_drawn, involuntary, without_waker, beyond, lost, .. } = self.seen;
        let mut outcome = Outcome {
            total: self.tree.total,
            unit: self.tree.unit.clone(),
            whole: self.damage.is_none(),
            notes: self.damage.clone().into_iter().collect(),
        };
        if lost > 0 {
            outcome.notes.push(format!("{lost} scheduler records and intervals were lost."));
        }
        if beyond > 0 {
            outcome.notes.push(format!(
                "{beyond} intervals are omitted, because the number of intervals in chains is limited; choose a shorter interval."
            ));
        }
        if open_drawn > 0 {
            outcome.notes.push(format!(
                "No wait ended during the run; the waits of {open_drawn} threads are drawn up to its end."
            ));
        } else if open > 0 && matches!(graph, Graph::OffCpu | Graph::Time) {
            outcome.notes.push(format!("Threads still waiting at the end are not drawn: {open}."));
        }
        if involuntary > 0 && graph == Graph::OffCpu {
            outcome.notes.push(format!(
                "{} of preemption are not drawn; select runqueue or threadtime to draw it.",
                nanos(involuntary)
            ));
        }
        if without_waker > 0 && matches!(graph, Graph::Wakeup | Graph::OffWake | Graph::Chain) {
            outcome.notes.push(format!("Sleeps without a known waker: {without_waker}."));
        }
        outcome
    }
}

fn nanos(nanos: u64) -> String {
    duration(i64::try_from(nanos).unwrap_or(i64::MAX))
}

/// Writes folded lines in whole µs, as bcc's tools do.
pub(super) fn folded(
    inputs: &Inputs<'_>,
    graph: Graph,
    range: Range,
    wanted: &Wanted,
    out: &mut impl Write,
) -> Result<Outcome, Error> {
    let mut read = read(inputs, graph, range, wanted)?;
    read.tree = read.tree.in_micros();
    text::write(&read.tree, out)?;
    Ok(read.outcome(graph))
}

pub(super) fn page(
    inputs: &Inputs<'_>,
    graph: Graph,
    range: Range,
    wanted: &Wanted,
    out: &mut impl Write,
) -> Result<Outcome, Error> {
    let read = read(inputs, graph, range, wanted)?;
    let InputTotals { threads, window, lost, .. } = read.seen;
    let title = match wanted.title.as_str() {
        "" => graph.title().to_owned(),
        title => format!("{}: {title}", graph.title()),
    };
    let of = if threads == 1 { "thread" } else { "threads" };
    let lost = if lost > 0 { format!(", {lost} records lost") } else { String::new() };
    let subtitle = format!("{} of {threads} {of} in {}{lost}", nanos(read.tree.total), nanos(window));
    let options = PictureOptions { title, subtitle: Some(subtitle), inverted: false };
    html::write_colored(&read.tree, graph.page_palette(), read.latency.as_ref(), &options, out)?;
    Ok(read.outcome(graph))
}
