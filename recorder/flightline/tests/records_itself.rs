//! Tests the example `record_self`, whose recording is read with `jfr-format`, and the settings that are
//! visible only in a recording.

use std::{collections::BTreeMap, path::Path, sync::mpsc, thread, time::Duration};

use flightline::{Builder, Event, Threads};
use jfr_format::read::{Input, Item};

#[allow(dead_code, missing_docs)]
#[path = "../examples/record_self.rs"]
mod record_self;

/// Counts the events of a recording by the name of their type.
fn events(path: &Path) -> BTreeMap<String, usize> {
    let mut input = Input::bytes(std::fs::read(path).unwrap().into());
    let mut found = BTreeMap::new();
    while let Some(item) = input.next().unwrap() {
        if let Item::Events(batch) = item {
            for event in batch.events() {
                *found.entry(event.class().name.to_string()).or_default() += 1;
            }
        }
    }
    found
}

fn contains(path: &Path, name: &str) -> bool {
    std::fs::read(path).unwrap().windows(name.len()).any(|bytes| bytes == name.as_bytes())
}

fn thread_id() -> u32 {
    let link = std::fs::read_link("/proc/thread-self").unwrap();
    link.file_name().unwrap().to_str().unwrap().parse().unwrap()
}

#[inline(never)]
fn traced_sleep(ms: u64) {
    thread::sleep(std::hint::black_box(Duration::from_millis(ms)));
}

/// A single test, because a process has one recording at a time.
#[test]
fn program_records_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("example.jfr");
    let builder = Builder::new().in_process().label("zone", "eu-1");
    record_self::record(builder, &path, 1_000_000).unwrap();
    let found = events(&path);
    assert!(found["jdk.ExecutionSample"] > 50, "{found:?}");
    let texts = ["spell", "eu-1", "checkout", "acme"];
    assert_eq!(texts.map(|text| contains(&path, text)), [true; 4], "{found:?}");
    assert_eq!(found["flightline.Span"], 1, "{found:?}");

    let path = folder.path().join("settings.jfr");
    let mut selected = vec![Event::Wall(Duration::from_millis(10))];
    // Containers may forbid breakpoints.
    let traced = flightline_recorder::engines::trace_refused().is_none();
    if traced {
        let slow = Duration::from_millis(100);
        selected.push(Event::library_function("libc.so.6", "clock_nanosleep", slow));
        selected.push(Event::function("records_itself::traced_sleep", slow));
    }
    // Threads that wait until the recording has started.
    let threads = [0, 1].map(|_| {
        let ((send_id, id), (begin, wait)) = (mpsc::channel(), mpsc::channel::<()>());
        let work = move || {
            send_id.send(thread_id()).unwrap();
            wait.recv().unwrap();
            traced_sleep(20);
            traced_sleep(200);
            send_id.send(0).unwrap();
            let _ = wait.recv();
        };
        let thread = thread::spawn(work);
        (id.recv().unwrap(), id, begin, thread)
    });
    let chosen = threads[0].0;
    let builder = Builder::new().events(selected).threads(Threads::new().ids(chosen..=chosen));
    let recording = builder.in_process().output(&path).start().unwrap();
    for (_, done, begin, _) in &threads {
        begin.send(()).unwrap();
        done.recv().unwrap();
    }
    recording.flush().unwrap();
    for (_, _, begin, thread) in threads {
        drop(begin);
        thread.join().unwrap();
    }
    recording.stop().unwrap();
    let found = events(&path);
    assert!(found.contains_key("profiler.WallClockSample"), "{found:?}");
    assert!(!found.contains_key("jdk.ExecutionSample"), "{found:?}");
    // The slow call in both functions, and only that of the selected thread.
    assert_eq!(found.get("jdk.MethodTrace").copied(), traced.then_some(2), "{found:?}");
}
