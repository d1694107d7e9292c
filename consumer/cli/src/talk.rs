//! Messages on standard error: errors, warnings, progress.

use std::fmt::Display;
use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use flightline_consumer::amount::{amount, bytes};
use flightline_consumer::warnings::Warnings;
use indicatif::{ProgressBar, ProgressStyle};

use crate::Outcome;

/// Maximum number of warnings printed; the rest is counted.
const TOLD: usize = 10;
/// Smaller inputs are read before a bar becomes visible.
const WORTH_A_BAR: u64 = 32 << 20;

fn coloured() -> bool {
    stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

fn word(word: &str, colour: u8) -> String {
    if coloured() { format!("\x1b[1;{colour}m{word}:\x1b[0m") } else { format!("{word}:") }
}

/// Prints an error and its causes on one line.
pub fn error(error: &anyhow::Error) {
    let mut text = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        // Skip causes that an error already includes.
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    eprintln!("{} {text}", word("error", 31));
}

/// Prints a warning.
pub fn warning(text: impl Display) {
    eprintln!("{} {text}", word("warning", 33));
}

/// Prints a note.
pub fn note(text: impl Display) {
    eprintln!("flightline: {text}");
}

/// Prints warnings about unreadable data in `path`.
pub fn warnings(path: &Path, warnings: &Warnings) -> Outcome {
    for warning in warnings.stored().iter().take(TOLD) {
        self::warning(format_args!("{}: {warning}", shown(path)));
    }
    let more = warnings.len().saturating_sub(TOLD as u64);
    if more > 0 {
        self::warning(format_args!("{}: and {more} more", shown(path)));
    }
    if warnings.damage() { Outcome::Partial } else { Outcome::Whole }
}

/// Returns the name of an input for messages.
pub fn shown(path: &Path) -> String {
    if path.as_os_str() == "-" { "standard input".into() } else { path.display().to_string() }
}

/// Returns the name of an output for messages.
pub fn shown_output(path: &Path) -> String {
    if path.as_os_str() == "-" { "standard output".into() } else { path.display().to_string() }
}

/// Returns the names of inputs for messages.
pub fn all_shown(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| shown(path)).collect::<Vec<_>>().join(", ")
}

/// The names of inputs without their folders, for titles.
pub fn file_names(paths: &[PathBuf]) -> String {
    let name = |path: &PathBuf| path.file_name().map_or_else(|| shown(path), |name| shown(Path::new(name)));
    paths.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// A progress bar on a terminal, otherwise nothing.
pub struct Progress(Option<ProgressBar>);

impl Progress {
    /// Creates a bar for an input of `size` bytes, if known.
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

    /// Creates a bar for an operation of known duration.
    #[cfg(feature = "service")]
    pub fn of_seconds(seconds: u64) -> Self {
        let style = ProgressStyle::with_template("{pos}/{len} s [{wide_bar}]");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        Self(stderr().is_terminal().then(|| ProgressBar::new(seconds).with_style(style)))
    }

    /// Creates no bar.
    pub fn none() -> Self {
        Self(None)
    }

    /// Sets the progress.
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

/// Replaces control characters, since names come from programs and recordings.
pub fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
