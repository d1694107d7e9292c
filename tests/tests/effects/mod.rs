//! The effects of the recorder on the recorded program, its limits of memory and cost, and
//! its behaviour when a process dies or a reader stops.

mod bounded;
mod budget;
mod crash_steps;
mod crashes;
mod errors_of_other_recorders;
mod fatal;
mod guests;
mod in_handler;
mod kills;
mod safety;
mod stall;
mod stress;
mod suites;
mod thrift;
