//! Problems that users reported, reproduced.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use jfr_format::ids::{FileOffset, Ticks};
use jfr_format::schema;
use jfr_format::write::{ChunkWriter, ClockLine, FieldWriter, FileOutput, Geometry};

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/recordings").join(name);
    path.to_str().unwrap().to_owned()
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flightline"));
    command.args(args).stdin(Stdio::null());
    command
}

fn flightline(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

fn told(output: &Output) -> &str {
    str::from_utf8(&output.stderr).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Distributes the chunks of a recording over process folders, as in a repository.
fn repository(root: &Path, recording: &str, folders: &[&str]) {
    let parts = root.with_extension("parts");
    let apart = flightline(&["disassemble", recording, "-o", text(&parts), "--max-chunks", "1"]);
    assert!(apart.status.success(), "{}", told(&apart));
    let mut parts: Vec<PathBuf> = parts.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    parts.sort();
    assert!(parts.len() > 1);
    // Names that do not follow the order of time.
    for (at, part) in parts.iter().enumerate() {
        let folder = root.join(folders[at % folders.len()]);
        fs::create_dir_all(&folder).unwrap();
        fs::rename(part, folder.join(format!("chunk_{}.jfr", 100 - at))).unwrap();
    }
}

#[test]
fn repository_is_assembled_in_time_order() {
    let dir = tempfile::tempdir().unwrap();
    let file = fixture("jdk17-multichunk.jfr");
    let whole = fs::read(&file).unwrap();
    let folders = ["2026_11_21_15_00_00_7", "2026_11_21_15_00_01_8"];
    for (name, folders) in [("one", &folders[..1]), ("two", &folders[..])] {
        let root = dir.path().join(name);
        repository(&root, &file, folders);
        // A chunk that consists of its header only.
        fs::write(root.join(folders[0]).join("new.jfr"), &whole[..68]).unwrap();
        let out = dir.path().join(format!("{name}.jfr"));
        let output = flightline(&["assemble", text(&root), "-o", text(&out)]);
        assert!(output.status.success(), "{}", told(&output));
        assert!(told(&output).contains("new.jfr"), "{}", told(&output));
        assert!(fs::read(&out).unwrap() == whole, "{name}");
    }
    let none = flightline(&["assemble", text(&dir.path().join("one.parts")), "-o", "-"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(told(&none).contains("one.parts"), "{}", told(&none));
}

#[test]
fn recover_fails_for_missing_directory() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("nodir");
    let output = flightline(&["recover", text(&missing)]);
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(told(&output).contains(text(&missing)), "{}", told(&output));
    assert_eq!(flightline(&["recover", text(dir.path())]).status.code(), Some(0));
}

#[test]
fn unsupported_output_extensions_are_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let (file, java) = (fixture("jdk17.jfr"), fixture("jdk25.jfr"));
    for (args, name) in [
        (&["flame", &file][..], "x.pdf"),
        (&["flame", &file], "x.txt"),
        (&["offcpu", &file], "x.pdf"),
        (&["diff", &file, &java], "x.png"),
        (&["spans", &file], "x.png"),
        (&["record", "--flame", "x.pdf"], "run.jfr"),
    ] {
        let mut command = command(args);
        command.args(["-o", name]).current_dir(dir.path());
        if args[0] == "record" {
            command.args(["--", "/bin/true"]);
        }
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", told(&output));
        assert!(
            told(&output).contains(if args[0] == "record" { "x.pdf" } else { name }),
            "{args:?}: {}",
            told(&output)
        );
        assert_eq!(dir.path().read_dir().unwrap().count(), 0, "{args:?}");
    }
    // An explicit format permits it.
    let out = dir.path().join("x.pdf");
    let output = flightline(&["flame", &file, "--format", "svg", "-o", text(&out)]);
    assert!(output.status.success() && out.exists(), "{}", told(&output));
}

#[test]
fn filters_without_match_are_reported() {
    let file = fixture("ap-java-cpu.jfr");
    for filter in [&["--focus", "no such function"][..], &["-I", "no such function"], &["--from", "2h"]] {
        let output = flightline(&[&["fold", &file], filter].concat());
        assert!(output.status.success() && output.stdout.is_empty(), "{filter:?}: {}", told(&output));
        assert_eq!(told(&output).lines().count(), 1, "{filter:?}: {}", told(&output));
    }
}

#[test]
fn exception_total_prints_no_warning() {
    let output = flightline(&["fold", &fixture("jdk17.jfr"), "-e", "throw", "--total"]);
    assert!(output.status.success() && !output.stdout.is_empty(), "{}", told(&output));
    assert_eq!(told(&output), "");
}

/// A recording of one second and one chunk with the contents of `fill`.
fn of_a_second(path: &Path, fill: impl FnOnce(&mut ChunkWriter)) {
    let line = ClockLine {
        start_ticks: Ticks(0),
        start_epoch_ns: 1_700_000_000_000_000_000,
        ticks_per_second: 1_000_000,
    };
    let mut out = FileOutput::new(fs::File::create(path).unwrap()).unwrap();
    let mut chunk = ChunkWriter::begin(Geometry::Patched, &line, FileOffset(0), Ticks(0)).unwrap();
    fill(&mut chunk);
    chunk.finish(Ticks(1_000_000), true, &mut out).unwrap();
}

/// A recording without calls, with these settings and counters.
fn without_calls(path: &Path, settings: &[(&str, &str)], short: i64, lost: i64) {
    of_a_second(path, |chunk| {
        for (name, value) in settings {
            chunk
                .event(schema::ACTIVE_SETTING, |e| _ = e.ticks(Ticks(0)).long(1).string(name).string(value))
                .unwrap();
        }
        for (event, what, count) in [
            (schema::BELOW_THRESHOLD, "syscall-io", short),
            (schema::EVENT_LOSS, "kernel-io: output full", lost),
        ] {
            if count > 0 {
                chunk.event(event, |e| _ = e.ticks(Ticks(0)).string(what).long(count).long(9)).unwrap();
            }
        }
    });
}

#[test]
fn slower_without_slow_calls_does_not_suggest_recording_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("g2.jfr");
    let slower = |settings: &[(&str, &str)], short, lost| {
        without_calls(&path, settings, short, lost);
        let output = flightline(&["slower", text(&path)]);
        assert!(output.status.success() && output.stdout.is_empty(), "{}", told(&output));
        assert!(!told(&output).contains("-e io"), "{}", told(&output));
        told(&output).to_owned()
    };
    let least = [("syscallIo", "10ms"), ("blockIo", "5ms")];
    let said = slower(&least, 4711, 12);
    assert!(said.contains("--block-io=5ms, --syscall-io=10ms"), "{said}");
    assert!(said.contains("4711") && said.contains("12"), "{said}");
    let said = slower(&least, 0, 0);
    assert!(said.contains("--syscall-io=10ms") && !said.contains("4711"), "{said}");
    // A recording without such settings.
    assert!(slower(&[], 0, 0).contains("there were none"));
    let other = flightline(&["slower", &fixture("ap-java-cpu.jfr")]);
    assert_eq!(other.status.code(), Some(1));
    assert!(told(&other).contains("-e io"), "{}", told(&other));
}

/// A recording with `samples` samples of 10 ms and `lost` samples lost due to a full ring.
fn with_losses(path: &Path, samples: i64, lost: i64) {
    of_a_second(path, |chunk| {
        let mut event = |event, time, fill: &dyn Fn(&mut FieldWriter<'_>)| {
            chunk
                .event(event, |e| {
                    e.ticks(Ticks(time));
                    fill(e);
                })
                .unwrap();
        };
        event(schema::ACTIVE_SETTING, 0, &|e| _ = e.long(0).string("interval").string("10000000"));
        for sample in 0..samples {
            event(schema::EXECUTION_SAMPLE, sample * 10_000, &|e| _ = e.key(0).key(0).key(0));
        }
        if lost > 0 {
            event(schema::SAMPLE_LOSS, 900_000, &|e| {
                _ = e.key(0).string("ring full").long(lost).long(lost * 10_000_000);
            });
            event(schema::EVENT_LOSS, 900_000, &|e| _ = e.string("alloc").long(1 << 20).long(9));
        }
    });
}

#[test]
fn headline_has_host_and_period() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("labelled.jfr");
    let headline = |hosts: &[&str], output: &str| {
        of_a_second(&path, |chunk| {
            for host in hosts {
                for (name, value) in [("service", *host), ("host", *host)] {
                    chunk
                        .event(schema::PROCESS_LABEL, |e| {
                            _ = e.ticks(Ticks(0)).long(1).string(name).string(value)
                        })
                        .unwrap();
                }
            }
            chunk
                .event(schema::ACTIVE_SETTING, |e| {
                    _ = e.ticks(Ticks(0)).long(0).string("interval").string("10101010")
                })
                .unwrap();
            for time in [0, 20_000] {
                chunk
                    .event(schema::EXECUTION_SAMPLE, |e| _ = e.ticks(Ticks(time)).key(0).key(0).key(0))
                    .unwrap();
            }
        });
        let output = dir.path().join(output);
        let done = flightline(&["flame", text(&path), "-o", text(&output)]);
        assert!(done.status.success(), "{}", told(&done));
        fs::read_to_string(&output).unwrap()
    };
    let svg = headline(&["build-7"], "x.svg");
    assert!(svg.contains(">host build-7 · cpu: 2 samples · every 10.1 ms · 2"), "{svg}");
    let page = headline(&["build-7"], "x.html");
    assert!(
        page.contains("\"subtitle\":\"host build-7 · cpu: 2 samples, 20.2 ms · every 10.1 ms · 2"),
        "{page}"
    );
    // With several hosts, none is shown.
    let svg = headline(&["build-7", "build-8"], "x.svg");
    assert!(svg.contains(">cpu: 2 samples · every 10.1 ms · 2"), "{svg}");
}

#[test]
fn flame_graph_shows_lost_share_in_its_time_range() {
    let dir = tempfile::tempdir().unwrap();
    let (path, picture) = (dir.path().join("lossy.jfr"), dir.path().join("lossy.svg"));
    let draw = |more: &[&str]| {
        let output = flightline(&[&["flame", text(&path), "-o", text(&picture)], more].concat());
        assert!(output.status.success(), "{}", told(&output));
        (told(&output).to_owned(), fs::read_to_string(&picture).unwrap())
    };
    with_losses(&path, 60, 20);
    let (said, drawn) = draw(&[]);
    assert_eq!(said, "flightline: 25.0 % lost: ring full 200 ms\n");
    assert!(drawn.contains("25.0 % lost"), "{drawn}");
    // The range ends before the loss.
    let (said, drawn) = draw(&["--to", "500ms"]);
    assert!(said.is_empty() && !drawn.contains("% lost"), "{said}");
    with_losses(&path, 60, 0);
    let (said, drawn) = draw(&[]);
    assert!(said.is_empty() && !drawn.contains("% lost"), "{said}");
}

#[test]
fn tail_on_finished_recording_suggests_all_option() {
    let file = fixture("jdk17.jfr");
    let output = flightline(&["tail", &file]);
    assert!(output.status.success() && output.stdout.is_empty(), "{}", told(&output));
    assert!(
        told(&output).contains("jdk17.jfr") && told(&output).contains("--from-start"),
        "{}",
        told(&output)
    );
    let all = flightline(&["tail", &file, "--from-start"]);
    assert!(all.status.success() && !all.stdout.is_empty(), "{}", told(&all));
    assert_eq!(told(&all), "");
}

#[test]
fn file_truncated_in_chunk_header_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("head.jfr");
    let bytes = fs::read(fixture("jdk17.jfr")).unwrap();
    fs::write(&path, &bytes[..50]).unwrap();
    let commands: &[&[&str]] = &[
        &["summary"],
        &["fold"],
        &["print", "--events", "ThreadStart"],
        &["metadata"],
        &["view", "hot-methods"],
        &["spans"],
        &["slower"],
        &["cut", "--from", "1", "-o", "-"],
        &["repair", "-o", "-"],
    ];
    let check = |args: &[&str], output: &Output| {
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", told(output));
        let cut = "the chunk header at offset 0 is truncated: 50 of 68 bytes";
        assert!(told(output).contains(cut), "{args:?}: {}", told(output));
        assert_eq!(told(output).lines().count(), 1, "{args:?}: {}", told(output));
        assert!(output.stdout.is_empty(), "{args:?}");
    };
    for args in commands {
        check(args, &flightline(&[*args, &[text(&path)]].concat()));
        let mut piped = command(&[*args, &["-"]].concat());
        piped.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        child.stdin.take().unwrap().write_all(&bytes[..50]).unwrap();
        check(args, &child.wait_with_output().unwrap());
    }
}

#[test]
fn store_help_needs_no_sql_engine() {
    for args in [&["store", "--help"][..], &["sql", "--help"], &["store", "add", "-h"]] {
        let output = command(args).env("FLIGHTLINE_SQL", "/nowhere/flightline-sql").output().unwrap();
        let help = str::from_utf8(&output.stdout).unwrap();
        assert!(output.status.success() && told(&output).is_empty(), "{args:?}: {}", told(&output));
        assert!(
            help.contains("Parquet")
                && help.contains("cargo build --release --manifest-path consumer/store/Cargo.toml"),
            "{help}"
        );
    }
}
