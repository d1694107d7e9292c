//! Endless streams.

use super::*;

/// An endless activation is processed in parts of a minute, and its samples wait no longer than that.
#[test]
fn endless_activation_is_processed_in_parts() {
    let open = |to: i64| {
        let Item::Other(mut event) = scope(1, 5, to, ROOT, 0) else { unreachable!() };
        event
            .fields
            .iter_mut()
            .filter(|(name, _)| **name == *"open")
            .for_each(|(_, v)| *v = Value::Boolean(true));
        Item::Other(event)
    };
    let mut spans = Spans::new(Options {
        limits: Limits::STREAM,
        inference: Some(Inference::default()),
        ..Options::default()
    });
    spans.take(&open(6));
    let (mut parts, mut most) = (Vec::new(), 0);
    for second in 1..=300 {
        for item in [context(1, second * 1_000, ROOT), cpu(1, second * 1_000, "ab")] {
            spans.take(&item);
        }
        [watermark(second * 1_000), segment(second * 1_000)].iter().for_each(|item| spans.take(item));
        parts.extend(spans.take_inferred());
        most = most.max(spans.waiting().0);
    }
    assert!(parts.len() >= 4, "{parts:?}");
    assert!(most < 20, "{most} records wait");
    spans.take(&scope(1, 5, 300_500, ROOT, 0));
    let found = spans.finish().unwrap();
    parts.extend(found.inferred);
    // The parts are consecutive and cover everything.
    assert_eq!((parts.iter().map(|part| part.samples).sum::<u64>(), found.counts.orphans), (300, 0));
    assert!(
        parts.windows(2).all(|pair| pair[0].end < pair[1].start && pair[0].id != pair[1].id),
        "{parts:?}"
    );
    assert!(
        parts
            .iter()
            .all(|part| part.within == SpanKey::Id(ROOT as u64) && part.end - part.start <= 62_000 * MS)
    );
}

/// With more spans than the limit, the oldest ones are dropped with their resources.
#[test]
fn oldest_spans_beyond_limit_are_dropped() {
    let mut spans = Spans::new(Options { limits: Limits::STREAM, ..Options::default() });
    let all = 3 * profile::MOST_SPANS as i64;
    for number in 1..=all {
        let at = number * 10;
        let key = number + 100;
        for item in [context(1, at, key), cpu(1, at, "ab"), span(1, at - 5, at + 5, key, 0, "request")] {
            spans.take(&item);
        }
        if number % 100 == 0 {
            [watermark(at), segment(at)].iter().for_each(|item| spans.take(item));
            assert!(spans.profile().entries().len() <= profile::MOST_SPANS);
        }
    }
    let found = spans.finish().unwrap();
    let kept = found.profile.entries();
    assert!(kept.iter().any(|entry| entry.key == SpanKey::Id((all + 100) as u64)), "the last one is there");
    assert_eq!(kept.len() as u64 + found.profile.spans_left_out, all as u64);
    let samples: u64 = kept.iter().map(|entry| entry.spent.samples).sum();
    assert_eq!(samples + found.profile.left_out.samples, all as u64, "no sample is lost");
    assert!(kept.iter().all(|entry| entry.spent.samples == 1 && entry.name() == "request"));
}
