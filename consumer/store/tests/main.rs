//! The store's tests, in one executable.

mod command;
mod engines;
mod kit;
mod maintain;
mod query;
mod write;

/// The command line of `flightline-sql`, with its own tests.
#[path = "../src/bin/flightline-sql/args.rs"]
#[allow(dead_code)]
mod args;
