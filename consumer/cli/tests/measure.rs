//! `flightline flame --measure`: several measures of one recording at once.

use std::fs;
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

/// What `fold --total` says an event weighs.
fn weight(recording: &str, event: &str) -> u64 {
    let done = flightline(&["fold", recording, "-e", event, "--total"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let text = String::from_utf8(done.stdout).unwrap();
    text.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

#[test]
fn a_page_has_all_and_pictures_are_a_file_for_each() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let recording = fixture("recordings/ap-java-multichunk.jfr");
    let names = ["cpu", "wall", "alloc"];
    for output in [path("x.html"), path("x.svg")] {
        let done = flightline(&["flame", &recording, "--measure", &names.join(","), "-o", &output]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    let page = fs::read_to_string(path("x.html")).unwrap();
    let (_, rest) = page.split_once("id=\"profile\">").unwrap();
    let profile: Value = serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap();
    let told: Vec<(&str, &str, u64)> = profile["measures"].as_array().unwrap().iter().map(measure).collect();
    let units = ["ns", "ns", "bytes"];
    for ((name, unit), told) in names.into_iter().zip(units).zip(told) {
        let want = weight(&recording, name);
        assert!(want > 0);
        assert_eq!(told, (name, unit, want));
        let svg = fs::read_to_string(path(&format!("x.{name}.svg"))).unwrap();
        // The headline tells it for people, the box at the root exactly.
        let exact = svg.replace(',', "");
        assert!(svg.contains(&format!(">{name}: ")) && exact.contains(&format!("({want} {unit}")), "{name}");
    }
    assert!(!Path::new(&path("x.svg")).exists());
}

fn measure(of: &Value) -> (&str, &str, u64) {
    (of["name"].as_str().unwrap(), of["unit"].as_str().unwrap(), of["total"].as_u64().unwrap())
}

#[test]
fn what_is_not_there_is_told() {
    let refused = |args: &[&str]| {
        let done = flightline(&[&["flame", "-o", "-"], args].concat());
        assert!(!done.status.success(), "{args:?}");
        String::from_utf8(done.stderr).unwrap()
    };
    let recording = fixture("recordings/ap-java-cpu.jfr");
    assert!(refused(&[&recording, "--measure", "cpu,page-faults"]).contains("no event page-faults"));
    assert!(
        refused(&[&fixture("perf/cpi.txt"), "--measure", "cycles,branches"]).contains("no event branches")
    );
    let two = [&fixture("perf/cpi.txt"), "--measure", "cycles,instructions", "--format", "svg"];
    assert!(refused(&two).contains("a file for each"));
    assert!(refused(&[&recording, "--measure", "cpu", "-e", "wall"]).contains("cannot be used with"));
}
