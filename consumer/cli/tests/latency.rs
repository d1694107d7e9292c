//! Latency histograms against the durations of each event.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name);
    path.to_str().unwrap().to_owned()
}

fn flightline(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flightline")).args(args).output().unwrap()
}

fn text(args: &[&str]) -> String {
    let output = flightline(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn histograms(args: &[&str]) -> Vec<Value> {
    let all: Value = serde_json::from_str(&text(&[&["latency", "--json"], args].concat())).unwrap();
    all["histograms"].as_array().unwrap().clone()
}

/// A column of all events of a type.
fn column(file: &str, event: &str, name: &str) -> Vec<Value> {
    let table: Value =
        serde_json::from_str(&text(&["view", event, file, "--json", "--limit", "100000"])).unwrap();
    table["rows"].as_array().unwrap().iter().map(|row| row[name].clone()).collect()
}

/// The value at rank (n + 1)·q of sorted values, interpolated.
fn percentile(sorted: &[u64], q: f64) -> u64 {
    let last = sorted.len() - 1;
    let rank = ((sorted.len() + 1) as f64 * q - 1.0).clamp(0.0, last as f64);
    let (below, above) = (sorted[rank as usize] as f64, sorted[(rank as usize + 1).min(last)] as f64);
    (below + (above - below) * rank.fract()).round() as u64
}

/// Compares a histogram with its durations.
fn check(histogram: &Value, mut nanos: Vec<u64>) {
    nanos.sort_unstable();
    let number = |key: &str| histogram[key].as_u64().unwrap_or_else(|| panic!("{key} in {histogram}"));
    let total: u64 = nanos.iter().sum();
    let count = nanos.len() as u64;
    assert_eq!((number("count"), number("totalNanos"), number("meanNanos")), (count, total, total / count));
    assert_eq!((number("minNanos"), number("maxNanos")), (nanos[0], nanos[nanos.len() - 1]));
    for (key, q) in [("p50Nanos", 0.5), ("p90Nanos", 0.9), ("p99Nanos", 0.99)] {
        assert_eq!(number(key), percentile(&nanos, q), "{key} of {nanos:?}");
    }
    assert_eq!(histogram["exact"], true);
    let buckets = histogram["buckets"].as_array().unwrap();
    for bucket in buckets {
        let [from, to, count] = ["fromNanos", "toNanos", "count"].map(|key| bucket[key].as_u64().unwrap());
        assert!(to == 2 * from || (from, to) == (0, 2), "{bucket}");
        assert_eq!(
            nanos.iter().filter(|&&nanos| (from..to).contains(&nanos)).count() as u64,
            count,
            "{bucket}"
        );
    }
    assert_eq!(buckets.iter().map(|bucket| bucket["count"].as_u64().unwrap()).sum::<u64>(), count);
}

#[test]
fn jdk_histograms_match_event_durations() {
    let file = fixture("recordings/jdk25.jfr");
    let all = histograms(&[&file]);
    let names: Vec<_> =
        all.iter().map(|of| (of["name"].as_str().unwrap(), of["event"].as_str().unwrap())).collect();
    for expected in [
        ("file read", "jdk.FileRead"),
        ("file write", "jdk.FileWrite"),
        ("lock", "jdk.JavaMonitorEnter"),
        ("park, semaphore or futex", "jdk.ThreadPark"),
    ] {
        assert!(names.contains(&expected), "{expected:?} in {names:?}");
    }
    assert!(all.is_sorted_by_key(|of| std::cmp::Reverse(of["totalNanos"].as_u64())));
    for histogram in &all {
        let durations = column(&file, histogram["event"].as_str().unwrap(), "Duration");
        check(histogram, durations.iter().map(|nanos| nanos.as_u64().unwrap()).collect());
    }
}

#[test]
fn off_cpu_time_has_one_histogram_per_state() {
    let file = fixture("off-cpu/off_cpu.jfr");
    let all = histograms(&["-e", "OffCpu", &file]);
    let (states, nanos) =
        (column(&file, "flightline.OffCpu", "State"), column(&file, "flightline.OffCpu", "Exact Duration"));
    let names = [("S", "off-CPU S (interruptible sleep)"), ("R", "off-CPU R (preempted)")];
    for (state, name) in names {
        let histogram =
            all.iter().find(|of| of["name"] == name).unwrap_or_else(|| panic!("{name} in {all:?}"));
        let of = states.iter().zip(&nanos).filter(|(of, _)| of.as_str().unwrap().starts_with(state));
        check(histogram, of.map(|(_, nanos)| nanos.as_u64().unwrap()).collect());
    }
    let counts = all.iter().map(|of| of["count"].as_u64().unwrap());
    assert_eq!(counts.sum::<u64>(), states.len() as u64);
}

#[test]
fn each_traced_function_has_a_histogram() {
    let file = fixture("recordings/ap-java-trace.jfr");
    let all = histograms(&["-e", "trace", &file]);
    let durations = column(&file, "jdk.MethodTrace", "Duration");
    let total: u64 = durations.iter().map(|nanos| nanos.as_u64().unwrap()).sum();
    let sum = |key: &str| all.iter().map(|of| of[key].as_u64().unwrap()).sum::<u64>();
    assert_eq!((sum("count"), sum("totalNanos")), (durations.len() as u64, total));
    assert!(
        all.iter().all(|of| of["event"] == "jdk.MethodTrace" && of["name"] != "jdk.MethodTrace"),
        "{all:?}"
    );
}

#[test]
fn latency_selects_samples_by_thread_state_and_stack() {
    let file = fixture("off-cpu/off_cpu.jfr");
    let thread = histograms(&["-e", "OffCpu", "--only-thread", "sleeper", "--only-state", "^S", &file]);
    let slept = histograms(&["-e", "OffCpu", "-I", "^rest$", "--only-state", "^S", &file]);
    assert_eq!((thread.len(), slept.len()), (1, 1));
    let states = column(&file, "flightline.OffCpu", "State");
    let threads = column(&file, "flightline.OffCpu", "Event Thread");
    let of_thread =
        states.iter().zip(&threads).filter(|(state, thread)| *state == "S" && *thread == "sleeper");
    assert_eq!(thread[0]["count"].as_u64().unwrap(), of_thread.count() as u64);
    let stacks = column(&file, "flightline.OffCpu", "Stack Trace");
    let in_rest = |stack: &Value| stack.as_array().unwrap().iter().any(|frame| frame == "rest");
    let in_rest =
        states.iter().zip(&stacks).filter(|(state, stack)| *state == "S" && in_rest(stack)).count() as u64;
    assert!(in_rest > 0 && slept[0]["count"].as_u64() == Some(in_rest), "{in_rest}: {slept:?}");
}

#[test]
fn text_output_has_percentiles_and_bars() {
    let file = fixture("recordings/jdk25.jfr");
    let text = text(&["latency", "-e", "jdk.FileRead", &file]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("file read: 8 events, ") && lines[0].ends_with(" in total"), "{text}");
    assert!(
        lines[1].starts_with("min ") && lines[1].contains(", p50 ") && lines[1].contains(", p99 "),
        "{text}"
    );
    assert_eq!(
        lines[2].split_whitespace().collect::<Vec<_>>().join(" "),
        "from to less than count distribution"
    );
    let bars: Vec<(&str, &str)> = lines[3..].iter().map(|line| line.split_once('|').unwrap()).collect();
    let count = |(left, _): &(&str, &str)| left.split_whitespace().last().unwrap().parse::<usize>().unwrap();
    assert_eq!(bars.iter().map(count).sum::<usize>(), 8);
    let most = bars.iter().map(count).max().unwrap();
    for bar in &bars {
        let stars = bar.1.matches('*').count();
        assert_eq!(stars, (count(bar) * 40).div_ceil(most), "{text}");
    }
}

#[test]
fn recording_without_durations_fails_and_names_options() {
    let fails = |args: &[&str]| {
        let output = flightline(&[&["latency"], args].concat());
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let none = fails(&[&fixture("recordings/ap-native-cpu.jfr")]);
    assert!(none.contains("record with -e io, -e lock, --trace FUNCTION"), "{none}");
    let jdk = fixture("recordings/jdk25.jfr");
    let none = fails(&["-e", "jdk.NoSuchEvent", &jdk]);
    assert!(none.contains("no jdk.NoSuchEvent event in ") && none.contains("flightline summary"), "{none}");
    let none = fails(&["-I", "no_such_function", &jdk]);
    assert!(none.contains("no selected event in "), "{none}");
}

/// The latency of each event on a page, by event name.
fn on_page(args: &[&str]) -> Vec<(String, Value)> {
    let page = text(&[args, &["--format", "html"]].concat());
    let start = page.find("id=\"profile\">").unwrap() + "id=\"profile\">".len();
    let data = &page[start..];
    let profile: Value = serde_json::from_str(&data[..data.find("</script>").unwrap()]).unwrap();
    let events = profile["events"].as_array().unwrap();
    events
        .iter()
        .map(|event| (event["name"].as_str().unwrap().to_owned(), event["latency"].clone()))
        .collect()
}

#[test]
fn page_has_histogram_for_each_event_with_durations() {
    let jdk = fixture("recordings/jdk25.jfr");
    let durations = |events: &[&str]| {
        let all = events.iter().flat_map(|event| column(&jdk, event, "Duration"));
        all.map(|nanos| nanos.as_u64().unwrap()).collect::<Vec<_>>()
    };
    let events = on_page(&["flame", &jdk]);
    let of =
        |name: &str| &events.iter().find(|(event, _)| event == name).unwrap_or_else(|| panic!("{name}")).1;
    check(of("io"), durations(&["jdk.FileRead", "jdk.FileWrite"]));
    check(of("lock"), durations(&["jdk.JavaMonitorEnter", "jdk.ThreadPark"]));
    assert!(of("cpu").is_null() && of("alloc").is_null());
    // A filter by frames applies; a selection by span has no histogram.
    let chosen = on_page(&["flame", "-e", "lock", "-I", "parkNanos", &jdk]);
    check(&chosen[0].1, durations(&["jdk.ThreadPark"]));
    assert!(on_page(&["flame", "-e", "lock", "--focus", "parkNanos", &jdk])[0].1.is_null());
}

#[test]
fn off_cpu_page_histogram_matches_drawn_waits() {
    let file = fixture("off-cpu/off_cpu.jfr");
    let column = |name: &str| column(&file, "flightline.OffCpu", name);
    let numbers = |name: &str| column(name).iter().map(|nanos| nanos.as_u64().unwrap()).collect::<Vec<_>>();
    let blocked: Vec<bool> =
        column("State").iter().map(|state| !state.as_str().unwrap().starts_with('R')).collect();
    let (nanos, queued) = (numbers("Exact Duration"), numbers("Run Queue Latency"));
    let of_blocked = |value: &dyn Fn(usize) -> u64| {
        (0..nanos.len()).filter(|&at| blocked[at]).map(value).collect::<Vec<_>>()
    };
    for graph in ["offcpu", "offwake", "chain"] {
        check(&on_page(&[graph, &file])[0].1, of_blocked(&|at| nanos[at]));
    }
    check(&on_page(&["wakeup", &file])[0].1, of_blocked(&|at| nanos[at] - queued[at]));
    let ready = (0..nanos.len()).map(|at| if blocked[at] { queued[at] } else { nanos[at] });
    check(&on_page(&["offcpu", "--run-queue", &file])[0].1, ready.filter(|&nanos| nanos > 0).collect());
    assert!(on_page(&["threadtime", &file])[0].1.is_null());
    assert!(on_page(&["offcpu", "-I", "^rest$", &file])[0].1.is_null());
}
