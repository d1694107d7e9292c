//! `flightline view`, with figures that other tools counted.

use std::path::Path;
use std::process::{Command, Output, Stdio};

fn path(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name).to_str().unwrap().to_owned()
}

fn view(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flightline"));
    command.arg("view").args(args).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns the output of a view that must succeed.
#[track_caller]
fn shown(args: &[&str]) -> String {
    let output = view(args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Cells of a view's CSV without the header; no cell contains a comma.
#[track_caller]
fn rows(name: &str, file: &str) -> Vec<Vec<String>> {
    let csv = shown(&[name, "--csv", &path(file)]);
    csv.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

/// Number of events of a type in a fixture, counted by the JDK's reader.
fn counted(fixture: &str, event: &str) -> u64 {
    let types = std::fs::read_to_string(path(&format!("expected/{fixture}.types.txt"))).unwrap();
    let line = types.lines().find_map(|line| line.strip_prefix(event)?.strip_prefix('\t'));
    line.map_or(0, |count| count.parse().unwrap())
}

#[test]
fn native_memory_views_match_program_allocations() {
    // fixtures/src/burn.c: repeated malloc(3000) and free.
    let row = &rows("native-allocation-balance", "recordings/ap-native-mem.jfr")[0];
    let allocations = counted("ap-native-mem", "profiler.Malloc");
    assert_eq!(row[0], allocations.to_string());
    assert_eq!(row[1], (3000 * allocations).to_string());
    assert_eq!(row[3], "3000");
    assert_eq!(row[4], counted("ap-native-mem", "profiler.Free").to_string());
    assert_eq!(row[5..], ["0", "0"], "all of it is freed");
    // Allocations are attributed to the caller of malloc.
    let by_function = rows("native-allocation", "recordings/ap-native-mem.jfr");
    assert_eq!(by_function.len(), 1);
    assert_eq!(by_function[0][0], "allocate");
    let by_thread = rows("native-allocation-by-thread", "recordings/ap-native-mem.jfr");
    let sum: u64 = by_thread.iter().map(|row| row[1].parse::<u64>().unwrap()).sum();
    assert_eq!((by_thread.len(), sum), (2, allocations));
}

#[test]
fn native_lock_views_count_all_waits() {
    let waits = counted("ap-native-lock", "profiler.NativeLock").to_string();
    // burn.c has one mutex and two threads.
    let by_lock = rows("native-locks-by-address", "recordings/ap-native-lock.jfr");
    assert_eq!(by_lock.len(), 1, "{by_lock:?}");
    assert_eq!(by_lock[0][1..3], [waits.clone(), "2".into()]);
    let by_thread = rows("native-locks-by-thread", "recordings/ap-native-lock.jfr");
    let sum: u64 = by_thread.iter().map(|row| row[1].parse::<u64>().unwrap()).sum();
    assert_eq!((by_thread.len(), sum.to_string()), (2, waits));
}

#[test]
fn wall_clock_views_by_state_and_thread_have_equal_sums() {
    let by_state = rows("wall-clock", "recordings/ap-java-wall.jfr");
    let by_thread = rows("wall-clock-by-thread", "recordings/ap-java-wall.jfr");
    let sum =
        |rows: &[Vec<String>], at: usize| rows.iter().map(|row| row[at].parse::<u64>().unwrap()).sum::<u64>();
    assert_eq!(sum(&by_state, 1), sum(&by_thread, 2));
    // A sample may represent several, so there are at least as many as events.
    assert!(sum(&by_state, 1) >= counted("ap-java-wall", "profiler.WallClockSample"));
    let share: f64 = by_state.iter().map(|row| row[2].parse::<f64>().unwrap()).sum();
    assert!((share - 1.0).abs() < 1e-9);
}

#[test]
fn event_counts_match_jdk_for_every_type() {
    for fixture in ["jdk17-multichunk", "jdk25", "ap-java-multichunk", "ap-native-lock"] {
        let rows = rows("events-by-name", &format!("recordings/{fixture}.jfr"));
        assert!(!rows.is_empty());
        for row in rows {
            let count: u64 = row[row.len() - 1].parse().unwrap();
            assert_eq!(count, counted(fixture, &row[row.len() - 2]), "{fixture}: {row:?}");
        }
    }
}

#[test]
fn several_recordings_are_merged() {
    let (one, other) = (path("recordings/jdk17.jfr"), path("recordings/jdk17-multichunk.jfr"));
    let pauses = |files: &[&str]| {
        let mut args = vec!["gc-pauses", "--csv"];
        args.extend(files);
        shown(&args).lines().nth(1).unwrap().split(',').nth(1).unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(pauses(&[&one, &other]), pauses(&[&one]) + pauses(&[&other]));
}

#[test]
fn adjacent_time_ranges_add_up_to_whole() {
    let file = path("recordings/jdk25.jfr");
    let collections = |range: &[&str]| {
        let mut args = vec!["gc", "--csv", "--limit", "100000"];
        args.extend(range);
        args.push(&file);
        shown(&args).lines().skip(1).filter(|line| !line.starts_with(',')).count()
    };
    let whole = collections(&[]);
    let (early, late) = (
        collections(&["--to", "2026-11-20T23:30:39.999999999Z"]),
        collections(&["--from", "2026-11-20T23:30:40Z"]),
    );
    assert!(early > 0 && late > 0, "{early} {late}");
    assert_eq!(early + late, whole);
    assert!(collections(&["--from", "-1"]) <= whole);
}

#[test]
fn event_type_view_has_column_per_field() {
    let file = path("recordings/jdk17.jfr");
    for name in ["jdk.CPULoad", "CPULoad"] {
        let csv = shown(&[name, "--csv", &file]);
        assert_eq!(
            csv.lines().next().unwrap(),
            "Start Time (UTC),JVM User (fraction),JVM System (fraction),Machine Total (fraction)"
        );
        assert_eq!(csv.lines().count() as u64, 1 + counted("jdk17", "jdk.CPULoad"));
    }
    // A struct field becomes one column per member.
    let heap = shown(&["jdk.GCHeapSummary", "--csv", "--limit", "1", &file]);
    assert!(heap.lines().next().unwrap().contains("Heap Space"), "{heap}");
}

#[test]
fn tables_fit_into_width() {
    let file = path("recordings/jdk25.jfr");
    for width in [40, 60, 100] {
        let table = shown(&["hot-methods", "--width", &width.to_string(), &file]);
        let widest = table.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= width, "{widest} of {width}:\n{table}");
    }
    let beginning = shown(&["hot-methods", "--width", "40", "--truncate", "beginning", &file]);
    assert!(beginning.contains('…') && !beginning.lines().any(|line| line.contains("java.util.Arrays.")));
    let one = shown(&["contention-by-site", &file]);
    let tall = shown(&["contention-by-site", "--cell-height", "4", &file]);
    assert!(tall.lines().count() > one.lines().count());
    assert!(!one.contains('\u{1b}'), "no colours but on a terminal");
}

#[test]
fn json_has_values_and_units() {
    let json = shown(&["gc-pauses", "--json", &path("recordings/jdk25.jfr")]);
    for part in ["\"view\": \"gc-pauses\"", "\"Pauses\":298", "{\"title\":\"Total\",\"unit\":\"ns\"}"] {
        assert!(json.contains(part), "no {part} in {json}");
    }
}

/// A wait is attributed to the code that uses the lock; the interposer and the library's functions are
/// omitted.
#[test]
fn lock_view_stacks_start_at_lock_caller() {
    let file = path("recordings/ap-native-lock.jfr");
    let table: serde_json::Value = serde_json::from_str(&shown(&["native-locks", "--json", &file])).unwrap();
    assert_eq!(
        table["rows"][0]["Stack"],
        serde_json::json!(["worker", "thread_start_wrapper", "start_thread"])
    );
    let whole = shown(&["profiler.NativeLock", "--csv", "--limit", "1", &file]);
    assert!(whole.contains("pthread_mutex_lock_hook"), "event types have the whole stack: {whole}");
    let java = shown(&["contention-by-site", "--csv", &path("recordings/jdk25.jfr")]);
    assert!(java.lines().nth(1).unwrap().starts_with("\"Work.locked();"), "{java}");
}

#[test]
fn list_shows_only_views_with_events() {
    let file = path("recordings/ap-native-lock.jfr");
    for args in [&["--list", &file][..], &[&file]] {
        let list = shown(args);
        assert!(list.contains("5209  native-locks ") && !list.contains("hot-methods "), "{list}");
        assert!(list.contains("5209  profiler.NativeLock"), "{list}");
    }
    let all = shown(&["--list"]);
    assert!(all.contains("  native-locks ") && all.contains("  hot-methods "));
    assert!(shown(&[]) == all);
}

#[test]
fn list_is_available_as_json_and_csv() {
    let file = path("recordings/ap-native-lock.jfr");
    for args in [&["--list", "--json", &file][..], &[&file, "--json"]] {
        let list: serde_json::Value = serde_json::from_str(&shown(args)).unwrap();
        let rows = list["rows"].as_array().unwrap();
        let row = |name: &str| rows.iter().find(|row| row["View"] == name).unwrap();
        assert_eq!(row("native-locks")["Events"], 5209);
        assert_eq!(row("hot-methods")["Events"], 0);
        assert_eq!(row("profiler.NativeLock")["Category"], "Event types");
        assert_eq!(row("native-locks")["Needs"][0], "profiler.NativeLock");
    }
    let csv = shown(&["--list", "--csv"]);
    assert!(csv.starts_with("View,Title,Category,Needs,Events\n"), "{csv}");
    let locks = csv.lines().find(|line| line.starts_with("native-locks,")).unwrap();
    assert!(locks.ends_with(","), "no recording, no number: {locks}");
}

#[test]
fn missing_events_and_misspelt_views_are_reported() {
    let file = path("recordings/jdk17.jfr");
    let missing = view(&["native-locks", &file]);
    let told = text(&missing.stderr);
    assert!(missing.status.success() && missing.stdout.is_empty());
    assert!(told.contains("profiler.NativeLock") && told.contains("nativelock"), "{told}");
    let wrong = view(&["hot-metods", &file]);
    let told = text(&wrong.stderr);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(told.contains("hot-methods") && told.lines().count() == 1, "{told}");
    assert_eq!(view(&["hot-methods"]).status.code(), Some(2), "no recording given");
    assert_eq!(view(&["hot-methods", "--from", "soon", &file]).status.code(), Some(2));
}

#[test]
fn all_views_and_all_events_render_every_fixture() {
    for entry in std::fs::read_dir(path("recordings")).unwrap() {
        let file = entry.unwrap().path();
        let file = file.to_str().unwrap();
        for all in ["all-views", "all-events"] {
            let output = view(&[all, "--limit", "3", "--verbose", file]);
            // A truncated recording is read in part.
            let torn = file.contains("killed") || file.contains("fifo");
            assert!(output.status.success() || torn, "{file}: {}", text(&output.stderr));
            assert!(!output.stdout.is_empty() || file.contains("killed"), "{file} {all}");
        }
    }
}
