//! The effects of the recorder on the recorded program, and its behaviour when something dies or stops.

mod bounded;
mod budget;
mod crash_steps;
mod crashes;
mod fatal;
mod guests;
mod in_handler;
mod kills;
mod safety;
mod stall;
mod stress;
mod suites;
mod thrift;
