//! Builds the victims with the system's compilers, once per source, flags and change.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::run::run;

/// Without frame pointers, optimised: what distributions ship.
pub const OPTIMISED: &[&str] = &["-O2", "-fomit-frame-pointer"];
/// With frame pointers.
pub const FRAME_POINTERS: &[&str] = &["-O2", "-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer"];

/// The folder of the victims' sources.
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("victims")
}

/// Cargo's target folder, from where this test runs.
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

/// A C victim; `flags` go before the source, `-lpthread -ldl` after it.
#[track_caller]
pub fn c(name: &str, flags: &[&str]) -> PathBuf {
    compile("gcc", &format!("{name}.c"), flags, &["-lpthread", "-ldl"])
}

/// A C++ victim; `None`, which is said loudly, where there is no C++.
#[track_caller]
pub fn cpp(name: &str, flags: &[&str]) -> Option<PathBuf> {
    crate::skip::have_cpp().then(|| compile("g++", &format!("{name}.cpp"), flags, &["-lpthread"]))
}

/// `count` shared objects, each with a function `module_work_<i>` of its own.
#[track_caller]
pub fn modules(count: usize) -> Vec<PathBuf> {
    let module = |i| {
        let number = format!("-DMODULE={i}");
        compile("gcc", "module.c", &["-O2", "-fomit-frame-pointer", "-shared", "-fPIC", &number], &[])
    };
    (0..count).map(module).collect()
}

/// A Rust victim.
#[track_caller]
pub fn rust(name: &str, flags: &[&str]) -> PathBuf {
    compile("rustc", &format!("{name}.rs"), flags, &[])
}

/// A Go victim, `None` where there is no Go; `flags` are those of `go build`.
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
        command.env("CGO_ENABLED", "0").env("GO111MODULE", "off").env("GOFLAGS", "");
        command.args(["build", "-o"]).arg(&new).args(flags).arg(&from);
        run(&mut command, Duration::from_secs(300)).expect_success(&format!("{command:?}"));
        std::fs::rename(&new, &out).unwrap();
    }
    Some(out)
}

/// A name to write to before the file has its own: two tests, of one process too, may want the same at the same time.
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

/// Returns `file`, which `cargo test --workspace` has built before it runs this test.
///
/// # Panics
/// If the file is missing, or older than one of the sources that cargo lists in its dependency file. Tests must not pass
/// because of an old build, and a test does not build: cargo would wait for its own lock or build with other features.
#[track_caller]
fn built(file: PathBuf, dep_info: &Path) -> PathBuf {
    let remedy = "build it with `cargo test --workspace --no-run`";
    let time = |path: &Path| path.metadata().and_then(|m| m.modified());
    let Ok(built) = time(&file) else { panic!("{} does not exist; {remedy}", file.display()) };
    let sources = std::fs::read_to_string(dep_info).unwrap_or_else(|e| panic!("{}: {e}", dep_info.display()));
    let (_, sources) = sources.split_once(": ").expect("a dependency file has a target and its sources");
    // Spaces in names are escaped by a backslash.
    for source in sources.replace("\\ ", "\0").split_whitespace().map(|name| name.replace('\0', " ")) {
        // A folder's time changes with every file made in it.
        let source = Path::new(&source);
        let newer = source.is_file() && time(source).is_ok_and(|time| time > built);
        assert!(!newer, "{} is older than {}; {remedy}", file.display(), source.display());
    }
    file
}

/// The command of this build, with `libflightline.so` next to it (`consumer/cli/build.rs` puts it there).
///
/// `FLIGHTLINE_BIN` names another one.
pub fn flightline() -> &'static Path {
    static BIN: OnceLock<PathBuf> = OnceLock::new();
    BIN.get_or_init(|| {
        if let Some(bin) = std::env::var_os("FLIGHTLINE_BIN") {
            return PathBuf::from(bin);
        }
        let folder = profile_dir();
        built(folder.join("flightline"), &folder.join("flightline.d"))
    })
}

/// An example program of one of the workspace's packages, or a library by its file's name.
pub fn example(name: &str) -> PathBuf {
    let folder = profile_dir().join("examples");
    let dep_info = folder.join(format!("{}.d", name.trim_end_matches(".so")));
    built(folder.join(name), &dep_info)
}

/// One of the programs in `tests/programs`, under its own name.
pub fn program(name: &str) -> PathBuf {
    let all = profile_dir();
    let all = built(all.join("flightline-test-programs"), &all.join("flightline-test-programs.d"));
    let named = folder().join(name);
    let new = unfinished(&named);
    std::fs::hard_link(all, &new).unwrap();
    std::fs::rename(&new, &named).unwrap();
    // Renaming a link over another one of the same file does nothing.
    let _ = std::fs::remove_file(&new);
    named
}
