//! Limits of requests, names and queues.

/// Maximum body size, in bytes, of requests that are not recordings.
pub const SMALL_BODY: usize = 64 << 10;
/// Maximum body size, in bytes, of chunks of a continuous profile.
pub const LARGEST_CHUNKS: usize = 16 << 20;
/// Names, hosts, reasons and messages are truncated to this length.
pub const LONGEST_TEXT: usize = 512;
/// Maximum number of labels of a target or run.
pub const MOST_LABELS: usize = 32;
/// Maximum length of a label's key or value.
pub const LONGEST_LABEL: usize = 256;
/// Maximum number of additional engines of a run.
pub const MOST_ENGINES: usize = 16;
/// Maximum number of targets in a request.
pub const MOST_AT_ONCE: usize = 1024;
/// Maximum number of commands queued for an agent.
pub const MOST_COMMANDS: usize = 64;
