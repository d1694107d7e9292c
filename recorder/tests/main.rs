//! The tests that can share a process; the others (see `Cargo.toml`) each change their whole process.

mod broadcast;
mod fake_program;
mod frames_oracle;
mod hostile_programs;
mod oracle;
mod remembered;
mod walk_oracle;
