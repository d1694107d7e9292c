//! Groups of synthetic samples.

use super::*;
use crate::live::{Stack, Time, Weight};
use crate::model::{FrameKind, Unit};

fn sample(event: &str, nanos: u64, fields: &[(&str, Value)]) -> Sample {
    Sample {
        event: event.into(),
        kind: Kind::from_event(event),
        variant: None,
        time: Time::default(),
        duration_nanos: Some(nanos),
        thread: None,
        process_title: None,
        stack: None,
        state: None,
        weight: Weight { samples: 1, value: nanos, unit: Unit::Nanoseconds },
        span_id: None,
        span: None,
        labels: None,
        fields: fields.iter().map(|(name, value)| ((*name).into(), value.clone())).collect(),
        contextual: Arc::new([]),
        offset: 0,
    }
}

fn groups(samples: impl IntoIterator<Item = Sample>) -> Vec<(String, u64, u64)> {
    let mut all = Latencies::default();
    samples.into_iter().for_each(|sample| all.add(&sample));
    let groups = all.into_groups().into_iter();
    groups.map(|group| (group.name, group.latency.count, group.latency.total)).collect()
}

fn call(function: &str, class: &str, nanos: u64) -> Sample {
    let frame = crate::live::Frame {
        function: function.into(),
        class: class.into(),
        module: "".into(),
        line: 0,
        bytecode_index: 0,
        kind: FrameKind::Native,
        type_name: "".into(),
    };
    let stack = Stack { frames: [frame].into(), truncated: false };
    Sample { stack: Some(Arc::new(stack)), ..sample("jdk.MethodTrace", nanos, &[]) }
}

#[test]
fn groups_are_named_and_sorted_by_total() {
    let text = |text: &str| Value::Text(text.into());
    let of = groups([
        sample("jdk.FileForce", 5, &[]),
        sample("flightline.BlockIo", 70, &[("operation", text("write"))]),
        sample("flightline.BlockIo", 30, &[("operation", text("read"))]),
        sample("jdk.FileForce", 2, &[]),
        Sample { duration_nanos: None, ..sample("jdk.FileForce", 1, &[]) },
    ]);
    assert_eq!(of, [("disk write".into(), 1, 70), ("disk read".into(), 1, 30), ("file sync".into(), 2, 7)]);
    let of = groups([call("parse", "", 9), call("run", "a.B", 8), call("parse", "", 1)]);
    assert_eq!(of, [("parse".into(), 2, 10), ("a.B.run".into(), 1, 8)]);
}

#[test]
fn off_cpu_time_is_exact_and_grouped_by_state() {
    let off = |state: &str, nanos: u64| {
        let fields = [("nanos", Value::Integer(nanos as i64))];
        let ticks = nanos / 1000 * 1000;
        Sample { state: Some(state.into()), ..sample(off_cpu::EVENT, ticks, &fields) }
    };
    let of = groups([off("S", 1_234), off("R+", 400), off("R", 1), off("D|K", 300), off("0x1000", 2)]);
    let names = [
        ("off-CPU S (interruptible sleep)", 1, 1_234),
        ("off-CPU R (preempted)", 2, 401),
        ("off-CPU D (uninterruptible sleep)", 1, 300),
        ("off-CPU 0x1000", 1, 2),
    ];
    assert_eq!(of, names.map(|(name, count, total)| (name.to_owned(), count, total)));
}

#[test]
fn excess_groups_are_merged() {
    let all = groups((0..10).map(|at| call(&format!("f{at}"), "", 100 - at)));
    assert_eq!(all.len(), MOST_GROUPS + 1);
    assert_eq!(all[0], ("other events".to_owned(), 6, 96 + 95 + 94 + 93 + 92 + 91));
}

#[test]
fn calls_below_the_threshold_and_losses_are_counted() {
    let below = |event: &str, count: i64, nanos: i64| {
        let fields = [
            ("event".into(), Value::Text(event.into())),
            ("count".into(), Value::Integer(count)),
            ("value".into(), Value::Integer(nanos)),
        ];
        let event = "flightline.BelowThreshold".into();
        let (time, contextual) = (Time::default(), Arc::new([]));
        Item::Other(Event { event, time, fields: fields.into(), contextual, offset: 0 })
    };
    let loss = |told_by: &str, events| {
        Item::Loss(Loss {
            time: Time::default(),
            told_by: told_by.into(),
            cause: "".into(),
            event_type: None,
            thread: None,
            events,
            bytes: None,
            cpu_nanos: None,
        })
    };
    let mut all = Latencies::default();
    for item in [below("io", 3, 50), below("io", 4, -1), below("lock", -2, 5), loss("jdk.DataLoss", Some(7))]
    {
        all.note(&item);
    }
    all.note(&loss(SAMPLE_LOSS, Some(100)));
    let is: Vec<_> = all.below_threshold().collect();
    assert_eq!(is, [("io", Below { count: 7, nanos: 50 }), ("lock", Below { count: 0, nanos: 5 })]);
    assert_eq!(all.lost(), 7);
}

#[test]
fn event_types_with_durations_are_recognized() {
    for event in [
        "jdk.FileRead",
        "flightline.BlockIo",
        "jdk.ThreadPark",
        "profiler.NativeLock",
        "jdk.MethodTrace",
        off_cpu::EVENT,
    ] {
        assert!(has_durations(event), "{event}");
    }
    for event in ["jdk.ExecutionSample", "jdk.ObjectAllocationSample", "flightline.EventSample"] {
        assert!(!has_durations(event), "{event}");
    }
}
