//! Selects the samples in spans with given labels, for example those of one task attempt.

use std::collections::HashSet;
use std::io;

use jfr_format::edit::{self, Decision, Scope, Source};
use jfr_format::error::Error;
use jfr_format::event::{EventRef, Value};

use crate::spans::parse_labels;

/// Maximum number of stored samples and spans, at 16 bytes each.
const MOST: usize = 1 << 24;

const SAMPLE_CONTEXT: &str = "flightline.SampleContext";
/// Events that describe a span.
const OF_SPANS: [&str; 3] = ["flightline.Span", "flightline.OpenSpan", "flightline.SpanScope"];
/// Flightline's own events without a thread describe the recording.
const OURS: &str = "flightline.";

/// Times and threads of samples, and ids of spans, that have all requested labels.
#[derive(Debug, Default)]
pub struct Labelled {
    /// Thread id and time in ns since 1970, of samples and of spans' starts.
    moments: HashSet<(i64, i64)>,
    spans: HashSet<i64>,
    /// True if there were more than [`MOST`].
    full: bool,
}

impl Labelled {
    /// Searches a recording of Flightline for samples and spans with these labels.
    pub fn find(source: &Source, labels: &[(String, String)]) -> Labelled {
        let mut found = Labelled::default();
        let mut decide = |event: &EventRef<'_>| {
            found.look(event, labels);
            Decision::Drop
        };
        // The output is discarded, so writing cannot fail.
        let _ = edit::filter(source, Scope::default(), &mut decide, &mut io::sink());
        found
    }

    /// Returns true if no sample or span has these labels.
    pub fn is_empty(&self) -> bool {
        self.moments.is_empty() && self.spans.is_empty()
    }

    /// Returns true if there were more samples and spans than can be stored.
    pub fn is_full(&self) -> bool {
        self.full
    }

    fn look(&mut self, event: &EventRef<'_>, labels: &[(String, String)]) {
        let name = &*event.class().name;
        let of_span = OF_SPANS.contains(&name);
        let told = match name {
            SAMPLE_CONTEXT => text_in(event, "context", "labels"),
            _ if of_span => field_text(event.field("labels")),
            _ => None,
        };
        let Some(told) = told else { return };
        let told = parse_labels(&told);
        let has = |(key, value): &(String, String)| told.get(key.as_str()).is_some_and(|is| **is == **value);
        if !labels.iter().all(has) {
            return;
        }
        if self.moments.len() >= MOST || self.spans.len() >= MOST {
            self.full = true;
            return;
        }
        self.moments.extend(moment(event));
        if of_span {
            self.spans.extend(number(event, "spanId"));
        }
    }

    /// Decides whether to write an event.
    pub(super) fn decide(&self, event: &EventRef<'_>) -> Decision {
        let name = &*event.class().name;
        if OF_SPANS.contains(&name) {
            let ours = number(event, "spanId").is_some_and(|span| self.spans.contains(&span));
            return if ours { Decision::Keep } else { Decision::Drop };
        }
        let ours = name.starts_with(OURS);
        match moment(event) {
            Some(moment) if self.moments.contains(&moment) => Decision::Keep,
            // The recording does not state whose samples were lost.
            Some(_) if ours && name.ends_with("Loss") => Decision::Context,
            None if ours => Decision::Context,
            _ => Decision::Drop,
        }
    }
}

/// The thread and time of an event; `None` if it has no thread.
fn moment(event: &EventRef<'_>) -> Option<(i64, i64)> {
    let thread =
        ["eventThread", "sampledThread"].into_iter().find_map(|field| event.field(field).ok().flatten());
    let thread = thread?.resolved().ok()?.record().ok()??;
    let id = thread.field("osThreadId").ok()??.as_i64()?;
    Some((id, event.start_nanos()?))
}

fn number(event: &EventRef<'_>, field: &str) -> Option<i64> {
    event.field(field).ok()??.as_i64()
}

fn field_text(value: Result<Option<Value<'_>>, Error>) -> Option<String> {
    Some(value.ok()??.text().ok()??.into_owned())
}

fn text_in(event: &EventRef<'_>, field: &str, inner: &str) -> Option<String> {
    let record = event.field(field).ok()??.record().ok()??;
    field_text(record.field(inner))
}
