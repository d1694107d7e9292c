//! The `flightline` command.
fn main() {}
