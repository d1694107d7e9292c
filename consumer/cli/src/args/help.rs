//! The layout of `--help`: common options first, then sections with these headings.

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
/// Options that few people need.
pub const ADVANCED: &str = "Advanced options";

/// The help with the text before the options, such as examples, below the usage.
pub const EXAMPLES_FIRST: &str =
    "{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}{all-args}{after-help}";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

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
}
