//! Compares names, lines and inlined functions with the output of binutils for the same addresses.

use std::{
    collections::BTreeMap,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use flightline_recorder::Symbolizer;

/// The oracle's frames of an address: function and line, innermost first; line 0 if it is unknown.
type Frames = Vec<(String, u32)>;

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs `addr2line -fia`, which prints a line with each address, then two lines for each frame.
fn addr2line(file: &Path, addresses: &[u64]) -> Vec<Frames> {
    let mut command = Command::new("addr2line");
    command.args(["-C", "-f", "-i", "-a", "-e"]).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("addr2line (binutils) is needed");
    let mut input = child.stdin.take().unwrap();
    let asked: String = addresses.iter().map(|a| format!("{a:#x}\n")).collect();
    let feeder = std::thread::spawn(move || input.write_all(asked.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut all: Vec<Frames> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            all.push(Vec::new());
            continue;
        }
        let place = lines.next().unwrap_or("??:?");
        let number = place.rsplit(':').next().unwrap_or("?").split(' ').next().unwrap_or("?");
        all.last_mut().unwrap().push((line.to_owned(), number.parse().unwrap_or(0)));
    }
    assert_eq!(all.len(), addresses.len());
    all
}

/// Returns evenly chosen addresses in functions of the file.
fn addresses(file: &Path, count: usize) -> Vec<u64> {
    let text = output(Command::new("nm").args(["-S", "--defined-only"]).arg(file));
    let mut functions: Vec<(u64, u64)> = text
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [start, size, "t" | "T" | "W" | "w", _] = words[..] else { return None };
            Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(size, 16).ok()?))
        })
        .filter(|(_, size)| *size > 8)
        .collect();
    functions.sort_unstable();
    functions.dedup();
    let all: u64 = functions.iter().map(|(_, size)| size).sum();
    let step = (all / count as u64).max(1) as usize;
    functions.iter().flat_map(|(start, size)| *start..start + size).step_by(step).collect()
}

/// Returns true if two demangled names mean the same function, compared by name without arguments, which
/// demanglers format differently.
fn alike(one: &str, other: &str) -> bool {
    let plain = |name: &str| {
        let name = name.split("[clone").next().unwrap_or("").replace("[abi:cxx11]", "");
        let end = name.find(['(', '<', '.']).filter(|end| *end > 0).unwrap_or(name.len());
        name[..end].trim().rsplit([' ', ':']).next().unwrap_or("").to_owned()
    };
    // cpp_demangle does not support expressions in template arguments (enable_if); such names remain mangled.
    one.starts_with("_Z") || plain(one) == plain(other)
}

/// Returns the percentage of addresses with identical results, among those for which the oracle knows a line.
fn agreement(file: &Path, symbolizer: &mut Symbolizer, addresses: &[u64]) -> (f64, usize) {
    let truth = addr2line(file, addresses);
    let (mut same, mut known, mut inlined, mut mangled) = (0, 0, 0, 0);
    for (&address, truth) in addresses.iter().zip(&truth) {
        if truth.first().is_none_or(|(_, line)| *line == 0) {
            continue;
        }
        known += 1;
        inlined += usize::from(truth.len() > 1);
        let frames = symbolizer.frames(file.to_str().unwrap(), "", address);
        let equal = frames.len() == truth.len()
            && frames.iter().zip(truth).all(|(f, t)| f.line == t.1 && alike(&f.name, &t.0));
        same += usize::from(equal);
        mangled += frames.iter().filter(|f| f.name.starts_with("_Z")).count();
        if !equal && known - same < 5 {
            eprintln!("{address:#x}: {frames:?}\n  addr2line: {truth:?}");
        }
    }
    let share = 100.0 * same as f64 / known.max(1) as f64;
    eprintln!(
        "{}: {same} of {known} addresses the same, {inlined} with inlining, {mangled} names not demangled",
        file.display()
    );
    assert!(known > 50, "{known} addresses with lines");
    (share, inlined)
}

/// Returns true if a tool is installed. Otherwise prints a message directly, because the test runner captures
/// output; in CI, a missing tool is a failure.
fn is_here(tool: &str) -> bool {
    let here = Command::new(tool).arg("--version").output().is_ok();
    if !here {
        assert!(std::env::var_os("FLIGHTLINE_NO_SKIP").is_none(), "skipping is forbidden here: no {tool}");
        let _ = writeln!(std::io::stderr(), "\n*** SKIPPED: no {tool} here ***\n");
    }
    here
}

fn compile(dir: &Path, compiler: &str, flags: &[&str], name: &str, text: &str) -> PathBuf {
    let (source, program) = (dir.join(name), dir.join(format!("{name}.out")));
    std::fs::write(&source, text).unwrap();
    output(Command::new(compiler).args(flags).arg(&source).arg("-o").arg(&program));
    program
}

const CPP: &str = r#"
#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>
namespace shop {
template <typename T> struct Box { T value; T get() const { return value; } };
static inline int priced(const Box<int> &b) { return b.get() * 3; }
__attribute__((noinline)) int total(const std::vector<Box<int>> &boxes) {
    int sum = 0;
    for (const auto &b : boxes) sum += priced(b);
    return sum;
}
__attribute__((noinline)) std::string joined(const std::map<std::string, int> &all) {
    std::string out;
    for (const auto &[name, n] : all) out += name + std::to_string(n);
    std::sort(out.begin(), out.end());
    return out;
}
}
int main(int argc, char **argv) {
    std::vector<shop::Box<int>> boxes(100, shop::Box<int>{argc});
    std::map<std::string, int> all{{argv[0], 1}, {"b", 2}};
    printf("%d %s\n", shop::total(boxes), shop::joined(all).c_str());
}
"#;

#[test]
fn cpp_frames_match_addr2line_for_each_debug_format() {
    if !is_here("g++") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for flags in [&["-O2", "-g"][..], &["-O2", "-gdwarf-4", "-gz=zlib"], &["-O1", "-gdwarf-5"]] {
        let program = compile(dir.path(), "g++", flags, "shop.cpp", CPP);
        let mut symbolizer = Symbolizer::new(&[], &[]);
        let (share, inlined) = agreement(&program, &mut symbolizer, &addresses(&program, 400));
        assert!(share >= 97.0 && inlined > 20, "{flags:?}: {share:.1} %, {inlined} inlined");
    }
}

const RUST: &str = r#"
use std::collections::{BTreeMap, HashMap};
fn main() {
    let mut names: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for i in 0..1000u64 { names.entry(format!("{:x}", i % 97)).or_default().push(i * i); }
    let sums: HashMap<&str, u64> = names.iter().map(|(name, all)| (name.as_str(), all.iter().sum())).collect();
    let mut sorted: Vec<_> = sums.into_iter().collect();
    sorted.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    let top = sorted[0].1;
    println!("{:?}", std::thread::spawn(move || top.to_string()).join().unwrap().parse::<f64>());
}
"#;

/// Tests a Rust program, with the units of its standard library. It is not optimized, because binutils gives
/// inlined functions of optimized Rust the names of their callers.
#[test]
fn rust_and_std_frames_match_addr2line() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "rustc", &["--edition=2024", "-g"], "names.rs", RUST);
    let (share, inlined) = agreement(&program, &mut Symbolizer::new(&[], &[]), &addresses(&program, 1500));
    assert!(share >= 97.0 && inlined > 20, "{share:.1} %, {inlined} inlined");
}

/// Tests dwz, which moves the common parts of several debug files into another file.
#[test]
fn frames_from_dwz_debug_files_match_addr2line() {
    if !(is_here("dwz") && is_here("g++")) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    let flags = ["-O2", "-gdwarf-4"];
    std::fs::rename(compile(dir.path(), "g++", &flags, "one.cpp", CPP), &one).unwrap();
    std::fs::rename(compile(dir.path(), "g++", &flags, "two.cpp", CPP), &two).unwrap();
    let asked = addresses(&one, 400);
    let truth = addr2line(&one, &asked);
    let common = dir.path().join("common.dwz");
    output(Command::new("dwz").arg("-m").arg(&common).args(["-M", "common.dwz"]).arg(&one).arg(&two));
    assert!(common.is_file(), "dwz found nothing in common");
    let mut symbolizer = Symbolizer::new(&[], &[]);
    let (mut same, mut inlined) = (0, 0);
    for (&address, truth) in asked.iter().zip(&truth) {
        let frames = symbolizer.frames(one.to_str().unwrap(), "", address);
        let lines = |f: &Frames| f.iter().map(|(_, line)| *line).collect::<Vec<_>>();
        let known = truth.first().is_some_and(|(_, line)| *line > 0);
        let equal =
            frames.iter().map(|f| f.line).eq(lines(truth)) && frames.iter().all(|f| !f.name.is_empty());
        inlined += usize::from(known && equal && frames.len() > 1);
        same += usize::from(!known || equal);
    }
    eprintln!("dwz: {same} of {} the same, {inlined} inlined", asked.len());
    assert!(same * 100 >= asked.len() * 97 && inlined > 20);
}

/// Tests `.gnu_debugdata`: the compressed symbols in a stripped program.
#[test]
fn gnu_debugdata_symbols_are_read() {
    if Command::new("xz").arg("--version").output().is_err() {
        return eprintln!("\n*** NOT TESTED: no xz here ***\n");
    }
    let dir = tempfile::tempdir().unwrap();
    let text = "#include <stdio.h>\nstatic __attribute__((noinline)) int hidden_worker(int x) { return printf(\"%d\", x); }\n\
                int main(int argc, char **argv) { return hidden_worker(argc) - hidden_worker(2); }\n";
    let whole = compile(dir.path(), "gcc", &["-O2"], "mini.c", text);
    let symbols = output(Command::new("nm").arg(&whole));
    let line = symbols.lines().find(|l| l.ends_with(" hidden_worker")).unwrap();
    let address = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
    let (debug, stripped) = (dir.path().join("mini.debug"), dir.path().join("mini"));
    output(Command::new("objcopy").arg("--only-keep-debug").arg(&whole).arg(&debug));
    output(Command::new("xz").arg("-k").arg(&debug));
    let mut section = std::ffi::OsString::from(".gnu_debugdata=");
    section.push(debug.with_extension("debug.xz"));
    let strip = |add: bool| {
        let mut command = Command::new("objcopy");
        command.arg("--strip-all");
        if add {
            command.arg("--add-section").arg(&section);
        }
        output(command.arg(&whole).arg(&stripped));
        Symbolizer::new(&[], &[]).frames(stripped.to_str().unwrap(), "", address + 2)
    };
    assert!(strip(false).iter().all(|f| &*f.name != "hidden_worker"));
    assert_eq!(&*strip(true).last().expect("a name").name, "hidden_worker");
}

/// Tests the names of PLT stubs against objdump.
#[test]
fn plt_stub_names_match_objdump() {
    if !is_here("g++") {
        return;
    }
    if !cfg!(target_arch = "x86_64") {
        return eprintln!("\n*** NOT TESTED: names of stubs are read on x86-64 only ***\n");
    }
    let dir = tempfile::tempdir().unwrap();
    let mut kinds = 0;
    for flags in [&["-O1"][..], &["-O1", "-fcf-protection=full", "-Wl,-z,ibtplt"], &["-O1", "-Wl,-z,now"]] {
        let program = compile(dir.path(), "g++", flags, "shop.cpp", CPP);
        output(Command::new("strip").arg(&program));
        let text = output(
            Command::new("objdump")
                .args(["-d", "-j", ".plt", "-j", ".plt.sec", "-j", ".plt.got"])
                .arg(&program),
        );
        let stubs: BTreeMap<u64, String> = text
            .lines()
            .filter_map(|l| {
                let (address, name) = l.strip_suffix("@plt>:")?.split_once(" <")?;
                Some((u64::from_str_radix(address, 16).ok()?, name.to_owned()))
            })
            .collect();
        let mut symbolizer = Symbolizer::new(&[], &[]);
        let mut named = 0;
        for (address, name) in &stubs {
            let plain = name.split('@').next().unwrap();
            for at in [*address, address + 5] {
                let frames = symbolizer.frames(program.to_str().unwrap(), "", at);
                let found = frames.last().map_or("", |f| &f.name);
                let demangled =
                    plain.starts_with("_Z") && (found.contains("std::") || found.starts_with("operator "));
                if found.ends_with("@plt") && (found == format!("{plain}@plt") || demangled) {
                    named += 1;
                } else {
                    eprintln!("{flags:?}: {at:#x} {name}: {found:?}");
                }
            }
        }
        eprintln!("{flags:?}: {named} of {} places in stubs", 2 * stubs.len());
        assert!(stubs.len() >= 5 && named == 2 * stubs.len(), "{flags:?}");
        kinds += 1;
    }
    assert_eq!(kinds, 3);
}

/// Tests that a replaced file is not used, but its debug file is found by build id.
#[test]
fn debug_files_are_matched_by_build_id() {
    if !is_here("g++") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "g++", &["-O2", "-g", "-Wl,--build-id"], "shop.cpp", CPP);
    let notes = output(Command::new("readelf").arg("-n").arg(&program));
    let id = notes.lines().find_map(|l| l.trim().strip_prefix("Build ID: ")).unwrap().to_owned();
    let address = addresses(&program, 100)[3];
    let path = program.to_str().unwrap();
    let whole = Symbolizer::new(&[], &[]).frames(path, &id, address);
    assert!(!whole.is_empty());
    let mut other = Symbolizer::new(&[], &[]);
    assert!(other.frames(path, "00112233445566778899aabbccddeeff00112233", address).is_empty());
    assert_eq!(other.missing().len(), 1);
    let elsewhere = dir.path().join("moved");
    std::fs::rename(&program, &elsewhere).unwrap();
    assert!(Symbolizer::new(&[], &[]).frames(path, &id, address).is_empty());
    assert_eq!(Symbolizer::new(&[], std::slice::from_ref(&elsewhere)).frames(path, &id, address), whole);
    let debug = dir.path().join("debug");
    let place = debug.join(".build-id").join(&id[..2]);
    std::fs::create_dir_all(&place).unwrap();
    output(
        Command::new("objcopy")
            .arg("--only-keep-debug")
            .arg(&elsewhere)
            .arg(place.join(format!("{}.debug", &id[2..]))),
    );
    assert_eq!(Symbolizer::new(&[debug], &[]).frames(path, &id, address), whole);
}

const GO: &str = "package main\n\nimport \"fmt\"\nCGO\ntype shop[T any] struct{ items []T }\n\n\
    //go:noinline\nfunc (s *shop[T]) Add(x T) { s.items = append(s.items, x) }\n\n\
    //go:noinline\nfunc work(n int) (s int) {\n\tfor i := range n {\n\t\ts = s*31 + i\n\t}\n\treturn\n}\n\n\
    func main() {\n\ts := &shop[string]{}\n\ts.Add(\"a\")\n\tfmt.Println(func() int { return work(len(s.items)) }())\n}\n";

/// Tests stripped Go programs, which retain a table of their functions: without C, with C, and
/// position-independent.
#[test]
fn stripped_go_programs_are_symbolized() {
    if Command::new("go").arg("version").output().is_err() {
        return eprintln!("\n*** NOT TESTED: no go here ***\n");
    }
    let with_c = "\n// static int seven(void) { return 7; }\nimport \"C\"\n\nvar seven = C.seven()\n";
    for (c, flags) in
        [("", &[][..]), (with_c, &["-ldflags=-linkmode=external"]), (with_c, &["-buildmode=pie"])]
    {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("main.go"), GO.replace("CGO\n", c)).unwrap();
        std::fs::write(dir.path().join("go.mod"), "module victim\n\ngo 1.22\n").unwrap();
        let program = dir.path().join("victim");
        let mut build = Command::new("go");
        build.args(["build", "-o"]).arg(&program).args(flags).current_dir(dir.path());
        output(build.env("GOFLAGS", "-mod=mod").env("GOTOOLCHAIN", "local").env("CGO_ENABLED", "1"));
        let symbols = output(Command::new("nm").arg(&program));
        output(Command::new("strip").arg(&program));
        let mut symbolizer = Symbolizer::new(&[], &[]);
        let (mut same, mut all) = (0, 0);
        for line in symbols.lines() {
            let mut words = line.splitn(3, ' ');
            let (Some(address), Some("t" | "T"), Some(name)) = (words.next(), words.next(), words.next())
            else {
                continue;
            };
            if !name.starts_with("main.") && !name.starts_with("fmt.") && !name.starts_with("strconv.") {
                continue;
            }
            let address = u64::from_str_radix(address, 16).unwrap();
            let frames = symbolizer.frames(program.to_str().unwrap(), "", address + 1);
            let found = frames.last().map_or("", |f| &f.name);
            // The table has [...] for type arguments, and no suffix for the calling convention.
            let plain = |name: &str| {
                let name = name.strip_suffix(".abi0").unwrap_or(name);
                match (name.find('['), name.rfind(']')) {
                    (Some(open), Some(close)) => format!("{}[...{}", &name[..open], &name[close..]),
                    _ => name.to_owned(),
                }
            };
            all += 1;
            if plain(found) == plain(name) {
                same += 1;
            } else if all - same < 5 {
                eprintln!("{flags:?}: {address:#x} {name}: {found:?}");
            }
        }
        eprintln!("go {flags:?}: {same} of {all} functions named");
        assert!(all > 40 && same * 100 >= all * 99, "{flags:?}: {same} of {all}");
    }
}

/// Tests that debug information with random byte changes neither crashes the reader nor makes it loop.
#[test]
fn damaged_debug_information_neither_crashes_nor_hangs() {
    if !is_here("g++") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "g++", &["-O2", "-g"], "shop.cpp", CPP);
    let asked = addresses(&program, 60);
    let whole = std::fs::read(&program).unwrap();
    let sections = output(Command::new("readelf").args(["-S", "-W"]).arg(&program));
    let ranges: Vec<(usize, usize)> = sections
        .lines()
        .filter_map(|l| l.split_once(".debug_")?.1.split_once("PROGBITS"))
        .map(|(_, rest)| {
            let words: Vec<usize> =
                rest.split_whitespace().take(3).map(|w| usize::from_str_radix(w, 16).unwrap()).collect();
            (words[1], words[2])
        })
        .collect();
    assert!(ranges.len() >= 5, "{sections}");
    let damaged = dir.path().join("damaged");
    let mut random = 0x2545_f491_4f6c_dd1du64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random as usize % below.max(1)
    };
    let (mut answered, mut other) = (0, 0);
    let truth = Symbolizer::new(&[], &[]).frames(program.to_str().unwrap(), "", asked[20]);
    for _ in 0..300 {
        let mut bytes = whole.clone();
        for _ in 0..1 + next(30) {
            let (at, size) = ranges[next(ranges.len())];
            bytes[at + next(size)] = next(256) as u8;
        }
        std::fs::write(&damaged, bytes).unwrap();
        let mut symbolizer = Symbolizer::new(&[], &[]);
        for &address in &asked {
            let frames = symbolizer.frames(damaged.to_str().unwrap(), "", address);
            assert!(frames.len() <= 64);
            answered += usize::from(!frames.is_empty());
        }
        other += usize::from(symbolizer.frames(damaged.to_str().unwrap(), "", asked[20]) != truth);
    }
    eprintln!("{answered} answers of {}, {other} of 300 files read otherwise", 300 * asked.len());
    assert!(other > 0, "the damage was seen");
}
