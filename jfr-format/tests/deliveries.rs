//! One pass or two, one thread or several: the same events, warnings and chunks.

use crate::dump;

use bytes::Bytes;
use dump::{Dump, fixtures, long, name};
use jfr_format::read::Delivery::{KeysOnly, WholeChunks};
use jfr_format::read::{Decoder, Delivery, Filter, Input, Item, Recording};

/// Unchanged recordings, joined ones, ones with garbage in between, and torn ones.
fn inputs() -> Vec<(String, Bytes)> {
    let read = |path: &std::path::Path| Bytes::from(std::fs::read(path).unwrap());
    let join = |parts: &[&[u8]]| Bytes::from(parts.concat());
    let mut files = fixtures("cases");
    files.extend(fixtures("recordings").into_iter().filter(|p| p.metadata().unwrap().len() < 480_000));
    let mut inputs = Vec::new();
    for path in files {
        let bytes = read(&path);
        let torn = &bytes[..bytes.len() * 2 / 3];
        let mut flipped = bytes.to_vec();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 0x5a;
        let name = name(&path);
        inputs.push((format!("{name} four times"), join(&[&bytes, &bytes, &bytes, &bytes])));
        inputs.push((format!("{name} around a torn one"), join(&[&bytes, &bytes, torn, &bytes, &bytes])));
        inputs.push((format!("{name} around garbage"), join(&[&bytes, b"FLR\0garbage", &bytes, &bytes])));
        inputs.push((format!("{name} with a bit flipped"), join(&[&bytes, &flipped, &bytes])));
        inputs.push((format!("{name} torn"), Bytes::copy_from_slice(torn)));
        inputs.push((name, bytes));
    }
    inputs
}

/// Events without their constants, then the number of constants; warnings in the order of their offsets,
/// because they may be reported earlier or later.
#[derive(Debug, Default, PartialEq, Eq)]
struct Raw {
    events: Vec<(u64, String, Vec<u8>)>,
    constants: Vec<usize>,
    warnings: Vec<(u64, String)>,
    chunks: Vec<(u64, bool)>,
}

impl Raw {
    fn of(bytes: &Bytes, delivery: Delivery, jobs: usize) -> Self {
        let mut all = Self::default();
        let decode = |decoder: &mut Decoder| {
            let mut raw = Self::default();
            raw.drain(decoder);
            raw
        };
        let outcome = Recording::bytes(bytes.clone()).run(delivery, jobs, decode, |mut raw| {
            all.events.append(&mut raw.events);
            all.constants.append(&mut raw.constants);
            all.warnings.append(&mut raw.warnings);
            all.chunks.append(&mut raw.chunks);
            Ok::<(), std::convert::Infallible>(())
        });
        assert_eq!(outcome, Ok(()));
        all.warnings.sort();
        all
    }

    fn drain(&mut self, decoder: &mut Decoder) {
        while let Some(item) = decoder.next() {
            match item {
                Item::ChunkStart(_) => {}
                Item::Events(batch) => {
                    let of = batch.events();
                    self.events
                        .extend(of.map(|e| (e.offset(), e.class().name.to_string(), e.payload().to_vec())));
                }
                Item::ChunkEnd(end) => {
                    let classes = end.chunk.types.classes().iter();
                    let pools = classes.filter_map(|c| end.chunk.types.class_index(c.id));
                    self.constants.push(pools.map(|index| end.chunk.pools.len(index)).sum());
                    self.chunks.push((end.size, end.complete));
                }
                Item::Warning(warning) => self.warnings.push((warning.at(), warning.to_string())),
            }
        }
    }
}

#[test]
fn thread_count_does_not_change_events() {
    for (name, bytes) in inputs() {
        let want = Dump::of(&[&bytes], WholeChunks);
        for jobs in [1, 3].into_iter().filter(|jobs| *jobs > 1 || long()) {
            assert_eq!(Dump::parallel(&bytes, WholeChunks, jobs), want, "{name}, {jobs} threads");
        }
    }
}

#[test]
fn keys_only_delivery_yields_equal_events() {
    for (name, bytes) in inputs() {
        let want = Raw::of(&bytes, WholeChunks, 1);
        for jobs in [1, 3] {
            assert_eq!(Raw::of(&bytes, KeysOnly, jobs), want, "{name}, {jobs} threads");
        }
    }
}

/// Releasing pages must not change the results.
#[test]
fn mapped_files_yield_equal_events() {
    for path in fixtures("recordings") {
        let bytes = Bytes::from(std::fs::read(&path).unwrap());
        let want = Dump::of(&[&bytes], WholeChunks);
        let mut events = 0;
        let mut input = Input::open(&path).unwrap();
        while let Some(item) = input.next().unwrap() {
            if let Item::Events(batch) = item {
                events += batch.events().count();
            }
        }
        assert_eq!(events, want.events.len(), "{}", name(&path));
    }
}

/// An error from the consumer ends the run, immediately and in order.
#[test]
fn consumer_error_stops_decoding() {
    let one = Bytes::from(std::fs::read(fixtures("cases").first().unwrap()).unwrap());
    let many = Bytes::from(std::iter::repeat_n(&one[..], 50).collect::<Vec<_>>().concat());
    let recording = Recording::bytes(many);
    assert_eq!(recording.pieces(), 50);
    let mut taken = 0;
    let chunks = |decoder: &mut Decoder| {
        while decoder.next().is_some() {}
        decoder.chunks()
    };
    let outcome = recording.run(KeysOnly, 4, chunks, |chunks| {
        taken += 1;
        assert_eq!(chunks, taken);
        if taken == 7 { Err("enough") } else { Ok(()) }
    });
    assert_eq!(outcome, Err("enough"));
    assert_eq!(taken, 7);
}

/// With a filter, the decoder returns only the selected types, wherever the metadata lies; it still counts
/// all events.
#[test]
fn filter_yields_only_selected_types() {
    let wanted = |name: &str| name.len() % 3 == 1;
    let mut met = [0; 2];
    for (name, bytes) in inputs() {
        let all = Raw::of(&bytes, WholeChunks, 1);
        let mut want = all.events.clone();
        want.retain(|(_, class, _)| wanted(class));
        met[usize::from(want.is_empty())] += 1;
        for delivery in [KeysOnly, WholeChunks, Delivery::Streaming] {
            let mut decoder = Decoder::new(delivery);
            decoder.set_filter(move |class| match wanted(&class.name) {
                true if class.name.len() % 2 == 0 => Filter::Constants,
                true => Filter::Plain,
                false => Filter::Skip,
            });
            decoder.push(bytes.clone());
            decoder.close();
            let mut raw = Raw::default();
            raw.drain(&mut decoder);
            assert_eq!(raw.events, want, "{name}, {delivery:?}");
            assert_eq!(
                raw.chunks.iter().map(|c| c.0).sum::<u64>(),
                all.chunks.iter().map(|c| c.0).sum::<u64>()
            );
            let complete = |raw: &Raw| raw.constants.iter().sum::<usize>();
            let constants = want.iter().any(|(_, class, _)| class.len() % 2 == 0);
            if constants && raw.constants.len() == 1 {
                assert_eq!(complete(&raw), complete(&all), "{name}, {delivery:?}");
            }
        }
    }
    assert!(met.iter().all(|&n| n > 10), "inputs with and without such events: {met:?}");
}
