//! Repair of anything gives what the reader takes without a word, and repairing that changes nothing.

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

#[test]
fn every_case_and_many_prefixes() {
    for (name, bytes) in cases() {
        check(bytes.clone(), &name);
        for cut in (0..bytes.len()).step_by(97) {
            check(bytes[..cut].to_vec(), &format!("{name} cut at {cut}"));
        }
    }
}

#[test]
fn bytes_changed_at_random() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
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

/// A file may hold a header for every 68 bytes, and metadata as long as all of them.
#[test]
fn headers_without_metadata_make_no_huge_file() {
    let sound =
        std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/recordings/jdk17.jfr")).unwrap();
    let mut bytes = sound.clone();
    for _ in 0..sound.len() / 68 {
        bytes.extend_from_slice(&sound[..68]);
    }
    let once = edited::repair(&bytes.into(), "bare headers");
    assert_eq!(once[..sound.len()], sound);
}
