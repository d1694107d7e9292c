//! Modules that depend on each other in a circle can be read, tested and changed only together.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::house::{crates, files, has_extension, text};

/// Crates that still have larger circles than [`LARGEST`], and the number of modules of the largest. The numbers may only fall.
const LARGER: &[(&str, usize)] = &[];
/// Modules of the largest circle that a crate may have.
const LARGEST: usize = 2;

/// Returns the top-level modules that a source text names by `crate::`, also in braces. Comments and unit tests do not count.
fn named(text: &str) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let code: String =
        code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut names = BTreeSet::new();
    for (at, found) in code.match_indices("crate::") {
        if code[..at].chars().next_back().is_some_and(is_word) {
            continue;
        }
        let rest = &code[at + found.len()..];
        let Some(list) = rest.strip_prefix('{') else {
            names.insert(rest.chars().take_while(|&c| is_word(c)).collect());
            continue;
        };
        let (mut depth, mut begins) = (0, true);
        let mut name = String::new();
        for c in list.chars() {
            match c {
                '}' if depth == 0 => break,
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    names.insert(std::mem::take(&mut name));
                    begins = true;
                }
                c if depth == 0 && begins && is_word(c) => name.push(c),
                c if !c.is_whitespace() => begins = false,
                _ => {}
            }
        }
        names.insert(name);
    }
    names
}

/// Returns for each top-level module of the crate in `folder` the modules it uses. `files`: those of the repository.
fn uses(folder: &Path, files: &BTreeSet<PathBuf>) -> BTreeMap<String, BTreeSet<String>> {
    let sources: Vec<(String, &PathBuf)> = files
        .iter()
        .filter(|file| has_extension(file, &["rs"]))
        .filter_map(|file| {
            let first = file.strip_prefix(folder.join("src")).ok()?.iter().next()?;
            Some((first.to_str()?.trim_end_matches(".rs").to_owned(), file))
        })
        .filter(|(module, _)| !["lib", "main", "bin"].contains(&module.as_str()))
        .collect();
    let modules: BTreeSet<&String> = sources.iter().map(|(module, _)| module).collect();
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (module, file) in &sources {
        let others =
            if file.iter().any(|part| part == "tests") { BTreeSet::new() } else { named(&text(file)) };
        let others = others.into_iter().filter(|other| other != module && modules.contains(other));
        uses.entry(module.clone()).or_default().extend(others);
    }
    uses
}

/// Returns the modules that a module uses, directly or through others.
fn reachable(uses: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut left = vec![from.to_owned()];
    while let Some(module) = left.pop() {
        for next in uses.get(&module).into_iter().flatten() {
            if found.insert(next.clone()) {
                left.push(next.clone());
            }
        }
    }
    found
}

/// Returns the circles: sets of modules each of which uses all others, directly or through others.
fn circles(uses: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<BTreeSet<String>> {
    let reach: BTreeMap<&String, BTreeSet<String>> =
        uses.keys().map(|module| (module, reachable(uses, module))).collect();
    let circle = |module: &String| -> BTreeSet<String> {
        reach[module]
            .iter()
            .filter(|other| reach.get(other).is_some_and(|back| back.contains(module)))
            .cloned()
            .collect()
    };
    uses.keys().map(circle).filter(|circle| circle.len() > 1).collect()
}

#[test]
fn modules_have_no_large_dependency_cycles() {
    let files = files();
    let (mut wrong, mut modules) = (Vec::new(), 0);
    let mut larger: BTreeMap<&str, usize> = LARGER.iter().copied().collect();
    for folder in crates(&files) {
        let name = folder.to_str().unwrap();
        let uses = uses(folder, &files);
        modules += uses.len();
        let circles = circles(&uses);
        let largest = circles.iter().map(BTreeSet::len).max().unwrap_or(0);
        match larger.remove(name) {
            None if largest > LARGEST => {
                wrong.push(format!("{name}: a circle of {largest} modules, {LARGEST} allowed: {circles:?}"));
            }
            Some(known) if known != largest => {
                wrong.push(format!("{name}: its largest circle has {largest} modules, {known} in LARGER"));
            }
            _ => {}
        }
    }
    assert!(modules > 200, "only {modules} modules were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(larger.is_empty(), "LARGER has crates that do not exist: {larger:?}");
}

#[test]
fn dependency_cycles_are_detected() {
    let text = "use crate::{a::{x, y}, b};\n// crate::no\nfn f() { crate::c::g() }\n#[cfg(test)]\nmod tests { use crate::d; }";
    assert_eq!(named(text), ["a", "b", "c"].map(str::to_owned).into());
    let edges = |pairs: &[(&str, &[&str])]| -> BTreeMap<String, BTreeSet<String>> {
        pairs
            .iter()
            .map(|(from, to)| ((*from).to_owned(), to.iter().map(|t| (*t).to_owned()).collect()))
            .collect()
    };
    let found = circles(&edges(&[("a", &["b"]), ("b", &["c", "d"]), ("c", &["a"]), ("d", &[])]));
    assert_eq!(found, BTreeSet::from([["a", "b", "c"].map(str::to_owned).into()]));
}
