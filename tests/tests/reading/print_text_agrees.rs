//! Compares `flightline print` and `flightline metadata` with `jfr print` and `jfr metadata` of JDK 25: the
//! same text, line by line, on every fixture that the JDK can read, and on events with every unit and the
//! smallest and largest numbers. Compares `metadata --json` with the JDK's API for the same types.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use flightline_tests::jfr_tool::JfrTool;
use flightline_tests::run::{beside, run};
use flightline_tests::{foreign, victim};
use serde_json::Value;

fn recordings() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings");
    let mut files: Vec<PathBuf> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn stem(path: &Path) -> &str {
    path.file_stem().unwrap().to_str().unwrap()
}

/// Recordings of killed processes, or written through a pipe: the JDK refuses them.
const REFUSED: &[&str] = &["ap-native-fifo", "ap-native-killed", "jdk17-killed", "jdk25-killed"];
/// Values so large that the JDK's own arithmetic overflows: these fields come out wrong, and with `--exact`
/// it gives up.
const OVERFLOWING: &[&str] = &["jdk17-odd", "jdk25-odd"];
const OVERFLOWN: &[&str] = &["  ticks = ", "  epochMillis = ", "  spanMicros = "];
/// Its annotations are not marked as content types: the JDK prints `allocInterval = 2097152`, we print `2.0 MB`. It has no events of
/// collections.
const NO_CONTENT_TYPES: &str = "ddprof";
/// Chunks of two producers.
const TWO_PRODUCERS: &str = "ap-jfrsync";
/// Has no events of collections and of threads' starts.
const OURS: &str = "flightline";

/// The JDK computes the times in all chunks from the first chunk's header. In later chunks that is some
/// nanoseconds off, or hours if they are from another producer.
fn has_later_chunks(file: &Path) -> bool {
    let bytes = std::fs::read(file).unwrap();
    let size = u64::from_be_bytes(bytes[8..16].try_into().unwrap());
    (size as usize) < bytes.len()
}

fn jdk_text(jfr: &mut JfrTool, args: &[&str], file: &Path) -> String {
    let args = [args, &[file.to_str().unwrap()]].concat();
    jfr.run(&args).expect_success("jfr").stdout_text()
}

fn our_text(args: &[&str], file: &Path) -> String {
    let mut command = Command::new(victim::flightline());
    command.args(args).arg(file);
    run(&mut command, Duration::from_secs(120)).expect_success("flightline").stdout_text()
}

/// Replaces the characters that the JDK garbles by one sign: characters beyond U+FFFF, and lone surrogates.
fn comparable(line: &str) -> String {
    let mut text = String::new();
    for c in line.chars() {
        let c = if c.is_ascii() { c } else { '?' };
        if c != '?' || !text.ends_with('?') {
            text.push(c);
        }
    }
    text
}

/// Spans beyond 2⁵³ ns, 104 days, as the JDK writes them with all digits: converted to a double.
fn rounded(line: &str) -> Option<String> {
    let (name, span) = line.split_once(" = ")?;
    let seconds: f64 = span.strip_suffix(" s")?.parse().ok()?;
    (seconds.abs() > 9_007_199.0).then(|| format!("{name} = {seconds:.12e} s"))
}

/// Splits a text into its events or types.
fn blocks(text: &str) -> Vec<Vec<String>> {
    let mut blocks = vec![Vec::new()];
    for line in text.lines() {
        // The contextual event in which an event happened, printed since JDK 25.
        if line.starts_with("  Context: ") {
            continue;
        }
        blocks.last_mut().unwrap().push(comparable(line));
        if line == "}" {
            blocks.push(Vec::new());
        }
    }
    let rest = blocks.pop().unwrap();
    assert!(rest.iter().all(|line| line.is_empty()), "{rest:?}");
    blocks
}

/// Nanoseconds: of `23:30:36.123456789 (2026-11-20)`, or of `1.000000001 s`.
fn nanos(text: &str) -> Option<i128> {
    let number = |text: &str| text.replacen('.', "", 1).parse::<i128>().ok();
    if let Some(span) = text.strip_suffix(" s") {
        return number(span);
    }
    let (time, date) = text.split_once(" (")?;
    let [h, m, s] = time.split(':').collect::<Vec<_>>().try_into().ok()?;
    let day: i128 = date.trim_end_matches(')').replace('-', "").parse().ok()?;
    Some(((day * 24 + number(h)?) * 60 + number(m)?) * 60_000_000_000 + number(s)?)
}

/// The end time of an event printed with all digits. The result is not a number of days, but sorts by date.
fn end(block: &[String]) -> Option<i128> {
    let field = |name: &str| block.iter().find_map(|line| line.strip_prefix("  ")?.strip_prefix(name));
    let start = nanos(field("startTime = ")?)?;
    Some(start + field("duration = ").and_then(nanos).unwrap_or(0))
}

/// The JDK does not define the order of events that ended at the same time: sorted by text here.
fn sort_ties(blocks: &mut [Vec<String>]) {
    let mut from = 0;
    while from < blocks.len() {
        let now = end(&blocks[from]);
        let run = blocks[from..].iter().take_while(|block| end(block) == now).count();
        blocks[from..from + run].sort();
        from += run;
    }
}

#[track_caller]
fn same(what: &str, ours: &[Vec<String>], theirs: &[Vec<String>]) {
    for (at, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        assert_eq!(ours, theirs, "{what}: block {at}");
    }
    assert_eq!(ours.len(), theirs.len(), "{what}");
}

/// Compares the printed text of a recording; returns the number of events.
fn compare(jfr: &mut JfrTool, file: &Path) -> usize {
    let name = stem(file);
    let later_chunks = has_later_chunks(file);
    let overflowing = OVERFLOWING.contains(&name);
    let mut both = |args: &[&str]| {
        let [mut ours, mut theirs] =
            [our_text(args, file), jdk_text(jfr, args, file)].map(|text| blocks(&text));
        if later_chunks {
            for block in ours.iter_mut().chain(&mut theirs) {
                let timed = |line: &String| line.contains("Time = ") || line.contains("recordingStart = ");
                block.retain(|line| !timed(line));
            }
        }
        if overflowing {
            for block in ours.iter_mut().chain(&mut theirs) {
                block.retain(|line| !OVERFLOWN.iter().any(|field| line.starts_with(field)));
            }
        }
        (ours, theirs)
    };
    let (mut ours, mut theirs) = both(&["print"]);
    ours.sort();
    theirs.sort();
    same(&format!("print {name}"), &ours, &theirs);
    if overflowing {
        return ours.len();
    }
    let (mut ours, mut theirs) = both(&["print", "--exact", "--stack-depth", "64"]);
    for line in ours.iter_mut().chain(&mut theirs).flatten() {
        if let Some(span) = rounded(line) {
            *line = span;
        }
    }
    if later_chunks {
        ours.sort();
        theirs.sort();
    } else {
        sort_ties(&mut ours);
        sort_ties(&mut theirs);
    }
    same(&format!("print --exact {name}"), &ours, &theirs);
    ours.len()
}

#[test]
fn text_matches_jdk_for_fixtures() {
    let _place = beside();
    let Some(home) = foreign::jdk(25) else { return };
    let mut jfr = JfrTool::start(&home);
    let mut events = 0;
    for file in recordings() {
        if !REFUSED.contains(&stem(&file))
            && stem(&file) != NO_CONTENT_TYPES
            && (flightline_tests::long() || file.metadata().unwrap().len() < 400_000)
        {
            let count = compare(&mut jfr, &file);
            eprintln!("{}: {count} events", stem(&file));
            events += count;
        }
    }
    assert!(events > if flightline_tests::long() { 100_000 } else { 20_000 }, "{events}");
}

#[test]
fn text_matches_jdk_for_every_unit() {
    let _place = beside();
    let Some(home) = foreign::jdk(25) else { return };
    let folder = tempfile::tempdir().unwrap();
    let classes = victim::java_classes(&home.join("bin/javac"), "Formats", &[]);
    // A fixed time zone, which determines the printed times on any machine.
    let file = folder.path().join("formats.jfr");
    let mut java = Command::new(home.join("bin/java"));
    java.args(["-Xmx64m", "-Duser.timezone=Asia/Kolkata", "-cp"]).arg(classes).arg("Formats").arg(&file);
    run(&mut java, Duration::from_secs(120)).expect_success("java Formats");
    let mut jfr = JfrTool::start(&home);
    assert!(compare(&mut jfr, &file) > 250);
    for choice in [["--events", "t.*"], ["--categories", "Uncategorized"], ["--stack-depth", "0"]] {
        let args = [&["print"], &choice[..]].concat();
        let [mut ours, mut theirs] =
            [our_text(&args, &file), jdk_text(&mut jfr, &args, &file)].map(|text| blocks(&text));
        assert!(ours.len() > 200, "{choice:?}");
        ours.sort();
        theirs.sort();
        same(&format!("{choice:?}"), &ours, &theirs);
    }
}

#[test]
fn metadata_text_matches_jdk() {
    let _place = beside();
    let Some(home) = foreign::jdk(25) else { return };
    let mut jfr = JfrTool::start(&home);
    for file in recordings() {
        let name = stem(&file);
        if REFUSED.contains(&name) {
            continue;
        }
        for choice in
            [&["metadata"][..], &["metadata", "--categories", "JVM,Java*", "--events", "*GC*,Thread*"]]
        {
            if [OURS, NO_CONTENT_TYPES].contains(&name) && choice.len() > 1 {
                continue;
            }
            let [mut ours, theirs] =
                [our_text(choice, &file), jdk_text(&mut jfr, choice, &file)].map(|text| blocks(&text));
            if name == TWO_PRODUCERS {
                // The JDK lists those of one of the two producers.
                ours.retain(|block| theirs.contains(block));
            }
            same(&format!("{choice:?} {name}"), &ours, &theirs);
            assert!(!ours.is_empty(), "{choice:?} {name}");
        }
    }
}

/// The lines of `jdk/Types.java`, derived from `metadata --json`.
fn lines_of_types(types: &Value) -> Vec<String> {
    fn flat(value: &Value) -> Vec<&str> {
        match value {
            Value::Array(elements) => elements.iter().flat_map(flat).collect(),
            other => vec![other.as_str().unwrap()],
        }
    }
    fn annotations(of: &str, list: &Value, lines: &mut Vec<String>) {
        for annotation in list.as_array().unwrap() {
            let name = annotation["type"].as_str().unwrap();
            let values = annotation["values"].as_object().unwrap().values().flat_map(flat);
            lines.push(annotation_line(of, name, values.collect()));
        }
    }
    // For a simple type the JDK prints the type of its only field.
    let all = types["types"].as_array().unwrap();
    let stands_for = |name: &Value| -> String {
        let simple = all.iter().find(|class| class["name"] == *name && class["simple"] == true);
        let of = simple.map_or(name, |class| &class["fields"][0]["type"]);
        of.as_str().unwrap().to_owned()
    };
    let mut lines = Vec::new();
    for class in types["types"].as_array().unwrap() {
        if class["superType"] != "jdk.jfr.Event" {
            continue;
        }
        let name = class["name"].as_str().unwrap();
        lines.push(format!("{name}\tid\t{}", class["id"]));
        annotations(name, &class["annotations"], &mut lines);
        for field in class["fields"].as_array().unwrap() {
            let of = format!("{name}\tfield\t{}", field["name"].as_str().unwrap());
            lines.push(format!("{of}\ttype\t{}\t{}", stands_for(&field["type"]), field["array"]));
            annotations(&of, &field["annotations"], &mut lines);
        }
        let settings = class["settings"].as_array().unwrap();
        lines.extend(settings.iter().map(|s| format!("{name}\tsetting\t{}", s["name"].as_str().unwrap())));
    }
    lines.retain(|line| !line.contains("\tannotation\tjdk.jfr.Name\t"));
    lines.sort();
    lines
}

/// The JDK gives the values of an annotation in an order of its own.
fn annotation_line(of: &str, name: &str, mut values: Vec<&str>) -> String {
    // Lines cannot distinguish an empty value from a missing one.
    values.retain(|value| !value.is_empty());
    values.sort_unstable();
    format!("{of}\tannotation\t{name}\t{}", values.join("\t").replace('\n', "\\n"))
}

#[test]
fn metadata_json_matches_jdk_types() {
    let _place = beside();
    let Some(home) = foreign::jdk(25) else { return };
    let classes = victim::java_classes(&home.join("bin/javac"), "Types", &[]);
    let files: Vec<PathBuf> = recordings()
        .into_iter()
        .filter(|f| !REFUSED.contains(&stem(f)) && stem(f) != TWO_PRODUCERS)
        .collect();
    let mut java = Command::new(home.join("bin/java"));
    java.args(["-Dstdout.encoding=UTF-8", "-cp"]).arg(classes).arg("Types").args(&files);
    let told = run(&mut java, Duration::from_secs(300)).expect_success("java Types").stdout_text();
    let mut told = told.split("= /").skip(1);
    for file in &files {
        let lines = told.next().unwrap().lines().skip(1);
        let mut theirs: Vec<String> = lines
            .map(|line| match line.split_once("\tannotation\t") {
                Some((of, rest)) => {
                    let (name, values) = rest.split_once('\t').unwrap();
                    annotation_line(of, name, values.split('\t').collect())
                }
                None => line.to_owned(),
            })
            .collect();
        theirs.sort();
        let ours = lines_of_types(&serde_json::from_str(&our_text(&["metadata", "--json"], file)).unwrap());
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(ours, theirs, "{}", stem(file));
        }
        assert_eq!(ours.len(), theirs.len(), "{}", stem(file));
        assert!(ours.len() > 100, "{}", stem(file));
    }
}
