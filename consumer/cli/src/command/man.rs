//! `flightline man`: writes manual pages from the same definitions as `--help`. Hidden, since it is for
//! packagers.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::{Outcome, output};

/// Arguments of `man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Folder for the pages: flightline.1 and one for each command
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Writes the manual pages of `command` and of its visible subcommands.
pub fn run(args: &ManArgs, command: Command) -> Result<Outcome> {
    fs::create_dir_all(&args.dir).with_context(|| format!("cannot create {}", args.dir.display()))?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let version = format!("flightline {}", command.get_version().unwrap_or_default());
    pages(&command, &version, &args.dir)?;
    Ok(Outcome::Whole)
}

/// Writes the page of `command` and those of its subcommands.
fn pages(command: &Command, version: &str, dir: &Path) -> Result<()> {
    let man = Man::new(command.clone()).source(version).manual("Flightline");
    output::text(&dir.join(man.get_filename()), |out| sections(command, &man, out))?;
    command.get_subcommands().filter(|c| !c.is_hide_set()).try_for_each(|c| pages(c, version, dir))
}

fn sections(command: &Command, man: &Man, mut out: &mut dyn Write) -> Result<()> {
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    if command.get_arguments().any(|a| !a.is_hide_set()) {
        man.render_options_section(&mut out)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(&mut out)?;
    }
    // The text after the options gets its own sections; clap_mangen would reflow it into one.
    let texts = [command.get_before_help(), command.get_after_help()].into_iter().flatten();
    let parsed = texts.map(ToString::to_string).collect::<Vec<_>>().join("\n");
    let parsed = HelpText::parse(&parsed);
    let mut roff = Roff::new();
    if !parsed.notes.is_empty() {
        roff.control("SH", ["NOTES"]);
        for paragraph in &parsed.notes {
            roff.control("PP", []);
            roff.text([roman(*paragraph)]);
        }
    }
    if let Some(status) = parsed.exit_status {
        roff.control("SH", ["EXIT STATUS"]);
        roff.text([roman(status)]);
    }
    for (heading, lines) in &parsed.lists {
        roff.control("SH", [heading.to_uppercase().as_str()]);
        roff.control("nf", []);
        for line in lines {
            roff.text([roman(*line)]);
        }
        roff.control("fi", []);
    }
    roff.control("SH", ["SEE ALSO"]);
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let above = name.rsplit_once('-').map_or("jfr(1), perf".to_owned(), |(above, _)| above.to_owned());
    roff.text([roman(format!("{above}(1)"))]);
    Ok(roff.to_writer(&mut out)?)
}

/// The text after the options, split into parts.
#[derive(Debug, Default, PartialEq, Eq)]
struct HelpText<'a> {
    /// Indented lines below a heading.
    lists: Vec<(&'a str, Vec<&'a str>)>,
    exit_status: Option<&'a str>,
    notes: Vec<&'a str>,
}

impl<'a> HelpText<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parsed = Self::default();
        for line in text.lines().map(str::trim_end).filter(|l| !l.is_empty()) {
            if line.starts_with(' ') {
                match parsed.lists.last_mut() {
                    Some((_, lines)) => lines.push(line.trim_start()),
                    None => parsed.lists.push(("Examples", vec![line.trim_start()])),
                }
            } else if let Some(heading) = line.strip_suffix(':') {
                // "More examples" continues the examples that the help shows before the options.
                match parsed
                    .lists
                    .iter()
                    .position(|(known, _)| heading == format!("More {}", known.to_lowercase()))
                {
                    Some(known) => {
                        let list = parsed.lists.remove(known);
                        parsed.lists.push(list);
                    }
                    None => parsed.lists.push((heading, Vec::new())),
                }
            } else if let Some(status) = line.strip_prefix("Exit status: ") {
                parsed.exit_status = Some(status);
            } else {
                parsed.notes.push(line);
            }
        }
        parsed.lists.retain(|(_, lines)| !lines.is_empty());
        parsed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_help_is_split_into_lists_notes_and_exit_status() {
        let parsed = HelpText::parse("Examples:\n  a b   c\n  d\n\nA note.\n\nExit status: 0 or 1.");
        assert_eq!(parsed.lists, [("Examples", vec!["a b   c", "d"])]);
        assert_eq!(parsed.exit_status, Some("0 or 1."));
        assert_eq!(parsed.notes, ["A note."]);
        assert_eq!(HelpText::parse("Nothing below:"), HelpText::default());
        let parsed = HelpText::parse("Examples:\n  a\n\nEvents:\n  b\n\nMore examples:\n  c");
        assert_eq!(parsed.lists, [("Events", vec!["b"]), ("Examples", vec!["a", "c"])]);
    }
}
