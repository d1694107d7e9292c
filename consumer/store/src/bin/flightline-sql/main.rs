//! `flightline-sql`: the program behind `flightline sql`, `flightline store` and `flightline flame --store`.
//! It is separate from `flightline` because the SQL engine is larger than the rest of Flightline.

#![forbid(unsafe_code)]

mod add;
mod answer;
mod args;
mod choice;
mod difference;
mod flame;
mod info;
mod live;
mod maintain;
mod output;
mod share;
mod top;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

use args::{Cli, Command};
use flightline_store::storage::while_files_change;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the output has closed it.
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", error_text(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.context("cannot start threads")?;
    runtime.block_on(async {
        match command {
            Command::Add(args) => add::run(args).await,
            Command::Maintain(args) => maintain::run(args).await,
            Command::Sql(args) => answer::run(args).await,
            Command::Flame(args) => while_files_change(|| flame::run(args)).await,
            Command::Diff(args) => while_files_change(|| difference::run(args)).await,
            Command::Top(args) => while_files_change(|| top::run(args)).await,
            Command::Share(args) => while_files_change(|| share::run(args)).await,
            Command::Info(args) => while_files_change(|| info::run(args)).await,
        }
    })
}

/// Formats an error and its causes on one line, without repetition.
fn error_text(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |text, cause| {
        let cause = cause.to_string();
        match text.contains(&cause) {
            _ if text.is_empty() => cause,
            true => text,
            false => format!("{text}: {cause}"),
        }
    })
}
