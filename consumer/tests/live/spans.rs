//! The spans of samples, as they come.

use flightline_consumer::live::Options;
use flightline_consumer::spans::{SpanKey, TraceId};
use jfr_format::ids::Ticks;
use jfr_format::schema;
use jfr_format::write::ChunkWriter;

use super::make::{LINE, SMALL, Seen, make_with, read};

/// Tells the span `span` of the moment `tick`.
fn tell(chunk: &mut ChunkWriter, tick: i64, span: u64) {
    let labels = 500 + span;
    chunk.constant(schema::STRING, labels, |s| _ = s.string(&format!(r#"{{"tenant":"t{span}"}}"#))).unwrap();
    chunk
        .constant(schema::SPAN_CONTEXT, span, |c| {
            c.long(span as i64).long(1).long(-2).long(7).int(1).key(labels);
        })
        .unwrap();
    chunk.event(schema::SAMPLE_CONTEXT, |e| _ = e.ticks(Ticks(tick)).key(1).key(span).long(3)).unwrap();
}

/// Spans of samples by their ticks.
fn spans(seen: &Seen) -> Vec<(i64, Option<u64>)> {
    let tick = |nanos: i64| (nanos - LINE.start_epoch_ns) / 1_000;
    seen.samples
        .iter()
        .map(|sample| {
            let span = sample.span.as_ref().map(|context| {
                let id = context.span.id();
                assert_eq!((context.local_root, context.flags), (SpanKey::Id(1), 1));
                assert_eq!(context.trace, TraceId::of_halves(-2, 7));
                assert_eq!(&*context.labels["tenant"], format!("t{id}"));
                id
            });
            assert_eq!(sample.span_id, span);
            (tick(sample.time.epoch_nanos), span)
        })
        .collect()
}

/// Whatever is read besides, and in whatever pieces the stream comes.
#[test]
fn samples_know_their_span_when_they_are_handed_out() {
    let samples = SMALL.samples as i64;
    let made = make_with(SMALL, |chunk, number| {
        let (start, segment) =
            ((number / SMALL.segments) as i64 * 1_000_000, (number % SMALL.segments) as i64);
        let tick = |sample: i64| start + (segment * samples + sample) * 7_919 % 999_983;
        tell(chunk, tick(0), 10);
        tell(chunk, tick(2), 11);
        // No sample was taken then; one of the flush behind it was.
        tell(chunk, tick(2) + 1, 12);
        tell(chunk, tick(samples + 3), 13);
    });
    for (step, others) in [(1 << 20, true), (4096, false), (61, true)] {
        let (seen, stats) = read(&made.bytes, step, Options { others, ..Options::default() });
        assert_eq!((seen.damage, stats.segments), (0, 12), "{:?}", seen.warnings);
        let spans = spans(&seen);
        assert_eq!(spans.len(), made.all().len());
        for (at, (tick, span)) in spans.into_iter().enumerate() {
            let (segment, sample) = (at as u64 / SMALL.samples % SMALL.segments, at as u64 % SMALL.samples);
            let expected = match sample {
                0 => Some(10),
                2 => Some(11),
                3 if segment > 0 => Some(13),
                _ => None,
            };
            assert_eq!(span, expected, "sample {sample} of segment {segment}, at {tick}");
        }
        assert_eq!(seen.others.contains_key("flightline.SampleContext"), others);
        // One of each segment, and one more of each chunk's last; those of the last two flushes may still be asked for.
        assert!((12..=16).contains(&stats.contexts_unused), "{}", stats.contexts_unused);
    }
}

/// What a damaged segment said of spans is not believed.
#[test]
fn contexts_of_a_damaged_segment_are_not_believed() {
    let made = make_with(SMALL, |chunk, number| {
        let start = (number / SMALL.segments) as i64 * 1_000_000;
        // Of samples of the segment behind it.
        tell(chunk, start + 15 * 7_919, 20);
        (0..15).for_each(|sample| tell(chunk, start + sample * 7_919, 10));
    });
    let (_, end) = made.segments[3];
    let mut bytes = made.bytes.clone();
    bytes[end - 200] ^= 0x11;
    let (seen, stats) = read(&bytes, 4096, Options::default());
    assert_eq!(stats.segments_damaged, 1);
    assert_eq!(seen.samples.len(), 45, "the second chunk is left out");
    assert!(spans(&seen).iter().all(|(_, span)| *span == Some(10)));
}
