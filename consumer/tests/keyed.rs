//! A chunk read at once says the same of its samples as item by item.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flightline_consumer::live::keyed::{Keyed, Reader};
use flightline_consumer::live::{Feed, Item, Loss, Options, Sample};
use flightline_consumer::model::Unit;
use jfr_format::header::ChunkHeader;

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

/// The chunks, as far as their headers say where they end.
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

/// Samples and losses of a chunk, item by item.
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

/// The same of a chunk that was read at once.
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
            at(&keyed.stacks, row.stack).cloned(),
            at(&keyed.states, row.state).cloned(),
            at(&keyed.variants, row.variant).cloned(),
            kind.lasts.then_some(row.duration_nanos),
            row.samples,
            at(&keyed.contexts, row.context).cloned(),
        )
    });
    (samples.collect(), keyed.losses.iter().map(loss).collect())
}

#[test]
fn a_chunk_at_once_is_what_its_items_are() {
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
