//! Options for writing streams.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use flightline_recorder::{
    Error,
    settings::units::bytes,
    stream::{Options, Token},
};

use crate::args::help;

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
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let options = Options {
            queue_bytes: size(self.queue_size),
            pipe_bytes: self.pipe_size.map(size),
            token: Token::find(self.token_file.as_deref())?,
            anywhere: self.listen_anywhere,
        };
        options.check()?;
        Ok(options)
    }
}
