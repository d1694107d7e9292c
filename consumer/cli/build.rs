//! Builds `libflightline.so`, the shared object that recorded programs load, together with this command.
//!
//! Cargo cannot depend on a shared object of another package (artifact dependencies are unstable), so this
//! script runs a second cargo for the four small crates in it: always optimised, with thin link-time
//! optimisation across these crates. The object is put next to the command, where the command looks first.
//! Release builds also embed it, so that `cargo install`, which installs only commands, yields one that works
//! alone.
//!
//! `FLIGHTLINE_EMBED=<file>` embeds that file and builds nothing; `FLIGHTLINE_EMBED=0` builds and embeds
//! nothing.

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
    let embedded = match variable("FLIGHTLINE_EMBED").as_str() {
        "0" => None,
        "" => {
            let object = build(&root, &out, &variable("TARGET"));
            if let Some(object) = &object {
                put_next_to_the_command(object, &out);
            }
            object.filter(|_| variable("PROFILE") == "release")
        }
        path => {
            println!("cargo::rerun-if-changed={path}");
            Some(PathBuf::from(path))
        }
    };
    let bytes = embedded.map(|path| fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())));
    fs::write(out.join("libflightline.so"), bytes.unwrap_or_default()).expect("OUT_DIR is writable");
}

/// Returns the profile directory of the outer build, such as `target/release`: OUT_DIR is
/// `<profile>/build/<package>/out`.
fn profile_dir(out: &Path) -> &Path {
    out.ancestors().nth(3).expect("OUT_DIR is three levels below the profile's folder")
}

fn put_next_to_the_command(object: &Path, out: &Path) {
    let place = profile_dir(out).join("libflightline.so");
    // Replace the file instead of overwriting it, because running programs may have it mapped.
    let new = out.join("libflightline.so.new");
    let copied = fs::copy(object, &new).and_then(|_| fs::rename(&new, &place));
    copied.unwrap_or_else(|e| panic!("{}: {e}", place.display()));
}

/// Builds the preload crate in a target directory shared by all profiles; that of the outer build is locked.
fn build(root: &Path, out: &Path, target: &str) -> Option<PathBuf> {
    for part in ["context/src", "in-signal/src", "capture/src", "preload"] {
        println!("cargo::rerun-if-changed={}", root.join("recorder").join(part).display());
    }
    // `<target>/<profile>`, or `<target>/<triple>/<profile>` with `--target`.
    let above = profile_dir(out).parent().expect("a profile's folder has a parent");
    let dir = if above.ends_with(target) { above.parent().unwrap_or(above) } else { above }.join("preload");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root).args(["build", "--release", "-p", "flightline-preload", "--target", target]);
    cargo.arg("--target-dir").arg(&dir);
    cargo.env("CARGO_PROFILE_RELEASE_LTO", "thin").env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1");
    // Do not run a linter that wraps the compiler.
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
