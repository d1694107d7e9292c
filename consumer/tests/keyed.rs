//! Reading a chunk at once and item by item yields the same samples.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flightline_consumer::live::keyed::{self, Keyed, Reader};
use flightline_consumer::live::{Feed, Item, Loss, Options, Sample, Stack};
use flightline_consumer::model::Unit;
use jfr_format::header::ChunkHeader;
use jfr_format::ids::{FileOffset, Ticks};
use jfr_format::schema::{self, thread_state};
use jfr_format::write::{ChunkWriter, ClockLine, Geometry};

fn recordings() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
    let mut found = Vec::new();
    let mut left = vec![folder];
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => left.push(path),
                false if path.extension().is_some_and(|ending| ending == "jfr") => found.push(path),
                false => {}
            }
        }
    }
    found.sort();
    found
}

/// Splits a recording into chunks by their headers.
fn chunks(mut recording: &[u8]) -> Vec<&[u8]> {
    let mut chunks = Vec::new();
    while let Ok(header) = ChunkHeader::decode(recording) {
        let Some((chunk, rest)) = recording.split_at_checked(header.size as usize) else { break };
        if chunk.is_empty() {
            break;
        }
        chunks.push(chunk);
        recording = rest;
    }
    chunks
}

fn shown(sample: &Sample, value: u64, unit: Unit) -> String {
    let thread = sample.thread.as_ref().cloned();
    format!(
        "{} {} {thread:?} {:?} {:?} {:?} {:?} {} {value} {unit:?} {:?}",
        sample.event,
        sample.time.epoch_nanos,
        sample.stack,
        sample.state,
        sample.variant,
        sample.duration_nanos,
        sample.weight.samples,
        sample.span,
    )
}

fn loss(loss: &Loss) -> String {
    let Loss { time, told_by, cause, event_type, events, bytes, cpu_nanos, .. } = loss;
    format!("{} {told_by} {cause} {event_type:?} {events:?} {bytes:?} {cpu_nanos:?}", time.epoch_nanos)
}

/// Samples and losses of a chunk, read item by item.
fn items(chunk: &[u8]) -> (Vec<String>, Vec<String>) {
    let mut feed = Feed::new(Options { others: false, ..Options::default() });
    feed.push(chunk);
    feed.close();
    let (mut samples, mut losses) = (Vec::new(), Vec::new());
    while let Some(item) = feed.next() {
        match item {
            Item::Sample(sample) => samples.push(*sample),
            Item::Loss(lost) => losses.push(loss(&lost)),
            _ => {}
        }
    }
    let settled = |sample: &Sample| {
        let weight = sample.weight;
        match (weight.unit, feed.period(&sample.event)) {
            (Unit::Samples, Some(period)) => shown(sample, period * weight.samples, Unit::Nanoseconds),
            (unit, _) => shown(sample, weight.value, unit),
        }
    };
    (samples.iter().map(settled).collect(), losses)
}

/// Samples and losses of a chunk, read at once.
fn rows(keyed: &Keyed) -> (Vec<String>, Vec<String>) {
    fn at<T>(list: &[Option<Arc<T>>], place: u32) -> Option<&Arc<T>>
    where
        T: ?Sized,
    {
        list.get(place as usize)?.as_ref()
    }
    let samples = keyed.rows.iter().map(|row| {
        let kind = &keyed.kinds[row.kind as usize];
        let (value, unit) = match (kind.unit, kind.period) {
            (Unit::Samples, Some(period)) => (period * row.samples, Unit::Nanoseconds),
            (Unit::Samples, None) => (row.samples, Unit::Samples),
            (unit, _) => (row.value, unit),
        };
        let thread = at(&keyed.threads, row.thread).cloned();
        format!(
            "{} {} {thread:?} {:?} {:?} {:?} {:?} {} {value} {unit:?} {:?}",
            kind.event,
            row.epoch_nanos,
            stack(keyed, row.stack),
            at(&keyed.states, row.state).cloned(),
            at(&keyed.variants, row.variant).cloned(),
            kind.lasts.then_some(row.duration_nanos),
            row.samples,
            at(&keyed.contexts, row.context).cloned(),
        )
    });
    (samples.collect(), keyed.losses.iter().map(loss).collect())
}

fn stack(keyed: &Keyed, place: u32) -> Option<Stack> {
    let of = keyed.stacks.get(place as usize)?.as_ref()?;
    let frames = keyed.steps(of).iter().map(|&frame| keyed.frames[frame as usize].clone());
    Some(Stack { frames: frames.collect(), truncated: of.truncated })
}

#[test]
fn keyed_rows_equal_streamed_items() {
    let (mut plain, mut odd, mut samples, mut in_spans) = (0, Vec::new(), 0, 0);
    for path in recordings() {
        let recording = fs::read(&path).unwrap();
        for chunk in chunks(&recording) {
            let Some(keyed) = Reader::new(&[]).read(chunk) else {
                odd.push(path.file_name().unwrap().to_owned());
                continue;
            };
            plain += 1;
            samples += keyed.rows.len();
            in_spans += rows(&keyed).0.iter().filter(|row| row.ends_with("})")).count();
            let (of_rows, of_items) = (rows(&keyed), items(chunk));
            assert_eq!(of_rows.0.len(), of_items.0.len(), "{}", path.display());
            for (of_row, of_item) in of_rows.0.iter().zip(&of_items.0) {
                assert_eq!(of_row, of_item, "{}", path.display());
            }
            assert_eq!(of_rows.1, of_items.1, "{}", path.display());
        }
    }
    println!("{plain} chunks, {samples} samples, {in_spans} in spans; the long way: {odd:?}");
    assert!(plain > 20 && samples > 10_000, "{plain} chunks, {samples} samples; the long way: {odd:?}");
}

/// A chunk with contexts before its samples, after them, shared by two samples, and under another thread
/// name.
fn with_contexts() -> Vec<u8> {
    let line =
        ClockLine { start_ticks: Ticks(0), start_epoch_ns: 1_000_000_000, ticks_per_second: 1_000_000_000 };
    let mut out = Vec::new();
    let mut chunk = ChunkWriter::begin(Geometry::Patched, &line, FileOffset(0), Ticks(0)).unwrap();
    chunk.constant(schema::THREAD_GROUP, 1, |g| _ = g.key(0).string("main (1)")).unwrap();
    for (key, name, id) in [(1, "worker", 5), (2, "worker-2", 5), (3, "other", 6)] {
        chunk.constant(schema::THREAD, key, |t| _ = t.string(name).long(id).null().long(0).key(1)).unwrap();
    }
    for task in 1..=3u64 {
        let labels = format!("{{\"task\":\"{task}\"}}");
        chunk.constant(schema::STRING, task, |s| _ = s.string(&labels)).unwrap();
        chunk
            .constant(schema::SPAN_CONTEXT, task, |c| {
                c.long(task as i64).long(0).long(0).long(0).int(0).key(task);
            })
            .unwrap();
    }
    let context = |chunk: &mut ChunkWriter, at: i64, thread: u64, task: u64| {
        chunk
            .event(schema::SAMPLE_CONTEXT, |e| {
                e.ticks(Ticks(at)).key(thread).key(task).long(0);
            })
            .unwrap();
    };
    let sample = |chunk: &mut ChunkWriter, at: i64, thread: u64| {
        chunk
            .event(schema::EXECUTION_SAMPLE, |e| {
                e.ticks(Ticks(at)).key(thread).key(0).key(thread_state::DEFAULT);
            })
            .unwrap();
    };
    context(&mut chunk, 10, 1, 1);
    sample(&mut chunk, 10, 1);
    sample(&mut chunk, 10, 1);
    sample(&mut chunk, 20, 3);
    sample(&mut chunk, 30, 1);
    context(&mut chunk, 30, 2, 2);
    sample(&mut chunk, 30, 3);
    context(&mut chunk, 40, 9, 3);
    sample(&mut chunk, 40, 9);
    sample(&mut chunk, 50, 3);
    chunk.finish(Ticks(60), true, &mut out).unwrap();
    out
}

#[test]
fn contexts_match_thread_and_time_at_any_position() {
    let chunk = with_contexts();
    let keyed = Reader::new(&[]).read(&chunk).unwrap();
    let task = |row: &keyed::Row| {
        let context = keyed.contexts.get(row.context as usize)?.as_ref()?;
        Some(context.labels.get("task")?.to_string())
    };
    let tasks: Vec<Option<String>> = keyed.rows.iter().map(task).collect();
    let of = |task: &str| Some(task.to_owned());
    assert_eq!(tasks, [of("1"), of("1"), None, of("2"), None, None, None]);
    assert_eq!(rows(&keyed), items(&chunk));
    // Incomplete, empty, and too large.
    let none = |bytes: &[u8]| Reader::new(&[]).read(bytes).is_none();
    assert!(none(&chunk[..chunk.len() - 1]) && none(&[]) && none(&vec![0; 65 << 20]));
    // Other types are skipped.
    assert_eq!(Reader::new(&["alloc".into()]).read(&chunk).unwrap().rows.len(), 0);
}

/// Steele's splitmix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

#[test]
fn damaged_chunk_yields_equal_rows_or_none() {
    let (mut state, mut said, mut nothing) = (1, 0, 0);
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings/flightline.jfr");
    let recording = fs::read(fixture).unwrap();
    for chunk in [with_contexts(), chunks(&recording)[0].to_vec()] {
        for _ in 0..400 {
            let mut damaged = chunk.clone();
            for _ in 0..1 + random(&mut state) % 3 {
                let at = random(&mut state) as usize % damaged.len();
                damaged[at] = random(&mut state) as u8;
            }
            match Reader::new(&[]).read(&damaged) {
                Some(keyed) => {
                    said += 1;
                    assert_eq!(rows(&keyed), items(&damaged));
                }
                None => nothing += 1,
            }
        }
    }
    assert!(said > 50 && nothing > 50, "{said} {nothing}");
}
