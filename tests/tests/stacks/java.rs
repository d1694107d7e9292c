//! Java programs on HotSpot JVMs: shares, names, lines and frame types, for all collectors and compilers.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use flightline_tests::jfr_tool::JfrTool;
use flightline_tests::record::{Record, Recorded};
use flightline_tests::run::{beside, run, turn};
use flightline_tests::{foreign, victim};
use serde_json::Value as Json;

/// The functions of `JavaAnswer.java` whose times are known.
const FUNCTIONS: [&str; 4] = ["alpha", "beta", "gamma", "delta"];

/// Records `JavaAnswer` on JDK `release` with these JVM options; `None` without that JDK.
#[track_caller]
fn record_answer(release: u32, options: &[&str]) -> Option<Recorded> {
    let home = foreign::jdk(release)?;
    let classes = victim::java_classes(&foreign::jdk(17)?.join("bin/javac"), "JavaAnswer", &[]);
    let mut args = options.to_vec();
    args.extend(["-Xmx256m", "-cp", classes.to_str().unwrap(), "JavaAnswer", "1500"]);
    let recorded = Record::new().run(home.join("bin/java"), &args).expect_code(0);
    // The JVM itself may warn of an option that its release deprecates.
    assert!(recorded.finished.stdout_text().ends_with("done\n"), "{}", recorded.finished.stdout_text());
    Some(recorded)
}

/// Checks the shares of the functions in the program's own threads, and that their stacks are whole.
#[track_caller]
fn check_answer(recorded: &Recorded, label: &str) {
    let (truth, recording) = (recorded.truth(), recorded.read());
    let is_worker = |tid: u64| recording.names.get(&tid).is_some_and(|name| name.starts_with("answer-"));
    let samples: Vec<_> = recording.samples.iter().filter(|sample| is_worker(sample.tid)).collect();
    let stack = |sample: usize| &recording.stacks[sample];
    let whole = samples.iter().filter(|sample| !stack(sample.stack).truncated).count();
    let share = 100.0 * whole as f64 / samples.len() as f64;
    assert!(samples.len() > 1500, "{label}: only {} samples", samples.len());
    assert!(share >= 99.0, "{label}: {share:.2} % of {} stacks reach the start", samples.len());

    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for sample in &samples {
        let frames = &stack(sample.stack).frames;
        let of_program =
            |name: &&str| frames.iter().any(|frame| frame.class == "JavaAnswer" && frame.method == *name);
        for name in FUNCTIONS.iter().filter(|name| of_program(name)) {
            *counts.entry(name).or_default() += 1;
        }
    }
    let all_ns: u64 = truth.functions.values().sum();
    for name in FUNCTIONS {
        let expected = truth.functions[name] as f64 / all_ns as f64;
        let found = counts.get(name).copied().unwrap_or(0) as f64 / samples.len() as f64;
        // Four standard deviations of a share of this many samples, and the time that the program spends
        // outside of the four functions.
        let tolerance = 4.0 * (expected * (1.0 - expected) / samples.len() as f64).sqrt() + 0.01;
        assert!(
            (found - expected).abs() <= tolerance,
            "{label}: {name} has {:.2} %, truly {:.2} %, tolerance {:.2}",
            100.0 * found,
            100.0 * expected,
            100.0 * tolerance
        );
    }
}

/// Runs the known answer with each of these options.
#[track_caller]
fn check_options(release: u32, options: &[&[&str]]) {
    for options in options {
        let turn = turn();
        let Some(recorded) = record_answer(release, options) else { return };
        let _place = turn.measured();
        check_answer(&recorded, &format!("JDK {release} {options:?}"));
    }
}

#[test]
fn shares_are_correct_on_jdk_17() {
    check_options(
        17,
        &[&["-XX:+UseG1GC"], &["-XX:+UseParallelGC"], &["-XX:TieredStopAtLevel=1"], &["-Xint"]],
    );
}

#[test]
fn shares_are_correct_on_jdk_25() {
    let serial = ["-XX:+UseSerialGC", "-XX:-UseCompressedClassPointers", "-Xshare:off"];
    check_options(25, &[&serial, &["-XX:+UseZGC"], &["-XX:TieredStopAtLevel=1"], &["-Xint"]]);
}

/// The first source line of `JavaAnswer.java` that contains a text.
fn source_line(text: &str) -> u64 {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("jdk/JavaAnswer.java");
    let source = std::fs::read_to_string(source).unwrap();
    source.lines().position(|line| line.contains(text)).unwrap() as u64 + 1
}

/// The frames of all samples, as the JDK prints them.
#[track_caller]
fn jdk_frames(home: &Path, file: &Path) -> Vec<Json> {
    let args = ["print", "--json", "--stack-depth", "64", "--events", "jdk.ExecutionSample"];
    let mut jfr = JfrTool::start(home);
    let done = jfr.run(&[&args[..], &[file.to_str().unwrap()]].concat()).expect_success("jfr print");
    let printed: Json = serde_json::from_slice(&done.stdout).unwrap();
    let events = printed["recording"]["events"].as_array().unwrap();
    let stacks = events.iter().filter_map(|event| event["values"]["stackTrace"]["frames"].as_array());
    stacks.flatten().filter(|frame| frame["method"]["type"]["name"] == "JavaAnswer").cloned().collect()
}

/// Checks the frames of the program's methods: descriptor, modifiers, lines, and a frame of this type for each
/// method in `types`.
#[track_caller]
fn check_frames(frames: &[Json], types: &[(&str, &str)]) {
    let is_static = 8;
    for (name, ty) in types {
        let of_type = |frame: &&Json| frame["method"]["name"] == *name && frame["type"] == *ty;
        let frame = frames.iter().find(of_type).unwrap_or_else(|| panic!("no {ty} frame of {name}"));
        assert_eq!(frame["method"]["descriptor"], "(I)I", "{frame}");
        assert_eq!(frame["method"]["modifiers"], is_static, "{frame}");
    }
    let (mix, beta) = (source_line("line: mix"), source_line("line: beta"));
    for (name, lines) in [("mix", mix..mix + 3), ("beta", beta..beta + 1)] {
        let (mut all, mut without_line) = (0, 0);
        for frame in frames.iter().filter(|frame| frame["method"]["name"] == name) {
            all += 1;
            match frame["lineNumber"].as_u64().unwrap() {
                // The bytecode index of the frame is unknown.
                0 => without_line += 1,
                line => assert!(lines.contains(&line), "{lines:?}: {frame}"),
            }
        }
        assert!(without_line * 50 <= all, "{name}: {without_line} of {all} frames have no line");
    }
    let calls = frames.iter().filter(|f| f["method"]["name"] == "beta" && f["bytecodeIndex"] != 0);
    assert!(calls.count() > 0, "bytecode indices of the calls in beta");
}

#[test]
fn jdk_reads_names_lines_and_types() {
    for release in [17, 25] {
        let _place = beside();
        let Some(home) = foreign::jdk(release) else { return };
        let Some(recorded) = record_answer(release, &["-XX:+UseSerialGC"]) else { return };
        let frames = jdk_frames(&home, &recorded.path);
        check_frames(&frames, &[("mix", "Inlined"), ("alpha", "JIT compiled"), ("beta", "JIT compiled")]);
        let lambdas = frames.iter().filter(|f| f["method"]["name"].as_str().unwrap().starts_with("lambda$"));
        assert!(lambdas.count() > 0, "JDK {release}: lambdas have names");
        let Some(recorded) = record_answer(release, &["-XX:+UseSerialGC", "-Xint"]) else { return };
        let frames = jdk_frames(&home, &recorded.path);
        check_frames(&frames, &[("mix", "Interpreted"), ("alpha", "Interpreted"), ("beta", "Interpreted")]);
    }
}

#[test]
fn program_that_unloads_classes_is_not_disturbed() {
    for release in [17, 25] {
        let _place = beside();
        let Some(home) = foreign::jdk(release) else { return };
        let Some(compiler) = foreign::jdk(17) else { return };
        let classes = victim::java_classes(&compiler.join("bin/javac"), "JavaStress", &[]);
        let options = ["-XX:ReservedCodeCacheSize=4m", "-XX:+UseSerialGC", "-Xmx128m", "-cp"];
        let args = [&options[..], &[classes.to_str().unwrap(), "JavaStress", "400"]].concat();
        let mut alone = Command::new(home.join("bin/java"));
        let alone = run(alone.args(&args), std::time::Duration::from_secs(120));
        let recorded = Record::new().rate(10_000).run(home.join("bin/java"), &args);
        assert_eq!(recorded.finished.code(), alone.code(), "{}", recorded.finished.stderr);
        assert_eq!(recorded.finished.stdout_text(), alone.stdout_text());
        let recording = recorded.read();
        let java = recording.share(|stack| stack.has("JavaStress$Unit.run") || stack.has("run"));
        assert!(java > 5.0, "JDK {release}: {java:.1} % of the samples show the program's method");
    }
}
