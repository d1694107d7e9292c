//! All tests of what is sent and written, in one executable.

mod fluentd;
mod messages;
mod sending;
