//! Expectations of Java developers on recordings by the JDK and async-profiler.

use crate::convert::{flightline, recording, stdout};

/// Standard error of a command that succeeds.
fn stderr(args: &[&str]) -> String {
    let output = flightline(args);
    assert!(output.status.success(), "{args:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Leaves of folded stacks with their weights.
fn leaves(folded: &str) -> std::collections::BTreeMap<String, u64> {
    let mut leaves = std::collections::BTreeMap::new();
    for line in folded.lines() {
        let (stack, weight) = line.rsplit_once(' ').unwrap();
        let leaf = stack.rsplit(';').next().unwrap();
        *leaves.entry(leaf.to_owned()).or_default() += weight.parse::<u64>().unwrap();
    }
    leaves
}

/// The first row of a view as CSV, by the titles of its columns.
fn first_row(view: &str, file: &str) -> std::collections::BTreeMap<String, String> {
    let csv = stdout(&["view", view, "--csv", file]);
    let mut lines = csv.lines();
    // `Bytes (bytes)`
    let titles = lines.next().unwrap().split(',').map(|title| title.split(" (").next().unwrap());
    let values = lines.next().unwrap().split(',');
    titles.map(str::to_owned).zip(values.map(str::to_owned)).collect()
}

#[test]
fn allocation_stack_leaf_is_allocated_class() {
    for name in ["jdk11.jfr", "jdk17.jfr", "jdk21-zgc.jfr", "jdk25.jfr", "ap-java-multichunk.jfr"] {
        let file = recording(name);
        let leaves = leaves(&stdout(&["fold", "-e", "alloc", "--total", &file]));
        // The same class has the most bytes in the table.
        let table = first_row("allocation-by-class", &file);
        assert_eq!(leaves.get(&table["Class"]).map(u64::to_string).as_ref(), Some(&table["Bytes"]), "{name}");
        assert!(leaves.contains_key("byte[]"), "{name}: {leaves:?}");
        let without = stdout(&["fold", "-e", "alloc", "--total", "--no-class", &file]);
        assert!(!without.contains("byte[]"), "{name}");
    }
}

#[test]
fn wait_and_exception_stack_leaf_is_class() {
    let file = recording("jdk17.jfr");
    let monitors = leaves(&stdout(&["fold", "-e", "jdk.JavaMonitorEnter", "--total", &file]));
    let table = first_row("contention-by-class", &file);
    assert!(monitors.contains_key(&table["Class"]), "{monitors:?} {table:?}");
    let thrown = leaves(&stdout(&["fold", "-e", "exception", &recording("jdk25.jfr")]));
    assert!(thrown.keys().all(|leaf| leaf.ends_with("Error") || leaf.ends_with("Exception")), "{thrown:?}");
}

/// `fold` and a format with individual samples have the same stacks.
#[test]
fn speedscope_stack_leaf_is_allocated_class() {
    let file = recording("jdk25.jfr");
    let profile = stdout(&["convert", "-e", "alloc", "--format", "speedscope", &file, "-o", "-"]);
    assert!(profile.contains("\"byte[]\""));
}

#[test]
fn cpu_time_samples_are_preferred_to_execution_samples() {
    let file = recording("jdk25.jfr");
    let exact = stdout(&["fold", "-e", "jdk.CPUTimeSample", &file]);
    assert!(!exact.is_empty() && !stdout(&["fold", "-e", "jdk.ExecutionSample", &file]).is_empty());
    assert_eq!(stdout(&["fold", &file]), exact);
    assert_eq!(stdout(&["fold", "-e", "cpu", &file]), exact);
}

#[test]
fn wall_clock_view_matches_fold_total() {
    let file = recording("ap-java-wall.jfr");
    let csv = stdout(&["view", "wall-clock", "--csv", &file]);
    let nanos: u64 =
        csv.lines().skip(1).map(|line| line.rsplit(',').next().unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(nanos, sum(&stdout(&["fold", "-e", "wall", "--total", &file])));
    assert!(csv.lines().skip(1).all(|line| !line.ends_with(",0")), "{csv}");
}

/// The page has timestamps even if settings follow the samples, as in recordings of the JDK.
#[test]
fn page_has_timestamps_when_settings_follow_samples() {
    let folder = tempfile::TempDir::with_prefix("flightline-test-").unwrap();
    let page = folder.path().join("page.html");
    let names =
        ["jdk11.jfr", "jdk17.jfr", "jdk17-multichunk.jfr", "jdk21-zgc.jfr", "jdk25.jfr", "ap-java-cpu.jfr"];
    let files: Vec<String> = names.map(recording).into();
    // The last page combines all files, with `jdk.CPUTimeSample` and `jdk.ExecutionSample`.
    let mut inputs: Vec<&[String]> = files.chunks(1).collect();
    inputs.push(&files);
    for files in inputs {
        let mut args = vec!["flame", "--total", "-o", page.to_str().unwrap()];
        args.extend(files.iter().map(String::as_str));
        let said = stderr(&args);
        assert!(!said.contains("no heat map"), "{files:?}: {said}");
        let html = std::fs::read_to_string(&page).unwrap();
        assert!(html.contains("\"times\""), "{files:?}");
    }
}

/// Sum of the weights of folded stacks.
fn sum(folded: &str) -> u64 {
    folded.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// A conversion with individual samples selects the samples that `fold` counts, even if a chunk has two types
/// of CPU samples.
#[test]
fn convert_selects_same_samples_as_fold() {
    let sets = [
        &["jdk25.jfr"][..],
        &["jdk25-multichunk.jfr", "ap-java-cpu.jfr"],
        &["jdk25.jfr", "flightline.jfr", "jdk17.jfr"],
        &["ap-java-multichunk.jfr", "jdk25.jfr"],
    ];
    for names in sets {
        for event in ["", "cpu", "jdk.ExecutionSample", "wall", "alloc"] {
            let files: Vec<String> = names.iter().map(|name| recording(name)).collect();
            let mut args: Vec<&str> = if event.is_empty() { vec![] } else { vec!["-e", event] };
            args.extend(files.iter().map(String::as_str));
            let folded = flightline(&[&["fold"], &args[..]].concat());
            if !folded.status.success() {
                continue;
            }
            let rows = stdout(&[&["convert", "--format", "speedscope", "-o", "-"], &args[..]].concat());
            let profiles: serde_json::Value = serde_json::from_str(&rows).unwrap();
            let weights = profiles["profiles"].as_array().unwrap().iter();
            let weights = weights.flat_map(|profile| profile["weights"].as_array().unwrap());
            let converted: u64 = weights.map(|weight| weight.as_f64().unwrap() as u64).sum();
            assert_eq!(converted, sum(&String::from_utf8(folded.stdout).unwrap()), "{names:?} {event}");
        }
    }
}

#[test]
fn view_reports_enabled_events_that_did_not_occur() {
    let said = stderr(&["view", "pinned-threads", &recording("jdk21-zgc.jfr")]);
    assert!(
        said.contains("jdk.VirtualThreadPinned") && said.contains("enabled, but none occurred"),
        "{said}"
    );
    // For an event that was not enabled, the command that records it.
    let said = stderr(&["view", "monitor-inflation", &recording("jdk25.jfr")]);
    assert!(said.contains("To record them"), "{said}");
}

#[test]
fn view_lists_recorded_events() {
    let file = recording("jdk17.jfr");
    let list = stdout(&["view", &file]);
    let samples = first_row("recording", &file)["Events"].clone();
    assert!(
        list.lines().any(|line| line.trim_start().starts_with(&format!("{samples}  recording "))),
        "{list}"
    );
    assert!(!list.contains("cpu-time-hot-methods"), "{list}");
    assert!(list.contains("other views (flightline view --list)"), "{list}");
}

/// Name, version and findings for recordings of each producer.
#[test]
fn report_has_expected_findings_for_each_producer() {
    for (name, about, found) in [
        ("jdk11.jfr", "11.0.13", &["Allocation: ", "byte[]", "Garbage collection: ", "Locks: "][..]),
        ("jdk17.jfr", "PID", &["CPU time: ", "Exceptions: ", "Work.fib"]),
        ("jdk21-zgc.jfr", "21.0.8", &["Garbage collection: "]),
        ("jdk25.jfr", "25", &["Allocation: ", "byte[] 99.82 %", "Exceptions: "]),
        ("ap-java-cpu.jfr", "PID", &["CPU time: ", "has no events jdk.GCPhasePause"]),
        ("flightline.jfr", "events", &["leaf 100.00 %"]),
    ] {
        let report = stdout(&["report", &recording(name)]);
        let headline = report.lines().nth(1).unwrap();
        assert!(headline.contains(about) && !headline.starts_with(' '), "{name}: {headline}");
        found.iter().for_each(|text| assert!(report.contains(text), "{name}: {text} in {report}"));
    }
}

#[test]
fn html_report_links_to_its_flame_graphs() {
    let folder = tempfile::TempDir::with_prefix("flightline-test-").unwrap();
    let page = folder.path().join("report.html");
    let file = recording("jdk25.jfr");
    stdout(&["report", &file, "--before", &recording("jdk17.jfr"), "-o", page.to_str().unwrap()]);
    let html = std::fs::read_to_string(&page).unwrap();
    let links: Vec<&str> =
        html.split("class=\"picture\" href=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(links.contains(&"report.cpu.html") && links.contains(&"report.alloc.html"), "{links:?}");
    for link in links {
        assert!(
            std::fs::read_to_string(folder.path().join(link)).unwrap().starts_with("<!DOCTYPE html>"),
            "{link}"
        );
    }
    // Each link within the page has its target.
    for target in html.split("href=\"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(html.contains(&format!("id=\"{target}\"")), "{target}");
    }
    let refused = flightline(&["report", &file, "-o", "-"]);
    assert!(!refused.status.success());
}

/// A recording compared with itself has no findings.
#[test]
fn report_compared_with_itself_has_no_difference() {
    let file = recording("jdk17.jfr");
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&["report", "--json", &file, "--before", &file])).unwrap();
    let compared: Vec<&serde_json::Value> = json["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|finding| finding["area"] == "Comparison")
        .collect();
    assert_eq!(compared.len(), 1, "{compared:?}");
    assert!(compared[0]["text"].as_str().unwrap().starts_with("Nothing is unusual"), "{compared:?}");
    assert_eq!(json["measures"], json["before"]["measures"]);
    assert_eq!(json["before"]["changed"].as_array().unwrap().len(), 0);
}

#[test]
fn freed_native_memory_is_not_live() {
    // fixtures/src/burn.c frees everything that it allocates.
    let output = flightline(&["fold", "-e", "live", &recording("ap-native-mem.jfr")]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("was freed"), "{said}");
    // Between its allocation and its release, memory is live.
    let alive = |moment: usize| {
        let to = format!("{moment}%");
        let output =
            flightline(&["fold", "-e", "live", "--total", "--to", &to, &recording("ap-native-mem.jfr")]);
        String::from_utf8(output.stdout).unwrap()
    };
    let sizes: Vec<u64> = (1..100)
        .flat_map(|moment| {
            alive(moment)
                .lines()
                .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
                .collect::<Vec<u64>>()
        })
        .collect();
    assert!(sizes.iter().all(|size| size % 3_000 == 0 && *size <= 6_000), "two threads: {sizes:?}");
}

/// Lambda names differ between runs; several inputs are merged without their numbers.
#[test]
fn merged_inputs_have_lambda_names_without_numbers() {
    let (one, other) = (recording("jdk17.jfr"), recording("jdk25.jfr"));
    let numbered = regex::Regex::new(r"\$\$Lambda[^;. ]*[0-9]|\$\$Lambda\.0x").unwrap();
    let alone = stdout(&["fold", "-e", "jdk.ExecutionSample,jdk.ObjectAllocationSample,alloc", &other]);
    assert!(numbered.is_match(&alone), "{alone}");
    let both = stdout(&["fold", "-e", "jdk.ExecutionSample,jdk.ObjectAllocationSample,alloc", &one, &other]);
    assert!(both.contains("$$Lambda") && !numbered.is_match(&both), "{both}");
    let full = stdout(&[
        "fold",
        "--names",
        "full",
        "-e",
        "jdk.ExecutionSample,jdk.ObjectAllocationSample,alloc",
        &one,
        &other,
    ]);
    assert!(numbered.is_match(&full), "{full}");
}
