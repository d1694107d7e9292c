//! The tests that can share a process; the others (see `Cargo.toml`) each change their whole process.

mod fake_program;
mod fan;
mod frames_oracle;
mod hostile_programs;
mod oracle;
mod remembered;
mod walk_oracle;
