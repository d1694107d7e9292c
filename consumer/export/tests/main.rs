//! All tests of messages and sending, in one executable.

mod fluentd;
mod messages;
mod sending;
