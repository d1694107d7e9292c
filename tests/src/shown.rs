//! Finds the tests and files that documents name as evidence for a requirement.
//!
//! A test is named by `` `file::function` ``, by `` `::function` `` for the previous file, by a file that
//! contains only tests, or by a file for a browser followed by the beginnings of titles in quotes. Any other
//! path in backticks, and the target of a link, is a file.

use std::path::{Component, Path, PathBuf};

/// The names in a text.
#[derive(Debug, Default)]
pub struct Shown {
    /// Tests that exist and are run.
    pub tests: usize,
    /// Scripts and documents that exist.
    pub files: usize,
    /// Names of missing files, and of files and functions that are not tests.
    pub missing: Vec<String>,
}

/// The project's root.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Finds everything that `text` names; its links are relative to `folder`.
#[must_use]
pub fn shown(text: &str, folder: &Path) -> Shown {
    let mut found = Shown::default();
    let mut file = String::new();
    let mut source = String::new();
    for (part, piece) in text.split('`').enumerate() {
        if part % 2 == 0 {
            let titles = piece.split('"').skip(1).step_by(2);
            if runs_in_a_browser(&file) {
                titles
                    .for_each(|title| found.count(has_title(&source, title), &format!("{file}: {title:?}")));
            }
            links(piece).for_each(|target| found.link(folder, target));
            continue;
        }
        let (path, function) = piece.split_once("::").unwrap_or((piece, ""));
        if is_source(path) {
            path.clone_into(&mut file);
            source = std::fs::read_to_string(root().join(path)).unwrap_or_default();
            found.file_of_tests(path, &source, function.is_empty());
        }
        if !function.is_empty() && (path == file || path.is_empty()) {
            let there = is_run(&file) && has_function(&source, function);
            found.count(there, &format!("{file}::{function}"));
        } else if function.is_empty() && !is_source(path) {
            found.path(path);
        }
    }
    found
}

impl Shown {
    fn count(&mut self, there: bool, name: &str) {
        self.tests += usize::from(there);
        self.missing.extend((!there).then(|| name.to_owned()));
    }

    /// A file that contains only tests counts as one test, other code as a script. The titles of browser
    /// tests follow separately.
    fn file_of_tests(&mut self, path: &str, source: &str, alone: bool) {
        let has_tests =
            runs_in_a_browser(path) || is_run(path) && attributes(source).any(|(_, test)| test == Kind::Test);
        match (source.is_empty(), alone) {
            (true, _) => self.missing.push(path.to_owned()),
            (false, true) if has_tests => self.tests += 1,
            (false, true) => self.files += 1,
            (false, false) => {}
        }
    }

    /// `bench/pipe.py bytes` is a script, `--state D` is not.
    fn path(&mut self, words: &str) {
        let path = words.split(' ').next().unwrap_or_default();
        let of_ours = path.contains('/') && !path.starts_with(['/', '.', '-']) || path.starts_with(".ci/");
        if of_ours && root().join(path.split('/').next().unwrap_or_default()).is_dir() {
            let there = root().join(path).exists();
            self.files += usize::from(there);
            self.missing.extend((!there).then(|| path.to_owned()));
        }
    }

    fn link(&mut self, folder: &Path, target: &str) {
        let path = target.split('#').next().unwrap_or_default();
        let there = folder.join(path).exists();
        self.files += usize::from(there);
        self.missing.extend((!there).then(|| target.to_owned()));
    }
}

fn is_source(path: &str) -> bool {
    path.contains('/') && (path.ends_with(".rs") || path.ends_with(".mjs"))
}

/// Returns true if `tests/browser/run.sh` runs the file. Other files are run by hand.
fn runs_in_a_browser(path: &str) -> bool {
    path.ends_with(".test.mjs")
}

/// Packages with a workspace of their own that CI tests.
const BESIDE: [&str; 2] = ["recorder/in-signal/loom", "consumer/store"];

/// Returns true if CI tests the file's package.
fn is_run(path: &str) -> bool {
    let workspace = std::fs::read_to_string(root().join("Cargo.toml")).unwrap_or_default();
    let members =
        workspace.split("members = [").nth(1).and_then(|rest| rest.split(']').next()).unwrap_or_default();
    let has_manifest = |folder: &&Path| root().join(folder).join("Cargo.toml").exists();
    Path::new(path).ancestors().skip(1).find(has_manifest).is_some_and(|package| {
        let package = package.display().to_string();
        members.contains(&format!("\"{package}\"")) || BESIDE.contains(&&*package)
    })
}

fn has_title(source: &str, title: &str) -> bool {
    ["test(\"", "test(`", "test('"].iter().any(|head| source.contains(&format!("{head}{title}")))
}

fn has_function(source: &str, name: &str) -> bool {
    attributes(source).any(|(function, kind)| function == name && kind == Kind::Test)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Test,
    Ignored,
    Helper,
}

/// The functions of a file, with the evaluation of their attributes.
fn attributes(source: &str) -> impl Iterator<Item = (&str, Kind)> {
    let (mut test, mut ignored) = (false, false);
    source.lines().filter_map(move |line| {
        let line = line.trim_start();
        if let Some(name) = function_of(line) {
            let kind = match (std::mem::take(&mut test), std::mem::take(&mut ignored)) {
                (true, false) => Kind::Test,
                (true, true) => Kind::Ignored,
                _ => Kind::Helper,
            };
            return Some((name, kind));
        }
        test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        ignored |= line.starts_with("#[ignore");
        if !line.starts_with(['#', '/', ')']) && line.ends_with([';', '}']) {
            (test, ignored) = (false, false);
        }
        None
    })
}

fn function_of(line: &str) -> Option<&str> {
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let line = line.strip_prefix("async ").unwrap_or(line);
    line.strip_prefix("fn ")?.split(['(', '<']).next()
}

/// Returns the targets of a text's links within this repository.
pub fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .filter(|target| !target.contains("://"))
}

/// Rewrites the links of `text`, from the document `from`, for a document in the folder `to`; both are below
/// the root.
#[must_use]
pub fn moved(text: &str, from: &str, to: &str) -> String {
    let folder = Path::new(from).parent().unwrap_or(Path::new(""));
    let mut pieces = text.split("](");
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (target, rest) = piece.split_once(')').unwrap_or((piece, ""));
        let (path, anchor) =
            target.split_once('#').map_or((target, String::new()), |(path, of)| (path, format!("#{of}")));
        let path = match path {
            _ if target.contains("://") => target.to_owned(),
            "" => relative(Path::new(from), Path::new(to)) + &anchor,
            path => relative(&plain(&folder.join(path)), Path::new(to)) + &anchor,
        };
        out.push_str(&format!("]({path}){rest}"));
    }
    out
}

/// The path without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = plain.pop(),
            other => plain.push(other),
        }
    }
    plain
}

fn relative(path: &Path, folder: &Path) -> String {
    let shared = path.components().zip(folder.components()).take_while(|(a, b)| a == b).count();
    let up = "../".repeat(folder.components().count() - shared);
    let down: PathBuf = path.components().skip(shared).collect();
    format!("{up}{}", down.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helper_functions_are_not_counted_as_tests() {
        let source = "fn helper() {}\n#[test]\n#[should_panic]\nfn one() {\n}\n#[test]\n#[ignore = \"slow\"]\nfn two() {}\n";
        let kinds: Vec<_> = attributes(source).collect();
        assert_eq!(kinds, [("helper", Kind::Helper), ("one", Kind::Test), ("two", Kind::Ignored)]);
    }

    #[test]
    fn tests_not_run_by_ci_are_not_evidence() {
        assert!(is_run("tests/tests/readme.rs") && is_run("consumer/src/tree.rs"));
        assert!(is_run("recorder/in-signal/loom/tests/ring.rs"));
        assert!(
            !is_run("tests/service/src/main.rs") && !is_run("bench/pprof-rs/src/main.rs") && !is_run("x.rs")
        );
    }

    #[test]
    fn moved_links_resolve_to_same_target() {
        let text = "[a](b.md#c), [d](../../bench/e.md), [f](#g)";
        let there = "[a](../../consumer/docs/b.md#c), [d](../../bench/e.md), [f](../../consumer/docs/x.md#g)";
        assert_eq!(moved(text, "consumer/docs/x.md", "docs/checklists"), there);
    }
}
