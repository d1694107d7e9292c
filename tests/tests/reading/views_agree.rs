//! Compares `flightline view` with JDK 25's `jfr view`: the same rows and figures, on fixtures and on
//! recordings made here.
//!
//! The JDK prints figures with three digits or one decimal; ours must round to the same. Known differences:
//!
//! * `contention-by-address`: the JDK groups by class, so it shows one address per class; ours groups by
//!   address.
//! * `memory-leaks-*`: the JDK shows one sample per row, ours adds them up; the classes must be the same.
//! * `safepoints`: the JDK shows durations of up to a tick as "Indefinite"; not compared.
//! * An emoji in a name may be split by the JDK's table; such rows are compared without it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use flightline_tests::run::{beside, run};
use flightline_tests::{foreign, victim};
use serde_json::Value as Json;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Text,
    /// Topmost frame of a stack.
    Frame,
    Count,
    Share,
    Span,
    Bytes,
    /// The time of day, in seconds.
    Time,
}
use Kind::*;

/// The view, the JDK's headline, and for each compared column its number in the JDK's table, our name and its
/// kind.
type Case = (&'static str, &'static str, &'static [(usize, &'static str, Kind)]);

#[rustfmt::skip]
const CASES: &[Case] = &[
    ("hot-methods", "Java Methods that Execute the Most", &[(0, "Method", Text), (1, "Samples", Count), (2, "Percent", Share)]),
    ("cpu-time-hot-methods", "Java Methods that Execute the Most from CPU Time Sampler", &[(0, "Method", Text), (1, "Samples", Count), (2, "Percent", Share)]),
    ("native-methods", "Waiting or Executing Native Methods", &[(0, "Method", Text), (1, "Samples", Count)]),
    ("cpu-time-statistics", "CPU Time Sample Statistics", &[(0, "Successful", Count), (1, "Failed", Count), (2, "Biased", Count), (3, "All", Count)]),
    ("allocation-by-class", "Allocation by Class", &[(0, "Class", Text), (1, "Pressure", Share)]),
    ("allocation-by-thread", "Allocation by Thread", &[(0, "Thread", Text), (1, "Pressure", Share)]),
    ("allocation-by-site", "Allocation by Site", &[(0, "Method", Text), (1, "Pressure", Share)]),
    ("thread-allocation", "Thread Allocation Statistics", &[(0, "Thread", Text), (1, "Allocated", Bytes), (2, "Percent", Share)]),
    ("contention-by-thread", "Contention by Thread", &[(0, "Thread", Text), (1, "Count", Count), (2, "Average", Span), (3, "P90", Span), (4, "Longest", Span)]),
    ("contention-by-class", "Contention by Lock Class", &[(0, "Class", Text), (1, "Count", Count), (2, "Average", Span), (3, "P90", Span), (4, "Longest", Span)]),
    ("contention-by-site", "Contention by Site", &[(0, "Stack", Frame), (1, "Count", Count), (2, "Average", Span), (3, "Longest", Span)]),
    ("monitor-inflation", "Monitor Inflation", &[(0, "Stack", Frame), (1, "Class", Text), (2, "Count", Count), (3, "Total", Span)]),
    ("latencies-by-type", "Latencies by Type", &[(0, "Kind", Text), (1, "Count", Count), (2, "Average", Span), (3, "P99", Span), (4, "Longest", Span), (5, "Total", Span)]),
    ("memory-leaks-by-class", "Memory Leak Candidates by Class", &[(1, "Class", Text)]),
    ("object-statistics", "Objects Occupying More than 1%", &[(0, "Class", Text), (1, "Objects", Count), (2, "Size", Bytes), (3, "Change", Bytes)]),
    ("exception-by-type", "Exceptions by Type", &[(0, "Class", Text), (1, "Count", Count)]),
    ("exception-by-message", "Exceptions by Message", &[(0, "Message", Text), (1, "Count", Count)]),
    ("exception-by-site", "Exceptions by Site", &[(0, "Method", Text), (1, "Count", Count)]),
    ("exception-count", "Exception Statistics", &[(0, "During the Recording", Count)]),
    ("file-reads-by-path", "File Reads by Path", &[(0, "Path", Text), (1, "Reads", Count), (2, "Bytes", Bytes)]),
    ("file-writes-by-path", "File Writes by Path", &[(0, "Path", Text), (1, "Writes", Count), (2, "Bytes", Bytes)]),
    ("socket-reads-by-host", "Socket Reads by Host", &[(0, "Host", Text), (1, "Reads", Count), (2, "Bytes", Bytes)]),
    ("socket-writes-by-host", "Socket Writes by Host", &[(0, "Host", Text), (1, "Writes", Count), (2, "Bytes", Bytes)]),
    ("thread-cpu-load", "Thread CPU Load", &[(0, "Thread", Text), (1, "System", Share), (2, "User", Share)]),
    ("thread-start", "Platform Thread Start by Method", &[(0, "Start", Time), (2, "Thread", Text), (3, "Lifetime", Span)]),
    ("class-loaders", "Class Loaders", &[(0, "Class Loader", Text), (1, "Hidden Classes", Count), (2, "Classes", Count)]),
    ("modules", "Modules", &[(0, "Module", Text)]),
    ("gc", "Garbage Collections", &[(0, "Start", Time), (1, "Id", Count), (3, "Heap Before", Bytes), (4, "Heap After", Bytes), (5, "Longest Pause", Span)]),
    ("gc-pauses", "GC Pauses", &[
        (0, "Total", Span), (1, "Pauses", Count), (2, "Shortest", Span), (3, "Median", Span), (4, "Average", Span), (5, "P90", Span),
        (6, "P95", Span), (7, "P99", Span), (8, "P99.9", Span), (9, "Longest", Span),
    ]),
    ("gc-pause-phases", "GC Pause Phases", &[
        (0, "Level", Text), (1, "Phase", Text), (2, "Average", Span), (3, "P95", Span), (4, "Longest", Span), (5, "Count", Count), (6, "Total", Span),
    ]),
    ("gc-references", "GC References", &[(1, "Id", Count), (2, "Soft", Count), (3, "Weak", Count), (4, "Phantom", Count), (5, "Final", Count), (6, "All", Count)]),
    ("gc-configuration", "GC Configuration", &[
        (0, "Young Collector", Text), (1, "Old Collector", Text), (2, "Parallel Threads", Count), (3, "Concurrent Threads", Count),
        (4, "Dynamic Threads", Text), (5, "System.gc() Concurrent", Text), (6, "System.gc() Disabled", Text), (8, "Time Ratio", Count),
    ]),
    ("gc-cpu-time", "GC CPU Time", &[(0, "User", Span), (1, "System", Span), (2, "Wall Clock", Span), (4, "Collections", Count)]),
    ("heap-configuration", "Heap Configuration", &[
        (0, "Initial Size", Bytes), (1, "Smallest Size", Bytes), (2, "Largest Size", Bytes), (3, "Compressed References", Text), (4, "Compression", Text),
    ]),
    ("compiler-configuration", "Compiler Configuration", &[(0, "Threads", Count), (2, "Tiered", Text)]),
    ("compiler-statistics", "Compiler Statistics", &[
        (0, "Methods", Count), (1, "Longest", Span), (2, "Time", Span), (3, "Bailouts", Count), (4, "On-Stack Replacements", Count), (5, "Standard", Count),
        (8, "Size", Bytes), (9, "Code Size", Bytes),
    ]),
    ("longest-compilations", "Longest Compilations", &[(0, "Time", Time), (1, "Duration", Span), (2, "Method", Text), (3, "Level", Count), (4, "Succeeded", Text)]),
    ("deoptimizations-by-reason", "Deoptimization by Reason", &[(0, "Reason", Text), (1, "Count", Count)]),
    ("deoptimizations-by-site", "Deoptimization by Site", &[(0, "Method", Text), (3, "Count", Count)]),
    ("class-modifications", "Class Modifications", &[(0, "Duration", Span), (1, "Asked For In", Text), (2, "Operation", Text), (3, "Classes", Count)]),
    ("vm-operations", "VM Operations", &[(0, "Operation", Text), (1, "Average", Span), (2, "Longest", Span), (3, "Count", Count), (4, "Total", Span)]),
    ("safepoints", "Safepoints", &[(0, "Start", Time), (2, "Synchronization", Span), (3, "In JNI Critical", Count), (4, "Threads", Count)]),
    ("jvm-flags", "Command Line Flags", &[(0, "Name", Text)]),
    ("jvm-information", "JVM Information", &[(0, "PID", Count), (1, "Start", Time), (2, "Name", Text)]),
    ("active-settings", "Active Settings", &[(0, "Event", Text), (1, "Enabled", Text)]),
    ("events-by-count", "Event Types by Count", &[(0, "Event Type", Text), (1, "Count", Count)]),
    ("cpu-load", "CPU Load Statistics", &[
        (0, "JVM User, Smallest", Share), (1, "JVM User, Average", Share), (2, "JVM User, Largest", Share), (3, "JVM System, Smallest", Share),
        (4, "JVM System, Average", Share), (5, "JVM System, Largest", Share), (6, "Machine, Smallest", Share), (7, "Machine, Average", Share),
        (8, "Machine, Largest", Share),
    ]),
    ("cpu-information", "CPU Information", &[(0, "CPU", Text), (1, "Sockets", Count), (2, "Cores", Count), (3, "Hardware Threads", Count)]),
    ("environment-variables", "Environment Variables", &[(0, "Name", Text), (1, "Value", Text)]),
    ("native-libraries", "Native Libraries", &[(0, "Name", Text)]),
];

/// Headline → rows of cells, as `jfr view all-views` prints them.
///
/// On some recordings of JDK 17 it fails in the middle with an exception; then the second value is false.
fn jdk_tables(jdk25: &Path, file: &Path) -> (BTreeMap<String, Vec<Vec<String>>>, bool) {
    let mut command = foreign::jfr(&jdk25.join("bin/jfr"));
    command
        .args(["-J-Dstdout.encoding=UTF-8", "view", "--width", "1000", "--cell-height", "1", "all-views"])
        .arg(file);
    command.env("TZ", "UTC").env("LC_ALL", "C.UTF-8");
    let done = run(&mut command, Duration::from_secs(120));
    let whole = done.status.success();
    assert!(whole || done.stderr.contains("jdk.jfr.internal.query"), "jfr view all-views: {}", done.stderr);
    let shown = done.stdout_text();
    // If an older JDK lacks a field or event type, the JDK prints an error between the tables.
    let complaint = |line: &&str| {
        line.starts_with("Can't find ")
            || line.starts_with("Use 'SHOW ")
            || line.starts_with("Missing event ")
    };
    let lines: Vec<&str> = shown.lines().filter(|line| !complaint(line)).collect();
    let mut tables = BTreeMap::new();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.starts_with("---")) {
        if lines[at - 1].chars().count() == line.len() && !line.contains(' ') && line.len() < 200 {
            // Name: value, each followed by an empty line.
            let body = lines[at + 1..].iter().take_while(|line| line.is_empty() || line.contains(": "));
            let row = body.filter_map(|line| line.split_once(": ")).map(|(_, value)| value.trim().to_owned());
            tables.insert(lines[at - 1].trim().to_owned(), vec![row.collect()]);
            continue;
        }
        let title = (0..at).rev().find(|&i| lines[i].is_empty()).map_or("", |i| lines[i - 1].trim());
        let title = title.trim_end_matches("(Experimental)").trim();
        let rows = lines[at + 1..].iter().take_while(|line| !line.is_empty());
        tables.insert(title.to_owned(), rows.map(|row| cells(line, row)).collect());
    }
    (tables, whole)
}

/// Splits a row at the gaps of the rule below the headings, with Java's character counts.
fn cells(rule: &str, row: &str) -> Vec<String> {
    let row: Vec<u16> = row.encode_utf16().collect();
    let mut from = 0;
    let mut cells = Vec::new();
    for dashes in rule.split(' ') {
        let to = (from + dashes.len()).min(row.len());
        cells.push(String::from_utf16_lossy(&row[from.min(to)..to]).trim().to_owned());
        from = to + 1;
    }
    cells
}

/// View → rows, of all these views.
fn our_tables(views: &[&str], file: &Path) -> BTreeMap<String, Vec<Json>> {
    let mut command = Command::new(victim::flightline());
    command.args(["view", "--json", "--limit", "1000000", &views.join(",")]).arg(file);
    let shown = run(&mut command, Duration::from_secs(120)).expect_success("flightline view").stdout_text();
    let tables = match serde_json::from_str(&shown).expect("JSON") {
        Json::Array(tables) => tables,
        one => vec![one],
    };
    let rows = |table: &Json| table["rows"].as_array().expect("rows").clone();
    tables.iter().map(|table| (table["view"].as_str().expect("a name").to_owned(), rows(table))).collect()
}

fn our_table(view: &str, file: &Path) -> Vec<Json> {
    our_tables(&[view], file).remove(view).expect("the view asked for")
}

/// `1.50 ms` or `98.2 kB` as a number in ns or bytes, and half of the value of its last digit, doubled for
/// rounding.
fn figure(text: &str, units: &[(&str, f64)]) -> Option<(f64, f64)> {
    let mut total = 0.0;
    let mut slack = f64::MAX;
    let words: Vec<&str> = text.split_whitespace().collect();
    for pair in words.chunks(2) {
        let [number, unit] = pair else { return None };
        let scale = units.iter().find(|(name, _)| name == unit)?.1;
        let digits = number.split_once('.').map_or(0, |(_, digits)| digits.len());
        total += number.replace(',', "").parse::<f64>().ok()? * scale;
        slack = slack.min(scale * 0.1_f64.powi(digits as i32));
    }
    (!words.is_empty()).then_some((total, slack * 1.001))
}

const SPANS: &[(&str, f64)] =
    &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 6e10), ("h", 3.6e12)];
const BYTES: &[(&str, f64)] = &[
    ("bytes", 1.0),
    ("byte", 1.0),
    ("kB", 1024.0),
    ("MB", 1048576.0),
    ("GB", 1073741824.0),
    ("TB", 1099511627776.0),
];

fn agrees(jdk: &str, ours: &Json, kind: Kind) -> bool {
    let text = match ours {
        Json::String(text) => text.clone(),
        Json::Array(frames) => frames.first().and_then(Json::as_str).unwrap_or_default().to_owned(),
        Json::Null => return matches!(jdk, "N/A" | "" | "0" | "Indefinite"),
        other => other.to_string(),
    };
    let near = |shown: Option<(f64, f64)>| match (shown, ours.as_f64()) {
        (Some((shown, slack)), Some(own)) => (shown - own).abs() <= slack,
        _ => false,
    };
    match kind {
        Text | Frame if jdk.contains(char::REPLACEMENT_CHARACTER) || jdk.contains('?') => {
            let start: String =
                jdk.chars().take_while(|c| !matches!(*c, '?' | char::REPLACEMENT_CHARACTER)).collect();
            text.starts_with(&start)
        }
        Text if text == "bootstrap" => jdk == "null-bootstrap",
        Text | Frame => {
            // The JDK truncates texts of more than three hundred characters and long parameter lists.
            let cut = jdk.split_once("(...)").map(|(method, _)| method).or_else(|| jdk.strip_suffix("..."));
            jdk == text || cut.is_some_and(|cut| text.starts_with(cut))
        }
        Count => jdk.replace(',', "") == text,
        Share => {
            let shown = jdk.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
            near(shown.map(|percent| (percent / 100.0, 0.000_101)))
        }
        Span => near(figure(jdk, SPANS)),
        Bytes => near(figure(jdk, BYTES)),
        Time => text.get(11..19) == Some(jdk),
    }
}

/// Finds one of our rows for the JDK's row `number`, and reassigns others if several match. The JDK's figures
/// are rounded, so the first match may be the only one of another row.
fn assign(
    number: usize,
    candidates: &[Vec<usize>],
    row_of: &mut [Option<usize>],
    tried: &mut [bool],
) -> bool {
    for &own in &candidates[number] {
        if std::mem::replace(&mut tried[own], true) {
            continue;
        }
        if row_of[own].is_none_or(|other| assign(other, candidates, row_of, tried)) {
            row_of[own] = Some(number);
            return true;
        }
    }
    false
}

/// Compares one view; `None` if neither prints a row.
fn compare(
    case: &Case,
    jdk: Option<&Vec<Vec<String>>>,
    mut ours: Vec<Json>,
) -> Result<Option<usize>, String> {
    let (view, title, columns) = case;
    let Some(rows) = jdk else {
        // The JDK requires a field that JDK 17 did not have, ours leaves it out.
        if *view == "compiler-configuration" && ours.len() == 1 {
            return Ok(None);
        }
        return if ours.is_empty() {
            Ok(None)
        } else {
            Err(format!("{view}: the JDK has no {title:?}, ours {} rows", ours.len()))
        };
    };
    // The JDK adds up phases with the same name at different levels.
    let mut single = Vec::new();
    for row in rows {
        let levels = |own: &&Json| *view == "gc-pause-phases" && own["Phase"] == *row[1];
        if ours.iter().filter(levels).count() > 1 {
            let count: i64 = ours.iter().filter(levels).filter_map(|own| own["Count"].as_i64()).sum();
            assert_eq!(count.to_string(), row[5].replace(',', ""), "{row:?}");
            ours.retain(|own| !levels(&own));
            continue;
        }
        single.push(row);
    }
    let cell_agrees = |row: &[String], own: &Json, &(at, title, kind): &(usize, &str, Kind)| {
        row.get(at).is_some_and(|cell| agrees(cell, &own[title], kind))
    };
    let same = |row: &[String], own: &Json| columns.iter().all(|column| cell_agrees(row, own, column));
    let candidates: Vec<Vec<usize>> =
        single.iter().map(|row| (0..ours.len()).filter(|&at| same(row, &ours[at])).collect()).collect();
    let mut row_of = vec![None; ours.len()];
    for (number, row) in single.iter().enumerate() {
        if !assign(number, &candidates, &mut row_of, &mut vec![false; ours.len()]) {
            let key = columns.iter().find(|c| matches!(c.2, Text | Frame)).unwrap_or(&columns[0]);
            let near: Vec<_> =
                ours.iter().zip(&row_of).filter(|(own, _)| cell_agrees(row, own, key)).take(5).collect();
            return Err(format!(
                "{view}: the JDK's row {row:?} is not ours; the nearest, and which row each is: {near:?}"
            ));
        }
    }
    let mut taken = row_of.iter().map(Option::is_some);
    ours.retain(|_| !taken.next().unwrap_or(false));
    // The JDK omits rows after the 25th or below one percent, and all settings but the latest.
    let cut = rows.len() == 25 || matches!(*view, "object-statistics" | "active-settings");
    if !cut && !ours.is_empty() {
        return Err(format!("{view}: rows the JDK does not have: {ours:?}"));
    }
    Ok(Some(rows.len()))
}

/// Compares all views on one recording: rows compared, by view.
fn compare_all(jdk25: &Path, file: &Path, least: usize) {
    let (tables, whole) = jdk_tables(jdk25, file);
    let mut ours = our_tables(&CASES.iter().map(|case| case.0).collect::<Vec<_>>(), file);
    let mut compared = BTreeMap::new();
    let mut wrong = Vec::new();
    for case in CASES {
        if !whole && !tables.contains_key(case.1) {
            continue;
        }
        match compare(case, tables.get(case.1), ours.remove(case.0).unwrap_or_default()) {
            Ok(Some(rows)) => drop(compared.insert(case.0, rows)),
            Ok(None) => {}
            Err(difference) => wrong.push(difference),
        }
    }
    eprintln!("{}: {compared:?}", file.display());
    assert!(wrong.is_empty(), "{}:\n{}", file.display(), wrong.join("\n"));
    let least = if whole { least } else { 5 };
    assert!(compared.len() >= least, "{}: {compared:?}", file.display());
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings").join(name)
}

#[test]
fn views_match_jdk_for_fixtures() {
    let _place = beside();
    let Some(jdk25) = foreign::jdk(25) else { return };
    for name in ["jdk17.jfr", "jdk17-multichunk.jfr", "jdk25.jfr", "jdk25-multichunk.jfr"] {
        compare_all(&jdk25, &fixture(name), 20);
    }
}

/// Records `tests/jdk/Mixed.java`.
fn mixed(home: &Path, collector: &str, more: &str, folder: &Path) -> PathBuf {
    let classes = victim::java_classes(&home.join("bin/javac"), "Mixed", &[]);
    let out = folder.join("mixed.jfr");
    let timed = [
        "FileRead",
        "FileWrite",
        "SocketRead",
        "SocketWrite",
        "JavaMonitorEnter",
        "ThreadSleep",
        "ThreadPark",
        "ClassLoad",
        "Compilation",
        "SafepointBegin",
        "SafepointEnd",
        "JavaMonitorInflate",
    ];
    let on = [
        "JavaExceptionThrow",
        "ObjectCount",
        "ClassLoad",
        "SafepointBegin",
        "SafepointEnd",
        "SafepointStateSynchronization",
        "JavaMonitorInflate",
        "ObjectAllocationInNewTLAB",
        "ObjectAllocationOutsideTLAB",
    ];
    // Leaves out the machine's other processes and the environment.
    let mut settings = ",jdk.SystemProcess#enabled=false".to_owned();
    for name in timed {
        settings.push_str(&format!(",jdk.{name}#threshold=0ms"));
    }
    for name in on {
        settings.push_str(&format!(",jdk.{name}#enabled=true"));
    }
    let recording =
        format!("-XX:StartFlightRecording:filename={},settings=profile{settings}{more}", out.display());
    let mut java = Command::new(home.join("bin/java"));
    java.env_clear()
        .env("PURPOSE", "to be found in the table")
        .args(["-Xmx96m", collector, &recording, "-cp"])
        .arg(classes)
        .arg("Mixed");
    run(&mut java, Duration::from_secs(120)).expect_success("java Mixed");
    out
}

#[test]
fn views_match_jdk_for_fresh_recordings() {
    let _place = beside();
    let Some(jdk25) = foreign::jdk(25) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = mixed(&jdk25, "-XX:+UseSerialGC", ",jdk.CPUTimeSample#enabled=true", folder.path());
    compare_all(&jdk25, &file, 30);
    facts(&file);

    let Some(jdk17) = foreign::jdk(17) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = mixed(&jdk17, "-XX:+UseG1GC", "", folder.path());
    compare_all(&jdk25, &file, 30);
    facts(&file);
}

/// Asserts facts about the program that are known by construction.
fn facts(file: &Path) {
    let cell = |view: &str, key: &str, text: &str, column: &str| {
        let rows = our_table(view, file);
        let row = rows.iter().find(|row| row[key].as_str().is_some_and(|own| own.contains(text)));
        row.unwrap_or_else(|| panic!("{view}: no {text} in {rows:?}"))[column].as_i64().unwrap()
    };
    assert_eq!(cell("exception-by-type", "Class", "java.io.IOException", "Count"), 20);
    assert_eq!(cell("exception-by-message", "Message", "state 1", "Count"), 5);
    // 1000 + … + 7000 bytes in seven files of one name; 7000 bytes read 700 at a time, and the end.
    assert_eq!(cell("file-writes-by-path", "Path", "mixed", "Bytes"), 28_000);
    assert_eq!(cell("file-writes-by-path", "Path", "mixed", "Writes"), 7);
    assert_eq!(cell("file-reads-by-path", "Path", "mixed", "Bytes"), 7_000);
    assert_eq!(cell("file-reads-by-path", "Path", "mixed", "Reads"), 11);
    let sockets: i64 =
        our_table("socket-writes-by-host", file).iter().map(|row| row["Bytes"].as_i64().unwrap()).sum();
    assert_eq!(sockets, 5_300);
    let causes = our_table("gc", file);
    assert_eq!(causes.iter().filter(|row| row["Cause"] == "System.gc()").count(), 2);
    // Three threads compete for two locks, one after the other: they conflict at least at the first.
    let locks = our_table("contention-by-address", file);
    let ours = |row: &&Json| row["Class"] == "java.lang.Object" || row["Class"] == "java.lang.StringBuilder";
    assert!(locks.iter().filter(ours).any(|row| row["Threads"] == 3), "{locks:?}");
}
