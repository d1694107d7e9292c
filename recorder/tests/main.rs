//! The tests that can share a process. The others (see `Cargo.toml`) each change the state of their whole
//! process.

mod broadcast;
mod fake_program;
mod frames_oracle;
mod hostile_programs;
mod oracle;
mod remembered;
mod walk_oracle;
