//! Spans inferred from samples, for traces.

use flightline_consumer::live::Item;
use flightline_consumer::spans::report::function;
use flightline_consumer::spans::{self, Inferred, Limits, Options, Parent, Profile, Spans};
use regex::Regex;

use crate::collector::Collector;
use crate::context::{Link, Span};

/// Infers spans from the same items that a [`Collector`] takes.
#[derive(Debug)]
pub struct Inferring(Spans);

impl Inferring {
    /// Functions that were sampled for less than `min_duration` ns, or that match `exclude`, do not
    /// become spans. With `stream`, samples do not wait for the end of the input.
    pub fn new(min_duration: i64, exclude: Vec<Regex>, stream: bool) -> Self {
        let limits = if stream { Limits::STREAM } else { Limits::FILE };
        let inference = Some(spans::Inference { min_duration });
        Self(Spans::new(Options { limits, inference, exclude, ..Options::default() }))
    }

    /// Processes an item.
    pub fn take(&mut self, item: &Item) {
        self.0.take(item);
    }

    /// Passes the settled spans to `collector`. With `last`, all spans are settled.
    pub fn give(&mut self, collector: &mut Collector, last: bool) {
        if last {
            self.0.settle();
        }
        for inferred in self.0.take_inferred() {
            collector.span(span(self.0.profile(), &inferred));
        }
    }
}

fn span(profile: &Profile, inferred: &Inferred) -> Span {
    let trace_id = inferred.trace.0;
    let link = |span: &spans::SpanKey| Link { trace_id, span_id: span.id(), is_child: true };
    Span {
        trace_id,
        span_id: inferred.id,
        parent_span_id: match inferred.parent {
            Parent::Span(span) => span.id(),
            Parent::Inferred(id) => id,
        },
        flags: 1,
        name: function(profile, inferred.frame),
        start: inferred.start,
        end: inferred.end,
        process: profile.entry(inferred.within).and_then(|span| span.thread.as_ref()?.group.clone()),
        samples: Some(inferred.samples),
        inferred: true,
        stack: inferred.callers.iter().map(|&frame| function(profile, frame)).collect(),
        links: inferred.children.iter().map(link).collect(),
        ..Span::default()
    }
}
