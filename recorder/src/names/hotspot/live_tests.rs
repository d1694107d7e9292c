//! Reads real JVMs: the releases whose JDK is installed or named by `JAVA11_HOME` and the like.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use super::layout::HotspotLayout;
use super::memory::{ReadMemory, RemoteMemory};
use super::vm_structs::LibjvmSymbols;

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
fn java_homes() -> Vec<(u32, PathBuf)> {
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
struct Jvm {
    child: Child,
    output: BufReader<ChildStdout>,
    memory: RemoteMemory,
    layout: HotspotLayout,
}

impl Jvm {
    /// Starts the test program and waits until its first line of output.
    fn start(home: &Path, classes: &Path, options: &[&str]) -> Jvm {
        let mut command = Command::new(home.join("bin/java"));
        command.args(options).arg("-cp").arg(classes).arg("HotspotNames");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let memory = RemoteMemory { pid: child.id() };
        let layout = layout(child.id());
        Jvm { child, output, memory, layout }
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
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
fn compile(homes: &[(u32, PathBuf)]) -> Option<tempfile::TempDir> {
    let javac = homes.iter().map(|(_, home)| home.join("bin/javac")).find(|javac| javac.exists())?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/java/HotspotNames.java");
    let classes = tempfile::tempdir().unwrap();
    let mut command = Command::new(javac);
    command.args(["--release", "11", "-d"]).arg(classes.path()).arg(source);
    assert!(command.status().unwrap().success());
    Some(classes)
}

#[test]
fn layout_of_running_jvm_is_read() {
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
