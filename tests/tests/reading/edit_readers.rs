//! Every foreign reader finds the same samples in the output of `repair`, `cut`, `scrub` and `assemble` as in
//! the inputs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use flightline_tests::run::{Finished, beside, run};
use flightline_tests::stream::starts;
use flightline_tests::{foreign, victim};

/// Made by a JVM; jfrs cannot read its thread names.
const JVM: (&str, &[&str]) = ("jdk17-multichunk", &["jdk17", "jdk25", "jmc", "converter", "go"]);
const NATIVE: (&str, &[&str]) = ("ap-native-cpu", &foreign::ALL);
/// Made in the same minute, with the clock at another frequency.
const LATER: (&str, &[&str]) = ("ap-native-ctimer", &foreign::ALL);

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings").join(format!("{name}.jfr"))
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn flightline(args: &[&str]) -> Finished {
    run(Command::new(victim::flightline()).args(args), Duration::from_secs(60)).expect_success(args[0])
}

/// The samples of all files as a reader sees them, sorted.
#[track_caller]
fn lines(reader: &str, files: &[&Path]) -> Vec<String> {
    let read = |file: &&Path| {
        foreign::lines(reader, file).unwrap_or_else(|e| panic!("{reader} on {}: {e}", file.display()))
    };
    let mut lines: Vec<String> = files.iter().flat_map(read).collect();
    lines.sort_unstable();
    assert!(lines.len() > 20, "{reader}: {} samples in {files:?}", lines.len());
    lines
}

/// Every reader must see the same in both.
#[track_caller]
fn same(readers: &[&str], before: &[&Path], after: &[&Path]) {
    for reader in readers {
        let (before, after) = (lines(reader, before), lines(reader, after));
        assert_eq!(before.len(), after.len(), "{reader}: samples of {before:?}, {after:?}");
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(before, after, "{reader}");
        }
    }
}

/// The same except for a nanosecond: times relative to a different chunk start are rounded differently.
#[track_caller]
fn same_but_for_rounding(readers: &[&str], before: &[&Path], after: &[&Path]) {
    readers.iter().for_each(|reader| near(reader, before, after));
}

#[track_caller]
fn near(reader: &str, before: &[&Path], after: &[&Path]) {
    let [before, after] = [before, after].map(|files| {
        let mut times: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for line in lines(reader, files) {
            let (time, rest) = line.split_once('\t').unwrap();
            times.entry(rest.to_owned()).or_default().push(time.parse().unwrap());
        }
        times
    });
    assert!(before.keys().eq(after.keys()), "{reader}: other stacks or threads");
    for (rest, was) in &before {
        let is = &after[rest];
        assert_eq!(was.len(), is.len(), "{reader}: {rest}");
        let near = was.iter().zip(is).all(|(was, is)| was.abs_diff(*is) <= 1);
        assert!(near, "{reader}: {rest}: {was:?}, {is:?}");
    }
}

/// The offset of the last chunk.
fn last_chunk(bytes: &[u8]) -> usize {
    let mut at = 0;
    loop {
        let next = at + u64::from_be_bytes(bytes[at + 8..at + 16].try_into().unwrap()) as usize;
        if next >= bytes.len() {
            return at;
        }
        at = next;
    }
}

#[test]
fn readers_agree_on_repaired_recording() {
    let _place = beside();
    if !foreign::ready() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (killed, out) = (dir.path().join("killed.jfr"), dir.path().join("out.jfr"));
    for (name, readers) in [JVM, NATIVE] {
        let whole = fixture(name);
        let mut bytes = fs::read(&whole).unwrap();
        // The last header was never completed: no size, no offsets, being written.
        let at = last_chunk(&bytes);
        bytes[at + 8..at + 32].fill(0);
        bytes[at + 64] = 1;
        fs::write(&killed, &bytes).unwrap();
        flightline(&["repair", path(&killed), "-o", path(&out), "--force"]);
        same(readers, &[&whole], &[&out]);
    }
}

#[test]
fn readers_agree_on_recording_cut_in_two() {
    let _place = beside();
    if !foreign::ready() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a.jfr"), dir.path().join("b.jfr"));
    for (name, readers) in [JVM, NATIVE] {
        let whole = fixture(name);
        for (out, range) in [(&a, ["--to", "0.25"]), (&b, ["--from", "0.25"])] {
            flightline(&["cut", path(&whole), range[0], range[1], "-o", path(out), "--strict", "--force"]);
        }
        for reader in readers {
            let mut both = Vec::new();
            for part in [&a, &b] {
                let part = foreign::lines(reader, part).unwrap();
                assert!(!part.is_empty(), "{reader}: no sample in one part of {name}");
                both.extend(part);
            }
            both.sort_unstable();
            assert_eq!(both, lines(reader, &[&whole]), "{reader}: {name}");
        }
    }
}

/// One chunk has its last events there, and the next one has begun: both are cut at the same time.
#[test]
fn readers_agree_on_cut_at_chunk_boundary() {
    let _place = beside();
    if !foreign::ready() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.jfr");
    flightline(&["cut", path(&fixture(JVM.0)), "--from", "0.9", "-o", path(&out)]);
    let starts = starts(&fs::read(&out).unwrap());
    assert!(starts.len() > 1 && starts.is_sorted_by(|a, b| a < b), "{starts:?}");
    // async-profiler's reader does not distinguish samples of native methods.
    let counts = ["jdk17", "jdk25", "jmc", "go"].map(|reader| foreign::lines(reader, &out).unwrap().len());
    assert!(counts[0] > 5 && counts.iter().all(|count| *count == counts[0]), "{counts:?}");
}

#[test]
fn readers_agree_on_scrubbed_recording() {
    let _place = beside();
    if !foreign::ready() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.jfr");
    for (name, readers) in [JVM, NATIVE] {
        let whole = fixture(name);
        let others = "jdk.*Flag,jdk.Thread*,jdk.Initial*,jdk.ActiveSetting,jdk.CPULoad";
        flightline(&["scrub", path(&whole), path(&out), "--exclude-events", others, "--redact", "--force"]);
        assert!(fs::metadata(&out).unwrap().len() < fs::metadata(&whole).unwrap().len());
        same(readers, &[&whole], &[&out]);
    }
}

/// A recording of another program, with another clock and other constants for the same ids.
#[test]
fn readers_agree_on_assembly_with_different_ids_and_clocks() {
    let _place = beside();
    if !foreign::ready() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.jfr");
    for ((first, some), (second, others)) in [(JVM, NATIVE), (NATIVE, LATER)] {
        let parts = [fixture(first), fixture(second)];
        let parts: Vec<&Path> = parts.iter().map(PathBuf::as_path).collect();
        flightline(&["assemble", path(parts[0]), path(parts[1]), "-o", path(&out), "--rebase", "--force"]);
        let readers: Vec<&str> = some.iter().copied().filter(|reader| others.contains(reader)).collect();
        same(&readers, &parts, &[&out]);
        // Concatenating the bytes is not sufficient.
        let plain = dir.path().join("plain.jfr");
        fs::write(&plain, parts.iter().flat_map(|part| fs::read(part).unwrap()).collect::<Vec<u8>>())
            .unwrap();
        assert!(lines("jdk25", &[&plain]) != lines("jdk25", &parts), "{first}, {second}");
    }
}

/// JMC merges two chunks that start at the same time, so one of two such recordings gets a different start.
#[test]
fn readers_agree_on_assembly_with_same_start_time() {
    let _place = beside();
    if !foreign::ready() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.jfr");
    for rebase in [&[][..], &["--rebase"]] {
        for (name, readers) in [JVM, NATIVE] {
            let part = fixture(name);
            flightline(
                &[&["assemble", path(&part), path(&part), "-o", path(&out), "--force"], rebase].concat(),
            );
            same_but_for_rounding(readers, &[&part, &part], &[&out]);
        }
    }
}

/// The events of all files as JDK 25 prints them, sorted. Type ids, which may change, are replaced by type
/// names.
fn printed(jfr: &Path, files: &[&Path]) -> Vec<String> {
    let mut events = Vec::new();
    for file in files {
        let mut print = foreign::jfr(jfr);
        print.args(["print", "--json", "--stack-depth", "2"]).arg(file);
        let text = run(&mut print, Duration::from_secs(120)).expect_success("jfr print").stdout_text();
        let mut all: serde_json::Value = serde_json::from_str(&text).unwrap();
        for event in all["recording"]["events"].as_array_mut().unwrap() {
            if event["type"] == "jdk.ActiveSetting" {
                event["values"]["id"].take();
            }
            events.push(event.to_string());
        }
    }
    events.sort_unstable();
    events
}

/// Every event and field, with a clock of 1 GHz joined to one of 2.6 GHz and the reverse.
#[test]
fn assembly_preserves_every_field_across_clocks() {
    let _place = beside();
    let Some(jdk) = foreign::jdk(25) else { return };
    let jfr = jdk.join("bin/jfr");
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.jfr");
    for (first, second) in [("ap-native-cpu", "jdk25"), ("jdk17", "ap-java-wall")] {
        let parts = [fixture(first), fixture(second)];
        let parts: Vec<&Path> = parts.iter().map(PathBuf::as_path).collect();
        let named = [path(parts[0]), path(parts[1]), "-o", path(&out)];
        flightline(&[&["assemble", "--rebase", "--keep-order", "--force"], &named[..]].concat());
        let (before, after) = (printed(&jfr, &parts), printed(&jfr, &[&out]));
        assert!(before.len() > 10_000, "{} events", before.len());
        assert_eq!(before.len(), after.len());
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(before, after);
        }
    }
}
