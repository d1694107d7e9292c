//! The reader accepts a repaired recording of any input without a warning, and a second repair changes
//! nothing.

use bytes::Bytes;
use jfr_format::edit::{self, Cause, Options, Repaired, Source};

#[allow(dead_code)]
use crate::edited;

fn check(bytes: Vec<u8>, what: &str) {
    edited::repair(&bytes.into(), what);
}

fn cases() -> Vec<(String, Vec<u8>)> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/cases");
    let mut found: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    found.sort();
    found
        .iter()
        .map(|p| (p.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(p).unwrap()))
        .collect()
}

/// Returns the same numbers below a limit in every run (xorshift); the seed must not be 0.
pub(crate) fn random(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    }
}

#[test]
fn repair_handles_all_cases_and_truncations() {
    for (name, bytes) in cases() {
        check(bytes.clone(), &name);
        for cut in (0..bytes.len()).step_by(97) {
            check(bytes[..cut].to_vec(), &format!("{name} cut at {cut}"));
        }
    }
}

#[test]
fn repair_handles_random_byte_changes() {
    let mut random = random(0x9e37_79b9_7f4a_7c15);
    for (name, bytes) in cases() {
        for round in 0..600 {
            let mut changed = bytes.clone();
            for _ in 0..=random(4) {
                let at = if random(3) == 0 { random(68) } else { random(changed.len()) };
                changed[at] = random(256) as u8;
            }
            if random(4) == 0 {
                let at = random(changed.len());
                changed.drain(at..(at + random(40)).min(bytes.len()));
            }
            check(changed, &format!("{name}, round {round}"));
        }
    }
}

/// A file may contain a header every 68 bytes, and metadata as long as all of them.
#[test]
fn headers_without_metadata_do_not_inflate_output() {
    let sound =
        std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/recordings/jdk17.jfr")).unwrap();
    let mut bytes = sound.clone();
    for _ in 0..sound.len() / 68 {
        bytes.extend_from_slice(&sound[..68]);
    }
    let once = edited::repair(&bytes.into(), "bare headers");
    assert_eq!(once[..sound.len()], sound);
}

fn recording(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/../fixtures/recordings/{name}.jfr", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn repaired(bytes: &[u8]) -> (Repaired, Bytes) {
    let mut out = Vec::new();
    let source = Source::from(bytes.to_vec());
    let report = edit::repair(&source, &Options::default(), &mut out).unwrap();
    (report, out.into())
}

/// Offset and size of each event.
fn events(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    edited::sound(&Bytes::from(bytes.to_vec()), "input", &mut |event| {
        found.push((event.offset() as usize, event.size() as usize));
    });
    found.sort();
    found
}

fn total(bytes: &Bytes) -> u64 {
    edited::sound(bytes, "result", &mut |_| {}).values().sum()
}

/// A damaged size that spans thousands of events costs the event that has it.
#[test]
fn damaged_size_costs_one_event() {
    for name in ["jdk11", "jdk17", "jdk25", "ap-java-cpu", "ap-jfrsync", "flightline"] {
        let sound = recording(name);
        let all = events(&sound);
        let mut tried = 0;
        for (i, &(at, size)) in all.iter().enumerate().skip(all.len() / 20) {
            // Other sizes do not fit into the bytes of this one.
            let width = sound[at..].iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
            let far = all.get(i + all.len() / 2).map_or(sound.len() / 2, |far| far.0 - at + 1);
            let largest = (1usize << (7 * width)) - 1;
            let new = far.min(largest);
            if new <= size || tried > 30 {
                continue;
            }
            tried += 1;
            let mut damaged = sound.clone();
            for (n, byte) in damaged[at..at + width].iter_mut().enumerate() {
                *byte = (new >> (7 * n)) as u8 & 0x7f | if n + 1 < width { 0x80 } else { 0 };
            }
            let (report, out) = repaired(&damaged);
            let retained = total(&out);
            assert!(
                retained == all.len() as u64 - 1,
                "{name}: {retained} of {} events with size {size} at {at} made {new}: {report:?}",
                all.len()
            );
            let lost = &report.lost[&Cause::Unreadable];
            let range = at as u64..(at + size) as u64;
            assert_eq!((lost.bytes, lost.ranges.len(), &lost.ranges[0]), (size as u64, 1, &range));
            assert!(!report.gave_up);
        }
        assert!(tried > 0, "{name}");
    }
}

/// 200 damaged bytes cost their events and a few after them.
#[test]
fn damaged_bytes_cost_only_nearby_events() {
    let mut random = random(0x9e37_79b9_7f4a_7c15);
    for name in ["jdk17", "jdk25", "jdk17-multichunk", "ap-java-wall", "ap-java-multichunk"] {
        let sound = recording(name);
        let all = events(&sound);
        for together in [true, false] {
            let mut damaged = sound.clone();
            let mut hit = std::collections::BTreeSet::new();
            // Events only: a damaged header or metadata costs more.
            let start = all[random(all.len() - 250)].0;
            for n in 0..200 {
                let at = match together {
                    true => start + n,
                    false => {
                        let (at, size) = all[random(all.len())];
                        at + random(size)
                    }
                };
                damaged[at] = random(256) as u8;
                hit.insert(all.partition_point(|(from, _)| *from <= at));
            }
            let (report, out) = repaired(&damaged);
            let lost = all.len() as u64 - total(&out);
            // At least four sound events between two damaged ones are needed to continue.
            let most = 6 * hit.len() as u64;
            assert!(lost <= most, "{name}: {lost} of {} lost by {}: {report:?}", all.len(), hit.len());
            assert!(!report.gave_up && report.output > 0);
        }
    }
}

/// async-profiler writes the constants at the end of a chunk.
#[test]
fn missing_constants_are_counted() {
    let sound = recording("ap-java-cpu");
    let all = events(&sound);
    let (last, size) = all[all.len() - 1];
    let (report, out) = repaired(&sound[..last + size]);
    assert!(total(&out) > 100, "{report:?}");
    for name in ["jdk.types.StackTrace", "java.lang.Thread"] {
        let missing = report.missing[name];
        assert!(missing.of > 100 && missing.events == missing.of, "{name}: {missing:?}");
    }
    let (report, _) = repaired(&sound);
    assert!(report.unchanged() && report.missing.is_empty());
    // Only the header is incomplete: all constants are present.
    let mut unfinished = sound.clone();
    unfinished[8..32].fill(0);
    unfinished[64] = 1;
    let (report, _) = repaired(&unfinished);
    assert!(!report.unchanged());
    assert_eq!(report.missing["jdk.types.StackTrace"].events, 0, "{report:?}");
}
