//! Puts the shared object for recorded programs into release builds of the command, so that `cargo install`, which
//! installs nothing but commands, gives one that works alone.
//!
//! `FLIGHTLINE_EMBED=<file>` embeds that file, `FLIGHTLINE_EMBED=0` nothing, `FLIGHTLINE_EMBED=1` also in other profiles.
//! Without an embedded object the command looks for one next to itself and in `../lib/flightline`.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

fn main() {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let out = PathBuf::from(variable("OUT_DIR"));
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("../..");
    println!("cargo::rerun-if-env-changed=FLIGHTLINE_EMBED");
    println!("cargo::rerun-if-changed=build.rs");
    let object = match variable("FLIGHTLINE_EMBED").as_str() {
        "0" => None,
        "" if variable("PROFILE") != "release" => None,
        "" | "1" => build(&root, &out, &variable("TARGET")),
        path => {
            println!("cargo::rerun-if-changed={path}");
            Some(PathBuf::from(path))
        }
    };
    let bytes = object.map(|path| fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())));
    fs::write(out.join("libflightline.so"), bytes.unwrap_or_default()).expect("OUT_DIR can be written");
}

/// Builds the preload crate into a target directory of its own: the one of the outer build is locked.
fn build(root: &Path, out: &Path, target: &str) -> Option<PathBuf> {
    for part in ["in-signal", "capture", "preload"] {
        println!("cargo::rerun-if-changed={}", root.join("recorder").join(part).display());
    }
    let dir = out.join("preload");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root).args(["build", "--release", "-p", "flightline-preload", "--target", target]);
    cargo.arg("--target-dir").arg(&dir);
    // A linter around the compiler must not run here.
    cargo.env_remove("RUSTC_WORKSPACE_WRAPPER").env_remove("CLIPPY_ARGS");
    if target.contains("musl") {
        cargo.env_remove("CARGO_ENCODED_RUSTFLAGS").env("RUSTFLAGS", "-C target-feature=-crt-static");
    }
    let output = cargo.output();
    if output.as_ref().is_ok_and(|o| o.status.success()) {
        return Some(dir.join(target).join("release/libflightline.so"));
    }
    let why = output.map_or_else(|e| e.to_string(), |o| String::from_utf8_lossy(&o.stderr).into_owned());
    let why = why.lines().rfind(|l| l.starts_with("error")).unwrap_or("cargo failed").to_owned();
    println!(
        "cargo::warning=libflightline.so is not embedded ({why}); install it in ../lib/flightline of the command"
    );
    None
}
