//! Synthetic spans; the expected activities of threads in them are computed for each ns.

use std::collections::BTreeMap;

use super::*;
use crate::live::Event;
use crate::spans::report::{Filter, GroupBy};

const GRAPHS: [Graph; 6] =
    [Graph::OffCpu, Graph::Wakeup, Graph::OffWake, Graph::Chain, Graph::RunQueue, Graph::Time];

fn event(name: &str, at: i64, fields: Vec<(&str, Value)>) -> Item {
    let fields = fields.into_iter().map(|(name, value)| (name.into(), value)).collect();
    let time = Time { epoch_nanos: at, monotonic_nanos: None };
    Item::Other(Event { event: name.into(), time, fields, contextual: Arc::default(), offset: 0 })
}

/// A span that was active once on one thread. Its parent is the earlier span in the list with the number
/// `parent`.
#[derive(Clone, Copy, Debug)]
struct Span {
    id: i64,
    parent: i64,
    root: i64,
    start: i64,
    end: i64,
}

impl Span {
    fn name(&self) -> String {
        format!("n{}", self.id % 4)
    }

    fn items(&self, of: &str) -> [Item; 2] {
        let number = Value::Integer;
        let lasts = || ("duration", number(self.end - self.start));
        let thread = || ("eventThread", Value::Thread(thread(of)));
        let scope =
            vec![lasts(), thread(), ("spanId", number(self.id)), ("previousSpanId", number(self.parent))];
        let span = vec![
            lasts(),
            thread(),
            ("spanId", number(self.id)),
            ("parentSpanId", number(self.parent)),
            ("localRootSpanId", number(self.root)),
            ("traceIdLo", number(self.root)),
            ("name", Value::Text(self.name().into())),
            ("labels", Value::Text(format!(r#"{{"odd":"{}"}}"#, self.id % 2).into())),
        ];
        [event("flightline.SpanScope", self.start, scope), event("flightline.Span", self.start, span)]
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, below: i64) -> i64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % below.unsigned_abs()) as i64
    }

    /// Generates nested spans within an interval. They change at even ns.
    fn spans(&mut self, within: (i64, i64), around: Option<Span>, all: &mut Vec<Span>) {
        let mut at = within.0 + 2 * self.below(20);
        while at < within.1 {
            let end = (at + 2 * (1 + self.below(60))).min(within.1);
            let id = all.len() as i64 + 1;
            let (parent, root) = around.map_or((0, id), |span| (span.id, span.root));
            let span = Span { id, parent, root, start: at, end };
            all.push(span);
            // If two spans begin and end together, their nesting is undefined.
            if self.below(3) > 0 && end - at > 2 {
                self.spans((at, end - 2), Some(span), all);
            }
            at = end + 2 * self.below(12);
        }
    }
}

/// Returns the innermost span at a time: of nested spans, the one that began last.
fn innermost<'s>(spans: &'s [(&str, Span)], of: &str, at: i64) -> Option<&'s Span> {
    let active = spans.iter().filter(|(thread, span)| *thread == of && span.start <= at && at < span.end);
    active.map(|(_, span)| span).max_by_key(|span| span.id)
}

#[derive(Debug)]
struct Ran<'a>(&'a str, i64, u64);

fn ran(of: &Ran<'_>) -> Item {
    let Item::Sample(mut sample) = item(&TestInterval(of.0, of.1, 0, 0, "", "main;spin", None)) else {
        unreachable!()
    };
    sample.event = "jdk.ExecutionSample".into();
    (sample.kind, sample.duration_nanos) = (Kind::Cpu, None);
    sample.weight = live::Weight { samples: 1, value: of.2, unit: Unit::Nanoseconds };
    Item::Sample(sample)
}

/// Returns time and count by span, and the totals.
fn by_group(items: &[Item], options: Options) -> (BTreeMap<String, (u64, u64)>, InputTotals) {
    let mut off_cpu = OffCpu::new(options);
    items.iter().for_each(|item| off_cpu.take(item));
    let Drawn { model, seen, .. } = off_cpu.finish();
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (key, weight) in &model.samples {
        let root = *model.stacks.get(key.stack.unwrap()).frames.last().unwrap();
        let sum = sums.entry(model.frames.get(root).function.to_string()).or_default();
        *sum = (sum.0 + weight.value, sum.1 + weight.count);
    }
    (sums, seen)
}

fn sum_all(sums: &BTreeMap<String, (u64, u64)>) -> (u64, u64) {
    sums.values().fold((0, 0), |sum, (value, count)| (sum.0 + value, sum.1 + count))
}

/// Returns true if a graph includes the ns `at` of an interval.
fn weighs(graph: Graph, of: &TestInterval<'_>, at: i64) -> bool {
    let ready = of.4 == "R" || at >= of.1 + (of.2 - of.3) as i64;
    match graph {
        Graph::OffCpu | Graph::OffWake | Graph::Chain => of.4 != "R",
        Graph::Wakeup => of.4 != "R" && !ready,
        Graph::RunQueue => ready,
        Graph::Time => true,
    }
}

#[test]
fn time_inside_and_outside_spans_adds_up() {
    let names = ["a", "b", "c"];
    for round in 0..12 {
        let mut random = Random(round);
        let mut spans: Vec<Span> = Vec::new();
        let mut told: Vec<(&str, Span)> = Vec::new();
        let mut intervals: Vec<TestInterval<'_>> = Vec::new();
        let mut runs: Vec<Ran<'_>> = Vec::new();
        for name in names {
            let first = spans.len();
            random.spans((10, 900), None, &mut spans);
            told.extend(spans[first..].iter().map(|span| (name, *span)));
            // Intervals and samples are independent of spans.
            let mut at = random.below(30);
            while at < 1000 {
                let nanos = random.below(90) as u64;
                let queue = random.below(nanos as i64 + 1) as u64;
                let (state, queue) = if random.below(5) == 0 { ("R", nanos) } else { ("S", queue) };
                let waker = (state == "S").then(|| (names[random.below(3) as usize], "main;give"));
                intervals.push(TestInterval(name, at, nanos, queue, state, "main;wait;kfutex", waker));
                at += nanos as i64 + random.below(9);
                runs.push(Ran(name, at | 1, 5));
                at += 2 + random.below(15);
            }
        }
        let mut items: Vec<Item> = intervals.iter().map(item).chain(runs.iter().map(ran)).collect();
        items.extend(told.iter().flat_map(|(of, span)| span.items(of)));
        (1..items.len()).rev().for_each(|i| items.swap(i, random.below(i as i64 + 1) as usize));
        let root = |span: &Span| told.iter().find(|(_, of)| of.id == span.root).unwrap().1;
        type Named<'n> = &'n dyn Fn(&Span) -> String;
        let groups: [(GroupBy, Named<'_>); 4] = [
            (GroupBy::Name, &|span| span.name()),
            (GroupBy::Endpoint, &|span| root(span).name()),
            (GroupBy::Trace, &|span| format!("{:032x}", span.root)),
            (GroupBy::Label("odd".into()), &|span| (span.id % 2).to_string()),
        ];
        for graph in GRAPHS {
            let options = |by: Option<GroupBy>, only: Filter| Options {
                spans: Some(OfSpans { by, only }),
                ..Options::new(graph)
            };
            let total = sum_all(&by_group(&items, Options::new(graph)).0);
            for (by, name) in &groups {
                let mut expected: BTreeMap<String, u64> = BTreeMap::new();
                let mut put = |of: &str, at: i64, value: u64| {
                    let group = innermost(&told, of, at).map_or("[no span]".to_owned(), name);
                    *expected.entry(group).or_default() += value;
                };
                for of in &intervals {
                    let all = of.1..of.1 + of.2 as i64;
                    all.filter(|&at| weighs(graph, of, at)).for_each(|at| put(of.0, at, 1));
                }
                if graph == Graph::Time {
                    runs.iter().for_each(|run| put(run.0, run.1, run.2));
                }
                let (sums, seen) = by_group(&items, options(Some(by.clone()), Filter::default()));
                let found: BTreeMap<String, u64> = sums
                    .iter()
                    .map(|(name, sum)| (name.clone(), sum.0))
                    .filter(|(_, sum)| *sum > 0)
                    .collect();
                assert_eq!(found, expected, "round {round}: {graph:?} by {by:?}");
                assert_eq!(sum_all(&sums), total, "round {round}: {graph:?} by {by:?}");
                assert_eq!((seen.drawn, seen.in_spans + seen.in_no_span), (total.0, total.0));
                assert_eq!(seen.elsewhere, Weight::default());
            }
            // A filter includes these spans and the spans in them; the rest is reported.
            let wanted = |span: &Span| {
                let mut at = Some(*span);
                std::iter::from_fn(|| {
                    let span = at?;
                    at = told.iter().map(|(_, of)| *of).find(|of| of.id == span.parent);
                    Some(span)
                })
                .any(|span| span.name() == "n1")
            };
            let inside = |of: &str, at: i64| innermost(&told, of, at).is_some_and(wanted);
            let mut expected: u64 = intervals
                .iter()
                .map(|of| {
                    let all = of.1..of.1 + of.2 as i64;
                    all.filter(|&at| weighs(graph, of, at) && inside(of.0, at)).count() as u64
                })
                .sum();
            if graph == Graph::Time {
                expected += runs.iter().filter(|run| inside(run.0, run.1)).map(|run| run.2).sum::<u64>();
            }
            let only = Filter { names: vec!["n1".into()], ..Filter::default() };
            let (sums, seen) = by_group(&items, options(None, only.clone()));
            assert_eq!((sum_all(&sums).0, seen.drawn), (expected, expected), "round {round}: {graph:?}");
            assert_eq!(sum_all(&sums).1 + seen.elsewhere.count, total.1);
            assert_eq!(expected + seen.elsewhere.value, total.0);
            assert!(expected > 0 && seen.elsewhere.value > 0);
            // Without a group by span, stacks begin as usual.
            assert!(sums.keys().all(|root| names.contains(&&**root) || root.starts_with('[')), "{sums:?}");
        }
    }
}

#[test]
fn interval_is_split_at_span_changes_and_wakeup() {
    let outer = Span { id: 1, parent: 0, root: 1, start: 100, end: 200 };
    let inner = Span { id: 2, parent: 1, root: 1, start: 120, end: 150 };
    let wait = TestInterval("w", 90, 100, 30, "S", "main;lock;kfutex", Some(("h", "main;unlock;kwake")));
    let items: Vec<Item> =
        [item(&wait)].into_iter().chain([outer, inner].iter().flat_map(|span| span.items("w"))).collect();
    let lines = |options: Options| {
        let mut off_cpu = OffCpu::new(options);
        items.iter().for_each(|item| off_cpu.take(item));
        let options = FoldOptions { measure: Measure::Total, ..FoldOptions::default() };
        let mut text = Vec::new();
        crate::folded::write(&fold(&off_cpu.finish().model, &options).unwrap(), &mut text).unwrap();
        String::from_utf8(text).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let by = |graph, by| Options {
        spans: Some(OfSpans { by: Some(by), only: Filter::default() }),
        user_only: true,
        ..Options::new(graph)
    };
    assert_eq!(
        lines(by(Graph::Time, GroupBy::Name)),
        [
            "[no span];w;[blocked: other];main;lock 10",
            "n1;w;[blocked: other];main;lock 30",
            "n1;w;[runnable];main;lock 30",
            "n2;w;[blocked: other];main;lock 30",
        ]
    );
    assert_eq!(
        lines(by(Graph::OffWake, GroupBy::Endpoint)),
        ["[no span];w;main;lock;--;unlock;main;h 10", "n1;w;main;lock;--;unlock;main;h 90"]
    );
    assert_eq!(
        lines(by(Graph::Wakeup, GroupBy::Name)),
        ["[no span];h;main;unlock;w 10", "n1;h;main;unlock;w 30", "n2;h;main;unlock;w 30"]
    );
    // The frame is the thread's own name.
    assert_eq!(lines(Options { names: false, ..by(Graph::RunQueue, GroupBy::Name) }), ["n1;main;lock 30"]);
    let mut cut = by(Graph::OffCpu, GroupBy::Name);
    cut.spans = Some(OfSpans { by: None, only: Filter { names: vec!["n2".into()], ..Filter::default() } });
    assert_eq!(lines(cut), ["w;main;lock 30"]);
}

#[test]
fn sample_is_assigned_to_its_recorded_span() {
    let span = Span { id: 1, parent: 0, root: 1, start: 0, end: 100 };
    let Item::Sample(mut carries) = ran(&Ran("w", 500, 7)) else { unreachable!() };
    carries.span = Some(Arc::new(crate::spans::SpanContext {
        span: crate::spans::SpanKey::Id(1),
        local_root: crate::spans::SpanKey::Id(1),
        trace: Default::default(),
        flags: 1,
        labels: Default::default(),
    }));
    let mut items = vec![Item::Sample(carries), ran(&Ran("w", 501, 20))];
    items.extend(span.items("w"));
    let options = Options {
        spans: Some(OfSpans { by: Some(GroupBy::Name), only: Filter::default() }),
        ..Options::new(Graph::Time)
    };
    let (sums, _) = by_group(&items, options);
    assert_eq!(sums, BTreeMap::from([("[no span]".to_owned(), (20, 1)), ("n1".to_owned(), (7, 1))]));
}

/// Sums are exact even with more spans than are stored, and more records than can wait.
#[test]
fn dropped_span_time_is_reported() {
    let many = 6000;
    // As in a recording: a span is reported when it ends.
    let items: Vec<Item> = (1..=many)
        .flat_map(|id| {
            let span = Span { id, parent: 0, root: id, start: id * 10, end: id * 10 + 8 };
            let [scope, span] = span.items("w");
            [item(&TestInterval("w", id * 10 + 1, 5, 1, "S", "main;wait", None)), scope, span]
        })
        .collect();
    for graph in [Graph::OffCpu, Graph::Chain, Graph::Time] {
        let by = Some(OfSpans { by: Some(GroupBy::Name), only: Filter::default() });
        let options = Options { spans: by, ..Options::new(graph) };
        let (sums, seen) = by_group(&items, options.clone());
        assert_eq!(sum_all(&sums).0, 5 * many as u64);
        assert_eq!(sums["[spans left out]"].0, seen.in_spans_left_out);
        assert!(seen.in_spans_left_out > 0 && seen.in_spans > 0 && seen.in_no_span == 0, "{seen:?}");
        let mut off_cpu = OffCpu::new(options);
        items.iter().for_each(|item| off_cpu.take(item));
        // Chains are followed at the end of the input; in the other graphs, the older half is assigned
        // earlier.
        assert_eq!(off_cpu.finish().spans.unwrap().counts.unwaited > 0, graph != Graph::Chain);
    }
}
