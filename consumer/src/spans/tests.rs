//! Scenarios T13 to T18, T20, T21 and T23 to T25 of spans, and span records of other producers, as items
//! of a stream.

mod endless;

use std::sync::Arc;

use super::*;
use crate::live::{ChunkStart, Event, Frame, Item, Kind, Sample, Segment, Stack, Time, Value, Weight};
use crate::model::{FrameKind, Thread, Unit};
use report::{Filter, GroupBy, table};

const MS: i64 = 1_000_000;
const ROOT: i64 = 1;
const CHILD: i64 = 2;

fn thread(id: i64) -> Arc<Thread> {
    Arc::new(Thread { os_name: Some("worker".into()), os_id: id, ..Thread::default() })
}

fn time(ms: i64) -> Time {
    Time { epoch_nanos: ms * MS, monotonic_nanos: Some(ms * MS) }
}

fn event(name: &str, at: i64, fields: Vec<(&str, Value)>) -> Item {
    let fields = fields.into_iter().map(|(name, value)| (name.into(), value)).collect();
    Item::Other(Event { event: name.into(), time: time(at), fields, contextual: Arc::default(), offset: 0 })
}

fn number(value: i64) -> Value {
    Value::Integer(value)
}

/// A sample; `path` has one letter per frame, root first.
fn sample(of: i64, at: i64, path: &str) -> Sample {
    let frame = |name: char| Frame {
        function: name.to_string().into(),
        class: "".into(),
        module: if name.is_uppercase() { "vmlinux".into() } else { "app".into() },
        line: 0,
        bytecode_index: 0,
        kind: if name.is_uppercase() { FrameKind::Kernel } else { FrameKind::Native },
        type_name: "".into(),
    };
    Sample {
        event: "jdk.ExecutionSample".into(),
        kind: Kind::Cpu,
        variant: None,
        time: time(at),
        duration_nanos: None,
        thread: Some(thread(of)),
        process_title: None,
        stack: Some(Arc::new(Stack { frames: path.chars().rev().map(frame).collect(), truncated: false })),
        state: None,
        weight: Weight { samples: 1, value: 10 * MS as u64, unit: Unit::Nanoseconds },
        span_id: None,
        span: None,
        labels: None,
        fields: Box::default(),
        contextual: Arc::default(),
        offset: 0,
    }
}

fn cpu(of: i64, at: i64, path: &str) -> Item {
    Item::Sample(Box::new(sample(of, at, path)))
}

fn batch(of: i64, at: i64, path: &str, samples: u64, lasts: i64) -> Item {
    let mut sample = sample(of, at, path);
    sample.event = "profiler.WallClockSample".into();
    sample.kind = Kind::Wall;
    sample.state = Some("STATE_SLEEPING".into());
    sample.weight = Weight { samples, value: (lasts * MS) as u64, unit: Unit::Nanoseconds };
    Item::Sample(Box::new(sample))
}

fn context_fields(span: i64, flags: i64, labels: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("spanId", number(span)),
        ("localRootSpanId", number(ROOT)),
        ("traceIdHi", number(0)),
        ("traceIdLo", number(77)),
        ("flags", number(flags)),
        ("labels", if labels.is_empty() { Value::Null } else { Value::Text(labels.into()) }),
    ]
}

fn context_with(of: i64, at: i64, span: i64, flags: i64, labels: &str) -> Item {
    let fields = context_fields(span, flags, labels).into_iter().map(|(n, v)| (Arc::from(n), v)).collect();
    let thread = Value::Thread(thread(of));
    event(
        "flightline.SampleContext",
        at,
        vec![("eventThread", thread), ("context", Value::Struct(fields)), ("seq", number(1))],
    )
}

fn context(of: i64, at: i64, span: i64) -> Item {
    context_with(of, at, span, 1, "")
}

fn scope(of: i64, from: i64, to: i64, span: i64, previous: i64) -> Item {
    event(
        "flightline.SpanScope",
        from,
        vec![
            ("duration", number((to - from) * MS)),
            ("eventThread", Value::Thread(thread(of))),
            ("spanId", number(span)),
            ("previousSpanId", number(previous)),
            ("seq", number(1)),
            ("open", Value::Boolean(false)),
        ],
    )
}

fn span(of: i64, from: i64, to: i64, span: i64, parent: i64, name: &str) -> Item {
    let mut fields = vec![
        ("duration", number((to - from) * MS)),
        ("eventThread", Value::Thread(thread(of))),
        ("name", Value::Text(name.into())),
        ("parentSpanId", number(parent)),
    ];
    fields.extend(context_fields(span, 1, ""));
    event("flightline.Span", from, fields)
}

fn segment(at: i64) -> Item {
    Item::Segment(Segment { sequence: 0, time: time(at), offset: 0, size: 0, events: 0 })
}

fn watermark(at: i64) -> Item {
    event("flightline.Watermark", at, Vec::new())
}

fn read_as(items: &[Item], limits: Limits) -> Result<SpanReport, ClockMismatch> {
    let options =
        Options { limits, inference: Some(Inference::default()), exclude: vec![], ..Options::default() };
    let mut spans = Spans::new(options);
    items.iter().for_each(|item| spans.take(item));
    spans.finish()
}

fn read(items: &[Item]) -> SpanReport {
    read_as(items, Limits::FILE).unwrap()
}

/// Returns inferred spans as `name:ms×samples`.
fn inferred(found: &SpanReport) -> Vec<String> {
    let name = |span: &Inferred| report::function(&found.profile, span.frame);
    let mut all: Vec<String> = found
        .inferred
        .iter()
        .map(|span| format!("{}:{}x{}", name(span), (span.end - span.start) / MS, span.samples))
        .collect();
    all.sort();
    all
}

/// Returns the number of CPU samples in a span.
fn samples(found: &SpanReport, span: i64) -> u64 {
    found.profile.entry(SpanKey::Id(span as u64)).map_or(0, |entry| entry.spent.samples)
}

/// A span with one inside it, sampled every 10 ms.
fn nested() -> Vec<Item> {
    let mut items = vec![
        scope(1, 0, 200, ROOT, 0),
        scope(1, 55, 145, CHILD, ROOT),
        span(1, 0, 200, ROOT, 0, "request"),
        span(1, 55, 145, CHILD, ROOT, "query"),
    ];
    for at in (10..200).step_by(10) {
        let within = (55..145).contains(&at);
        items.push(context(1, at, if within { CHILD } else { ROOT }));
        items.push(cpu(1, at, if within { "abc" } else { "ad" }));
    }
    items
}

/// Returns the items in random order, by `seed`.
fn shuffled(mut items: Vec<Item>, mut seed: u64) -> Vec<Item> {
    for i in (1..items.len()).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        items.swap(i, (seed >> 33) as usize % (i + 1));
    }
    items
}

#[test]
fn t13_input_order_does_not_matter() {
    let found = read(&nested());
    assert_eq!((samples(&found, ROOT), samples(&found, CHILD)), (10, 9));
    assert_eq!(inferred(&found), ["a:180x19", "c:80x9", "d:40x5", "d:40x5"]);
    for seed in 0..20 {
        let mut items = shuffled(nested(), seed);
        // A stream whose records are out of order by less than the limit.
        items.insert(items.len() / 2, segment(100));
        items.push(segment(5_000));
        let other = read_as(&items, Limits::STREAM).unwrap();
        assert_eq!((samples(&other, ROOT), samples(&other, CHILD)), (10, 9), "seed {seed}");
        assert_eq!(inferred(&other), inferred(&found), "seed {seed}");
        assert_eq!(other.counts.late, 0);
    }
}

#[test]
fn t14_late_sample_is_counted_without_changing_trees() {
    let mut items = nested();
    items.extend([watermark(1_000), segment(1_000)]);
    items.extend([
        context(1, 100, CHILD),
        cpu(1, 100, "xyz"),
        segment(1_001),
        watermark(1_002),
        segment(1_002),
    ]);
    let found = read_as(&items, Limits::STREAM).unwrap();
    assert_eq!(found.counts.late, 1);
    assert_eq!((samples(&found, ROOT), samples(&found, CHILD)), (10, 10));
    assert_eq!(inferred(&found), inferred(&read(&nested())));
}

#[test]
fn t15_waits_have_their_recorded_duration() {
    let items = [
        scope(1, 0, 2_100, ROOT, 0),
        context(1, 10, ROOT),
        cpu(1, 10, "ab"),
        context(1, 60, ROOT),
        batch(1, 60, "ab", 40, 2_000),
    ];
    let found = read(&items);
    assert_eq!(inferred(&found), ["b:2050x41"]);
    let spent = found.profile.entry(SpanKey::Id(1)).unwrap().spent;
    assert_eq!((spent.cpu, spent.wall, spent.off_cpu), (10_000_000, 2_000_000_000, 2_000_000_000));
}

#[test]
fn samples_at_one_time_are_no_span_at_any_weight() {
    let mut items = vec![scope(1, 0, 100, ROOT, 0), context(1, 10, ROOT)];
    items.extend([cpu(1, 10, "ab"), cpu(1, 10, "ab"), cpu(1, 10, "ab")]);
    let found = read(&items);
    assert_eq!((found.inferred.len(), samples(&found, ROOT)), (0, 3));
}

#[test]
fn periods_may_be_set_after_the_samples() {
    let mut one = sample(1, 10, "ab");
    one.weight = Weight { samples: 2, value: 2, unit: Unit::Samples };
    let mut spans = Spans::new(Options::default());
    [Item::Sample(Box::new(one)), context(1, 10, ROOT)].iter().for_each(|item| spans.take(item));
    spans.periods(|event| (event == "jdk.ExecutionSample").then_some(7));
    let found = spans.finish().unwrap();
    assert_eq!(found.profile.entry(SpanKey::Id(1)).unwrap().spent.cpu, 14);
}

#[test]
fn t16_wait_across_span_change_is_divided() {
    let change = [scope(1, 0, 1_000, ROOT, 0), scope(1, 0, 250, CHILD, ROOT)];
    // One merged sample, from a recorder that ignores activations.
    let mut items = change.to_vec();
    items.extend([context(1, 0, CHILD), batch(1, 0, "ab", 40, 1_000)]);
    let found = read(&items);
    assert_eq!((samples(&found, CHILD), samples(&found, ROOT), found.counts.divided), (10, 30, 1));
    assert_eq!(found.profile.entry(SpanKey::Id(2)).unwrap().spent.wall, 250_000_000);
    // Two merged samples, as Flightline writes them.
    let mut items = change.to_vec();
    items.extend([context(1, 0, CHILD), batch(1, 0, "ab", 10, 250)]);
    items.extend([context(1, 250, ROOT), batch(1, 250, "ab", 30, 750)]);
    let found = read(&items);
    assert_eq!((samples(&found, CHILD), samples(&found, ROOT), found.counts.divided), (10, 30, 0));
}

#[test]
fn t17_span_on_two_threads_has_two_trees() {
    let mut items =
        vec![scope(1, 0, 50, ROOT, 0), scope(2, 60, 110, ROOT, 0), span(2, 0, 110, ROOT, 0, "task")];
    for at in [10, 20, 70, 80] {
        let on = if at < 60 { 1 } else { 2 };
        items.extend([context(on, at, ROOT), cpu(on, at, if at < 60 { "a" } else { "b" })]);
    }
    let found = read(&items);
    assert_eq!(inferred(&found), ["a:10x2", "b:10x2"]);
    assert_eq!(found.profile.entries().len(), 1);
    assert_eq!(samples(&found, ROOT), 4);
    assert_eq!(found.profile.entries()[0].duration(), Some(110 * MS));
}

#[test]
fn t18_samples_without_activation_become_orphans() {
    // The outer activation was lost.
    let mut items = vec![scope(1, 5, 45, CHILD, ROOT)];
    for at in [10, 20, 30] {
        items.extend([context(1, at, CHILD), cpu(1, at, "ab")]);
    }
    items.extend([watermark(30_000), segment(30_000)]);
    let mut spans = Spans::new(Options {
        limits: Limits::STREAM,
        inference: Some(Inference::default()),
        ..Options::default()
    });
    items.iter().for_each(|item| spans.take(item));
    assert_eq!(spans.counts().orphans, 0, "it could still come");
    [watermark(70_000), segment(70_000)].iter().for_each(|item| spans.take(item));
    let found = spans.finish().unwrap();
    assert_eq!((found.counts.orphans, found.inferred.len(), samples(&found, CHILD)), (3, 0, 3));
}

#[test]
fn t20_memory_is_bounded_and_dropped_records_are_counted() {
    let limits = Limits { pending: 1_000, threads: 100, ..Limits::STREAM };
    let mut spans =
        Spans::new(Options { limits, inference: Some(Inference::default()), ..Options::default() });
    for round in 0..10 {
        for of in 0..400 {
            let at = round * 5_000 + of;
            for item in [context(of, at, of + 1), cpu(of, at, "ab"), scope(of, at - 1, at + 1, of + 1, 0)] {
                spans.take(&item);
            }
        }
        spans.take(&segment(round * 5_000 + 500));
        assert!(spans.waiting() <= (1_000, 100), "{:?}", spans.waiting());
    }
    let found = spans.finish().unwrap();
    let counts = found.counts;
    assert!(counts.threads_dropped > 0, "{counts:?}");
    assert_eq!(counts.in_spans + counts.outside, 4_000, "each sample is put down somewhere: {counts:?}");
}

#[test]
fn t21_spans_and_samples_with_different_clocks_are_rejected() {
    let items = [cpu(1, 1_000, "a"), span(1, 500_000, 600_000, ROOT, 0, "request")];
    let error = read_as(&items, Limits::FILE).unwrap_err().to_string();
    assert!(
        error.contains("samples lie between 1.000 and 1.000, spans between 500.000 and 600.000"),
        "{error}"
    );
    let anchor = |at: i64, apart: i64| {
        let Item::Other(mut event) = event("flightline.ClockAnchor", at, Vec::new()) else { unreachable!() };
        event.time.monotonic_nanos = Some((at + apart) * MS);
        Item::Other(event)
    };
    assert!(read_as(&[anchor(0, 0), anchor(9_000, 900)], Limits::FILE).is_ok());
    let error = read_as(&[anchor(0, 0), anchor(9_000, 1_100)], Limits::FILE).unwrap_err().to_string();
    assert!(error.contains("two clocks, 1.100 s apart"), "{error}");
}

#[test]
fn t23_unsampled_span_has_no_inferred_spans() {
    let mut items = vec![scope(1, 0, 100, ROOT, 0)];
    for at in [10, 20, 30] {
        items.extend([context_with(1, at, ROOT, 0, ""), cpu(1, at, "ab")]);
    }
    let found = read(&items);
    assert_eq!((samples(&found, ROOT), found.inferred.len(), found.counts.orphans), (3, 0, 0));
}

#[test]
fn t24_t25_all_frames_except_excluded_ones_are_used() {
    let items = nested_in("aK");
    assert_eq!(inferred(&read(&items)), ["K:20x3"]);
    let without = |exclude: &str| {
        let exclude = vec![regex::Regex::new(exclude).unwrap()];
        let mut spans =
            Spans::new(Options { inference: Some(Inference::default()), exclude, ..Options::default() });
        items.iter().for_each(|item| spans.take(item));
        spans.finish().unwrap()
    };
    assert_eq!(inferred(&without("^vmlinux\\.")), ["a:20x3"]);
    let found = without(".");
    assert_eq!((found.inferred.len(), samples(&found, ROOT)), (0, 3));
}

fn nested_in(path: &str) -> Vec<Item> {
    let mut items = vec![scope(1, 0, 100, ROOT, 0)];
    for at in [10, 20, 30] {
        items.extend([context(1, at, ROOT), cpu(1, at, path)]);
    }
    items
}

fn names(found: &SpanReport, by: &GroupBy) -> Vec<(String, u64, u64)> {
    let rows = table(&found.profile, by, &Filter::default()).rows;
    rows.iter().map(|row| (row.name.to_string(), row.count, row.spent.samples)).collect()
}

#[test]
fn profiler_spans_are_thread_intervals() {
    let interval = |from: i64, to: i64, tag: &str| {
        event(
            "profiler.Span",
            from,
            vec![
                ("duration", number((to - from) * MS)),
                ("eventThread", Value::Thread(thread(1))),
                ("tag", Value::Text(tag.into())),
            ],
        )
    };
    let mut items: Vec<Item> = (10..100).step_by(10).map(|at| cpu(1, at, "ab")).collect();
    items.push(cpu(2, 50, "ab"));
    items.extend([interval(5, 95, "outer"), interval(35, 65, "inner")]);
    let found = read(&items);
    assert_eq!(names(&found, &GroupBy::Name), [("outer".into(), 1, 6), ("inner".into(), 1, 3)]);
    assert_eq!(found.profile.outside.samples, 1);
    assert_eq!(names(&found, &GroupBy::Endpoint), [("outer".into(), 1, 9)]);
    // The inner span began and ended inside it.
    assert_eq!(inferred(&found), ["b:80x9"]);
    // With spans of Flightline, these are duplicates.
    items.extend([context(1, 10, ROOT), span(1, 5, 95, ROOT, 0, "outer")]);
    assert_eq!(names(&read(&items), &GroupBy::Name), [("outer".into(), 1, 1)]);
}

#[test]
fn remote_parent_is_unnamed_and_its_child_is_the_endpoint() {
    const INNER: i64 = 3;
    let mut items: Vec<Item> = [(10, CHILD), (20, INNER), (30, CHILD)]
        .into_iter()
        .flat_map(|(at, of)| [context(1, at, of), cpu(1, at, "ab")])
        .collect();
    items.extend([span(1, 12, 28, INNER, CHILD, "query"), span(1, 5, 35, CHILD, ROOT, "request")]);
    assert_eq!(names(&read(&items), &GroupBy::Endpoint), [("request".into(), 1, 3)]);
    // A sample in the few instructions in which only its context was active does not count as another
    // request.
    items.extend([context(1, 4, ROOT), cpu(1, 4, "a")]);
    let found = read(&items);
    assert_eq!(names(&found, &GroupBy::Endpoint), [("request".into(), 1, 3), ("[no endpoint]".into(), 0, 1)]);
    assert_eq!(names(&found, &GroupBy::Trace), [(format!("{:032x}", 77), 1, 4)]);
    // A sample without a named span is still counted.
    let items = [context(1, 4, ROOT), cpu(1, 4, "a")];
    assert_eq!(names(&read(&items), &GroupBy::Trace), [(format!("{:032x}", 77), 1, 1)]);
}

#[test]
fn span_ids_in_foreign_samples_are_used() {
    let with = |at: i64, span: u64, fields: Vec<(&str, Value)>| {
        let mut sample = sample(1, at, "ab");
        sample.span_id = Some(span);
        sample.fields = fields.into_iter().map(|(name, value)| (name.into(), value)).collect();
        sample.span = span_events::own_context(span, &sample.fields).map(Arc::new);
        Item::Sample(Box::new(sample))
    };
    // Datadog's events.
    let endpoint = event(
        "datadog.Endpoint",
        5,
        vec![
            ("duration", number(100)),
            ("endpoint", Value::Text("GET /cart".into())),
            ("operation", Value::Text("servlet.request".into())),
            ("localRootSpanId", number(ROOT)),
        ],
    );
    let items = [
        with(10, 5, vec![("localRootSpanId", number(ROOT))]),
        with(20, 1, vec![("localRootSpanId", number(ROOT))]),
        endpoint,
    ];
    assert_eq!(names(&read(&items), &GroupBy::Endpoint), [("GET /cart".into(), 1, 2)]);
    // Grafana's events.
    let items = [with(10, 5, vec![("spanName", Value::Text("find".into())), ("contextId", number(9))])];
    let found = read(&items);
    assert_eq!(names(&found, &GroupBy::Name), [("find".into(), 1, 1)]);
    assert_eq!(names(&found, &GroupBy::Label("contextId".into())), [("9".into(), 1, 1)]);
    // The format of Grafana's agent of 2025, which sends the names separately from the recording.
    let items = [with(10, 5, vec![("spanName", number(2)), ("contextId", number(0))])];
    assert_eq!(names(&read(&items), &GroupBy::Name), [("[name 2]".into(), 1, 1)]);
}

#[test]
fn samples_are_grouped_by_label_and_filtered() {
    let mut items = nested();
    items.push(context_with(3, 10, 9, 1, r#"{"tenant":"red","n":7}"#));
    items.push(cpu(3, 10, "ab"));
    let found = read(&items);
    let tenants = names(&found, &GroupBy::Label("tenant".into()));
    assert_eq!(tenants, [("[none]".into(), 2, 19), ("red".into(), 1, 1)]);
    let passing = |filter: Filter| -> u64 {
        table(&found.profile, &GroupBy::Name, &filter).rows.iter().map(|row| row.spent.samples).sum()
    };
    let named = |name: &str| Filter { names: vec![name.into()], ..Filter::default() };
    assert_eq!((passing(named("request")), passing(named("query")), passing(named("none"))), (19, 9, 0));
    let labels = vec![("n".to_owned(), "7".to_owned())];
    assert_eq!(passing(Filter { labels, ..Filter::default() }), 1);
    assert_eq!(passing(Filter { trace: Some(TraceId(77)), ..Filter::default() }), 20);
    // Text that is not an object has no labels.
    assert!(span_events::parse_labels("[1]").is_empty() && span_events::parse_labels("{").is_empty());
}

#[test]
fn selected_trace_retains_individual_samples_and_scopes() {
    let of_other = |mut fields: Vec<(&'static str, Value)>| {
        fields.iter_mut().find(|(name, _)| *name == "traceIdLo").unwrap().1 = number(78);
        fields
    };
    let mut other = vec![
        ("duration", number(9 * MS)),
        ("eventThread", Value::Thread(thread(1))),
        ("name", Value::Text("x".into())),
    ];
    other.extend(of_other(context_fields(9, 1, "")));
    let open = |to: i64, is_open: bool| {
        let Item::Other(mut event) = scope(2, 30, to, CHILD, 0) else { unreachable!() };
        event.fields.iter_mut().find(|(name, _)| &**name == "open").unwrap().1 = Value::Boolean(is_open);
        Item::Other(event)
    };
    let items = [
        cpu(1, 5, "ab"),
        // 10 ms of waiting, 6 of them in the span.
        batch(1, 24, "aw", 10, 10),
        scope(1, 0, 30, ROOT, 0),
        // Reported while it was open, and again.
        open(35, true),
        open(40, false),
        cpu(2, 32, "ab"),
        // Another trace, on one of the threads, and on a thread where this trace never was.
        scope(1, 31, 39, 9, 0),
        cpu(1, 33, "ab"),
        scope(3, 31, 39, 9, 0),
        event("flightline.Span", 31, other),
        span(1, 0, 45, ROOT, 0, "request"),
        span(2, 25, 40, CHILD, ROOT, "query"),
    ];
    let mut spans = Spans::new(Options { trace: Some(TraceId(77)), ..Options::default() });
    items.iter().for_each(|item| spans.take(item));
    let moments = spans.finish().unwrap().moments.unwrap();
    let lanes: Vec<i64> = moments.lanes.iter().map(|thread| thread.os_id).collect();
    assert_eq!(lanes, [1, 2]);
    use moments::Activity;
    let all: Vec<_> = moments
        .samples
        .iter()
        .map(|m| {
            (m.time / MS, m.lasts / MS, m.lane, m.span.id() as i64, m.what, m.count, m.value as i64 / MS)
        })
        .collect();
    assert_eq!(
        all,
        [
            (5, 0, 0, ROOT, Activity::Cpu, 1, 10),
            (24, 6, 0, ROOT, Activity::Waiting, 6, 6),
            (32, 0, 1, CHILD, Activity::Cpu, 1, 10)
        ]
    );
    let scopes = |of: &[(usize, Scope)]| -> Vec<_> {
        of.iter().map(|(lane, s)| (*lane, s.span.id() as i64, s.start / MS, s.end / MS, s.open)).collect()
    };
    assert_eq!(scopes(&moments.scopes), [(0, ROOT, 0, 30, false), (1, CHILD, 30, 40, false)]);
    assert_eq!(scopes(&moments.others), [(0, 9, 31, 39, false)]);
}

#[test]
fn cyclic_and_invalid_spans_are_tolerated() {
    // Two spans that contain each other, and one that contains itself.
    let items = [
        span(1, 0, 10, 1, 2, "a"),
        span(1, 0, 10, 2, 1, "b"),
        span(1, 9, 3, 3, 3, "c"),
        scope(1, 20, 10, 1, 0),
        scope(1, i64::MIN / MS / 3, i64::MAX / MS / 3, 2, 0),
        cpu(1, 5, "ab"),
        Item::ChunkStart(ChunkStart { index: 0, offset: 0, time: time(0), ticks_per_second: 0 }),
    ];
    let found = read(&items);
    assert_eq!(samples(&found, 2), 1);
    let (lines, _) = trace::lines(&found.profile, &found.inferred, TraceId(77), 100);
    assert!(lines.len() <= 3);
    for by in [GroupBy::Name, GroupBy::Endpoint, GroupBy::Trace] {
        assert_eq!(names(&found, &by).iter().map(|row| row.2).sum::<u64>(), 1);
    }
    assert_eq!(trace::bar((0, 5), 0, 10, 10, false).chars().count(), 10);
}
