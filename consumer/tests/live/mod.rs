//! Streams read live: what comes, in which ways, and what is told when they are damaged.

mod damage;
mod fixtures;
mod make;
mod reading;
mod spans;
mod transports;
