//! Spans and their scopes, recorded by the program when they end.

use flightline_in_signal::payload::{scope, span};

use super::{Event, EventSite};
use crate::recording::{Recording, Scope, Span, SpanContext};

/// Returns start and duration from the record, ns. The start is limited to the end, and the end to the time
/// of the record.
fn interval(event: &Event<'_>, start: usize, end: usize, reported_ns: u64) -> (u64, u64) {
    let end = event.word(end).min(reported_ns);
    let start = event.word(start).min(end);
    (start, end - start)
}

/// Writes a span.
pub fn write(recording: &mut Recording, place: &EventSite, event: &Event<'_>) {
    let (start_ns, took_ns) = interval(event, span::START, span::END, place.time_ns);
    let (name, next) = event.bytes(span::WORDS);
    let name = String::from_utf8_lossy(&name);
    let flags = event.word(span::FLAGS);
    let context = SpanContext {
        span: event.word(span::SPAN),
        local_root: event.word(span::ROOT),
        trace: [event.word(span::TRACE_HI), event.word(span::TRACE_LO)],
        flags: flags as u8,
        labels: event.text(next),
    };
    let (parent, samples) = (event.word(span::PARENT), Some((flags >> 32) as u32));
    recording.span_end(place.thread, &Span { start_ns, took_ns, name: &name, parent, samples, context });
}

/// Writes an activation.
pub fn write_scope(recording: &mut Recording, place: &EventSite, event: &Event<'_>) {
    let (start_ns, took_ns) = interval(event, scope::START, scope::END, place.time_ns);
    let (span, previous) = (event.word(scope::SPAN), event.word(scope::PREVIOUS));
    let seq = event.word(scope::SEQ);
    recording.scope_end(place.thread, &Scope { start_ns, took_ns, span, previous, seq, open: false });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        output::repository::Owner, output::sink::Target, recording::events::Head, settings::Settings,
    };
    use flightline_in_signal::layout::event_kind;

    #[test]
    fn invalid_span_times_are_clamped() {
        let dir = tempfile::tempdir().unwrap();
        let target = Target::Path(dir.path().join("x.jfr"));
        let mut recording = Recording::open(&target, &Owner::default(), &Settings::default()).unwrap();
        let group = recording.add_group("prog (1)".into());
        let thread = recording.add_thread(7, "main", group).index;
        let place = EventSite { thread, tid: 7, trace: None, time_ns: 1000 };
        let head = Head { kind: event_kind::SPAN, index: 9, value: u64::MAX };
        let texts = [u64::MAX, u64::from_le_bytes(*b"name\xff\xfe\0\"")];
        let ordered = vec![900, 400, 1, 2, 3, 4, 5, 6];
        let all = vec![vec![], vec![5], vec![u64::MAX; 8], [ordered, vec![u64::MAX; 8]].concat()];
        for words in all {
            for extra in [words.clone(), [&words[..], &texts].concat()] {
                let event = Event { head, extra: &extra };
                let (start, took) = interval(&event, span::START, span::END, place.time_ns);
                assert!(start + took <= place.time_ns, "{extra:?}");
                write(&mut recording, &place, &event);
                write_scope(&mut recording, &place, &event);
            }
        }
        recording.finish();
        assert_eq!(recording.failure(), None);
        let mut input = jfr_format::read::Input::open(&dir.path().join("x.jfr")).unwrap();
        let mut spans = 0;
        while let Some(item) = input.next().unwrap() {
            match item {
                jfr_format::read::Item::Events(batch) => {
                    let of = |name: &str| batch.events().filter(|e| &*e.class().name == name).count();
                    spans += of("flightline.Span") + of("flightline.SpanScope") + of("profiler.Span");
                }
                jfr_format::read::Item::Warning(warning) => panic!("{warning}"),
                _ => {}
            }
        }
        assert_eq!(spans, 8 * 3);
    }
}
