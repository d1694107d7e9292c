//! `flightline annotate`: source lines and instructions with their samples.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::convert::{flightline, recording, stdout};

/// Two loops, one with three times the work of the other.
const C: &str = "\
static volatile unsigned long sink; /* far away */
/* Each step waits for the one before, so that all take the same time. */
#define STEP(x) (x) *= 2654435761u; __asm__ volatile(\"\" : \"+r\"(x))
/*
 */
__attribute__((noinline)) static void spin(unsigned long n) {
    unsigned long x = n;
    for (unsigned long i = 0; i < 3 * n; i++) { STEP(x); } /* heavy */
    for (unsigned long i = 0; i < n; i++) { STEP(x); } /* light */
    sink = x;
}
int main(void) {
    for (int i = 0; i < 100; i++)
        spin(2000000); /* call */
    return 0;
}
";

const RUST: &str = "\
mod engine {
    #[inline(never)]
    pub fn churn<T: Into<u64> + Copy>(of: T) -> u64 {
        let mut sum = 0u64;
        for i in 0..400_000_000u64 {
            sum = std::hint::black_box(sum ^ i.wrapping_mul(of.into())); // hot
        }
        sum
    }
}
fn main() {
    std::hint::black_box(engine::churn(7u32)); // call
}
";

/// Source and executable of a program in a temporary folder.
pub struct Compiled {
    pub folder: TempDir,
    source: PathBuf,
    pub program: PathBuf,
}

/// A program and its recording.
pub struct Recorded {
    folder: TempDir,
    source: PathBuf,
    program: PathBuf,
    pub recording: String,
}

/// Compiles a program of one file by a command line such as `cc -O2`.
pub fn compile(name: &str, text: &str, compiler: &[&str]) -> Compiled {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("src")).unwrap();
    let source = folder.path().join("src").join(name);
    fs::write(&source, text).unwrap();
    let program = folder.path().join("prog");
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]).arg(&source).arg("-o").arg(&program);
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Compiled { folder, source, program }
}

/// Compiles a program and records it to its end.
pub fn record(name: &str, text: &str, compiler: &[&str], options: &[&str]) -> Recorded {
    let Compiled { folder, source, program } = compile(name, text, compiler);
    let recording = folder.path().join("run.jfr").to_str().unwrap().to_owned();
    let mut args = vec!["record", "-F", "500", "-o", &recording];
    args.extend(options);
    args.extend(["--", program.to_str().unwrap()]);
    stdout(&args);
    Recorded { folder, source, program, recording }
}

impl Recorded {
    fn c(options: &[&str]) -> Self {
        record("spin.c", C, &["cc", "-g", "-O1"], options)
    }

    /// Returns the number of the line that contains the mark.
    fn line(text: &str, mark: &str) -> u64 {
        text.lines().position(|line| line.contains(mark)).unwrap() as u64 + 1
    }

    fn json(&self, args: &[&str]) -> Value {
        json(&[&["annotate", "--json"], args, &[self.recording.as_str()]].concat())
    }

    fn error(&self, args: &[&str]) -> String {
        error(&[&["annotate"], args, &[self.recording.as_str()]].concat())
    }
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&stdout(args)).unwrap()
}

/// Returns the message of a command that fails.
fn error(args: &[&str]) -> String {
    let done = flightline(args);
    assert_eq!(done.status.code(), Some(1), "{args:?}");
    assert!(done.stdout.is_empty(), "{args:?}");
    String::from_utf8(done.stderr).unwrap()
}

/// Total and self by line.
fn lines(function: &Value) -> BTreeMap<u64, (u64, u64)> {
    let number = |line: &Value, key: &str| line[key].as_u64().unwrap();
    let of = |line: &Value| (number(line, "line"), (number(line, "total"), number(line, "self")));
    function["lines"].as_array().unwrap().iter().map(of).collect()
}

#[track_caller]
fn assert_share(part: u64, all: u64, percent: std::ops::RangeInclusive<f64>) {
    let share = 100.0 * part as f64 / all as f64;
    assert!(percent.contains(&share), "{part} of {all} is {share:.1} %, not {percent:?}");
}

#[test]
fn c_source_lines_have_expected_shares() {
    let recorded = Recorded::c(&[]);
    let report = recorded.json(&["spin"]);
    assert_eq!(report["unit"], "samples");
    assert_eq!(report["events"], serde_json::json!(["jdk.ExecutionSample"]));
    let [spin] = &report["functions"].as_array().unwrap()[..] else { panic!("{report}") };
    assert_eq!((&spin["name"], &spin["library"]), (&"spin".into(), &"prog".into()));
    assert_eq!(spin["path"].as_str().unwrap(), recorded.program.to_str().unwrap());
    assert_eq!(spin["source"].as_str().unwrap(), recorded.source.to_str().unwrap());
    assert_eq!(spin["definitions"][0]["line"].as_u64().unwrap(), Recorded::line(C, "spin(unsigned long n)"));
    let total = spin["total"].as_u64().unwrap();
    assert_share(total, report["total"].as_u64().unwrap(), 90.0..=100.0);
    let lines = lines(spin);
    let [heavy, light] = ["heavy", "light"].map(|mark| lines[&Recorded::line(C, mark)]);
    assert_share(heavy.0, total, 65.0..=85.0);
    assert_share(light.0, total, 15.0..=35.0);
    assert_share(heavy.0 + light.0, total, 98.0..=100.0);
    // Interrupts of the kernel take a part.
    assert_share(heavy.1 + light.1, total, 80.0..=100.0);
    let text = spin["lines"]
        .as_array()
        .unwrap()
        .iter()
        .find(|line| line["line"] == Recorded::line(C, "heavy"))
        .unwrap();
    assert!(C.lines().any(|line| text["text"] == line), "{text}");

    // A caller's line has a total weight but no self weight.
    let main = &recorded.json(&["main"])["functions"][0];
    let call = self::lines(main)[&Recorded::line(C, "call")];
    assert_share(call.0, main["total"].as_u64().unwrap(), 98.0..=100.0);
    assert_share(call.1, call.0, 0.0..=2.0);

    // The same in the terminal; with --total in ns, where a sample is 2 ms.
    let text = stdout(&["annotate", "spin", &recorded.recording]);
    let row = text.lines().find(|line| line.contains("/* heavy */")).unwrap();
    let words: Vec<&str> = row.split_whitespace().collect();
    let share = format!("{:.1}", 100.0 * heavy.0 as f64 / total as f64);
    assert_eq!(words[..3], [&*heavy.0.to_string(), &*share, "%"], "{row}");
    assert_eq!(words[6..9], [&*Recorded::line(C, "heavy").to_string(), "for", "(unsigned"], "{row}");
    assert!(text.contains("static void spin(unsigned long n) {"), "the lines around are shown: {text}");
    assert!(!text.contains("far away"), "lines far away are not: {text}");
    let timed = recorded.json(&["spin", "--total"]);
    assert_eq!(timed["unit"], "ns");
    assert_eq!(timed["functions"][0]["total"].as_u64().unwrap(), total * 2_000_000);
}

#[test]
fn lines_are_shown_with_or_without_source_path() {
    let recorded = Recorded::c(&[]);
    let elsewhere = recorded.folder.path().join("elsewhere/src");
    fs::create_dir_all(&elsewhere).unwrap();
    fs::rename(&recorded.source, elsewhere.join("spin.c")).unwrap();
    let without = recorded.json(&["spin"]);
    let function = &without["functions"][0];
    assert_eq!(function["source"], Value::Null);
    assert!(lines(function).contains_key(&Recorded::line(C, "heavy")), "{function}");
    let text = stdout(&["annotate", "spin", &recorded.recording]);
    assert!(text.contains("spin.c: ") && text.contains("--source-path"), "{text}");
    let dir = elsewhere.parent().unwrap().to_str().unwrap();
    let with = recorded.json(&["spin", "--source-path", dir]);
    assert_eq!(with["functions"][0]["source"].as_str().unwrap(), elsewhere.join("spin.c").to_str().unwrap());
    assert_eq!(lines(&with["functions"][0]), lines(function));
    assert!(recorded.error(&["spin", "--source-path", "/nowhere"]).contains("--source-path /nowhere"));
}

#[test]
fn rust_functions_are_found_by_short_and_by_full_names() {
    let recorded = record("engine.rs", RUST, &["rustc", "-g", "-O"], &[]);
    let report = recorded.json(&["churn"]);
    let function = &report["functions"][0];
    let name = function["name"].as_str().unwrap();
    assert!(name.contains("engine::churn"), "{name}");
    assert_eq!(recorded.json(&[name])["functions"][0], *function);
    assert_eq!(recorded.json(&[&format!("prog`{name}")])["functions"][0], *function);
    let total = function["total"].as_u64().unwrap();
    assert_share(total, report["total"].as_u64().unwrap(), 90.0..=100.0);
    assert_eq!(function["definitions"][0]["line"].as_u64().unwrap(), 3, "{function}");
    let lines = lines(function);
    let around: u64 = lines.iter().filter(|(line, _)| (5..=7).contains(*line)).map(|(_, of)| of.0).sum();
    assert!(around >= total * 9 / 10, "{function}");

    let message = recorded.error(&["chrun"]);
    assert!(message.contains("chrun"), "{message}");
    assert!(message.contains(name), "{message}");
    assert!(recorded.error(&["other.so`churn"]).contains("other.so`churn"));
}

#[test]
fn instruction_samples_match_recorded_addresses() {
    let recorded = Recorded::c(&["--addresses"]);
    let report = recorded.json(&["spin", "--asm"]);
    let function = &report["functions"][0];
    let total = function["total"].as_u64().unwrap();
    let machine = &function["machine"];
    assert_eq!(machine["elsewhere"], 0, "{machine}");
    let instructions = machine["instructions"].as_array().unwrap();
    let sum = |key: &str| instructions.iter().map(|one| one[key].as_u64().unwrap()).sum::<u64>();
    assert_eq!((sum("self"), sum("total")), (function["self"].as_u64().unwrap(), total));
    let addresses: Vec<u64> = instructions
        .iter()
        .map(|one| u64::from_str_radix(one["address"].as_str().unwrap(), 16).unwrap())
        .collect();
    assert!(addresses.len() > 5 && addresses.is_sorted(), "{addresses:x?}");
    // Lines now come from the debug information and agree with those of the instructions.
    let by_line = |line: u64| {
        let of = instructions.iter().filter(|one| one["line"] == line);
        of.map(|one| one["self"].as_u64().unwrap()).sum::<u64>()
    };
    let lines = lines(function);
    let [heavy, light] = ["heavy", "light"].map(|mark| Recorded::line(C, mark));
    for line in [heavy, light] {
        assert_eq!(by_line(line), lines[&line].1, "line {line}: {function}");
    }
    assert_share(lines[&heavy].1, total, 65.0..=85.0);
    // A caller's samples are at its call instruction.
    let main = &recorded.json(&["main", "--asm"])["functions"][0];
    let instructions = main["machine"]["instructions"].as_array().unwrap();
    let most = instructions.iter().max_by_key(|one| one["total"].as_u64()).unwrap();
    assert!(most["text"].as_str().unwrap().contains("spin"), "{most}");
    let text = stdout(&["annotate", "spin", "--asm", &recorded.recording]);
    assert!(text.contains("ADDRESS  INSTRUCTION") && text.contains(&format!("# line {heavy}")), "{text}");
    // `symbolize` adds the same lines to the recording.
    let named = recorded.folder.path().join("named.jfr");
    stdout(&["symbolize", &recorded.recording, "-o", named.to_str().unwrap()]);
    let named = json(&["annotate", "--json", "spin", named.to_str().unwrap()]);
    assert_eq!(self::lines(&named["functions"][0]), lines);
}

#[test]
fn missing_lines_and_addresses_are_reported_with_remedy() {
    let recorded = Recorded::c(&[]);
    let message = recorded.error(&["spin", "--asm"]);
    assert!(message.contains("spin") && message.contains("record --addresses"), "{message}");
    let bare = record("spin.c", C, &["cc", "-O1"], &[]);
    let message = bare.error(&["spin"]);
    assert!(message.contains("spin: "), "{message}");
    assert!(message.contains("-g"), "{message}");
    // Without debug information, addresses are always recorded.
    let machine = &bare.json(&["spin", "--asm"])["functions"][0]["machine"];
    assert!(machine["instructions"].as_array().unwrap().iter().any(|one| one["self"].as_u64() > Some(0)));
    fs::remove_file(&bare.program).unwrap();
    let message = bare.error(&["spin", "--asm"]);
    assert!(message.contains("--file"), "{message}");
    let aggregated = Recorded::c(&["--aggregate", "1s"]);
    let message = aggregated.error(&["spin"]);
    assert!(message.contains("--aggregate-lines"), "{message}");
    let refused =
        flightline(&["record", "--addresses", "--aggregate", "1s", "-o", "/dev/null", "--", "true"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--aggregate-lines"));
}

#[test]
fn java_line_weights_match_folded_stacks() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/src");
    let sources = sources.to_str().unwrap();
    let text = fs::read_to_string(Path::new(sources).join("Work.java")).unwrap();
    for name in ["jdk17.jfr", "jdk25.jfr", "ap-java-cpu.jfr"] {
        let file = recording(name);
        for function in ["fib", "files"] {
            // Total and self by line, from stacks that may contain a method's line several times.
            let mut expected: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
            for line in stdout(&["fold", "--lines", &file]).lines() {
                let (stack, weight) = line.rsplit_once(' ').unwrap();
                let weight: u64 = weight.parse().unwrap();
                let prefix = format!("Work.{function}:");
                let of = |frame: &str| frame.strip_prefix(&prefix).map(|line| line.parse::<u64>().unwrap());
                for line in stack.split(';').filter_map(of).collect::<BTreeSet<_>>() {
                    expected.entry(line).or_default().0 += weight;
                }
                if let Some(line) = stack.rsplit(';').next().and_then(of) {
                    expected.entry(line).or_default().1 += weight;
                }
            }
            assert!(!expected.is_empty(), "{name}");
            let report =
                json(&["annotate", "--json", &format!("Work.{function}"), &file, "--source-path", sources]);
            let [found] = &report["functions"].as_array().unwrap()[..] else { panic!("{report}") };
            assert_eq!(lines(found), expected, "{name}: {function}");
            assert_eq!((&found["class"], &found["library"]), (&"Work".into(), &Value::Null));
            for line in found["lines"].as_array().unwrap() {
                let number = line["line"].as_u64().unwrap() as usize;
                assert_eq!(line["text"].as_str().unwrap(), text.lines().nth(number - 1).unwrap().trim_end());
            }
            let short = json(&["annotate", "--json", function, &file]);
            let of = |function: &&Value| function["class"] == "Work";
            let found = short["functions"].as_array().unwrap().iter().find(of).unwrap();
            assert_eq!(lines(found), expected, "{name}: {function}");
            assert_eq!(found["source"], Value::Null);
        }
    }
    let text = stdout(&["annotate", "Work.fib", &recording("jdk25.jfr")]);
    assert!(text.contains("Work: ") && text.contains("--source-path"), "{text}");
    assert!(error(&["annotate", "Work.fbi", &recording("jdk25.jfr")]).contains("Work.fib"));
}

#[test]
fn bytes_are_shown_for_allocations() {
    let report = json(&["annotate", "--json", "-e", "alloc", "Work.allocate", &recording("jdk17.jfr")]);
    assert_eq!(report["unit"], "bytes");
    let total: u64 =
        stdout(&["fold", "-e", "alloc", "--total", "-I", r"Work\.allocate", &recording("jdk17.jfr")])
            .lines()
            .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
            .sum();
    assert_eq!(report["functions"][0]["total"].as_u64().unwrap(), total);
    // Filters select the same samples as in other commands.
    let some = ["annotate", "--json", "-e", "alloc", "Work.allocate", &recording("jdk17.jfr"), "-X", "Work"];
    assert!(error(&some).contains("jdk.ObjectAllocation"));
}

#[test]
fn inputs_that_are_not_recordings_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.txt");
    fs::write(&file, "a;b 1\n").unwrap();
    let message = error(&["annotate", "b", file.to_str().unwrap()]);
    assert!(message.contains("x.txt"), "{message}");
}

#[test]
fn functions_with_same_name_are_annotated_or_listed() {
    let file = recording("jdk17.jfr");
    let message = error(&["annotate", "run", &file]);
    assert!(message.contains("LIBRARY`FUNCTION"), "{message}");
    assert!(message.contains(" java.lang.Thread.run,"), "{message}");
    let one = json(&["annotate", "--json", "java.lang.Thread.run", &file]);
    assert_eq!(one["functions"].as_array().unwrap().len(), 1);
    // The heaviest function is first; each has the samples of its own stacks.
    let file = recording("jdk25.jfr");
    let several = json(&["annotate", "--json", "write", &file]);
    let several = several["functions"].as_array().unwrap();
    assert!((2..=8).contains(&several.len()));
    let totals: Vec<u64> = several.iter().map(|function| function["total"].as_u64().unwrap()).collect();
    assert!(totals.iter().rev().is_sorted(), "{totals:?}");
    let folded = stdout(&["fold", &file]);
    for (function, total) in several.iter().zip(totals) {
        let name = function["name"].as_str().unwrap();
        assert!(name.ends_with(".write"), "{name}");
        let of = |line: &&str| line.rsplit_once(' ').unwrap().0.split(';').any(|frame| frame == name);
        let sum: u64 = folded
            .lines()
            .filter(of)
            .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
            .sum();
        assert_eq!(total, sum, "{name}");
    }
    let text = stdout(&["annotate", "write", &file]);
    assert_eq!(text.lines().filter(|line| line.trim_start().starts_with("TOTAL ")).count(), several.len());
}
