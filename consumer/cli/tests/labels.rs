//! `--label` for pprof profiles: strings, numbers, and the message if nothing matches.

#![cfg(feature = "export")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use flightline_export::pprof::{self, Function, Label, Line, Location, Profile, Sample, ValueType};
use prost::Message;

/// `main` calls `a` to `e`, with tenants red, red, blue, none and empty, and sizes 0, 16, 16, -5 and none.
/// The weight of a sample identifies it.
fn profile() -> Profile {
    let texts = ["", "cpu", "ns", "main", "a", "b", "c", "d", "e", "tenant", "red", "blue", "size"];
    let [tenant, red, blue, size] = [9, 10, 11, 12];
    let label = |key, str, num| Label { key, str, num };
    let labels = [
        vec![label(tenant, red, 0), label(size, 0, 0)],
        vec![label(tenant, red, 0), label(size, 0, 16)],
        vec![label(tenant, blue, 0), label(size, 0, 16)],
        vec![label(size, 0, -5)],
        // A label without a string, as Go writes it, and one with an invalid string index.
        vec![label(tenant, 0, 0), label(tenant, 99, 0)],
    ];
    let sample =
        |(at, label): (u64, Vec<Label>)| Sample { location_id: vec![at + 2, 1], value: vec![1 << at], label };
    let function =
        |id: u64| Function { id, name: id as i64 + 2, system_name: id as i64 + 2, ..Function::default() };
    let line = |id: u64| vec![Line { function_id: id, line: 0 }];
    Profile {
        sample_type: vec![ValueType { r#type: 1, unit: 2 }],
        sample: (0..).zip(labels).map(sample).collect(),
        location: (1..=6).map(|id| Location { id, mapping_id: 0, address: 0, line: line(id) }).collect(),
        function: (1..=6).map(function).collect(),
        string_table: texts.map(str::to_owned).to_vec(),
        ..Profile::default()
    }
}

fn written(folder: &Path) -> PathBuf {
    let mut packed = Vec::new();
    pprof::write(&profile(), &mut packed).unwrap();
    let path = folder.join("run.pb.gz");
    std::fs::write(&path, packed).unwrap();
    path
}

fn flightline(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flightline")).args(args).stdin(Stdio::null()).output().unwrap()
}

fn told(args: &[&str]) -> String {
    let done = flightline(args);
    assert!(matches!(done.status.code(), Some(1 | 2)), "{args:?}: {}", String::from_utf8_lossy(&done.stdout));
    assert!(done.stdout.is_empty(), "{args:?}");
    String::from_utf8(done.stderr).unwrap()
}

#[test]
fn label_option_selects_samples_by_string_and_number() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path());
    let path = path.to_str().unwrap();
    for (labels, stacks) in [
        (&[][..], "main;a 1\nmain;b 2\nmain;c 4\nmain;d 8\nmain;e 16\n"),
        (&["tenant=red"], "main;a 1\nmain;b 2\n"),
        (&["tenant=blue"], "main;c 4\n"),
        (&["tenant=red", "size=16"], "main;b 2\n"),
        (&["size=16"], "main;b 2\nmain;c 4\n"),
        (&["size=-5"], "main;d 8\n"),
        (&["size=0"], "main;a 1\n"),
        (&["tenant="], "main;e 16\n"),
    ] {
        let mut args = vec!["fold", path];
        labels.iter().for_each(|label| args.extend(["--label", label]));
        let done = flightline(&args);
        assert!(done.status.success(), "{labels:?}: {}", String::from_utf8_lossy(&done.stderr));
        assert_eq!(String::from_utf8(done.stdout).unwrap(), stacks, "{labels:?}");
    }
    // Other commands support it too. With several inputs, some may have no match.
    let drawn = flightline(&["flame", path, "--label", "tenant=blue", "-o", "-", "--format", "svg"]);
    let svg = String::from_utf8(drawn.stdout).unwrap();
    assert!(svg.contains(">c<") || svg.contains("c ("), "{svg}");
    assert!(!svg.contains("<title>a "), "{svg}");
    let mut other = profile();
    other.string_table[11] = "green".into();
    let mut packed = Vec::new();
    pprof::write(&other, &mut packed).unwrap();
    let second = folder.path().join("second.pb.gz");
    std::fs::write(&second, packed).unwrap();
    // Uncompressed, with the time first, as Go writes it.
    let plain = folder.path().join("plain.pb");
    let time = [9 << 3, 0x80, 0x01];
    std::fs::write(&plain, [&time[..], &other.encode_to_vec()].concat()).unwrap();
    let green = flightline(&["fold", plain.to_str().unwrap(), "--label", "tenant=green"]);
    assert_eq!(String::from_utf8(green.stdout).unwrap(), "main;c 4\n");
    let both = flightline(&["fold", path, second.to_str().unwrap(), "--label", "tenant=green"]);
    assert_eq!(String::from_utf8(both.stdout).unwrap(), "main;c 4\n");
}

#[test]
fn unknown_label_error_lists_existing_labels() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path());
    let path = path.to_str().unwrap();
    let value = told(&["fold", path, "--label", "tenant=green"]);
    assert!(
        value.contains("tenant=green: its labels are tenant=, tenant=0, tenant=blue, tenant=red"),
        "{value}"
    );
    let both = told(&["fold", path, "--label", "tenant=blue", "--label", "size=0"]);
    assert!(both.contains("tenant=blue size=0"), "{both}");
    let name = told(&["fold", path, "--label", "task=1"]);
    assert!(name.contains("size, tenant"), "{name}");
    let number = told(&["fold", path, "--label", "size=sixteen"]);
    assert!(number.contains("size=16"), "{number}");
    let bare = folder.path().join("bare.pb.gz");
    let bare = bare.to_str().unwrap();
    assert!(flightline(&["convert", path, "-o", bare]).status.success());
    assert!(told(&["fold", bare, "--label", "a=b"]).contains("bare.pb.gz"));
}

#[test]
fn unsupported_selection_error_suggests_alternative() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path());
    let path = path.to_str().unwrap();
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/recordings/jdk25-spans.jfr");
    let recording = recording.to_str().unwrap();
    let folded = folder.path().join("run.folded");
    std::fs::write(&folded, "main;a 1\n").unwrap();
    for (args, wanted) in [
        (&["fold", path, "--span", "checkout"][..], "--label span_name=checkout"),
        (&["fold", path, recording, "--label", "tenant=red"], "give inputs of one kind"),
        (&["fold", path, "--label", "tenant=red", "--only-thread", "x"], "--only-thread needs a recording"),
        (
            &["fold", folded.to_str().unwrap(), "--label", "tenant=red"],
            "neither a recording nor a pprof profile",
        ),
        (
            &["spans", path, "--by", "label=tenant"],
            "is a pprof profile, not a JFR recording; `flightline fold`",
        ),
        (
            &["offcpu", path, "--label", "tenant=red"],
            "is a pprof profile, not a JFR recording; `flightline fold`",
        ),
        (
            &["cut", path, "--label", "tenant=red", "-o", "-"],
            "is a pprof profile, not a JFR recording; `flightline fold`",
        ),
    ] {
        let told = told(args);
        assert!(told.contains(wanted), "{args:?}: {told}");
    }
}
