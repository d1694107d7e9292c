//! `flightline diff` for users and CI.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const BEFORE: &str = "gone;leaf 50\nroot;parent;a 100\nroot;parent;b 100\nroot;same 750\n";
const AFTER: &str = "root;parent;a 300\nroot;parent;b 300\nroot;same 750\nroot;fresh 40\n";

struct Profiles(tempfile::TempDir);

impl Profiles {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.folded"), BEFORE).unwrap();
        std::fs::write(folder.path().join("b.folded"), AFTER).unwrap();
        Self(folder)
    }

    fn diff(&self, more: &[&str]) -> Output {
        self.of("a.folded", "b.folded", more)
    }

    fn of(&self, before: &str, after: &str, more: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flightline"));
        command.current_dir(self.0.path()).args(["diff", before, after]).args(more);
        command.stdin(Stdio::null()).output().unwrap()
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.path().join(name)).unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// For a program that became twice as fast, shares say little; a hint names better options.
#[test]
fn large_total_change_suggests_no_normalize() {
    let profiles = Profiles::new();
    std::fs::write(profiles.0.path().join("fast.folded"), "root;same 75\n").unwrap();
    let hint = "use --no-normalize to compare amounts";
    let told = |output: &Output| (output.status.code(), text(&output.stderr).contains(hint));
    assert_eq!(told(&profiles.of("a.folded", "fast.folded", &[])), (Some(0), true));
    assert_eq!(told(&profiles.of("fast.folded", "a.folded", &[])), (Some(0), true));
    assert_eq!(told(&profiles.of("a.folded", "fast.folded", &["--no-normalize"])), (Some(0), false));
    assert_eq!(told(&profiles.diff(&[])), (Some(0), false), "1000 and 1390");
}

/// The numbers in lambda names differ between runs of a JVM.
#[test]
fn lambda_names_are_normalized() {
    let profiles = Profiles::new();
    for (name, number) in [("one.folded", "2a040c00"), ("two.folded", "1b000a00")] {
        let stacks = format!("a.App.main;a.App$$Lambda.0x{number}.run 60\na.App.main;a.App.idle 40\n");
        std::fs::write(profiles.0.path().join(name), stacks).unwrap();
    }
    let gate =
        |more: &[&str]| profiles.of("one.folded", "two.folded", &[&["--fail-above", "5%"], more].concat());
    let same = gate(&[]);
    assert_eq!(same.status.code(), Some(0), "{}", text(&same.stdout));
    let differs = gate(&["--names", "full"]);
    assert_eq!(differs.status.code(), Some(3), "{}", text(&differs.stdout));
    assert!(text(&differs.stdout).contains("0x2a040c00"));
}

#[test]
fn fail_above_sets_verdict_and_exit_status() {
    let profiles = Profiles::new();
    let failed = profiles.diff(&["--no-normalize", "--fail-above", "30%", "--json"]);
    assert_eq!(failed.status.code(), Some(3), "{}", text(&failed.stderr));
    let verdict: serde_json::Value = serde_json::from_slice(&failed.stdout).unwrap();
    assert_eq!(verdict["verdict"]["failed"], true);
    assert_eq!(verdict["verdict"]["functions"], serde_json::json!(["root", "parent"]));
    let parent = verdict["functions"].as_array().unwrap().iter().find(|f| f["function"] == "parent").unwrap();
    assert_eq!((&parent["inclusive"]["change"], &parent["self"]["change"]), (&400.0.into(), &0.0.into()));
    let grew = "parent grew from 20.00 % to 60.00 % of the profile (inclusive): +40.00 points, +200.00 %; the limit is 30 points \
                (--fail-above)";
    assert!(text(&failed.stderr).contains(grew), "{}", text(&failed.stderr));
    let by_self = profiles.diff(&["--no-normalize", "--fail-above", "38", "--by", "self"]);
    assert_eq!(by_self.status.code(), Some(0), "{}", text(&by_self.stderr));
    let passed = profiles.diff(&["--fail-above", "25%", "--json"]);
    assert_eq!(passed.status.code(), Some(0), "{}", text(&passed.stderr));
    let verdict: serde_json::Value = serde_json::from_slice(&passed.stdout).unwrap();
    assert_eq!(verdict["verdict"]["failed"], false);
    // The total is compared as recorded, although shares of functions are normalized.
    let total = profiles.diff(&["--fail-total", "38%", "--json"]);
    assert_eq!(total.status.code(), Some(3), "{}", text(&total.stderr));
    let message = "the total grew by +39.00 %; the limit is 38 % (--fail-total)";
    assert!(text(&total.stderr).contains(message), "{}", text(&total.stderr));
    assert_eq!(profiles.diff(&["--fail-total", "39%"]).status.code(), Some(0));
    // 20 % of 1,000 samples became 43 % of 1,390.
    let relative = profiles.diff(&["--fail-relative", "110%"]);
    assert_eq!(relative.status.code(), Some(3), "{}", text(&relative.stderr));
    assert!(text(&relative.stderr).contains("--fail-relative"), "{}", text(&relative.stderr));
    let relative = profiles.diff(&["--fail-relative", "130%"]);
    assert!(text(&relative.stderr).contains("2.88 %"), "{}", text(&relative.stderr));
    assert_eq!(profiles.diff(&["--fail-relative", "130%", "-X", "fresh"]).status.code(), Some(0));
    // A profile does not differ from itself, even with a limit of 0.
    let same = profiles.of("a.folded", "a.folded", &["--fail-above", "0"]);
    assert_eq!((same.status.code(), text(&same.stdout).contains("no functions changed")), (Some(0), true));
}

/// A server that did 575 times the work in the same time.
#[test]
fn per_option_scales_weights_by_work() {
    let profiles = Profiles::new();
    let headline =
        "1000 → 1390 samples, 50.00 → 0.1209 per unit of work (−99.76 %), the first scaled by 575.0000";
    let table = profiles.diff(&["--per", "20,11500", "-o", "d.html", "--fail-total", "0"]);
    assert_eq!(table.status.code(), Some(0), "{}", text(&table.stderr));
    assert!(text(&table.stdout).contains(headline), "{}", text(&table.stdout));
    assert!(profiles.read("d.html").contains(headline));
    assert!(profiles.diff(&["--per", "20,11500", "-o", "d.svg"]).status.success());
    assert!(profiles.read("d.svg").contains(headline));
    // The same samples for a tenth of the work.
    let slower = profiles.of("a.folded", "a.folded", &["--per", "100,10", "--fail-total", "10%"]);
    assert_eq!(slower.status.code(), Some(3), "{}", text(&slower.stderr));
    for wrong in ["20", "0,5", "1,x", "1,-2"] {
        assert_eq!(profiles.diff(&["--per", wrong]).status.code(), Some(2), "{wrong}");
    }
}

#[test]
fn diff_writes_table_and_differential_flame_graphs() {
    let profiles = Profiles::new();
    let table = text(&profiles.diff(&["--no-normalize"]).stdout);
    let line =
        |name: &str| table.lines().find(|line| line.ends_with(&format!("  {name}"))).unwrap().to_owned();
    assert!(line("parent").contains("20.00%   60.00%  +40.00%"), "{table}");
    assert!(table.contains("only before 5.00%, only after 4.00%"), "{table}");
    // The same amount is a smaller share of the larger whole.
    let shares = text(&profiles.diff(&["-I", "root"]).stdout);
    assert!(!shares.contains("gone") && shares.contains("950 → 1390 samples"), "{shares}");
    let pictures = [
        ("d.svg", "paths only in the first profile (70 samples"),
        ("d.html", "\"scale\":1.39"),
        ("d.folded", "root;parent;a 139 300"),
    ];
    for (name, has) in pictures {
        let done = profiles.diff(&["-o", name, "-X", "nothing", "--title", "T"]);
        assert!(done.status.success(), "{}", text(&done.stderr));
        let picture = profiles.read(name);
        assert!(picture.contains(has), "{name}: {picture}");
        assert!(text(&done.stdout).contains("inclusive"), "the table is there, too");
        assert_eq!(picture.contains("<script"), name != "d.folded");
    }
    assert!(profiles.diff(&["--format", "svg", "-o", "-"]).stdout.starts_with(b"<?xml"));
}

#[test]
fn incomparable_profiles_are_rejected_with_reason() {
    let fixture = |name: &str| -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/recordings").join(name)
    };
    let profiles = Profiles::new();
    let [cpu, wall] = ["ap-java-cpu.jfr", "ap-java-wall.jfr"].map(fixture);
    let told = |done: &Output, status: i32| {
        assert_eq!(done.status.code(), Some(status));
        text(&done.stderr)
    };
    let kinds = told(&profiles.of(cpu.to_str().unwrap(), wall.to_str().unwrap(), &[]), 1);
    assert!(kinds.contains("jdk.ExecutionSample") && kinds.contains("-e"), "{kinds}");
    let units = told(&profiles.of(cpu.to_str().unwrap(), "a.folded", &["--total"]), 1);
    assert!(units.contains(" ns") && units.contains(" samples"), "{units}");
    assert!(told(&profiles.of("-", "-", &[]), 2).contains("standard input"));
    assert!(told(&profiles.diff(&["-o", "a.folded"]), 2).contains("a.folded"));
    assert_eq!(profiles.diff(&["--fail-above", "x"]).status.code(), Some(2));
    let same = profiles.of(cpu.to_str().unwrap(), cpu.to_str().unwrap(), &["--total", "--fail-above", "0"]);
    assert_eq!(same.status.code(), Some(0), "{}", text(&same.stderr));
}
