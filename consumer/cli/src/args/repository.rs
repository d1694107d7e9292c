//! Options for a rolling repository.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use flightline_recorder::Error;
use flightline_recorder::repository::{self, Repository};
use flightline_recorder::settings::units::{bytes, duration};

use crate::args::help;

/// A rolling repository instead of a file.
#[derive(Debug, Args)]
pub struct RepositoryArgs {
    /// Record to this folder and remove old data: one folder per process, one file per chunk. `jfr`, JDK
    /// Mission Control and EventStream.openRepository can read it. `%u` is replaced by the user id
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "output", help_heading = help::REPOSITORY)]
    repository: Option<PathBuf>,
    /// Remove chunks older than this, such as 24h or 7d
    #[arg(long, value_name = "TIME", requires = "repository", value_parser = duration, help_heading = help::REPOSITORY)]
    max_age: Option<Duration>,
    /// Limit the disk space of all recordings in the repository, such as 500m or 1g; the oldest chunks are
    /// removed
    #[arg(long, value_name = "BYTES", requires = "repository", value_parser = bytes, help_heading = help::REPOSITORY)]
    max_size: Option<u64>,
    /// Close a chunk at this age [default: 15m, at most an eighth of --max-age]
    #[arg(long, value_name = "TIME", requires = "repository", value_parser = duration, help_heading = help::REPOSITORY)]
    chunk_age: Option<Duration>,
    /// Close a chunk at this size [default: 12m, at most an eighth of --max-size]
    #[arg(long, value_name = "BYTES", requires = "repository", value_parser = bytes, help_heading = help::REPOSITORY)]
    chunk_size: Option<u64>,
}

impl RepositoryArgs {
    /// Returns the repository, if one was requested.
    pub fn repository(&self) -> Result<Option<Repository>, Error> {
        let Some(root) = &self.repository else { return Ok(None) };
        // The recorder may have a different working directory.
        let root = repository::expand_user(root);
        let root = std::path::absolute(&root).map_err(|e| Error::io("find", &root, e))?;
        let new = Repository::new(root);
        let repository = Repository {
            max_age: self.max_age,
            max_size: self.max_size,
            chunk_age: self.chunk_age.unwrap_or(new.chunk_age),
            chunk_bytes: self.chunk_size.unwrap_or(new.chunk_bytes),
            ..new
        };
        repository.check()?;
        Ok(Some(repository))
    }
}
