//! Options for writing streams.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use flightline_recorder::{
    Error,
    sink::stream::{Options, QUEUES, Token},
    units::bytes,
};

use crate::help;

/// How a stream is written.
#[derive(Debug, Args)]
pub struct StreamArgs {
    /// Size of the pipe or of the socket's send buffer, such as 1m [default: the kernel's]
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = help::STREAM)]
    pipe_size: Option<u64>,
    /// Maximum bytes queued for a reader; all readers together have at most four times that
    #[arg(long, value_name = "BYTES", default_value = "8m", value_parser = bytes, help_heading = help::STREAM)]
    queue_size: u64,
    /// For tcp: file with the token that clients must send as their first line [default: the variable
    /// FLIGHTLINE_TOKEN]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = help::STREAM)]
    token_file: Option<PathBuf>,
    /// For tcp: allow an address that other machines can reach; the stream is not encrypted
    #[arg(long, help_heading = help::STREAM)]
    listen_anywhere: bool,
}

impl StreamArgs {
    /// Returns the recorder's options.
    pub fn options(&self) -> Result<Options, Error> {
        let wrong = |name, problem: String| Error::Setting { name, problem };
        let queue_bytes = usize::try_from(self.queue_size).unwrap_or(usize::MAX);
        if !(QUEUES[0]..=QUEUES[1]).contains(&queue_bytes) {
            return Err(wrong("queue-size", format!("{queue_bytes} is not between 256k and 1g")));
        }
        let pipe_bytes = self.pipe_size.map(|size| usize::try_from(size).unwrap_or(usize::MAX));
        if pipe_bytes.is_some_and(|size| !(4096..=1 << 30).contains(&size)) {
            return Err(wrong("pipe-size", "not between 4k and 1g".into()));
        }
        let token = Token::find(self.token_file.as_deref())?;
        Ok(Options { queue_bytes, pipe_bytes, token, anywhere: self.listen_anywhere })
    }
}
