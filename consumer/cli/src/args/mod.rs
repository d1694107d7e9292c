//! Arguments that several commands share, one file per concern. No module here depends on a command.

pub mod appearance;
pub mod attach;
pub mod dump_policy;
pub mod help;
pub mod off_cpu_recording;
pub mod redact;
pub mod repository;
pub mod sampling;
pub mod schedule;
pub mod selection;
pub mod stream;
pub mod symbol_files;
pub mod time_range;
pub mod usage;
pub mod values;
