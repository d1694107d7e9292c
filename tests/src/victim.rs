//! Builds the test programs with the system's compilers, once per source, flags and change.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::run::run;

/// Statically linked: no library can be preloaded into it.
pub const STATIC: &[&str] = &["-O2", "-fomit-frame-pointer", "-static"];
/// Optimised, without frame pointers: the flags of distributions.
pub const OPTIMISED: &[&str] = &["-O2", "-fomit-frame-pointer"];
/// With frame pointers.
pub const FRAME_POINTERS: &[&str] = &["-O2", "-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer"];

/// The folder of the test programs' sources.
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("victims")
}

/// Cargo's target folder, found from the path of this test.
pub fn target_dir() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    // target/<profile>/deps/<test>, target/<profile>/<program>
    let profile = exe.ancestors().skip(1).find(|dir| !dir.ends_with("deps")).unwrap();
    profile.parent().unwrap().to_path_buf()
}

fn folder() -> PathBuf {
    let folder = target_dir().join("victims");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// A test program in C; `flags` go before the source, `-lpthread -ldl` after it.
#[track_caller]
pub fn c(name: &str, flags: &[&str]) -> PathBuf {
    compile("gcc", &format!("{name}.c"), flags, &["-lpthread", "-ldl"])
}

/// Builds a C++ test program; prints SKIPPED and returns `None` without a C++ compiler.
#[track_caller]
pub fn cpp(name: &str, flags: &[&str]) -> Option<PathBuf> {
    crate::skip::have_cpp().then(|| compile("g++", &format!("{name}.cpp"), flags, &["-lpthread"]))
}

/// Builds `count` shared objects, each with a function `module_work_<i>` of its own.
#[track_caller]
pub fn modules(count: usize) -> Vec<PathBuf> {
    let module = |i| {
        let number = format!("-DMODULE={i}");
        compile("gcc", "module.c", &["-O2", "-fomit-frame-pointer", "-shared", "-fPIC", &number], &[])
    };
    (0..count).map(module).collect()
}

/// A Rust test program.
#[track_caller]
pub fn rust(name: &str, flags: &[&str]) -> PathBuf {
    compile("rustc", &format!("{name}.rs"), flags, &[])
}

/// Builds a Go test program; `None` without Go. `flags` are those of `go build`.
#[track_caller]
pub fn go(name: &str, flags: &[&str]) -> Option<PathBuf> {
    if !crate::skip::have("go") {
        return None;
    }
    let from = sources().join(format!("{name}.go"));
    let out = folder().join(format!("{name}-go{}", flags.len()));
    let time = |p: &Path| p.metadata().and_then(|m| m.modified()).ok();
    if time(&out) <= time(&from) {
        let new = unfinished(&out);
        let mut command = Command::new("go");
        let calls_c = std::fs::read_to_string(&from).unwrap().contains("import \"C\"");
        command
            .env("CGO_ENABLED", if calls_c { "1" } else { "0" })
            .env("GO111MODULE", "off")
            .env("GOFLAGS", "");
        command.args(["build", "-o"]).arg(&new).args(flags).arg(&from);
        run(&mut command, Duration::from_secs(300)).expect_success(&format!("{command:?}"));
        std::fs::rename(&new, &out).unwrap();
    }
    Some(out)
}

/// The folder of the classes of `jdk/NAME.java`, compiled by this `javac` unless they are newer than the source.
#[track_caller]
pub fn java_classes(javac: &Path, name: &str, flags: &[&str]) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut hash = DefaultHasher::new();
    (javac, flags).hash(&mut hash);
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("jdk/{name}.java"));
    let out = folder().join(format!("java-{name}-{:08x}", hash.finish() as u32));
    let time = |p: &Path| p.metadata().and_then(|m| m.modified()).ok();
    if time(&out) <= time(&from) {
        let new = unfinished(&out);
        let mut command = Command::new(javac);
        command
            .args(["-J-XX:+UseSerialGC", "-J-XX:TieredStopAtLevel=1"])
            .args(flags)
            .arg("-d")
            .arg(&new)
            .arg(&from);
        run(&mut command, Duration::from_secs(120)).expect_success(&format!("{command:?}"));
        let _ = std::fs::remove_dir_all(&out);
        std::fs::rename(&new, &out).unwrap();
    }
    out
}

/// A temporary name until the file is complete: two tests, also of one process, may need the same file at the
/// same time.
fn unfinished(out: &Path) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    out.with_extension(format!("new-{}-{number}", std::process::id()))
}

/// Compiles `victims/<source>` to the target folder unless that is newer than the source.
#[track_caller]
pub fn compile(compiler: &str, source: &str, flags: &[&str], tail: &[&str]) -> PathBuf {
    let mut hash = DefaultHasher::new();
    (compiler, flags, tail).hash(&mut hash);
    let stem = source.split('.').next().unwrap();
    let out = folder().join(format!("{stem}-{:08x}", hash.finish() as u32));
    let from = sources().join(source);
    let time = |p: &Path| p.metadata().and_then(|m| m.modified()).ok();
    let newest = [time(&from), time(&sources().join("truth.h"))].into_iter().max().flatten();
    if time(&out) > newest {
        return out;
    }
    let new = unfinished(&out);
    let mut command = Command::new(compiler);
    command.args(["-g"]).args(flags).arg(&from).arg("-o").arg(&new).args(tail);
    run(&mut command, Duration::from_secs(120)).expect_success(&format!("{command:?}"));
    std::fs::rename(&new, &out).unwrap();
    out
}

/// The folder of the profile that this test was built in: `target/debug`.
fn profile_dir() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    exe.ancestors().skip(1).find(|dir| !dir.ends_with("deps")).unwrap().to_path_buf()
}

/// Links a file of the profile's folder to `target/under-test/NAME`, and returns that path.
///
/// # Panics
///
/// If the file does not exist: `cargo test` builds the programs of this package and, with `--workspace`, the
/// examples of others.
#[track_caller]
fn linked(file: &Path, name: &str) -> PathBuf {
    let folder = target_dir().join("under-test");
    std::fs::create_dir_all(&folder).unwrap();
    let named = folder.join(name);
    let new = unfinished(&named);
    std::fs::hard_link(file, &new).unwrap_or_else(|e| {
        panic!("{}: {e}; build it with `cargo test --workspace --no-run`", file.display())
    });
    std::fs::rename(&new, &named).unwrap();
    // Renaming does nothing if both names are links to the same file.
    let _ = std::fs::remove_file(&new);
    named
}

/// The command, under the name `flightline`, with `libflightline.so` next to it.
///
/// `FLIGHTLINE_BIN` names another one.
pub fn flightline() -> &'static Path {
    static BIN: OnceLock<PathBuf> = OnceLock::new();
    BIN.get_or_init(|| {
        if let Some(bin) = std::env::var_os("FLIGHTLINE_BIN") {
            return PathBuf::from(bin);
        }
        linked(&profile_dir().join("libflightline.so"), "libflightline.so");
        linked(&profile_dir().join("flightline-under-test"), "flightline")
    })
}

/// Returns an example program of one of the workspace's packages, or a library by its file's name. `cargo
/// test --workspace` builds it; without `--workspace` it may be from an earlier build.
pub fn example(name: &str) -> PathBuf {
    linked(&profile_dir().join("examples").join(name), name)
}

/// One of the programs in `tests/programs`, under its own name.
pub fn program(name: &str) -> PathBuf {
    linked(&profile_dir().join("flightline-test-programs"), name)
}
