//! The README's commands work, and examples in documents use existing options.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use flightline_tests::documents::{links, root};
use flightline_tests::examples::{self, Document};
use flightline_tests::run::{beside, run};
use flightline_tests::{skip, victim};

use super::house;

const README: &str = include_str!("../../../README.md");

fn command_line(beginning: &str) -> &'static str {
    README
        .lines()
        .find(|l| l.starts_with(beginning))
        .unwrap_or_else(|| panic!("README has no command {beginning:?}"))
}

/// The first command, without its build: a recording of a real program, drawn.
#[test]
fn first_readme_command_works() {
    let _place = beside();
    if !skip::have("perl") {
        return skip::skip("no perl here: the README's first command");
    }
    let line = command_line("cargo build --release && target/release/flightline record ");
    let (_, tail) = line.split_once("&& target/release/flightline ").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut shell = Command::new("sh");
    let script = format!("\"$FLIGHTLINE\" {tail}");
    shell.args(["-c", &script]).env("FLIGHTLINE", victim::flightline()).current_dir(folder.path());
    let finished = run(&mut shell, Duration::from_secs(120)).expect_success("the README's first command");
    assert!(finished.stderr.contains("samples"), "{}", finished.stderr);
    let page = std::fs::read_to_string(folder.path().join("flame.html")).unwrap();
    assert!(page.contains("</html>") && page.len() > 10_000, "{} bytes", page.len());
}

/// Each command and option in the examples of the README and of the documents it links to exists. The README names each
/// command, and the list of commands has an example of each. `consumer/store/tests` checks the calls of `flightline-sql`.
#[test]
fn examples_use_existing_commands_and_options() {
    let _place = beside();
    let all = examples::help(&[], None);
    let (_, commands) = all.split_once("Commands:\n").unwrap();
    let (commands, _) = commands.split_once("\n\n").unwrap();
    let commands = commands.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let commands: BTreeSet<&str> =
        commands.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect();
    assert!(commands.len() > 10, "{all}");
    let not_named: Vec<&&str> = commands
        .iter()
        .filter(|name| {
            !README.contains(&format!("`{name}`")) && !README.contains(&format!("flightline {name} "))
        })
        .collect();
    assert!(not_named.is_empty(), "the README does not name {not_named:?}");

    assert!(
        README.contains("](docs/guide/reference/commands.md)"),
        "the README has no link to the list of commands"
    );
    let list = examples::commands();
    let mut without_example = commands;
    for call in &list.calls {
        without_example.remove(examples::command_of(call));
    }
    assert!(without_example.is_empty(), "no example of {without_example:?}");
    let options = options_of(&list);
    assert!(options > 40, "{options}");

    let options = options_of(&examples::readme());
    assert!(options > 15, "{options}");
    for document in examples::details() {
        options_of(&document);
    }
}

/// Checks the calls of a document, except for those of `flightline-sql`; returns the number of their options.
fn options_of(document: &Document) -> usize {
    let own = document.calls.iter().filter(|call| !examples::needs_sql(call));
    own.map(|call| examples::check(call, None)).sum()
}

/// Each command and option in the documents of real use exists.
#[test]
fn journey_documents_use_existing_commands() {
    let _place = beside();
    let journeys = examples::journeys();
    for document in &journeys {
        assert!(document.calls.len() > 1, "{}", document.path);
    }
    let options: usize = journeys.iter().map(options_of).sum();
    assert!(journeys.len() >= 6 && options > 20, "{} journeys, {options} options", journeys.len());
}

#[test]
fn guide_summary_lists_each_page_once() {
    let pages = house::files().into_iter().filter(|path| house::has_extension(path, &["md"]));
    let pages =
        pages.filter_map(|path| Some(path.strip_prefix("docs/guide").ok()?.to_str().unwrap().to_owned()));
    let pages: Vec<String> = pages.filter(|page| page != "SUMMARY.md").collect();
    let mut listed = examples::guide_pages();
    listed.sort();
    assert_eq!(listed, pages);
}

/// Checks the links of all documents of the repository to files.
#[test]
fn document_links_name_existing_files() {
    let (mut count, mut broken) = (0, Vec::new());
    for document in house::files().into_iter().filter(|path| house::has_extension(path, &["md"])) {
        let folder = document.parent().unwrap();
        let text = house::text(&document);
        for link in links(&text).map(|link| link.split('#').next().unwrap_or_default()) {
            if link.is_empty() || link.contains([':', ' ', '\n']) {
                continue;
            }
            count += 1;
            if !root().join(folder).join(link).exists() {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(count > 300, "{count} links");
    assert!(broken.is_empty(), "{broken:#?}");
}
