//! The layout of `--help`: common options first, then sections with these headings.

use clap::{Arg, Command};

/// Options that choose events and what is recorded of them.
pub const EVENTS: &str = "Event options";
/// Options that choose processes and threads.
pub const TARGETS: &str = "Target options";
/// Options that choose samples.
pub const FILTERS: &str = "Filter options";
/// Options that change how stacks and frames are shown.
pub const FRAMES: &str = "Frame options";
/// Options for the content of output files.
pub const OUTPUT: &str = "Output options";
/// Options for a rolling recording.
pub const REPOSITORY: &str = "Repository options";
/// Options that start and stop a recording.
pub const SCHEDULE: &str = "Schedule options";
/// Options for copies that a recorder makes automatically.
pub const COPIES: &str = "Automatic copies";
/// Options for writing a stream.
pub const STREAM: &str = "Stream options";
/// Options for SVG images.
pub const IMAGES: &str = "Image options";
/// Options for spans that are inferred from samples.
pub const INFERRED: &str = "Inferred spans";
/// Options for sending to other systems.
#[cfg(feature = "export")]
pub const SENDING: &str = "Send options";
/// Options for forwarding to other systems.
#[cfg(feature = "service")]
pub const FORWARDING: &str = "Forward options";
/// Options for connections: encryption and tokens.
#[cfg(feature = "service")]
pub const SECURITY: &str = "Security options";
/// Options that limit memory, disk space and numbers.
pub const LIMITS: &str = "Limits";
/// Options that scale and interpret a comparison.
pub const COMPARISON: &str = "Comparison options";
/// Options for speed.
pub const PERFORMANCE: &str = "Performance options";
/// Options that few people need.
pub const ADVANCED: &str = "Advanced options";

/// The help with the text before the options, such as examples, below the usage.
pub const EXAMPLES_FIRST: &str =
    "{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}{all-args}{after-help}";

/// Number of examples on the first screen.
const FIRST_EXAMPLES: usize = 3;

/// Puts the first examples of a command before its options, and arranges its options. The command's definition has
/// all examples and notes as the text after the options.
pub fn lay_out(command: Command) -> Command {
    let Some(text) = command.get_after_help().map(ToString::to_string) else { return command };
    if command.get_before_help().is_some() {
        return command;
    }
    let (first, details) = split_examples(&text);
    let name = command.get_name().to_owned();
    let command = command.before_help(first).after_help(details).help_template(EXAMPLES_FIRST);
    command.mut_args(|arg| arrange(&name, arg))
}

/// Splits a text that begins with `Examples:` into its first examples, and the others with all that follows.
fn split_examples(text: &str) -> (String, String) {
    let (examples, notes) = text.split_once("\n\n").unwrap_or((text, ""));
    let is_example = |line: &str| line.starts_with("  ") && !line.starts_with("   ");
    let mut examples_seen = 0;
    let (mut first, mut more) = (Vec::new(), Vec::new());
    for line in examples.lines() {
        examples_seen += usize::from(is_example(line));
        if examples_seen <= FIRST_EXAMPLES { first.push(line) } else { more.push(line) }
    }
    let more = if more.is_empty() { String::new() } else { format!("More examples:\n{}", more.join("\n")) };
    let details: Vec<&str> = [more.as_str(), notes].into_iter().filter(|part| !part.is_empty()).collect();
    (first.join("\n"), details.join("\n\n"))
}

/// The help of some commands: the options of its first screen in order, and the sections of others.
struct Layout {
    commands: &'static [&'static str],
    common: &'static [&'static str],
    sections: &'static [(&'static str, &'static [&'static str])],
}

/// Options by the ids of clap. Options that are not listed stay where their definition puts them.
const LAYOUTS: [Layout; 12] = [
    Layout {
        commands: &["flame"],
        common: &[
            "output", "events", "total", "measure", "threads", "include", "exclude", "from", "to", "reverse",
        ],
        sections: &[
            (EVENTS, &["count", "cpi"]),
            (OUTPUT, &["format", "flame_chart", "no_time"]),
            (FILTERS, &["last"]),
            (PERFORMANCE, &["jobs"]),
        ],
    },
    Layout {
        commands: &["fold"],
        common: &[
            "output", "events", "total", "threads", "include", "exclude", "from", "to", "last", "reverse",
        ],
        sections: &[(PERFORMANCE, &["jobs"])],
    },
    Layout {
        commands: &["convert"],
        common: &[
            "output", "format", "events", "total", "threads", "include", "exclude", "from", "to", "last",
        ],
        sections: &[(PERFORMANCE, &["jobs"])],
    },
    Layout {
        commands: &["diff"],
        common: &[
            "output",
            "events",
            "total",
            "include",
            "exclude",
            "by",
            "per",
            "fail_total",
            "limit",
            "json",
        ],
        sections: &[
            (FILTERS, &["from", "to", "last"]),
            (COMPARISON, &["no_normalize", "sigma"]),
            (OUTPUT, &["format"]),
            (IMAGES, &["widths_before", "color_blind"]),
            (PERFORMANCE, &["jobs"]),
        ],
    },
    Layout {
        commands: &["annotate"],
        common: &[
            "events",
            "asm",
            "source_path",
            "debug_dir",
            "file",
            "include",
            "exclude",
            "from",
            "to",
            "json",
        ],
        sections: &[(EVENTS, &["total"]), (FILTERS, &["last"]), (PERFORMANCE, &["jobs"])],
    },
    Layout {
        commands: &["offcpu", "wakeup", "offwake", "chain", "threadtime"],
        common: &[
            "output",
            "state",
            "least",
            "threads",
            "by",
            "include",
            "exclude",
            "from",
            "to",
            "hide_idle",
        ],
        sections: &[
            (FILTERS, &["last", "most", "run_queue", "open"]),
            (OUTPUT, &["format", "count", "per_thread", "ns"]),
            (FRAMES, &["depth"]),
            (PERFORMANCE, &["jobs"]),
        ],
    },
    Layout { commands: &["slower"], common: &[], sections: &[(FILTERS, &["from", "to", "last"])] },
    Layout {
        commands: &["print"],
        common: &[
            "events",
            "categories",
            "json",
            "csv",
            "stack_depth",
            "from",
            "to",
            "last",
            "follow",
            "output",
        ],
        sections: &[(OUTPUT, &["ndjson", "compact", "exact"]), (ADVANCED, &["every", "jobs"])],
    },
    Layout { commands: &["tail"], common: &[], sections: &[(ADVANCED, &["every"])] },
    Layout {
        commands: &["view"],
        common: &[],
        sections: &[(OUTPUT, &["truncate", "cell_height", "width"]), (ADVANCED, &["jobs"])],
    },
    Layout {
        commands: &["export"],
        common: &[
            "output",
            "format",
            "send",
            "events",
            "attributes",
            "include",
            "exclude",
            "from",
            "to",
            "last",
        ],
        sections: &[(ADVANCED, &["timeout", "patience", "queue_size", "no_gzip"])],
    },
    Layout {
        commands: &["spans"],
        common: &["by", "trace", "slowest", "spans", "labels", "inferred", "output", "limit", "json", "last"],
        sections: &[(EVENTS, &["events", "total"]), (FILTERS, &["from", "to"]), (PERFORMANCE, &["jobs"])],
    },
];

/// Puts an option of `command` into its section of the help.
fn arrange(command: &str, arg: Arg) -> Arg {
    let Some(layout) = LAYOUTS.iter().find(|layout| layout.commands.contains(&command)) else { return arg };
    let id = arg.get_id().as_str();
    if let Some(place) = layout.common.iter().position(|common| *common == id) {
        return arg.help_heading(None).display_order(place + 1);
    }
    match layout.sections.iter().find(|(_, ids)| ids.contains(&id)) {
        Some((heading, _)) => arg.help_heading(*heading),
        None => arg,
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

    use super::{LAYOUTS, split_examples};

    use crate::command::Cli;

    /// The first screen of `record --help` has the usage, examples and the common options.
    #[test]
    fn record_help_starts_with_common_options() {
        let mut command = Cli::command();
        command.build();
        let help = command.find_subcommand_mut("record").unwrap().render_help().to_string();
        let screen: String = help.lines().take(40).collect::<Vec<_>>().join("\n");
        assert!(screen.find("Examples:") < screen.find("Options:"), "{help}");
        for option in ["--output", "--flame", "--pid", "--duration", "--event", "--off-cpu", "--rate"] {
            assert!(
                screen.contains(&format!("{option} ")) || screen.contains(&format!("{option}[")),
                "{option}"
            );
        }
        let headings: Vec<&str> = help.lines().filter(|line| line.ends_with("ptions:")).collect();
        assert_eq!(headings.first(), Some(&"Options:"));
        assert_eq!(headings.last(), Some(&"Advanced options:"));
    }

    /// Every command starts with at most three examples, then at most 14 options without a heading.
    #[test]
    fn every_help_starts_with_examples_and_few_options() {
        let mut cli = Cli::command();
        cli.build();
        for command in cli.get_subcommands_mut().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
            let help = command.render_help().to_string();
            let name = command.get_name();
            let before = |text: &str| help.find("Examples:") < help.find(text);
            assert!(
                help.contains("\nExamples:\n") && (before("\nOptions:") || ["sql", "store"].contains(&name)),
                "{name}: {help}"
            );
            let headings: Vec<&str> = help.lines().filter(|line| line.ends_with(" options:")).collect();
            let advanced = headings.iter().position(|heading| *heading == "Advanced options:");
            assert!(advanced.is_none_or(|at| at + 1 == headings.len()), "{name}: {headings:?}");
            let screen = help.lines().take_while(|line| !line.ends_with("ptions:"));
            let wide: Vec<&str> = screen.filter(|line| line.chars().count() > 100).collect();
            assert!(wide.is_empty(), "{name}: {wide:?}");
            assert!(plain_options(command) <= 14, "{name} has {} common options", plain_options(command));
        }
    }

    /// A layout names only options that exist.
    #[test]
    fn layouts_name_existing_options() {
        let cli = Cli::command();
        for layout in LAYOUTS {
            for command in layout.commands.iter().filter_map(|name| cli.find_subcommand(name)) {
                let ids: Vec<&str> = command.get_arguments().map(|arg| arg.get_id().as_str()).collect();
                for id in layout.common.iter().chain(layout.sections.iter().flat_map(|(_, ids)| *ids)) {
                    assert!(ids.contains(id), "{} has no {id}: {ids:?}", command.get_name());
                }
            }
        }
    }

    #[test]
    fn continuation_lines_belong_to_their_example() {
        let text = "Examples:\n  a\n      of a\n  b\n  c\n  d\n\nA note.";
        let (first, details) = split_examples(text);
        assert_eq!(first, "Examples:\n  a\n      of a\n  b\n  c");
        assert_eq!(details, "More examples:\n  d\n\nA note.");
        assert_eq!(split_examples("Examples:\n  a").1, "");
    }

    fn plain_options(command: &Command) -> usize {
        let plain =
            |arg: &&clap::Arg| !arg.is_positional() && !arg.is_hide_set() && arg.get_help_heading().is_none();
        command.get_arguments().filter(plain).count()
    }
}
