//! Edits sound, torn and damaged recordings. The reader must accept the results without a warning.

use bytes::Bytes;

use crate::edited;

fn cases() -> Vec<(String, Bytes)> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/cases");
    let mut found: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    found.sort();
    found
        .iter()
        .map(|p| (p.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(p).unwrap().into()))
        .collect()
}

/// Recordings with a lot of text.
fn recordings() -> Vec<(String, Bytes)> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/recordings");
    let names = ["jdk17-odd", "jdk25-odd", "jdk25-spans", "ap-java-cpu", "ap-jfrsync", "flightline"];
    let read = |name: &str| std::fs::read(format!("{dir}/{name}.jfr")).unwrap().into();
    names.iter().map(|name| ((*name).to_owned(), read(name))).collect()
}

fn everything(bytes: &Bytes, other: &Bytes, n: u64, what: &str) {
    edited::repair(bytes, what);
    edited::scrub(bytes, 1 + n % 5, what);
    edited::cut(bytes, (n * 7_000_000) as i64, (n * 3_000_000) as i64, what);
    edited::redact(bytes, what);
    edited::assemble([other, bytes], what);
}

#[test]
fn edits_handle_all_cases_and_truncations() {
    let cases = cases();
    for (i, (name, bytes)) in cases.iter().enumerate() {
        let other = &cases[(i + 17) % cases.len()].1;
        everything(bytes, other, i as u64, name);
        for cut in (0..bytes.len()).step_by(397) {
            everything(&bytes.slice(..cut), other, cut as u64, &format!("{name} cut at {cut}"));
        }
    }
}

#[test]
fn edits_handle_random_byte_changes() {
    let mut random = crate::repair::random(0x2545_f491_4f6c_dd1d);
    let cases = cases();
    for (name, bytes) in &cases {
        for round in 0..60 {
            let mut changed = bytes.to_vec();
            for _ in 0..=random(4) {
                let at = if random(3) == 0 { random(68) } else { random(changed.len()) };
                changed[at] = random(256) as u8;
            }
            let other = &cases[random(cases.len())].1;
            everything(&changed.into(), other, round, &format!("{name}, round {round}"));
        }
    }
}

/// Texts are replaced individually, whether they are stored in the event or in the pool of strings.
#[test]
fn secrets_are_replaced_and_other_text_is_unchanged() {
    let mut replaced = 0;
    for (name, bytes) in cases().into_iter().chain(recordings()) {
        replaced += edited::redact_secrets(&bytes, &name);
    }
    assert!(replaced > 1000, "{replaced}");
}
