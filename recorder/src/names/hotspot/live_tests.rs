//! Reads real JVMs: the releases whose JDK is installed or named by `JAVA11_HOME` and the like.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use jfr_format::schema::frame_type;

use super::code_blob::{BlobKind, all_blobs};
use super::layout::HotspotLayout;
use super::memory::{ReadMemory, RemoteMemory};
use super::vm_structs::LibjvmSymbols;
use super::{HotspotNames, JavaFrame, UnresolvedCounts};

/// Returns the JDK or JRE of a feature release, in the same places as the other tests.
fn java_home(release: u32) -> Option<PathBuf> {
    let named = std::env::var_os(format!("JAVA{release}_HOME")).map(PathBuf::from);
    let installed =
        std::fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten().map(|entry| entry.path());
    named.into_iter().chain(installed).find(|home| {
        let text = std::fs::read_to_string(home.join("release")).unwrap_or_default();
        let version = [format!("JAVA_VERSION=\"{release}."), format!("JAVA_VERSION=\"{release}\"")];
        home.join("bin/java").exists() && version.iter().any(|version| text.contains(version))
    })
}

/// Returns the homes of the releases to test. 17 and 25 are required in CI.
pub fn java_homes() -> Vec<(u32, PathBuf)> {
    let mut found = Vec::new();
    for release in [11, 17, 21, 25] {
        match java_home(release) {
            Some(home) => found.push((release, home)),
            None if release == 17 || release == 25 => {
                let skipping = std::env::var_os("FLIGHTLINE_NO_SKIP").is_none();
                assert!(skipping, "skipping is forbidden here: no JDK {release}");
                let _ = writeln!(std::io::stderr(), "\n*** SKIPPED: no JDK {release} here ***\n");
            }
            None => {}
        }
    }
    found
}

/// A running JVM. It ends when it is dropped.
pub struct Jvm {
    child: Child,
    output: BufReader<ChildStdout>,
    /// Its memory.
    pub memory: RemoteMemory,
    /// Its description.
    pub layout: HotspotLayout,
}

impl Jvm {
    /// Starts the test program and waits until it has compiled its methods.
    pub fn start(home: &Path, classes: &Path, options: &[&str]) -> Jvm {
        Jvm::start_with(home, classes, options, &[])
    }

    /// Starts the test program, which waits until [`Jvm::go_on`].
    pub fn start_waiting(home: &Path, classes: &Path, options: &[&str]) -> Jvm {
        Jvm::start_with(home, classes, options, &["wait"])
    }

    fn start_with(home: &Path, classes: &Path, options: &[&str], args: &[&str]) -> Jvm {
        let mut command = Command::new(home.join("bin/java"));
        command.args(options).arg("-cp").arg(classes).arg("HotspotNames").args(args);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, if args.is_empty() { "ready\n" } else { "waiting\n" });
        let memory = RemoteMemory { pid: child.id() };
        let layout = layout(child.id());
        Jvm { child, output, memory, layout }
    }

    /// Lets a waiting program go on, and waits until it has compiled its methods.
    pub fn go_on(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
    }
}

impl Jvm {
    /// Stops all threads, so that the code cache does not change.
    pub fn stop(&mut self) {
        self.signal("STOP");
        // The process is stopped when all threads are.
        while !std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap().contains(") T ") {
            std::thread::yield_now();
        }
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(status.unwrap().success());
    }

    /// Returns an address in a stub.
    fn call_stub(&self) -> u64 {
        self.memory.u64(self.layout.frame.call_stub_return_address).unwrap()
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        self.signal("CONT");
        // The program ends at the end of its input.
        drop(self.child.stdin.take());
        let _ = self.output.read_to_string(&mut String::new());
        let _ = self.child.wait();
    }
}

/// Reads the description of a running JVM.
fn layout(pid: u32) -> HotspotLayout {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let line = maps.lines().find(|line| line.ends_with("/libjvm.so")).unwrap();
    let start = u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
    let path = &line[line.find('/').unwrap()..];
    let symbols = LibjvmSymbols::read(Path::new(path)).unwrap();
    HotspotLayout::read(&RemoteMemory { pid }, &symbols, start).unwrap()
}

/// Compiles the test program for all tested releases.
pub fn compile(homes: &[(u32, PathBuf)]) -> Option<tempfile::TempDir> {
    let javac = homes.iter().map(|(_, home)| home.join("bin/javac")).find(|javac| javac.exists())?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/java/HotspotNames.java");
    let classes = tempfile::tempdir().unwrap();
    let mut command = Command::new(javac);
    command.args(["--release", "11", "-d"]).arg(classes.path()).arg(source);
    assert!(command.status().unwrap().success());
    Some(classes)
}

const SOURCE: &str = include_str!("../../../tests/java/HotspotNames.java");

/// Returns the number of the only line of the test program that contains a text.
fn line_with(text: &str) -> u32 {
    let mut lines = (1..).zip(SOURCE.lines()).filter(|(_, line)| line.contains(text));
    let (number, _) = lines.next().unwrap();
    assert_eq!(lines.next(), None);
    number
}

/// Returns `name:line` of each frame.
fn chain(frames: &[JavaFrame]) -> Vec<String> {
    frames.iter().map(|frame| format!("{}:{}", frame.method.name, frame.line)).collect()
}

/// Results of many lookups.
#[derive(Debug, Default)]
struct Resolved {
    nmethods: usize,
    natives: usize,
    lookups: usize,
    inlined: usize,
    with_line: usize,
    /// Number of lookups that returned the chain from `outer` to `leaf`.
    chains: usize,
}

/// Returns the addresses and sizes of the compiled methods of a class.
pub fn compiled_methods(jvm: &Jvm, names: &mut HotspotNames, class: &str) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    for address in all_blobs(&jvm.memory, &jvm.layout) {
        if let Ok(blob) = names.heaps.blob(&jvm.memory, &jvm.layout, address)
            && let Ok(nmethod) = names.heaps.nmethod(&jvm.memory, &jvm.layout, address)
            && names.method(&jvm.memory, nmethod.method).is_ok_and(|(_, method)| *method.class == *class)
        {
            found.push((address, blob.size));
        }
    }
    found
}

/// Resolves many addresses of all compiled methods.
fn resolve_all(jvm: &Jvm, names: &mut HotspotNames) -> Resolved {
    let memory = &jvm.memory;
    let mut found = Resolved::default();
    let expected = [("leaf", "x * 31 + table"), ("middle", "return leaf(x)"), ("outer", "sum += middle")];
    let expected = expected.map(|(name, text)| format!("{name}:{}", line_with(text)));
    for address in all_blobs(memory, &jvm.layout) {
        let Ok(blob) = names.heaps.blob(memory, &jvm.layout, address) else { continue };
        found.nmethods += usize::from(blob.kind == BlobKind::Nmethod);
        found.natives += usize::from(blob.kind == BlobKind::NativeNmethod);
        if !matches!(blob.kind, BlobKind::Nmethod | BlobKind::NativeNmethod) {
            continue;
        }
        let end = (blob.address + blob.size).min(blob.code_begin + 2000);
        let method = names.heaps.nmethod(memory, &jvm.layout, address).unwrap().method;
        let (_, method) = names.method(memory, method).unwrap();
        let step = if &*method.class == "HotspotNames" { 1 } else { 7 };
        for pc in (blob.code_begin + 8..end).step_by(step) {
            // The metadata and debug information of older releases follow the code in the blob.
            assert_eq!(names.blob(memory, pc).map(|blob| blob.address), Ok(address));
            let mut frames = Vec::new();
            names.compiled(memory, address, None, pc, pc % 2 == 0, &mut frames).unwrap();
            let kinds: Vec<_> = frames.iter().map(|frame| frame.kind).collect();
            match blob.kind {
                BlobKind::NativeNmethod => assert_eq!(kinds, [frame_type::NATIVE]),
                _ => assert_eq!(kinds.last(), Some(&frame_type::JIT_COMPILED)),
            }
            found.lookups += 1;
            found.inlined += usize::from(frames.len() > 1);
            found.with_line += usize::from(frames.iter().all(|frame| frame.line != 0));
            found.chains += usize::from(chain(&frames) == expected);
        }
    }
    found
}

#[test]
fn all_compiled_methods_are_resolved() {
    let homes = java_homes();
    let Some(classes) = compile(&homes) else { return };
    for (release, home) in &homes {
        for options in
            [&[][..], &["-XX:TieredStopAtLevel=1"], &["-XX:-TieredCompilation", "-XX:+UseSerialGC"]]
        {
            // Compiles before it goes on, with debug information for all instructions.
            let common = ["-Xbatch", "-XX:+UnlockDiagnosticVMOptions", "-XX:+DebugNonSafepoints"];
            let mut jvm = Jvm::start(home, classes.path(), &[&common, options].concat());
            jvm.stop();
            let mut names = HotspotNames::new(jvm.layout);
            let found = resolve_all(&jvm, &mut names);
            let counts = names.counts();
            eprintln!("{release} {options:?}: {found:?} {counts:?} {} bytes", names.bytes());
            assert_eq!((counts.unloaded, counts.unreadable), (0, 0));
            assert!(found.nmethods > 5 && found.natives > 0 && found.chains > 0);
            // The cached results are the same.
            let again = resolve_all(&jvm, &mut names);
            assert_eq!((again.inlined, again.chains), (found.inlined, found.chains));
            assert_eq!(
                names.blob_name(&jvm.memory, jvm.call_stub()).unwrap().split(' ').next(),
                Some("StubRoutines")
            );
        }
    }
}

/// Scans the stack of the thread that waits for input for frames of the interpreter.
fn interpreted_frames(jvm: &Jvm, names: &mut HotspotNames) -> Vec<JavaFrame> {
    let pid = jvm.memory.pid;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let end_of_stack = |sp: u64| {
        let ranges = maps.lines().filter_map(|line| line.split(' ').next()?.split_once('-'));
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
        ranges.map(|(start, end)| number(start)..number(end)).find(|range| range.contains(&sp)).unwrap().end
    };
    let mut found = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
        // Number, six arguments, stack pointer, program counter. read is 0.
        let call = std::fs::read_to_string(task.path().join("syscall")).unwrap_or_default();
        let words: Vec<&str> = call.split_whitespace().collect();
        let ["0", .., sp, _] = words[..] else {
            continue;
        };
        let sp = u64::from_str_radix(sp.trim_start_matches("0x"), 16).unwrap() & !7;
        let stack = jvm.memory.bytes(sp, ((end_of_stack(sp) - sp) as usize).min(256 << 10)).unwrap();
        let words: Vec<u64> =
            stack.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().unwrap())).collect();
        let frame = &jvm.layout.frame;
        let slot = |offset: i32| (i64::from(offset) / 8).unsigned_abs() as usize;
        for fp in 8..words.len() {
            let (method, bcp) =
                (words[fp - slot(frame.interpreted_method)], words[fp - slot(frame.interpreted_bcp)]);
            if let Ok(frame) = names.interpreted(&jvm.memory, method, bcp)
                && (frame.line != 0 || frame.kind == frame_type::NATIVE)
            {
                found.push(frame);
            }
        }
    }
    found
}

#[test]
fn interpreted_methods_are_resolved() {
    let homes = java_homes();
    let Some(classes) = compile(&homes) else { return };
    for (release, home) in &homes {
        let jvm = Jvm::start(home, classes.path(), &["-Xint"]);
        let mut names = HotspotNames::new(jvm.layout);
        // The program reaches the call soon after its output.
        let expected = format!("main:{}", line_with("while (System.in.read()"));
        let mut frames = Vec::new();
        for _ in 0..100 {
            frames = chain(&interpreted_frames(&jvm, &mut names));
            if frames.contains(&expected) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        assert!(frames.contains(&expected), "{release}: {frames:?}");
        assert!(frames.iter().any(|frame| frame.starts_with("readBytes")), "{release}: {frames:?}");
        assert_ne!(names.counts(), UnresolvedCounts::default(), "other words are no methods");
    }
}

#[test]
fn running_jvm_has_layout() {
    let homes = java_homes();
    let Some(classes) = compile(&homes) else { return };
    for (release, home) in &homes {
        let jvm = Jvm::start(home, classes.path(), &[]);
        let (layout, memory) = (&jvm.layout, &jvm.memory);
        assert_eq!(layout.version, *release);
        let low = memory.u64(layout.code_cache.low_bound).unwrap();
        let high = memory.u64(layout.code_cache.high_bound).unwrap();
        assert!(low < high && high - low <= 1 << 31, "{low:x} {high:x}");
        let call_stub = memory.u64(layout.frame.call_stub_return_address).unwrap();
        assert!((low..high).contains(&call_stub));
    }
}
