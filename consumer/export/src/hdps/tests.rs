use std::collections::BTreeSet;
use std::sync::Arc;

use flightline_consumer::live::{Feed, Options, Stack};
use flightline_consumer::spans::{SpanContext, SpanKey, TraceId};

use super::*;

pub(super) fn items(name: &str) -> Vec<Item> {
    let file = format!("{}/../../fixtures/recordings/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut feed = Feed::new(Options { others: false, ..Options::default() });
    feed.push(&std::fs::read(file).unwrap());
    feed.close();
    std::iter::from_fn(|| feed.next()).collect()
}

pub(super) fn labels(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}

pub(super) fn samples(items: &[Item]) -> Vec<&Sample> {
    let mut samples = Vec::new();
    for item in items {
        if let Item::Sample(sample) = item {
            samples.push(&**sample);
        }
    }
    samples
}

#[test]
fn row_has_documented_members() {
    let items = items("jdk17.jfr");
    let sample = samples(&items).into_iter().find(|sample| &*sample.event == "jdk.ExecutionSample").unwrap();
    let row = Shape::new(labels(&[("thread", "mine"), ("task_id", "t7")])).sample_row(sample);
    let names: Vec<&str> = row.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "event_type",
            "label_thread",
            "stack_trace",
            "stack_trace_id",
            "start_time_millis",
            "state",
            "task_id",
            "thread"
        ]
    );
    assert_eq!((&row["label_thread"], &row["task_id"]), (&"mine".into(), &"t7".into()));
    assert_eq!(row["state"], "STATE_RUNNABLE");
    let frames = row["stack_trace"].as_array().unwrap();
    let stack = sample.stack.as_ref().unwrap();
    assert_eq!(frames.len(), stack.frames.len() + usize::from(stack.truncated));
    let leaf = &stack.frames[0];
    let want = json!({"class_name": *leaf.class, "method_name": *leaf.function, "line_number": leaf.line, "is_java_frame": true, "type": *leaf.type_name});
    assert_eq!(frames[0], want);
    let id = row["stack_trace_id"].as_str().unwrap();
    assert!(id.len() == 36 && id.as_bytes()[14] == b'8' && b"89ab".contains(&id.as_bytes()[19]), "{id}");
}

#[test]
fn colliding_label_names_get_distinct_members() {
    let items = items("jdk17.jfr");
    let mut sample = samples(&items)[0].clone();
    let own = [("thread", "c"), ("tenant", "d"), ("label_label_thread", "e"), ("task", "f")];
    sample.span = Some(Arc::new(SpanContext {
        span: SpanKey::Id(1),
        local_root: SpanKey::Id(1),
        trace: TraceId(7),
        flags: 1,
        labels: Arc::new(own.iter().map(|&(key, value)| (key.into(), value.into())).collect()),
    }));
    let row = Shape::new(labels(&[("label_thread", "a"), ("stack_trace_id", "b"), ("task", "all")]))
        .sample_row(&sample);
    let found = ["label_label_thread", "label_stack_trace_id", "label_thread", "tenant", "task"]
        .map(|name| row[name].as_str().unwrap());
    assert_eq!(found, ["a", "b", "c", "d", "f"]);
    assert_eq!(row["label_label_label_thread"], "e");
    assert_eq!(row.len(), MEMBERS.len() + 6);
}

#[test]
fn row_ids_are_unique_and_deterministic() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/recordings");
    let (mut all, mut rows) = (BTreeSet::new(), 0);
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        // The other recordings add no cases, only time.
        if !["jdk25", "flight", "ap-native-c", "ap-native-w"].iter().any(|start| name.starts_with(start)) {
            continue;
        }
        let items = items(&name);
        // Repeats each item at once, like a delivery that is repeated.
        let mut shape = Shape::default();
        let mut ids = || -> Vec<String> {
            items
                .iter()
                .filter_map(|item| shape.row(item))
                .map(|row| row["stack_trace_id"].to_string())
                .collect()
        };
        let (once, again) = (ids(), ids());
        assert_eq!(once, again, "{name}");
        rows += once.len();
        all.extend(once);
    }
    assert!(rows > 1_000);
    assert_eq!(all.len(), rows);
}

#[test]
fn identical_events_remain_separate_rows() {
    let items = items("jdk25-spans.jfr");
    let one = Item::Sample(Box::new(samples(&items)[0].clone()));
    let three = || {
        let mut shape = Shape::default();
        (0..3).map(|_| shape.row(&one).unwrap()["stack_trace_id"].to_string()).collect::<Vec<_>>()
    };
    let ids = three();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 3);
    assert_eq!(ids, three());
}

#[test]
fn oversized_stack_is_truncated_and_marked() {
    let items = items("jdk17.jfr");
    let mut sample = samples(&items).into_iter().find(|sample| sample.stack.is_some()).unwrap().clone();
    let stack = sample.stack.clone().unwrap();
    let mut with = |function: usize, frames: usize| {
        let frame = Frame { function: "f".repeat(function).into(), ..stack.frames[0].clone() };
        let frames = std::iter::repeat_n(frame, frames).collect();
        sample.stack = Some(Arc::new(Stack { frames, truncated: false }));
        let row = Shape::default().sample_row(&sample);
        let bytes = Value::Object(row.clone()).to_string().len();
        let frames = row["stack_trace"].as_array().unwrap().clone();
        (frames.len(), frames.last().unwrap()["method_name"] == "[truncated]", bytes)
    };
    assert!(matches!(with(1, MOST_FRAMES), (MOST_FRAMES, false, _)));
    let (frames, cut, _) = with(1, MOST_FRAMES + 1);
    assert_eq!((frames, cut), (MOST_FRAMES + 1, true));
    let (frames, cut, bytes) = with(4096, MOST_FRAMES);
    assert!(cut && frames > 100 && bytes < 2 * MOST_NAMES, "{frames} {bytes}");
}
