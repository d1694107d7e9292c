//! Graphs of synthetic threads.

mod chains;
mod within;

use super::*;
use crate::fold::{FoldOptions, Measure, fold};
use crate::live::{self, Kind, Time, Value};
use crate::model::FrameKind;
use crate::tree::Tree;

/// Parses a stack, root first; names in capitals are kernel functions.
fn stack(text: &str) -> Arc<live::Stack> {
    let frame = |name: &str| live::Frame {
        function: name.into(),
        class: "".into(),
        module: "".into(),
        line: 0,
        bytecode_index: 0,
        kind: if name.starts_with('k') { FrameKind::Kernel } else { FrameKind::Native },
        type_name: "".into(),
    };
    let frames: Vec<_> = text.split(';').rev().map(frame).collect();
    Arc::new(live::Stack { frames: frames.into(), truncated: false })
}

fn thread(name: &str) -> Arc<Thread> {
    let id = name.bytes().fold(7, |id, byte| id * 31 + i64::from(byte)) & 0xffff;
    Arc::new(Thread { os_name: Some(name.into()), os_id: id, ..Thread::default() })
}

/// An interval of a thread: start, duration, the part after the wake-up, state, stack; and the waker with
/// its stack.
struct TestInterval<'a>(&'a str, i64, u64, u64, &'a str, &'a str, Option<(&'a str, &'a str)>);

fn item(of: &TestInterval<'_>) -> Item {
    let &TestInterval(name, start, nanos, run_queue, state, at, waker) = of;
    let mut fields: Vec<(Arc<str>, Value)> = vec![
        ("nanos".into(), Value::Integer(nanos as i64)),
        ("runQueue".into(), Value::Integer(run_queue as i64)),
    ];
    if let Some((by, at)) = waker {
        let kind = if by == "irq" { "interrupt" } else { "thread" };
        fields.push(("wakerKind".into(), Value::Text(kind.into())));
        fields.push(("wakerStackTrace".into(), Value::Stack(stack(at))));
        if kind == "thread" {
            fields.push(("wakerThread".into(), Value::Thread(thread(by))));
        }
    }
    Item::Sample(Box::new(live::Sample {
        event: EVENT.into(),
        kind: Kind::Other,
        variant: None,
        time: Time { epoch_nanos: start, monotonic_nanos: None },
        duration_nanos: Some(nanos / 1000 * 1000),
        thread: Some(thread(name)),
        process_title: None,
        stack: Some(stack(at)),
        state: Some(state.into()),
        weight: live::Weight { samples: 1, value: 1, unit: Unit::Samples },
        span_id: None,
        span: None,
        labels: None,
        fields: fields.into(),
        contextual: Arc::new([]),
        offset: 0,
    }))
}

fn graph(intervals: &[TestInterval<'_>], options: Options) -> (Tree, InputTotals) {
    let mut off_cpu = OffCpu::new(options);
    intervals.iter().for_each(|of| off_cpu.take(&item(of)));
    let Drawn { model, seen, .. } = off_cpu.finish();
    let options = FoldOptions { measure: Measure::Total, ..FoldOptions::default() };
    (fold(&model, &options).unwrap(), seen)
}

fn lines(intervals: &[TestInterval<'_>], options: Options) -> Vec<String> {
    let (tree, _) = graph(intervals, options);
    let mut text = Vec::new();
    crate::folded::write(&tree, &mut text).unwrap();
    String::from_utf8(text).unwrap().lines().map(str::to_owned).collect()
}

/// A timer wakes c3, which runs and wakes c2, which wakes c1.
const CHAIN: &[TestInterval<'static>] = &[
    TestInterval(
        "c3",
        0,
        100,
        5,
        "S",
        "main;sleep;ksleep;kschedule",
        Some(("irq", "main;spin;kwork;kret;asm_sysvec_timer;kwake")),
    ),
    TestInterval("c2", 10, 110, 4, "S", "main;wait;kfutex", Some(("c3", "main;post;kwake"))),
    TestInterval("c1", 20, 130, 3, "S", "main;get;kfutex", Some(("c2", "main;give;kwake"))),
    TestInterval("c1", 200, 9, 0, "R", "main;spin", None),
];

#[test]
fn folded_lines_match_bcc() {
    let delimited = |graph| Options { delimited: true, ..Options::new(graph) };
    assert_eq!(
        lines(CHAIN, delimited(Graph::OffCpu)),
        ["c1;main;get;-;kfutex 130", "c2;main;wait;-;kfutex 110", "c3;main;sleep;-;ksleep;kschedule 100"]
    );
    assert_eq!(
        lines(CHAIN, Options { states: "0".parse().unwrap(), ..delimited(Graph::OffCpu) }),
        ["c1;main;spin 9"]
    );
    // Without the wait for a processor, which the waker did not cause.
    assert_eq!(
        lines(CHAIN, Options::new(Graph::Wakeup)),
        ["[irq];kwake;c3 95", "c2;main;give;kwake;c1 127", "c3;main;post;kwake;c2 106"]
    );
    assert_eq!(
        lines(CHAIN, delimited(Graph::OffWake)),
        [
            "c1;main;get;-;kfutex;--;kwake;-;give;main;c2 130",
            "c2;main;wait;-;kfutex;--;kwake;-;post;main;c3 110",
            "c3;main;sleep;-;ksleep;kschedule;--;kwake;[irq] 100",
        ]
    );
    let user = Options { user_only: true, ..Options::new(Graph::Chain) };
    assert_eq!(
        lines(CHAIN, user.clone()),
        [
            "c1;main;get;--;give;main;c2;--;post;main;c3;--;[irq] 130",
            "c2;main;wait;--;post;main;c3;--;[irq] 110",
            "c3;main;sleep;--;[irq] 100",
        ]
    );
    assert_eq!(lines(CHAIN, Options { depth: 1, ..user.clone() })[0], "c1;main;get;--;give;main;c2 130");
    // If the caller distinguishes sleeping threads when folding, wakers with the same name are
    // distinguished too.
    let by = |name: &str| thread(name).label();
    assert_eq!(
        lines(CHAIN, Options { names: false, ..user })[0],
        format!("main;get;--;give;main;{};--;post;main;{};--;[irq] 130", by("c2"), by("c3"))
    );
    let (tree, _) = graph(CHAIN, Options::new(Graph::RunQueue));
    assert_eq!(tree.total, 5 + 4 + 3 + 9);
}

#[test]
fn chains_stop_at_loops_and_ignore_old_sleeps() {
    let ping_pong = [
        TestInterval("a", 0, 100, 0, "S", "main;get", Some(("b", "main;put"))),
        TestInterval("b", 10, 50, 0, "S", "main;get", Some(("a", "main;put"))),
        // The last sleep of the waker had ended long before.
        TestInterval("old", 0, 5, 0, "S", "main;once", Some(("a", "main;put"))),
        TestInterval("c", 20, 80, 0, "S", "main;get", Some(("old", "main;put"))),
    ];
    let chains = lines(&ping_pong, Options::new(Graph::Chain));
    assert!(chains.contains(&"a;main;get;--;put;main;b;--;put;main;a 100".to_owned()), "{chains:?}");
    assert!(chains.contains(&"c;main;get;--;put;main;old 80".to_owned()), "{chains:?}");
}

/// Like [`item`], for a wait that had not ended.
fn open_item(of: &TestInterval<'_>) -> Item {
    let Item::Sample(mut sample) = item(of) else { unreachable!() };
    sample.event = OPEN_EVENT.into();
    Item::Sample(sample)
}

#[test]
fn open_waits_are_drawn_on_request_or_if_alone() {
    let ended = TestInterval("w", 0, 30, 0, "S", "main;read", None);
    let open = TestInterval("d", 10, 500, 0, "S", "main;lock", None);
    let drawn = |items: &[Item], options: Options| {
        let mut off_cpu = OffCpu::new(options);
        items.iter().for_each(|item| off_cpu.take(item));
        let Drawn { model, seen, .. } = off_cpu.finish();
        (model.samples.values().map(|weight| weight.value).sum::<u64>(), seen.open, seen.open_drawn)
    };
    let (both, alone) = ([item(&ended), open_item(&open)], [open_item(&open)]);
    let asked = |graph| Options { open: true, ..Options::new(graph) };
    assert_eq!(drawn(&both, Options::new(Graph::OffCpu)), (30, 1, 0));
    assert_eq!(drawn(&both, asked(Graph::OffCpu)), (530, 1, 1));
    assert_eq!(drawn(&alone, Options::new(Graph::OffCpu)), (500, 1, 1));
    assert_eq!(drawn(&alone, Options::new(Graph::Time)), (500, 1, 1));
    assert_eq!(drawn(&alone, Options { least: 501, ..Options::new(Graph::OffCpu) }), (0, 1, 0));
    // Their wakers are unknown.
    assert_eq!(drawn(&both, asked(Graph::OffWake)), (30, 1, 0));
}

#[test]
fn idle_waits_are_hidden_and_reported() {
    let pool = [
        TestInterval("w", 0, 1000, 0, "S", "main;epoll_wait@@GLIBC_2.3.2;kep_poll", None),
        TestInterval("w", 2000, 10, 0, "S", "main;lock;kfutex", None),
        TestInterval("k", 0, 500, 0, "I", "kworker", None),
    ];
    let (tree, seen) = graph(&pool, Options { hide_idle: true, ..Options::new(Graph::OffCpu) });
    assert_eq!((tree.total, seen.idle, seen.blocked), (10, 1500, 1510));
    let least = Options { least: 500, most: 999, ..Options::new(Graph::OffCpu) };
    assert_eq!(lines(&pool, least), ["k;kworker 500"]);
    let both =
        [TestInterval("p", 0, 30, 0, "S", "main;x", None), TestInterval("p2", 0, 30, 0, "S", "main;x", None)];
    let shared = Options { per_thread: true, ..Options::new(Graph::OffCpu) };
    assert_eq!(graph(&both, shared.clone()).0.total, 60);
    let item_of = |id: i64| {
        let Item::Sample(mut sample) = item(&both[0]) else { unreachable!() };
        sample.thread = Some(Arc::new(Thread { os_id: id, ..(*thread("p")).clone() }));
        Item::Sample(sample)
    };
    let mut off_cpu = OffCpu::new(shared);
    (1..=3).for_each(|id| off_cpu.take(&item_of(id)));
    let Drawn { model, seen, .. } = off_cpu.finish();
    assert_eq!((model.samples.values().map(|weight| weight.value).sum::<u64>(), seen.threads), (30, 3));
}

#[test]
fn thread_time_is_split_into_running_and_waiting() {
    let waits = [
        TestInterval("w", 0, 100, 10, "S", "main;lock;kfutex", None),
        TestInterval("w", 200, 7, 0, "R", "main;spin", None),
        TestInterval("w", 300, 40, 0, "D", "main;read;kother", None),
        TestInterval("w", 400, 30, 0, "S", "main;epoll_wait@@GLIBC_2.3.2", None),
    ];
    let Item::Sample(mut ran) = item(&TestInterval("w", 110, 0, 0, "", "main;spin", None)) else {
        unreachable!()
    };
    ran.event = "jdk.ExecutionSample".into();
    ran.kind = Kind::Cpu;
    ran.weight = live::Weight { samples: 2, value: 20, unit: Unit::Nanoseconds };
    let of = |at_leaves| {
        let mut off_cpu = OffCpu::new(Options { at_leaves, ..Options::new(Graph::Time) });
        off_cpu.take(&Item::Sample(ran.clone()));
        waits.iter().for_each(|of| off_cpu.take(&item(of)));
        let Drawn { model, seen, .. } = off_cpu.finish();
        assert_eq!((seen.running, seen.drawn), (20, 20 + 100 + 7 + 40 + 30));
        let options = FoldOptions { measure: Measure::Total, ..FoldOptions::default() };
        let mut text = Vec::new();
        crate::folded::write(&fold(&model, &options).unwrap(), &mut text).unwrap();
        String::from_utf8(text).unwrap()
    };
    assert_eq!(
        of(false).lines().collect::<Vec<_>>(),
        [
            "w;[blocked: disk];main;read;kother 40",
            "w;[blocked: events];main;epoll_wait@@GLIBC_2.3.2 30",
            "w;[blocked: other];main;lock;kfutex 90",
            "w;[runnable];main;lock;kfutex 10",
            "w;[runnable];main;spin 7",
            "w;[running];main;spin 20",
        ]
    );
    assert!(of(true).contains("w;main;spin;[running] 20\n"));
}
