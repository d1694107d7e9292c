//! Errors about a command that does not exist: names of other tools' commands and of missing files get a
//! hint.

use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Commands of other tools and other common words, with the commands that do the same here.
const OTHERS: &[(&str, &[&str])] = &[
    ("analyse", &["report FILE", "summary FILE", "view FILE"]),
    ("analyze", &["report FILE", "summary FILE", "view FILE"]),
    ("attach", &["record -p PID"]),
    ("check", &["summary FILE", "repair FILE"]),
    ("events", &["view FILE", "metadata FILE"]),
    ("info", &["summary FILE"]),
    ("inspect", &["summary FILE", "view FILE"]),
    ("load", &["flame FILE -o flame.html"]),
    ("profile", &["record -- PROGRAM", "record -p PID"]),
    ("script", &["print FILE", "fold FILE"]),
    ("show", &["summary FILE", "flame FILE -o flame.html"]),
    ("start", &["record -p PID", "ctl -p PID start"]),
    ("stat", &["record -e EVENT -- PROGRAM", "summary FILE"]),
    ("stop", &["ctl -p PID stop"]),
    ("top", &["tail -p PID", "view hot-methods FILE"]),
    ("trace", &["record --trace FUNCTION -- PROGRAM", "record --syscall-io -- PROGRAM"]),
];

/// Prints the error and exits as clap does, with a hint if the command is one of another tool or a file that
/// is missing.
pub fn exit(error: clap::Error) -> ! {
    let word = match (error.kind(), error.get(ContextKind::InvalidSubcommand)) {
        (ErrorKind::InvalidSubcommand, Some(ContextValue::String(word))) => word,
        _ => error.exit(),
    };
    if let Some(hint) = hint(word) {
        eprint!("error: {hint}\n\nFor more information, try '--help'.\n");
        std::process::exit(2);
    }
    error.exit()
}

fn hint(word: &str) -> Option<String> {
    if let Ok(place) = OTHERS.binary_search_by_key(&word, |other| other.0) {
        let same: Vec<String> = OTHERS[place].1.iter().map(|words| format!("`flightline {words}`")).collect();
        return Some(format!("unknown command {word:?}; see {}", same.join(" or ")));
    }
    let is_file = word.contains('/') || Path::new(word).extension().is_some();
    is_file.then(|| format!("{word} is neither an existing file nor a command"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{OTHERS, hint};
    use crate::command::Cli;

    #[test]
    fn hints_name_commands_that_exist() {
        let command = Cli::command();
        assert!(OTHERS.is_sorted_by_key(|other| other.0));
        for (other, same) in OTHERS {
            assert!(command.find_subcommand(other).is_none(), "{other} is a command");
            for words in *same {
                let name = words.split(' ').next().unwrap();
                assert!(command.find_subcommand(name).is_some(), "{words}");
            }
        }
    }

    #[test]
    fn missing_files_are_reported_as_files() {
        assert_eq!(hint("run.jfr").unwrap(), "run.jfr is neither an existing file nor a command");
        assert!(hint("analyze").unwrap().contains("`flightline report FILE`"));
        assert_eq!(hint("flam"), None);
    }
}
