//! The JDK's own consumer reads the output of `repair`, `cut`, `scrub`, `assemble` and `disassemble`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use flightline_tests::run::{Finished, beside, run};
use flightline_tests::{foreign, skip, victim};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures").join(name)
}

fn flightline(args: &[&str]) -> Finished {
    run(Command::new(victim::flightline()).args(args), Duration::from_secs(60))
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The contents of a file as the JDK reads them.
#[derive(Debug, PartialEq, Eq)]
struct Read {
    outcome: String,
    events: u64,
    /// A sum over the text of all events.
    digest: String,
    types: String,
}

/// The bin directories of the JDKs there are.
fn jdks() -> Vec<PathBuf> {
    if !skip::have_jdk() {
        skip::skip("no JDK here: edited recordings were not read by a foreign reader");
        return Vec::new();
    }
    let mut found = vec![PathBuf::new()];
    let others = fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten().map(|e| e.path());
    found.extend(
        others.filter(|p| path(p).contains("-25-") && p.join("bin/java").exists()).map(|p| p.join("bin")),
    );
    found
}

/// Reads all files of a directory in one process.
fn read_by(jdk: &Path, dir: &Path) -> BTreeMap<String, Read> {
    let classes = victim::java_classes(Path::new("javac"), "Count", &["--release", "17"]);
    let mut java = Command::new(jdk.join("java"));
    java.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]).arg(classes).arg("Count").arg(dir);
    let out = run(&mut java, Duration::from_secs(300)).expect_success("java Count");
    let lines = out.stdout_text();
    lines
        .lines()
        .map(|line| {
            let f: Vec<&str> = line.split('\t').collect();
            let read = Read {
                outcome: f[1].to_owned(),
                events: f[2].parse().unwrap(),
                digest: f[3].to_owned(),
                types: f[4].to_owned(),
            };
            (f[0].to_owned(), read)
        })
        .collect()
}

fn whole_metadata_at(bytes: &[u8]) -> usize {
    u64::from_be_bytes(bytes[24..32].try_into().unwrap()) as usize
}

#[test]
fn jdk_reads_repaired_file_for_every_truncated_prefix() {
    let _place = beside();
    let dir = tempfile::tempdir().unwrap();
    let (torn, repaired) = (dir.path().join("torn.jfr"), dir.path().join("out"));
    fs::create_dir(&repaired).unwrap();
    for name in ["jdk17", "jdk25", "ap-native-mem"] {
        let bytes = fs::read(fixture(&format!("recordings/{name}.jfr"))).unwrap();
        let mut before = 0;
        let steps = if flightline_tests::long() { 30 } else { 10 };
        for step in 1..=steps {
            let cut = bytes.len() * step / steps - usize::from(step < steps) * (step % 7);
            fs::write(&torn, &bytes[..cut]).unwrap();
            let out = repaired.join(format!("{name}-{step:02}.jfr"));
            let done = flightline(&["repair", path(&torn), "-o", path(&out)]);
            if cut < whole_metadata_at(&bytes) {
                assert_eq!(done.status.code(), Some(1), "{name} at {cut}");
                assert!(!out.exists());
                continue;
            }
            if !out.exists() {
                // Inside the metadata itself.
                assert!(before == 0 && done.stderr.contains("metadata"), "{name} at {cut}: {}", done.stderr);
                continue;
            }
            // A prefix without all constants that its events need is reported.
            assert!(done.status.success() || done.stderr.contains("warning: "), "{}", done.stderr);
            let size = fs::metadata(&out).unwrap().len();
            assert!(size >= before, "{name}: {size} bytes of a prefix of {cut}, {before} of a shorter one");
            before = size;
            // Repairing a repaired file changes nothing.
            let again = dir.path().join("again.jfr");
            flightline(&["repair", path(&out), "-o", path(&again), "--force"]).expect_success("repair again");
            assert_eq!(fs::read(&out).unwrap(), fs::read(&again).unwrap(), "{name} at {cut}");
        }
        // The complete file is valid and stays as it is.
        assert_eq!(fs::read(repaired.join(format!("{name}-{steps:02}.jfr"))).unwrap(), bytes);
    }
    for jdk in jdks() {
        let read = read_by(&jdk, &repaired);
        assert!(read.len() > if flightline_tests::long() { 60 } else { 20 }, "{} files", read.len());
        for (file, read) in read {
            assert!(read.outcome == "ok" && read.events > 0, "{file}: {read:?}");
        }
    }
}

#[test]
fn repair_recovers_all_events_in_unfinished_file() {
    let _place = beside();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    fs::create_dir(&out).unwrap();
    for name in ["jdk17", "jdk25", "ap-native-cpu", "ap-java-wall"] {
        let file = fixture(&format!("recordings/{name}.jfr"));
        let mut bytes = fs::read(&file).unwrap();
        fs::copy(&file, out.join(format!("{name}.whole"))).unwrap();
        // As a killed JDK leaves it: no size, no offsets, state 1.
        bytes[8..32].fill(0);
        bytes[64] = 1;
        let killed = dir.path().join("killed.jfr");
        fs::write(&killed, &bytes).unwrap();
        let to = out.join(format!("{name}.repaired"));
        flightline(&["repair", path(&killed), "-o", path(&to)]).expect_success("repair");
    }
    for jdk in jdks() {
        let read = read_by(&jdk, &out);
        for name in ["jdk17", "jdk25", "ap-native-cpu", "ap-java-wall"] {
            assert_eq!(read[&format!("{name}.whole")], read[&format!("{name}.repaired")]);
        }
    }
}

#[test]
fn disassemble_and_assemble_round_trip() {
    let _place = beside();
    let dir = tempfile::tempdir().unwrap();
    for name in ["jdk17-multichunk", "jdk25-multichunk"] {
        let file = fixture(&format!("recordings/{name}.jfr"));
        let (parts, whole) = (dir.path().join(name), dir.path().join(format!("{name}.jfr")));
        flightline(&["disassemble", path(&file), "-o", path(&parts), "--max-chunks", "1"])
            .expect_success("apart");
        assert!(fs::read_dir(&parts).unwrap().count() > 1);
        flightline(&["assemble", path(&parts), "-o", path(&whole)]).expect_success("together");
        assert_eq!(fs::read(file).unwrap(), fs::read(&whole).unwrap());
        let refused = flightline(&["assemble", path(&parts), "-o", path(&whole)]);
        assert_eq!(refused.status.code(), Some(1));
        assert!(refused.stderr.contains("--force"), "{}", refused.stderr);
    }
}

#[test]
fn scrub_matches_jdk_scrub() {
    let _place = beside();
    let Some(jdk) = jdks().into_iter().find(|jdk| jdk != Path::new("")) else {
        return skip::skip("no JDK 25 here: its scrub was not compared");
    };
    let dir = tempfile::tempdir().unwrap();
    let filters: [&[&str]; 6] = [
        &["--include-events", "jdk.Thread*", "--exclude-threads", "main"],
        &["--exclude-events", "ActiveSetting,jdk.*Flag"],
        &["--include-categories", "Java Virtual Machine", "--exclude-categories", "GC"],
        &["--include-threads", "cpu-?"],
        &["--include-events", "jdk.ExecutionSample,jdk.JavaExceptionThrow"],
        &["--exclude-threads", "locks-*,main"],
    ];
    let file = fixture("recordings/jdk25-multichunk.jfr");
    for (i, filter) in filters.iter().enumerate() {
        let (theirs, ours) =
            (dir.path().join(format!("{i}.theirs.jfr")), dir.path().join(format!("{i}.ours.jfr")));
        let mut jfr = foreign::jfr(&jdk.join("jfr"));
        jfr.arg("scrub").args(*filter).arg(&file).arg(&theirs);
        run(&mut jfr, Duration::from_secs(60)).expect_success("jfr scrub");
        let mut args = vec!["scrub", path(&file), path(&ours)];
        args.extend(*filter);
        flightline(&args).expect_success("flightline scrub");
    }
    let read = read_by(&jdk, dir.path());
    for (i, filter) in filters.iter().enumerate() {
        let (theirs, ours) = (&read[&format!("{i}.theirs.jfr")], &read[&format!("{i}.ours.jfr")]);
        assert!(theirs.events > 0);
        assert_eq!(theirs, ours, "{filter:?}");
    }
}

#[test]
fn scrubbed_strings_are_absent_from_file() {
    let _place = beside();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.jfr");
    let file = fixture("recordings/jdk17.jfr");
    let secret = b"java.lang.IllegalArgumentException";
    let holds = |file: &Path| fs::read(file).unwrap().windows(secret.len()).any(|w| w == secret);
    let named = |dir: &Path| path(dir).to_owned();
    flightline(&["scrub", &named(&file), &named(&out), "--include-events", "jdk.ActiveSetting"])
        .expect_success("scrub");
    assert!(fs::metadata(&out).unwrap().len() < fs::metadata(&file).unwrap().len());
    assert!(!holds(&out));
    let kept = dir.path().join("kept.jfr");
    let args =
        ["scrub", &named(&file), &named(&kept), "--include-events", "jdk.ActiveSetting", "--keep-constants"];
    flightline(&args).expect_success("scrub");
    assert!(fs::metadata(&kept).unwrap().len() > fs::metadata(&out).unwrap().len());
}

#[test]
fn two_adjacent_cuts_contain_all_events() {
    let _place = beside();
    let dir = tempfile::tempdir().unwrap();
    for name in ["jdk17-multichunk", "jdk25", "ap-native-wall"] {
        let file = fixture(&format!("recordings/{name}.jfr"));
        let (a, b) = (dir.path().join(format!("{name}.a")), dir.path().join(format!("{name}.b")));
        for (out, range) in [(&a, ["--to", "0.4"]), (&b, ["--from", "0.4"])] {
            flightline(&["cut", path(&file), range[0], range[1], "-o", path(out), "--strict"])
                .expect_success("cut");
        }
        fs::copy(&file, dir.path().join(format!("{name}.whole"))).unwrap();
    }
    for jdk in jdks() {
        let read = read_by(&jdk, dir.path());
        for name in ["jdk17-multichunk", "jdk25", "ap-native-wall"] {
            let of = |part: &str| &read[&format!("{name}.{part}")];
            let (a, b, whole) = (of("a"), of("b"), of("whole"));
            assert!([a, b, whole].iter().all(|r| r.outcome == "ok" && r.events > 0), "{a:?} {b:?} {whole:?}");
            // Events that overlap the cut are in both.
            let both = a.events + b.events - whole.events;
            assert!(both < 60, "{name}: {both} events of {} in both", whole.events);
        }
    }
}

/// The events that describe the recording come from the chunks of the range, not from later ones, although
/// the time of `jdk.ActiveRecording` extends from before the range into them.
#[test]
fn cut_excludes_settings_from_later_chunks() {
    let _place = beside();
    const NAMES: [&str; 2] = ["jdk17-multichunk", "jdk25-multichunk"];
    let dir = tempfile::tempdir().unwrap();
    for name in NAMES {
        let file = fixture(&format!("recordings/{name}.jfr"));
        let bytes = fs::read(&file).unwrap();
        let field = |at: usize| usize::try_from(u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap()));
        // The size and duration of the first chunk.
        let (size, nanos) = (field(8).unwrap(), field(40).unwrap());
        fs::write(dir.path().join(format!("{name}.first")), &bytes[..size]).unwrap();
        let (from, to) = (nanos as f64 * 0.5e-9, nanos as f64 * 0.9e-9);
        let out = dir.path().join(format!("{name}.cut"));
        let (from, to) = (format!("{from:.6}"), format!("{to:.6}"));
        flightline(&["cut", path(&file), "--from", &from, "--to", &to, "-o", path(&out)])
            .expect_success("cut");
    }
    for jdk in jdks() {
        let read = read_by(&jdk, dir.path());
        for name in NAMES {
            let settings = |part: &str| {
                let types = &read[&format!("{name}.{part}")].types;
                types
                    .split(['{', '}', ',', ' '])
                    .find(|t| t.starts_with("jdk.ActiveSetting="))
                    .map(str::to_owned)
            };
            assert!(settings("first").is_some(), "{:?}", read[&format!("{name}.first")].types);
            assert_eq!(settings("cut"), settings("first"), "{name}");
        }
    }
}
