//! The packages of `packaging/build` are complete and work without the source tree.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use flightline_tests::run::{Finished, beside, run};
use flightline_tests::{skip, victim};

const LIMIT: Duration = Duration::from_secs(120);

fn done(program: impl AsRef<OsStr>, args: &[&OsStr]) -> Finished {
    run(Command::new(program.as_ref()).args(args), LIMIT)
        .expect_success(&format!("{:?} {args:?}", program.as_ref()))
}

/// The packages of the tested command, in `out`.
fn build(out: &Path) -> Vec<PathBuf> {
    let built = out.join("built");
    fs::create_dir_all(&built).unwrap();
    let from = victim::flightline();
    fs::copy(from, built.join("flightline")).unwrap();
    // The command contains a copy of the library, and uses it if there is none next to it. The test compares
    // the installed one with the one that is loaded into programs.
    let object = from.with_file_name("libflightline.so");
    fs::copy(&object, built.join("libflightline.so")).unwrap_or_else(|e| panic!("{}: {e}", object.display()));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/build");
    let made = done(script, &["--quick".as_ref(), "--from".as_ref(), built.as_ref(), out.as_ref()]);
    made.stdout_text().lines().map(PathBuf::from).collect()
}

fn below(dir: &Path, top: &Path, files: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            below(&path, top, files);
        } else {
            files.insert(path.strip_prefix(top).unwrap().to_str().unwrap().to_owned());
        }
    }
}

/// Names of `flightline … --help` below `Commands:`.
fn commands(flightline: &Path, of: &[&str]) -> Vec<String> {
    let mut command = Command::new(flightline);
    let help = run(command.args(of).arg("--help"), LIMIT).stdout_text();
    let Some((_, list)) = help.split_once("Commands:\n") else { return Vec::new() };
    let (list, _) = list.split_once("\n\n").unwrap_or((list, ""));
    let names = list.lines().filter(|l| l.starts_with("  ") && !l.starts_with("   "));
    names.filter_map(|l| l.split_whitespace().next()).filter(|n| *n != "help").map(str::to_owned).collect()
}

/// A page for each command, no empty section, and no reference to a missing page.
fn check_pages(root: &Path) {
    let flightline = root.join("bin/flightline");
    let mut names = vec!["flightline".to_owned()];
    for command in commands(&flightline, &[]) {
        // These commands pass all arguments on, including --help.
        if command != "sql" && command != "store" {
            names.extend(
                commands(&flightline, &[&command]).iter().map(|sub| format!("flightline-{command}-{sub}")),
            );
        }
        names.push(format!("flightline-{command}"));
    }
    assert!(names.len() > 50, "{names:?}");
    let pages = root.join("share/man/man1");
    let made = fs::read_dir(&pages).unwrap().count();
    assert_eq!(made, names.len(), "pages and {names:?}");
    for name in &names {
        let page = done("gzip", &["-dc".as_ref(), pages.join(format!("{name}.1.gz")).as_ref()]).stdout_text();
        let mut sections = page.split("\n.SH ").skip(1);
        let mut seen = BTreeSet::new();
        assert!(sections.clone().count() >= 5, "{name}: {page}");
        assert!(
            sections.all(|section| {
                let (title, text) = section.split_once('\n').unwrap_or((section, ""));
                seen.insert(title.trim_matches('"').to_owned());
                text.lines().any(|line| !line.starts_with('.') && !line.trim().is_empty())
            }),
            "a section of {name} is empty: {page}"
        );
        for must in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "SEE ALSO"] {
            assert!(seen.contains(must), "{name} has {seen:?}");
        }
        // Undoes roff's escaping of hyphens.
        let plain = page.replace("\\-", "-").replace("\\fR", "");
        for named in
            plain.split(|c: char| c.is_whitespace() || c == ',').filter_map(|w| w.strip_suffix("(1)"))
        {
            let ours = named.starts_with("flightline");
            assert!(!ours || names.iter().any(|n| n == named), "{name} names {named}");
        }
    }
}

/// Unpacked anywhere: its library is found, its C interface compiles, and recording works with the flags of
/// pkg-config.
#[test]
fn tarball_works_in_any_directory() {
    let _place = beside();
    let folder = tempfile::tempdir().unwrap();
    let made = build(folder.path());
    done("tar", &["-xzf".as_ref(), made[0].as_ref(), "-C".as_ref(), folder.path().as_ref()]);
    let name = made[0].file_name().unwrap().to_str().unwrap().strip_suffix(".tar.gz").unwrap();
    let root = folder.path().join(name);
    check_pages(&root);

    let mut files = BTreeSet::new();
    below(&root, &root, &mut files);
    for must in [
        "bin/flightline",
        "include/flightline.h",
        "lib/libflightline.so",
        "lib/pkgconfig/flightline.pc",
        "lib/systemd/system/flightline-agent@.service",
        "lib/systemd/system/flightline-record@.service",
        "lib/systemd/system/flightline-serve.service",
        "libexec/flightline/of-unit",
        "share/bash-completion/completions/flightline",
        "share/doc/flightline/LICENSE-MIT",
        "share/doc/flightline/README.md",
        "share/doc/flightline/copyright",
        "share/doc/flightline/crates.gz",
        "share/doc/flightline/docs/guide/reference/commands.md",
        "share/doc/flightline/docs/guide/reference/engines.md",
        "share/doc/flightline/examples/self.c",
        "share/fish/vendor_completions.d/flightline.fish",
        "share/zsh/site-functions/_flightline",
    ] {
        assert!(files.contains(must), "{must} is not among {files:#?}");
        let bytes = fs::read(root.join(must)).unwrap();
        assert!(!bytes.is_empty(), "{must} is empty");
        // Placeholders of zsh and C are not replaced.
        let text = String::from_utf8_lossy(&bytes);
        let unfilled =
            ["@prefix@", "@etc@", "@version@", "@homepage@"].into_iter().find(|p| text.contains(p));
        assert!(must.starts_with("bin/") || unfilled.is_none(), "{must}: {unfilled:?}");
    }

    if !skip::have("pkg-config") {
        return skip::skip("no pkg-config here: flightline.pc was not used");
    }
    let flags = run(
        Command::new("pkg-config")
            .args(["--cflags", "--libs", "flightline"])
            .env("PKG_CONFIG_PATH", root.join("lib/pkgconfig")),
        LIMIT,
    )
    .expect_success("pkg-config")
    .stdout_text();
    assert!(flags.contains("-lflightline") && flags.contains("include"), "{flags}");
    let program = folder.path().join("self");
    let mut cc = Command::new("cc");
    cc.arg("-O1").arg(root.join("share/doc/flightline/examples/self.c")).args(flags.split_whitespace());
    run(cc.arg("-o").arg(&program), LIMIT).expect_success("cc");
    let recording = folder.path().join("self.jfr");
    let mut itself = Command::new(&program);
    itself.arg(&recording).env("LD_LIBRARY_PATH", root.join("lib"));
    // There is no command next to the library, so it is found by the search path, as in a package.
    itself.env("PATH", root.join("bin")).env_remove("FLIGHTLINE_BIN");
    run(&mut itself, LIMIT).expect_success("a program that records itself");
    let folded = done(root.join("bin/flightline"), &["fold".as_ref(), recording.as_ref()]).stdout_text();
    assert!(folded.contains(";main"), "{folded}");

    // Nothing is unpacked: the installed library is used.
    let home = folder.path().join("home");
    fs::create_dir(&home).unwrap();
    let other = folder.path().join("other.jfr");
    let mut record = Command::new(root.join("bin/flightline"));
    record
        .args(["record", "-o"])
        .arg(&other)
        .arg("--")
        .arg("gzip")
        .arg("-9c")
        .arg(root.join("bin/flightline"));
    record.env("HOME", &home).env("XDG_CACHE_HOME", &home).env_remove("FLIGHTLINE_PRELOAD");
    let said = run(&mut record, LIMIT).expect_success("record").stderr;
    assert!(said.contains("samples"), "{said}");
    assert_eq!(fs::read_dir(&home).unwrap().count(), 0, "something was unpacked");

    if made.len() < 2 {
        return skip::skip("no dpkg-dev here: no .deb was made");
    }
    check_deb(&made[1], &files);
}

/// The same files below /usr, and the metadata of dpkg.
fn check_deb(deb: &Path, tarball: &BTreeSet<String>) {
    let listed = done("dpkg-deb", &["-c".as_ref(), deb.as_ref()]).stdout_text();
    let listed: BTreeSet<String> = listed
        .lines()
        .map(|l| {
            assert!(l.contains(" root/root "), "{l}");
            l.rsplit(' ').next().unwrap().trim_start_matches("./").to_owned()
        })
        .filter(|path| !path.is_empty() && !path.ends_with('/'))
        .collect();
    for file in tarball.iter().filter(|f| !f.ends_with("LICENSE-MIT")) {
        let file = format!("usr/{}", file.replace("zsh/site-functions", "zsh/vendor-completions"));
        assert!(listed.contains(&file), "{file} is not in {listed:#?}");
    }
    let field = |name: &str| done("dpkg-deb", &["-f".as_ref(), deb.as_ref(), name.as_ref()]).stdout_text();
    assert_eq!(field("Package").trim(), "flightline");
    assert!(field("Depends").contains("libc6 (>= "), "{}", field("Depends"));
}
