//! Spans of streamed samples.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use flightline_consumer::live::{Feed, Item, Options, Sample};
use flightline_consumer::spans::{JoinedSample, Joiner, Limits, Listener, SpanKey, SpanRecord, TraceId};
use jfr_format::ids::Ticks;
use jfr_format::schema;
use jfr_format::write::ChunkWriter;

use super::make::{LINE, SMALL, Seen, make_with, read};

/// Writes that the span `span` is active at time `tick`.
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
                assert_eq!(context.trace, TraceId::from_halves(-2, 7));
                assert_eq!(&*context.labels["tenant"], format!("t{id}"));
                id
            });
            assert_eq!(sample.span_id, span);
            (tick(sample.time.epoch_nanos), span)
        })
        .collect()
}

/// The result is the same whichever other events are read and however the stream is divided.
#[test]
fn samples_have_their_span_when_delivered() {
    let samples = SMALL.samples as i64;
    let made = make_with(SMALL, |chunk, number| {
        let (start, segment) =
            ((number / SMALL.segments) as i64 * 1_000_000, (number % SMALL.segments) as i64);
        let tick = |sample: i64| start + (segment * samples + sample) * 7_919 % 999_983;
        tell(chunk, tick(0), 10);
        tell(chunk, tick(2), 11);
        // The first has no sample at that time; the second matches a sample of the next flush.
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
        // One per segment and one more in each chunk's last. Contexts of the last two flushes may
        // still be needed.
        assert!((12..=16).contains(&stats.contexts_unused), "{}", stats.contexts_unused);
    }
}

/// Span contexts in a damaged segment are ignored.
#[test]
fn damaged_segment_contexts_are_ignored() {
    let made = make_with(SMALL, |chunk, number| {
        let start = (number / SMALL.segments) as i64 * 1_000_000;
        // Contexts of samples in the next segment.
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

/// Events with a duration below the threshold are delivered with their time only, for a page that keeps the
/// longest.
#[test]
fn events_below_duration_threshold_have_no_fields() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/recordings/jdk25-spans.jfr");
    let lasting = |shortest: u64| -> Vec<Sample> {
        let mut feed = Feed::new(Options {
            samples: vec!["cpu".into()],
            others: false,
            lasting: true,
            ..Options::default()
        });
        feed.plain_below(shortest);
        feed.push(&std::fs::read(path).unwrap());
        feed.close();
        let samples = std::iter::from_fn(|| feed.next()).filter_map(|item| match item {
            Item::Sample(sample) => Some(*sample),
            _ => None,
        });
        samples.collect()
    };
    let whole = lasting(0);
    let spans = || whole.iter().filter(|sample| !sample.contextual.is_empty());
    let mut nanos: Vec<u64> = spans().filter_map(|sample| sample.duration_nanos).collect();
    nanos.sort_unstable();
    let middle = nanos[nanos.len() / 2];
    assert!(nanos[0] < middle && spans().all(|sample| !sample.fields.is_empty()));
    for (sample, was) in lasting(middle).iter().zip(&whole) {
        let short = !was.contextual.is_empty() && was.duration_nanos < Some(middle);
        let fields = if short { Default::default() } else { was.fields.clone() };
        let told =
            |of: &Sample| (of.event.clone(), of.time.epoch_nanos, of.duration_nanos, of.thread.clone());
        assert_eq!((told(sample), &sample.fields), (told(was), &fields));
    }
    assert_eq!(lasting(middle).len(), whole.len());
}

/// A recording of the JDK: code in `inCheckout` runs in the contextual event "checkout", and so on.
#[test]
fn jdk_contextual_events_become_sample_spans() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/recordings/jdk25-spans.jfr");
    let mut feed = Feed::new(Options::default());
    feed.push(&std::fs::read(path).unwrap());
    feed.close();
    let (mut listener, mut joiner) = (Listener::new(), Joiner::<Arc<str>>::new(Limits::FILE, None));
    let mut names: HashMap<SpanKey, Arc<str>> = HashMap::new();
    while let Some(item) = feed.next() {
        if let Some(SpanRecord::Interval(thread, span)) = listener.take(&item) {
            let number = joiner.number(&thread);
            let span = joiner.interval(number, span);
            assert_eq!(span.trace, TraceId(0xabcd));
            assert!(span.labels["tenant"].len() >= 3);
            names.insert(span.key, span.name.clone());
        }
        if let Item::Sample(sample) = &item
            && *sample.event == *"jdk.ExecutionSample"
        {
            let frames = sample.stack.iter().flat_map(|stack| stack.frames.iter());
            let mut named = frames.map(|frame| frame.function.clone());
            let function = named.find(|name| name.starts_with("in") || **name == *"outside");
            let number = joiner.number(sample.thread.as_ref().unwrap());
            joiner.sample(number, JoinedSample::new(sample, function.unwrap_or_else(|| "other".into())));
        }
    }
    let mut seen: BTreeMap<(String, String), u64> = BTreeMap::new();
    joiner.finish(
        &mut |part| {
            let span = part.context.map_or("none", |context| &*names[&context.span]);
            *seen.entry((part.sample.of.to_string(), span.to_owned())).or_default() += part.weight.samples;
        },
        &mut |_| {},
    );
    assert_eq!(names.len(), 24, "three in each of eight rounds");
    for ((function, span), samples) in &seen {
        let right = match &**function {
            "inCheckout" => "checkout",
            "inQuery" => "query",
            "inSearch" => "search",
            "outside" => "none",
            // Between them.
            _ => continue,
        };
        assert_eq!(span, right, "{samples} samples of {function}: {seen:?}");
        assert!(*samples >= 10, "{seen:?}");
    }
    assert!(seen.len() >= 4, "{seen:?}");
}
