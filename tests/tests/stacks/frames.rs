//! Frames beyond the function of a symbol table: inlined functions, lines, run-time code, names that come later.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use flightline_tests::record::{Record, Recorded};
use flightline_tests::run::{beside, run};
use flightline_tests::{skip, victim, whole};
use jfr_format::event::Value;
use jfr_format::read::{Input, Item};

/// The minimum share of correct samples in percent. About 98 % are; the others are in `main` and `outer`
/// themselves. With 600 samples, 95 % is five standard deviations below.
const NEARLY_ALL: f64 = 95.0;
/// The minimum share of a program's samples outside of its start, in percent: a busy machine needs many ms to
/// load it.
const AFTER_THE_START: f64 = 90.0;

/// A frame with all its recorded attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Frame {
    name: String,
    kind: String,
    line: i32,
    address: i32,
}

/// The stack of each CPU sample, leaf first.
fn stacks(path: &Path) -> Vec<Vec<Frame>> {
    let mut input = Input::open(path).unwrap();
    let mut stacks = Vec::new();
    while let Some(item) = input.next().unwrap() {
        match item {
            Item::Events(batch) => {
                for event in batch.events().filter(|e| &*e.class().name == "jdk.ExecutionSample") {
                    let trace = event.field("stackTrace").unwrap().unwrap().record().unwrap().unwrap();
                    let Some(Value::Array(frames)) = trace.field("frames").unwrap() else {
                        panic!("no frames")
                    };
                    stacks.push(frames.iter().map(|f| frame(f.unwrap())).collect());
                }
            }
            Item::Warning(warning) => panic!("{}: {warning}", path.display()),
            _ => {}
        }
    }
    stacks
}

fn frame(value: Value<'_>) -> Frame {
    let frame = value.record().unwrap().unwrap();
    let number = |name| frame.field(name).unwrap().unwrap().as_i64().unwrap() as i32;
    let text = |value: Value<'_>| value.text().unwrap().unwrap().into_owned();
    let method = frame.field("method").unwrap().unwrap().record().unwrap().unwrap();
    Frame {
        name: text(method.field("name").unwrap().unwrap()),
        kind: text(frame.field("type").unwrap().unwrap()),
        line: number("lineNumber"),
        address: number("bytecodeIndex"),
    }
}

#[track_caller]
fn expect(stacks: &[Vec<Frame>], least: f64, what: &str, good: impl Fn(&[Frame]) -> bool) {
    let share = 100.0 * stacks.iter().filter(|s| good(s)).count() as f64 / stacks.len().max(1) as f64;
    eprintln!("{share:6.2} % of {} samples: {what}", stacks.len());
    let odd = stacks.iter().find(|s| !good(s));
    assert!(share >= least, "{share:.2} % < {least} % of {} samples: {what}; not {odd:#?}", stacks.len());
}

fn line_of(source: &str, mark: &str) -> i32 {
    let text = std::fs::read_to_string(victim::sources().join(source)).unwrap();
    let at = text.lines().position(|l| l.ends_with(&format!("// LINE {mark}")));
    at.unwrap_or_else(|| panic!("{source} has no mark {mark}")) as i32 + 1
}

fn record(program: impl AsRef<Path>, args: &[&str]) -> Recorded {
    Record::new().run(program, args).expect_code(0)
}

/// innermost and middle inlined into outer, called by main; each with its line.
fn inlined_as_written(stack: &[Frame]) -> bool {
    let expected = [("innermost", "Inlined"), ("middle", "Inlined"), ("outer", "C++"), ("main", "C++")];
    // The kernel frames of an interrupt may be on top.
    let user: Vec<&Frame> = stack.iter().skip_while(|f| f.kind == "Kernel").collect();
    expected.iter().enumerate().all(|(i, (name, kind))| {
        let line = line_of("inlined.c", name);
        user.get(i).is_some_and(|f| f.name == *name && f.kind == *kind && f.line == line)
    })
}

/// The stacks that reach `main`.
#[track_caller]
fn in_main(recording: &Path) -> Vec<Vec<Frame>> {
    let mut stacks = stacks(recording);
    let reaches_main = |stack: &[Frame]| stack.iter().any(|frame| frame.name == "main");
    expect(&stacks, AFTER_THE_START, "in main", reaches_main);
    stacks.retain(|stack| reaches_main(stack));
    stacks
}

#[test]
fn inlined_functions_have_names_and_lines() {
    let _place = beside();
    for flags in [&["-O2"][..], &["-O2", "-gdwarf-4", "-gz"]] {
        let recorded = record(victim::c("inlined", flags), &["0.6"]);
        let in_main = in_main(&recorded.path);
        expect(&in_main, NEARLY_ALL, &format!("inlined as written, {flags:?}"), inlined_as_written);
    }
}

/// A stripped copy of the victim in the recording's folder, and its debug file as distributions install it below `debug`.
fn stripped(folder: &Path, link: bool) -> PathBuf {
    let whole = victim::c("inlined", &["-O2", "-Wl,--build-id"]);
    let (program, debug) = (folder.join("inlined"), folder.join("inlined.debug"));
    let tool = |command: &mut Command| run(command, Duration::from_secs(60)).expect_success("objcopy");
    tool(Command::new("objcopy").arg("--only-keep-debug").arg(&whole).arg(&debug));
    tool(Command::new("objcopy").arg("--strip-all").arg(&whole).arg(&program));
    let notes = Command::new("readelf").arg("-n").arg(&program).output().unwrap().stdout;
    let notes = String::from_utf8(notes).unwrap();
    let id = notes.lines().find_map(|l| l.trim().strip_prefix("Build ID: ")).expect("a build id");
    if link {
        let mut add = std::ffi::OsString::from("--add-gnu-debuglink=");
        add.push(&debug);
        tool(Command::new("objcopy").arg(add).arg(&program));
    } else {
        let place = folder.join("debug/.build-id").join(&id[..2]);
        std::fs::create_dir_all(&place).unwrap();
        std::fs::rename(&debug, place.join(format!("{}.debug", &id[2..]))).unwrap();
    }
    program
}

#[test]
fn debug_link_next_to_program_provides_inlined_functions() {
    let _place = beside();
    let recording = Record::new();
    let program = stripped(recording.folder(), true);
    let recorded = recording.run(program, &["0.6"]).expect_code(0);
    expect(&in_main(&recorded.path), NEARLY_ALL, "inlined as written, by debug link", inlined_as_written);
}

/// Recorded without symbols, which are added later by build id: by another process, after the program has
/// ended.
#[test]
fn symbolize_adds_names_by_build_id() {
    let _place = beside();
    let recording = Record::new();
    let program = stripped(recording.folder(), false);
    let debug = recording.folder().join("debug");
    let recorded = recording.run(&program, &["0.6"]).expect_code(0);
    let nameless = stacks(&recorded.path);
    // Except for the program's start, where the recorder's own library, which has symbols, is on the stack.
    expect(&nameless, NEARLY_ALL, "nothing named", |s| {
        s.iter().all(|f| f.name != "outer" && f.kind != "Inlined")
    });
    expect(&nameless, AFTER_THE_START, "with address", |s| {
        s.iter().filter(|f| f.name.starts_with("inlined+0x") && f.address > 0).count() >= 2
    });
    std::fs::remove_file(&program).unwrap();
    let named = recorded.path.with_extension("named.jfr");
    let symbolize = |from: &Path, to: &Path| {
        let mut command = Command::new(victim::flightline());
        command.arg("symbolize").arg(from).arg("-o").arg(to).arg("--debug-dir").arg(&debug).arg("--json");
        let finished = run(&mut command, Duration::from_secs(60)).expect_success("symbolize");
        serde_json::from_str::<serde_json::Value>(&finished.stdout_text()).unwrap()
    };
    let report = symbolize(&recorded.path, &named);
    assert!(report["named"].as_u64().unwrap() >= 2, "{report}");
    expect(&in_main(&named), NEARLY_ALL, "inlined as written, named later", inlined_as_written);
    let after = stacks(&named);
    assert_eq!(nameless.len(), after.len(), "no sample more or less");
    let again = named.with_extension("again.jfr");
    let report = symbolize(&named, &again);
    assert_eq!(report["named"], 0, "named already: {report}");
    assert_eq!(stacks(&again), after, "a second time changes nothing");
    if skip::have_jdk() {
        let printed =
            Command::new("jfr").args(["print", "--events", "ExecutionSample"]).arg(&named).output().unwrap();
        let text = String::from_utf8_lossy(&printed.stdout).into_owned();
        assert!(
            printed.status.success()
                && text.contains(&format!("innermost() line: {}", line_of("inlined.c", "innermost")))
        );
    } else {
        skip::skip("no JDK: that it reads symbolized recordings is not tested");
    }
}

#[test]
fn symbolize_errors_are_reported_in_one_line() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let no_recording = folder.path().join("x.jfr");
    std::fs::write(&no_recording, "nothing").unwrap();
    let cases: [(&[&str], &str); 3] = [
        (&["x.jfr", "--debug-dir", "nowhere"], "nowhere is not a directory"),
        (&["x.jfr", "--file", "nowhere"], "nowhere is not a file"),
        (&["x.jfr"], "no event can be read"),
    ];
    for (args, message) in cases {
        let mut command = Command::new(victim::flightline());
        command.arg("symbolize").args(args).current_dir(folder.path());
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(message) && error.lines().count() == 1, "{args:?}: {error}");
    }
    assert!(!folder.path().join("x.symbolized.jfr").exists());
}

/// Each generated function's share of the samples against its own clock.
fn run_time_code(how: &str, tolerance: f64) -> Vec<Vec<Frame>> {
    let (wrong, stacks) = shares(how, tolerance);
    assert_eq!(wrong, [""; 0]);
    stacks
}

/// Returns the shares that are off by more than `tolerance` percentage points and five standard deviations of the
/// number of samples, and all stacks.
fn shares(how: &str, tolerance: f64) -> (Vec<String>, Vec<Vec<Frame>>) {
    let program = victim::c("run_time_code", victim::FRAME_POINTERS);
    let recorded = record(program, &[how, "1.0"]);
    let (truth, stacks) = (recorded.truth(), stacks(&recorded.path));
    let cpu = truth.cpu_ns() as f64;
    let mut wrong = Vec::new();
    for (name, ns) in &truth.functions {
        let count = stacks.iter().filter(|s| s.iter().any(|f| f.name == *name)).count();
        let (is, should) = (100.0 * count as f64 / stacks.len() as f64, 100.0 * *ns as f64 / cpu);
        let line = format!("{how}: {name:24} {is:5.2} % of samples, truly {should:5.2} %");
        eprintln!("{line}");
        let deviation = (should * (100.0 - should) / stacks.len() as f64).sqrt();
        if (is - should).abs() >= tolerance + 5.0 * deviation {
            wrong.push(line);
        }
    }
    let kinds: HashMap<&str, usize> = stacks.iter().flatten().fold(HashMap::new(), |mut all, f| {
        *all.entry(&*f.kind).or_default() += 1;
        all
    });
    assert!(kinds.get("JIT compiled").is_some_and(|n| *n * 10 > stacks.len() * 9), "{how}: {kinds:?}");
    std::fs::read_dir("/tmp").unwrap().flatten().for_each(|e| {
        let name = e.file_name();
        let of =
            name.to_str().and_then(|n| n.strip_prefix("perf-")?.strip_suffix(".map")?.parse::<u32>().ok());
        if of.is_some_and(|pid| truth.threads.iter().any(|t| t.tid == u64::from(pid))) {
            let _ = std::fs::remove_file(e.path());
        }
    });
    (wrong, stacks)
}

#[test]
fn jit_code_is_named_by_perf_map() {
    let _place = beside();
    run_time_code("map", 0.5);
}

/// The names are written after all samples: samples in nameless code have waited.
#[test]
fn jit_code_is_named_by_perf_map_written_at_exit() {
    let _place = beside();
    run_time_code("late", 0.5);
}

#[test]
fn jit_code_has_names_and_lines_by_jitdump() {
    let _place = beside();
    let stacks = run_time_code("dump", 0.5);
    for (name, line) in [("py::alpha:/srv/a.py", 100), ("JS:*beta /srv/b.js:3:1", 101), ("gamma", 102)] {
        let lines = stacks.iter().flatten().filter(|f| f.name == name);
        assert!(lines.clone().count() > 10 && lines.clone().all(|f| f.line == line), "{name}");
    }
}

/// Code that replaces other code at the same addresses gets its own samples. The recorder may read the map
/// late, so the tolerance is wide. Without versions of addresses all samples would go to one of the two: more than
/// half of all samples would have the wrong name.
#[test]
fn replaced_jit_code_has_its_own_samples() {
    let _place = beside();
    run_time_code("reused", 8.0);
}

/// Stacks continue through generated code to the root.
#[track_caller]
fn expect_whole(recorded: &Recorded) {
    let recording = recorded.read();
    let cut = recording.samples.iter().filter(|s| recording.stacks[s.stack].truncated).count();
    let all = recording.samples.len();
    assert!(cut * 200 <= all, "{cut} of {all} stacks are cut\n{}", whole::cut(&recording, 12));
}

#[test]
fn python_functions_are_named_by_perf_trampoline() {
    let _place = beside();
    let mut candidates: Vec<PathBuf> =
        ["python3", "python3.12", "python3.13", "python3.14"].map(PathBuf::from).into();
    // The folder where pyenv installs versions other than the default.
    let pyenv = std::env::var_os("HOME").map(|home| Path::new(&home).join(".pyenv/versions"));
    if let Some(Ok(entries)) = pyenv.map(std::fs::read_dir) {
        candidates.extend(entries.flatten().map(|e| e.path().join("bin/python3")));
    }
    let works = |python: &&PathBuf| {
        let check = "import sys; sys.exit(not sys.is_stack_trampoline_active())";
        Command::new(python).args(["-X", "perf", "-c", check]).output().is_ok_and(|o| o.status.success())
    };
    let Some(python) = candidates.iter().find(works) else {
        return eprintln!("\n*** NOT TESTED: no python3 with -X perf (3.12 or later) here ***\n");
    };
    let recording = Record::new();
    let script = recording.folder().join("busy.py");
    let text = "import time\ndef busy(x):\n    s = 0\n    for i in range(3000): s = (s * 31 + x + i) & 0xffffffff\n    return s\n\
                end = time.process_time() + 0.7\nwhile time.process_time() < end: busy(3)\n";
    std::fs::write(&script, text).unwrap();
    let recorded = recording.run(python, &["-X", "perf", script.to_str().unwrap()]).expect_code(0);
    let name = format!("py::busy:{}", script.display());
    expect(&stacks(&recorded.path), 60.0, "in busy()", |s| {
        s.iter().any(|f| f.name == name && f.kind == "JIT compiled")
    });
    expect_whole(&recorded);
}

#[test]
fn node_javascript_functions_are_named() {
    let _place = beside();
    if !skip::have("node") {
        return eprintln!("\n*** NOT TESTED: no node here ***\n");
    }
    let recording = Record::new();
    let script = recording.folder().join("busy.js");
    let text = "function busy(x) { let s = 0; for (let i = 0; i < 3000; i++) s = (s * 31 + x + i) | 0; return s; }\n\
                const used = () => process.cpuUsage().user; const end = used() + 1.5e6; let t = 0; while (used() < end) for (let i = 0; i < 500; i++) t += busy(t);\n";
    std::fs::write(&script, text).unwrap();
    let recorded = recording.run("node", &["--perf-basic-prof", script.to_str().unwrap()]).expect_code(0);
    expect(&stacks(&recorded.path), 40.0, "in busy()", |s| {
        s.iter().any(|f| f.name.contains("busy") && f.name.contains("busy.js") && f.kind == "JIT compiled")
    });
    expect_whole(&recorded);
}
