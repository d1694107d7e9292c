//! What goes to stderr: errors, warnings, progress.

use std::fmt::Display;
use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use flightline_consumer::amount::{amount, bytes};
use flightline_consumer::warnings::Warnings;
use indicatif::{ProgressBar, ProgressStyle};

use crate::Outcome;

/// Warnings told in full; the rest is counted.
const TOLD: usize = 10;
/// Shorter inputs are read before a bar could be seen.
const WORTH_A_BAR: u64 = 32 << 20;

fn coloured() -> bool {
    stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

fn word(word: &str, colour: u8) -> String {
    if coloured() { format!("\x1b[1;{colour}m{word}:\x1b[0m") } else { format!("{word}:") }
}

/// Tells an error with its causes in one line.
pub fn error(error: &anyhow::Error) {
    let mut text = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        // Errors that show their cause themselves need no second telling.
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    eprintln!("{} {text}", word("error", 31));
}

/// Tells something a person should know.
pub fn warning(text: impl Display) {
    eprintln!("{} {text}", word("warning", 33));
}

/// Says something on standard error that is no complaint.
pub fn note(text: impl Display) {
    eprintln!("flightline: {text}");
}

/// Tells what of `path` could not be read.
pub fn warnings(path: &Path, warnings: &Warnings) -> Outcome {
    for warning in warnings.kept().iter().take(TOLD) {
        self::warning(format_args!("{}: {warning}", shown(path)));
    }
    let more = warnings.len().saturating_sub(TOLD as u64);
    if more > 0 {
        self::warning(format_args!("{}: and {more} more", shown(path)));
    }
    if warnings.damage() { Outcome::Partial } else { Outcome::Whole }
}

/// The name of an input for people.
pub fn shown(path: &Path) -> String {
    if path.as_os_str() == "-" { "standard input".into() } else { path.display().to_string() }
}

/// The name of an output for people.
pub fn shown_output(path: &Path) -> String {
    if path.as_os_str() == "-" { "standard output".into() } else { path.display().to_string() }
}

/// The names of inputs for people.
pub fn all_shown(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| shown(path)).collect::<Vec<_>>().join(", ")
}

/// The names of inputs without their folders, for titles.
pub fn file_names(paths: &[PathBuf]) -> String {
    let name = |path: &PathBuf| path.file_name().map_or_else(|| shown(path), |name| shown(Path::new(name)));
    paths.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// A bar on a terminal, nothing elsewhere.
pub struct Progress(Option<ProgressBar>);

impl Progress {
    /// For an input of `size` bytes, if known.
    pub fn new(size: Option<u64>) -> Self {
        let worth_it = stderr().is_terminal() && size.is_none_or(|size| size >= WORTH_A_BAR);
        let bar = worth_it.then(|| match size {
            Some(size) => {
                let style = ProgressStyle::with_template("{bytes}/{total_bytes} [{wide_bar}] {eta}");
                let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
                ProgressBar::new(size).with_style(style)
            }
            None => {
                let style = ProgressStyle::with_template("{spinner} {bytes} read, {elapsed}");
                let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
                let bar = ProgressBar::new_spinner().with_style(style);
                bar.enable_steady_tick(Duration::from_millis(200));
                bar
            }
        });
        Self(bar)
    }

    /// For something that takes so many seconds.
    #[cfg(feature = "service")]
    pub fn of_seconds(seconds: u64) -> Self {
        let style = ProgressStyle::with_template("{pos}/{len} s [{wide_bar}]");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        Self(stderr().is_terminal().then(|| ProgressBar::new(seconds).with_style(style)))
    }

    /// Nothing any more.
    pub fn none() -> Self {
        Self(None)
    }

    /// So much has been dealt with.
    pub fn at(&self, done: u64) {
        if let Some(bar) = &self.0 {
            bar.set_position(done);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// Names are whatever a program or a recording says: nothing in them that a terminal would obey.
pub fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
