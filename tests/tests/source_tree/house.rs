//! Checks the code layout: files of limited length and with descriptive names, and documents without broken
//! links.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The maximum lines of a file; a longer one states the reason in its head, after [`BECAUSE`].
const LONGEST_FILE: usize = 700;
/// The maximum lines of a function outside of tests.
const LONGEST_FUNCTION: usize = 100;
const BECAUSE: &str = "Long because";
/// The extensions of source files.
const SOURCES: [&str; 12] = ["rs", "py", "sh", "mjs", "js", "java", "go", "c", "cpp", "h", "html", "css"];
/// Names that attract unrelated code.
const NAMES_OF_NOTHING: [&str; 9] =
    ["util", "utils", "utilities", "common", "misc", "helpers", "shared", "stuff", "tools"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// All source files, by their path from the root, without the outputs of builds, downloads and the README's
/// commands.
pub fn files() -> BTreeSet<PathBuf> {
    let left_behind = ["target", "node_modules", "corpus", "artifacts", "__pycache__"];
    let (root, mut found) = (root(), BTreeSet::new());
    let drawn_here = |folder: &Path, name: &str| {
        folder == root && has_extension(Path::new(name), &["html", "jfr", "json", "svg", "png"])
    };
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_str().unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() && !left_behind.contains(&name) && name != ".git" {
                folders.push(path);
            } else if kind.is_file() && !drawn_here(&folder, name) {
                found.insert(path.strip_prefix(&root).unwrap().to_path_buf());
            }
        }
    }
    assert!(found.len() > 500, "{} files", found.len());
    found
}

pub fn text(path: &Path) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Returns the folders of `files` that have a `Cargo.toml`.
pub fn crates(files: &BTreeSet<PathBuf>) -> impl Iterator<Item = &Path> {
    files
        .iter()
        .filter(|file| file.file_name().is_some_and(|name| name == "Cargo.toml"))
        .filter_map(|file| file.parent())
}

pub fn has_extension(path: &Path, of: &[&str]) -> bool {
    path.extension().and_then(|e| e.to_str()).is_some_and(|extension| of.contains(&extension))
}

#[test]
fn no_file_exceeds_length_limit_without_reason() {
    let long: Vec<String> = files()
        .iter()
        .filter(|path| has_extension(path, &SOURCES))
        .filter_map(|path| {
            let text = text(path);
            let lines = text.lines().count();
            let reason = text.lines().take(12).any(|line| line.contains(BECAUSE));
            (lines > LONGEST_FILE && !reason).then(|| format!("{}: {lines} lines", path.display()))
        })
        .collect();
    assert!(long.is_empty(), "{long:#?}");
}

/// The functions of a formatted file: number of the first line, and length in lines.
fn functions(text: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let begins = |line: &str| {
        let words = line.split_whitespace();
        let mut words = words.skip_while(|word| {
            word.starts_with("pub") || ["const", "async", "unsafe", "extern", "\"C\"", "in"].contains(word)
        });
        words.next() == Some("fn")
    };
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| begins(line)) {
        let end = format!("{}}}", &line[..line.len() - line.trim_start().len()]);
        // Items without a body end at once.
        let bodiless = line.trim_end().ends_with([';', ',']);
        if let Some(len) = lines[at..].iter().position(|line| *line == end).filter(|_| !bodiless) {
            found.push((at + 1, len + 1));
        }
    }
    found
}

#[test]
fn no_function_exceeds_length_limit_without_reason() {
    let (mut long, mut seen) = (Vec::new(), 0);
    for path in files() {
        let shown = path.display().to_string();
        let of_tests = shown.split(['/', '.']).any(|part| part == "tests" || part == "benches");
        if of_tests || !has_extension(&path, &["rs"]) {
            continue;
        }
        let text = text(&path);
        for (at, lines) in functions(&text) {
            seen += 1;
            let reason = text.lines().skip(at.saturating_sub(4)).take(6).any(|line| line.contains(BECAUSE));
            if lines > LONGEST_FUNCTION && !reason {
                long.push(format!("{shown}:{at}: {lines} lines"));
            }
        }
    }
    assert!(seen > 3000, "only {seen} functions were found");
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn no_file_has_meaningless_name() {
    let nothing: Vec<PathBuf> = files()
        .into_iter()
        .filter(|path| {
            path.iter().any(|part| {
                let stem = part.to_str().unwrap().split('.').next().unwrap();
                NAMES_OF_NOTHING.contains(&stem)
            })
        })
        .collect();
    assert!(nothing.is_empty(), "{nothing:?}");
}

/// Files that begin with `#!` are executable, and no others.
#[test]
fn only_scripts_are_executable() {
    let bits = |path: &Path| fs::metadata(root().join(path)).unwrap().permissions().mode() & 0o111;
    let begins = |path: &Path| fs::read(root().join(path)).unwrap().starts_with(b"#!/");
    let wrong: Vec<PathBuf> = files().into_iter().filter(|path| begins(path) != (bits(path) != 0)).collect();
    assert!(
        wrong.is_empty(),
        "scripts that cannot be executed, or executables that are no scripts: {wrong:?}"
    );
}

#[test]
fn every_crate_uses_workspace_lints() {
    let manifest = text(Path::new("Cargo.toml"));
    for lint in ["undocumented_unsafe_blocks = \"deny\"", "unsafe_op_in_unsafe_fn = \"deny\""] {
        assert!(manifest.contains(lint), "{lint}");
    }
    let members = manifest.lines().skip_while(|line| !line.starts_with("members")).skip(1);
    let members: Vec<&str> = members
        .take_while(|line| !line.starts_with(']'))
        .map(|line| line.trim().trim_matches(['"', ',']))
        .collect();
    assert!(members.len() > 10, "{members:?}");
    for member in members {
        let member = member.trim_matches('"');
        let manifest = text(&Path::new(member).join("Cargo.toml"));
        assert!(manifest.contains("[lints]\nworkspace = true"), "{member} has lints of its own");
    }
}

/// The targets of links in Markdown, without those in code.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut code = false;
    for line in text.lines() {
        code ^= line.trim_start().starts_with("```");
        if code {
            continue;
        }
        // Text in backticks contains no links.
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("code");
        found.extend(prose.split("](").skip(1).filter_map(|rest| rest.split(')').next()).map(str::to_owned));
    }
    found
}

/// The anchor of a heading on GitHub.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut code = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        code ^= line.trim_start().starts_with("```");
        let Some(heading) =
            line.trim_start_matches('#').strip_prefix(' ').filter(|_| !code && line.starts_with('#'))
        else {
            continue;
        };
        let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let address: String = kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect();
        let before = seen.entry(address.clone()).or_default();
        found.insert(if *before == 0 { address } else { format!("{address}-{before}") });
        *before += 1;
    }
    found
}

fn normal(path: &Path) -> PathBuf {
    let mut parts: Vec<&std::ffi::OsStr> = Vec::new();
    for part in path {
        match part.to_str() {
            Some("..") => drop(parts.pop()),
            Some(".") => {}
            _ => parts.push(part),
        }
    }
    parts.iter().collect()
}

/// Every link refers to an existing file and heading, and every document can be reached from the README.
#[test]
fn document_links_resolve_and_every_document_is_linked() {
    let documents: BTreeSet<PathBuf> =
        files().into_iter().filter(|path| has_extension(path, &["md"])).collect();
    let (mut lost, mut reached) = (Vec::new(), BTreeSet::from([PathBuf::from("README.md")]));
    let mut links_of: BTreeMap<&Path, Vec<PathBuf>> = BTreeMap::new();
    for document in &documents {
        let text = text(document);
        for link in links(&text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let to = match file {
                "" => document.clone(),
                _ => normal(&document.parent().unwrap().join(file)),
            };
            let there = root().join(&to).exists();
            let heading = anchor.is_empty()
                || !has_extension(&to, &["md"])
                || there && anchors(&self::text(&to)).contains(anchor);
            if !(there && heading) {
                lost.push(format!("{}: {link}", document.display()));
            }
            links_of.entry(document).or_default().push(to);
        }
    }
    assert!(lost.is_empty(), "{lost:#?}");
    let mut ways = vec![PathBuf::from("README.md")];
    while let Some(from) = ways.pop() {
        for to in links_of.get(from.as_path()).into_iter().flatten() {
            // A link to a folder shows its README.
            for to in [to.clone(), to.join("README.md")] {
                if documents.contains(&to) && reached.insert(to.clone()) {
                    ways.push(to);
                }
            }
        }
    }
    let unreachable: Vec<_> = documents.difference(&reached).collect();
    assert!(unreachable.is_empty(), "not found from the README: {unreachable:#?}");
}

/// The comment in `.ci/long` and its list of steps agree. Each step has a committed result, or names a
/// document that contains it.
#[test]
fn long_ci_steps_are_documented_and_have_results() {
    let long = text(Path::new(".ci/long"));
    let mut told: BTreeMap<&str, String> = BTreeMap::new();
    let mut last = "";
    for line in long.lines().filter_map(|line| line.strip_prefix("#   ")) {
        if !line.starts_with(' ') {
            last = line.split_whitespace().next().unwrap();
        }
        told.entry(last).or_default().push_str(line);
    }
    let listed = long.lines().find_map(|line| line.strip_prefix("steps=\"")).expect("a list of steps");
    let listed: BTreeSet<&str> = listed.trim_end_matches('"').split_whitespace().collect();
    assert_eq!(told.keys().copied().collect::<BTreeSet<_>>(), listed);
    let in_document = |step: &str| {
        let words = told[step].split_whitespace().map(|word| word.trim_matches([',', ';', '.', '(', ')']));
        words.filter(|word| word.ends_with(".md")).any(|word| root().join(word).exists())
    };
    let has_result =
        |step: &str| root().join(format!(".ci/results/{step}.txt")).exists() || in_document(step);
    let without: Vec<&str> = listed.iter().copied().filter(|step| !has_result(step)).collect();
    assert!(without.is_empty(), "of these steps .ci/results has nothing: {without:?}");
}

/// Documents do not contain paths of this machine or addresses of its registries.
#[test]
fn documents_contain_no_machine_specific_paths() {
    let mut found = Vec::new();
    // Assembled here, because this file is checked too.
    let theirs = [["/ro", "ot/"].concat(), ["/home", "/runner"].concat(), ["index.cra", "tes.io"].concat()];
    for path in files().iter().filter(|path| has_extension(path, &["md", "py", "sh", "toml", "txt", "yml"])) {
        let text = String::from_utf8_lossy(&std::fs::read(root().join(path)).unwrap()).into_owned();
        for (number, line) in text.lines().enumerate() {
            if theirs.iter().any(|theirs| line.contains(theirs.as_str())) {
                found.push(format!("{}:{}: {line}", path.display(), number + 1));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}
