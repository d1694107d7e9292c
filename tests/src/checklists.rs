//! Checklists of what programs of our kind must show, and what shows each point here.
//!
//! `docs/checklists/NAME.tsv` is written by hand. It has a line for each section (`#`, number, title) and for
//! each point, in the checklist's order. A point has four cells: its number, a checksum of its words
//! ([`points`]), the requirement in our words, and the evidence (as [`crate::shown`] reads it). `= store` in
//! the last cell refers to the row with the same number in `docs/checklists/requirements/store.md`; text after
//! `; ` is added to it.
//!
//! `docs/checklists/NAME.md` and `README.md` are generated.

pub mod points;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use crate::shown::{moved, root, shown};

/// The folder of the checklists and their pages.
pub const FOLDER: &str = "docs/checklists";

/// The checklists: file and topic.
pub const LISTS: [(&str, &str); 7] = [
    ("pictures", "Flame graphs and what belongs to them"),
    ("off-cpu", "Off-CPU time, wake-ups, chains"),
    ("spans", "Spans"),
    ("service", "Profiling as a service"),
    ("store", "The store"),
    ("exporters", "What other systems take"),
    ("pipe-consumers", "Readers of streams"),
];

/// One point.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    /// Its section and number.
    pub key: String,
    /// The section's title.
    pub section: String,
    /// The checksum of the point's words in the checklist.
    pub sum: String,
    /// The requirement, in our words.
    pub asked: String,
    /// The evidence, as printed on the page.
    pub shown: String,
}

/// The kind of evidence for a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// By at least one test.
    Test,
    /// By a script, or by measured figures.
    File,
    /// Met in another way, with evidence.
    Otherwise,
    /// Not met, or met in part; the cell names the available part.
    Missed,
    /// The point is about other tools or machines; our counterpart is named.
    Theirs,
    /// Only a reason, without evidence.
    Reason,
}

/// The prefixes of the last cell that select another [`By`] than tests and files.
const BEGINNINGS: [(&str, By); 5] = [
    ("otherwise: ", By::Otherwise),
    ("missed: ", By::Missed),
    ("in part: ", By::Missed),
    ("theirs: ", By::Theirs),
    ("no test: ", By::Reason),
];

impl Row {
    /// The kind of evidence, and the errors in it.
    #[must_use]
    pub fn by(&self) -> (By, Vec<String>) {
        let found = shown(&self.shown, &root().join(FOLDER));
        let mut wrong: Vec<String> = found.missing.iter().map(|what| format!("there is no {what}")).collect();
        let begins = BEGINNINGS.iter().find(|(beginning, _)| self.shown.starts_with(beginning));
        let named = found.tests + found.files > 0;
        let by = match begins.map(|(_, by)| *by) {
            None if found.tests > 0 => By::Test,
            None if named => By::File,
            None => {
                wrong.push("neither a test, nor a file, nor a reason (\"no test: …\")".into());
                By::Reason
            }
            Some(By::Reason) => {
                wrong.extend((found.tests > 0).then(|| "says that there is no test, and names one".into()));
                wrong.extend((self.shown.len() < 70).then(|| "gives no reason".into()));
                By::Reason
            }
            Some(by) => {
                wrong.extend((!named).then(|| "names nothing that is there".into()));
                by
            }
        };
        (by, wrong)
    }
}

fn read(path: &str) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the points of a list. References to requirement documents are replaced by the text there.
///
/// # Panics
/// When a line is none.
#[must_use]
pub fn rows(name: &str) -> Vec<Row> {
    let mut elsewhere = Elsewhere::default();
    let mut section = String::new();
    let mut row = |line: &str| {
        if let Some(title) = line.strip_prefix("#\t") {
            section = title.replace('\t', ": ");
            return None;
        }
        let cells: Vec<&str> = line.split('\t').collect();
        let &[key, sum, asked, shown] = cells.as_slice() else {
            panic!("{name}: {line:?} has not four cells")
        };
        let shown = elsewhere.fill(key, shown);
        Some(Row { key: key.into(), section: section.clone(), sum: sum.into(), asked: asked.into(), shown })
    };
    read(&format!("{FOLDER}/{name}.tsv")).lines().filter_map(&mut row).collect()
}

/// The evidence in requirement documents, by number.
#[derive(Default)]
struct Elsewhere(BTreeMap<String, BTreeMap<String, String>>);

impl Elsewhere {
    /// Resolves `in part: = store; more` to the text of the store's document for this point.
    fn fill(&mut self, key: &str, shown: &str) -> String {
        let at = shown.find("= ").filter(|&at| at == 0 || shown[..at].ends_with(": "));
        let Some(at) = at else { return shown.to_owned() };
        let (list, more) = shown[at + 2..].split_once("; ").unwrap_or((&shown[at + 2..], ""));
        let rows = self.0.entry(list.to_owned()).or_insert_with(|| told_by(list));
        let number = key.rsplit(' ').next().unwrap_or_default();
        let told =
            rows.get(number).unwrap_or_else(|| panic!("requirements/{list}.md has no evidence for {number}"));
        let between = if more.is_empty() { "" } else { "; " };
        format!("{}{told}{between}{more}", &shown[..at])
    }
}

/// Reads the evidence in `docs/checklists/requirements/LIST.md`, by number.
fn told_by(list: &str) -> BTreeMap<String, String> {
    let file = format!("{FOLDER}/requirements/{list}.md");
    let mut told: BTreeMap<String, String> = BTreeMap::new();
    for line in read(&file).lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let (Some(numbers), Some(by)) = (cells.first(), cells.last()) else { continue };
        for number in numbers_of(numbers) {
            let text = told.entry(number).or_default();
            text.push_str(if text.is_empty() { "" } else { "; " });
            text.push_str(&moved(by, &file, FOLDER));
        }
    }
    told
}

/// `C2, C3` are two points, `D1–D4` four.
fn numbers_of(cell: &str) -> Vec<String> {
    let one = |part: &str| -> Vec<String> {
        let Some((first, last)) = part.split_once('–') else { return vec![part.to_owned()] };
        let letters = first.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = |word: &str| word.trim_start_matches(letters).parse::<u32>().ok();
        match (number(first), number(last)) {
            (Some(from), Some(to)) => (from..=to).map(|number| format!("{letters}{number}")).collect(),
            _ => vec![part.to_owned()],
        }
    };
    cell.split(", ").flat_map(one).collect()
}

/// Counts the points of a list by kind of evidence, in the order of [`By`].
#[must_use]
pub fn counts(rows: &[Row]) -> [usize; 6] {
    let mut counts = [0; 6];
    rows.iter().for_each(|row| counts[row.by().0 as usize] += 1);
    counts
}

/// The page of a list.
#[must_use]
pub fn page(name: &str, title: &str, rows: &[Row]) -> String {
    let [tests, files, otherwise, missed, theirs, reasons] = counts(rows);
    let mut page = format!(
        "# {title}: requirements and evidence\n\n\
         `tests/tests/checklists.rs` generates this page from [{name}.tsv]({name}.tsv); the [introduction](README.md) explains it. {} requirements: \
         {tests} have tests, {files} have\nonly scripts and figures, {otherwise} are solved in another way, {missed} are missing or met in part, {theirs} \
         describe other tools, {reasons} have only a reason.\n",
        rows.len()
    );
    let mut section = "";
    for row in rows {
        let (of, number) = row.key.split_once(' ').unwrap_or(("", &row.key));
        if of != section {
            _ = write!(page, "\n## {}\n\n| # | point | shown by |\n|---|---|---|\n", row.section);
            section = of;
        }
        _ = writeln!(page, "| {number} | {} | {} |", row.asked, row.shown);
    }
    page
}

/// The page of all lists.
#[must_use]
pub fn index(lists: &[(&str, &str, Vec<Row>)]) -> String {
    let mut page = String::from(INTRODUCTION);
    let mut all = [0; 7];
    for (name, title, rows) in lists {
        let line: Vec<usize> = std::iter::once(rows.len()).chain(counts(rows)).collect();
        all.iter_mut().zip(&line).for_each(|(sum, number)| *sum += number);
        _ = writeln!(page, "| [{title}]({name}.md) | {} |", cells(&line));
    }
    _ = writeln!(page, "| **together** | {} |", cells(&all));
    for (by, heading) in [
        (By::Missed, "Missed, or met in part"),
        (By::Otherwise, "Otherwise here"),
        (By::File, "By scripts and figures alone"),
        (By::Reason, "By a reason alone"),
    ] {
        let mut rows = lists
            .iter()
            .flat_map(|(name, _, rows)| rows.iter().map(move |row| (name, row)))
            .filter(|(_, row)| row.by().0 == by)
            .peekable();
        if rows.peek().is_some() {
            _ = write!(page, "\n## {heading}\n\n| | point | |\n|---|---|---|\n");
        }
        for (name, row) in rows {
            _ = writeln!(page, "| [{name}]({name}.md) {} | {} | {} |", row.key, row.asked, row.shown);
        }
    }
    page
}

fn cells(numbers: &[usize]) -> String {
    numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(" | ")
}

const INTRODUCTION: &str = "# Checklists\n\n\
    The checklists collect the requirements for recorders, flame graphs, services and stores. They come from articles, from the sources of\n\
    other tools, from complaints of their users, and from measurements of the best tools. Each row of a table, each numbered item and each\n\
    sentence of a checklist is one row here. A row has a summary of the requirement, and names the evidence.\n\n\
    The test `tests/tests/checklists.rs` generates these pages from the `.tsv` files in this folder. It fails if a page is out of date, if a named\n\
    test does not exist or is not run, if a script or document does not exist, or if a row has neither evidence nor a reason. If the original\n\
    checklists are available (`FLIGHTLINE_CHECKLISTS`, or the folder `../shared/checklists`), the test also checks by number and wording\n\
    that no requirement is missing. The originals are not part of this repository; without them the test prints that it did not compare.\n\n\
    `file::function` is a test in Rust, which `cargo test` runs. `file` with words in quotes is a test in a browser, which\n\
    `tests/browser/run.sh` runs. A word before them states the degree: *otherwise*: solved in another way; *missed*, *in part*; *theirs*: the\n\
    requirement describes other tools or machines. Such a row has our figures, and a test of their cause instead of their value, because no\n\
    test depends on a clock. Without such a word, the tests show the whole requirement. A number after a dot counts requirements that have no number.\n\n\
    To change a row, edit the `.tsv` file, then run `FLIGHTLINE_WRITE_CHECKLISTS=1 cargo test -p flightline-tests --test all checklists::`. A row\n\
    whose last cell is `= NAME` has its evidence in `requirements/NAME.md`: [pictures](requirements/picture.md), [off-CPU](requirements/off-cpu.md),\n\
    [service](requirements/service.md), [store](requirements/store.md), [streams](requirements/stream.md).\n\n\
    | list | requirements | with tests | only scripts and figures | solved in another way | missing or in part | describe other tools | only a reason |\n\
    |---|---|---|---|---|---|---|---|\n";

/// Returns the folder of the original checklists, if it is available.
///
/// # Panics
///
/// If it was named and does not exist.
#[must_use]
pub fn originals() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("FLIGHTLINE_CHECKLISTS") {
        let folder = PathBuf::from(named);
        assert!(folder.is_dir(), "FLIGHTLINE_CHECKLISTS is {}, which is no folder", folder.display());
        return Some(folder);
    }
    Some(root().join("../shared/checklists")).filter(|folder| folder.is_dir())
}
