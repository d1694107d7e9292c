//! `summary`: program, JVM and host; one line for each of several recordings.

use std::path::Path;

use serde_json::Value;

use crate::annotate;
use crate::convert::{flightline, recording, stdout};
use crate::redact::with_secrets;

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&stdout(args)).unwrap()
}

#[test]
fn jvm_collector_heap_and_process_are_printed() {
    let text = stdout(&["summary", &recording("jdk17.jfr")]);
    for line in [
        "Program:   Work",
        "PID:       18862",
        "JVM:       OpenJDK 64-Bit Server VM 17.0.15+6-Debian-1deb12u1",
        "JVM args:  -Xmx128m -XX:+UseSerialGC",
        "Collector: Serial (DefNew, SerialOld)",
        "Heap:      8.0 MiB to 128.0 MiB, initially 128.0 MiB",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}:\n{text}");
    }
    assert!(text.contains("System:    Debian GNU/Linux 12 (bookworm), Linux 6."), "{text}");
    let facts = &json(&["summary", "--json", &recording("jdk17.jfr")])["facts"];
    assert_eq!(facts["program"], "Work");
    assert_eq!(facts["pid"], 18862);
    assert_eq!(facts["heap"]["max"], 128 << 20);
    assert_eq!(facts["jvmArguments"], "-Xmx128m -XX:+UseSerialGC");
    assert!(facts.get("arguments").is_none(), "{facts}");
    for (name, collector) in [
        ("jdk11.jfr", "Collector: Serial (DefNew, SerialOld)"),
        ("jdk17-shenandoah.jfr", "Collector: Shenandoah"),
        ("jdk21-zgc.jfr", "Collector: ZGC"),
        // These recordings have no event for it.
        ("ap-java-cpu.jfr", "Collector: Serial"),
        ("ap-java-live.jfr", "Collector: Serial"),
    ] {
        let text = stdout(&["summary", &recording(name)]);
        assert!(text.lines().any(|l| l.starts_with(collector)), "{name}:\n{text}");
        assert!(
            text.contains("\nJVM:       OpenJDK 64-Bit Server VM ") && text.contains("\nPID: "),
            "{text}"
        );
    }
    // Also if no samples are read.
    let text = stdout(&["summary", "--top", "0", &recording("ap-jfrsync.jfr")]);
    assert!(text.contains("\nCollector: Serial (DefNew, SerialOld)\n"), "{text}");
    let native = stdout(&["summary", &recording("flightline.jfr")]);
    assert!(native.contains("/burn\nPID:       22396\n") && !native.contains("\nJVM"), "{native}");
}

/// The application's arguments are omitted by default, and redacted with `--arguments`.
#[test]
fn arguments_are_printed_on_request_without_secrets() {
    let file = recording("jdk17.jfr");
    let text = stdout(&["summary", &file]);
    assert!(!text.contains("Arguments:") && !text.contains("jdk17.jfr 1"), "{text}");
    let text = stdout(&["summary", "--arguments", &file]);
    assert!(text.contains("Arguments: 1.5 jdk17.jfr 1\n"), "{text}");
    let folder = tempfile::tempdir().unwrap();
    let secret = with_secrets(folder.path());
    let text = stdout(&["summary", "--arguments", &secret]);
    assert!(text.contains("Arguments: --token=[redacted]\n") && !text.contains("s3cr3ts"), "{text}");
    let facts = &json(&["summary", "--arguments", "--json", &secret])["facts"];
    assert_eq!(facts["arguments"], "--token=[redacted]");
}

fn copy(name: &str, to: &Path) {
    std::fs::copy(recording(name), to).unwrap();
}

#[test]
fn folder_has_one_line_for_each_recording() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    copy("jdk17.jfr", &at("a.jfr"));
    copy("ap-java-cpu.jfr", &at("b.jfr"));
    let path = folder.path().to_str().unwrap();
    let lines: Vec<String> = stdout(&["summary", path]).lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].starts_with("Recording"), "{lines:?}");
    assert!(lines[1].contains("/a.jfr  Work (17.0.15+6-Debian-1deb12u1)"), "{lines:?}");
    assert!(
        lines[2].contains("1495 ExecutionSample") && lines[2].contains("2026-11-20T23:30:43Z"),
        "{lines:?}"
    );
    let sum = json(&["summary", "--sum", "--json", path]);
    assert_eq!(sum["chunks"], 2);

    // Damaged recordings do not affect the others.
    std::fs::write(at("c.jfr"), b"no recording at all\n").unwrap();
    std::fs::write(at("d.jfr"), &std::fs::read(at("a.jfr")).unwrap()[..200_000]).unwrap();
    std::fs::write(at("e.jfr"), b"").unwrap();
    let files =
        ["a.jfr", "c.jfr", "d.jfr", "e.jfr", "b.jfr"].map(|name| at(name).to_str().unwrap().to_owned());
    let args: Vec<&str> = ["summary", "--json"].into_iter().chain(files.iter().map(String::as_str)).collect();
    let output = flightline(&args);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("3 of 5 recordings"), "{stderr}");
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    let list = list["recordings"].as_array().unwrap();
    let problem = |i: usize| list[i]["problem"].as_str().unwrap_or_default();
    assert_eq!(list.len(), 5);
    assert!(list[0]["problem"].is_null() && list[0]["events"].as_u64().unwrap() > 1000, "{list:?}");
    assert!(!problem(1).is_empty() && list[1]["events"].is_null(), "{list:?}");
    assert!(problem(2).starts_with("damaged: ") && list[2]["program"] == "Work", "{list:?}");
    assert!(!problem(3).is_empty() && problem(3) != problem(1), "{list:?}");
    assert_eq!(list[4]["samples"]["count"], 1495);
    let args: Vec<&str> = ["summary"].into_iter().chain(files.iter().map(String::as_str)).collect();
    let text = String::from_utf8(flightline(&args).stdout).unwrap();
    assert!(text.lines().nth(2).unwrap().contains(problem(1)), "{text}");

    let args: Vec<&str> = ["summary", "--sum", &files[0], &files[1], &files[4]].to_vec();
    let output = flightline(&args);
    let (text, stderr) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("c.jfr") && text.contains("Chunks:    2\n"), "{stderr}{text}");
    assert!(text.contains("18862 (first of 2 processes)"), "{text}");
}

/// The chunk files of a repository form one recording.
#[test]
fn repository_is_summarized_as_one_recording() {
    let root = tempfile::tempdir().unwrap();
    let process = root.path().join("2026_11_20_23_30_35_18862");
    std::fs::create_dir(&process).unwrap();
    copy("jdk17.jfr", &process.join("2026_11_20_23_30_35.jfr"));
    copy("ap-java-cpu.jfr", &process.join("2026_11_20_23_30_43.jfr"));
    for path in [root.path(), &process] {
        let text = stdout(&["summary", path.to_str().unwrap()]);
        assert!(text.starts_with("Version: ") && text.contains("Chunks:    2\n"), "{text}");
    }
    let other = root.path().join("2026_11_20_23_30_36_7");
    std::fs::create_dir(&other).unwrap();
    copy("flightline.jfr", &other.join("2026_11_20_23_30_36.jfr"));
    let list = json(&["summary", "--json", root.path().to_str().unwrap()]);
    let list = list["recordings"].as_array().unwrap();
    assert_eq!((list.len(), &list[0]["chunks"]), (2, &Value::from(2)), "{list:?}");
}

/// The compiler inlines one of the two calls of a function.
const INLINED: &str = r"
static volatile unsigned long sum;
static void churn(unsigned long n) { for (unsigned long i = 0; i < n; i++) sum = sum * 3 + i; }
__attribute__((noinline)) void call(void (*function)(unsigned long)) { function(100000000); }
int main() { churn(100000000); call(churn); }
";

#[test]
fn inlined_function_is_one_row() {
    let recorded = annotate::record("churn.c", INLINED, &["cc", "-O2", "-g"], &[]);
    let file = &*recorded.recording;
    let types = stdout(&["print", "--json", file]);
    assert!(types.contains("\"Inlined\""), "the compiler inlined no call");
    let samples = json(&["summary", "--json", file])["samples"].clone();
    let rows: Vec<&Value> =
        samples["top"].as_array().unwrap().iter().filter(|row| row["function"] == "churn").collect();
    let [row] = rows[..] else { panic!("{samples}") };
    let share = row["self"].as_u64().unwrap() as f64 / samples["total"].as_u64().unwrap() as f64;
    assert!(share > 0.8, "{samples}");
}
